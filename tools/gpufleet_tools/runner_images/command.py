"""Commands `gpufleet pins --refresh` and `gpufleet pins --image`."""

from __future__ import annotations

import datetime
import json
import pathlib

from gpufleet.arc import runner_releases
from gpufleet_tools.runner_images import releases
from gpufleet_tools.runner_images.runner_version import runner_version


def refresh(
    root: pathlib.Path, today: datetime.date, seconds: float, releases_url: str | None, registry_url: str | None
) -> list[str]:
    """Update the table of a checkout, and return the changes, one line each. Raises LookupFailed."""
    file = releases.table_of(root)
    table, lines = releases.refreshed(json.loads(file.read_text()), today, seconds, releases_url, registry_url)
    changed = releases.refresh(file, table)
    default = runner_releases.parsed(table).default
    lines.append(f"runner releases looked up on {today}; default image: {default.image}")
    if changed:
        lines.append("the default image has changed; update the generated files: make generate")
    return lines


def image(reference: str, platform: str, seconds: float, today: datetime.date) -> tuple[list[str], bool]:
    """Return lines about an image, and whether GitHub assigns jobs to its runner. Raises LookupFailed."""
    version, digest = runner_version(reference, seconds, platform)
    known = runner_releases.known()
    day = known.no_jobs_from(version)
    if not known.registers(version):
        status = f"GitHub does not register runners older than {known.minimum_to_register}"
    elif day is None:
        status = f"the newest release as of {known.looked_up}"
    else:
        status = f"GitHub assigns it no jobs from {day} on"
    lines = [
        f"{reference} ({digest}) contains runner {version}: {status}",
        f"declare it in the stack file: profiles.PROFILE.runnerVersion: {version}",
    ]
    return lines, known.registers(version) and (day is None or today < day)
