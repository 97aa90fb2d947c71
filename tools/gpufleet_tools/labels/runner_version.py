"""Words for the version of a label's runners."""

from __future__ import annotations

import datetime


def runner_words(version: str | None, no_jobs_from: datetime.date | None) -> str:
    """Return `2.337.0, no jobs from 2026-11-05`."""
    return f"{version or 'unknown'}, no jobs from {no_jobs_from}" if no_jobs_from else version or "unknown"
