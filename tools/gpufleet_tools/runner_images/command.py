"""What `gpufleet pins --refresh` and `gpufleet pins --image` do and print."""

from __future__ import annotations

import datetime
import json
import pathlib

from gpufleet.arc import runner_releases
from gpufleet_tools.runner_images import layers, releases


def refresh(
    root: pathlib.Path, today: datetime.date, seconds: float, releases_url: str | None, registry_url: str | None
) -> list[str]:
    """Write the table of a checkout anew and return what has changed, one line each. Raises LookupFailed."""
    file = releases.table_of(root)
    table, lines = releases.refreshed(json.loads(file.read_text()), today, seconds, releases_url, registry_url)
    changed = releases.refresh(file, table)
    default = runner_releases.parsed(table).default
    lines.append(f"runner releases are those of {today}; default image: {default.image}")
    if changed:
        lines.append("the default image has changed: write golden plans and tables again with: make generate")
    return lines


def image(reference: str, platform: str, seconds: float, today: datetime.date) -> tuple[list[str], bool]:
    """Return what is to be said of an image, and whether GitHub gives its runner jobs. Raises LookupFailed."""
    version, digest = layers.runner_version(reference, seconds, platform)
    known = runner_releases.known()
    day = known.no_jobs_from(version)
    if not known.registers(version):
        fate = f"GitHub registers no runner below {known.minimum_to_register}"
    elif day is None:
        fate = f"no newer release is known as of {known.looked_up}"
    else:
        fate = f"GitHub gives it no jobs from {day} on"
    lines = [
        f"{reference} ({digest}) holds runner {version}: {fate}",
        f"declare it in the stack file: profiles.PROFILE.runnerVersion: {version}",
    ]
    return lines, known.registers(version) and (day is None or today < day)
