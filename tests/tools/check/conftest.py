"""Runner releases as if they had just been looked up: other findings have nothing to do with the age of that table."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from gpufleet.arc import runner_releases


@pytest.fixture(autouse=True)
def fresh_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the table of releases end in the far future."""
    fresh = dataclasses.replace(runner_releases.known(), looked_up=datetime.date(2099, 1, 1))
    monkeypatch.setattr(runner_releases, "known", lambda: fresh)
