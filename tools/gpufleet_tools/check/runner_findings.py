"""Findings about the age of runners: GitHub gives no jobs to a runner that is too old, and says so nowhere."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping

from gpufleet.arc import runner_releases
from gpufleet.arc.runner_releases import RunnerReleases
from gpufleet.problem import Path
from gpufleet_stacks.settings.models.profiles.profile import Profile
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import listed
from gpufleet_stacks.settings.stack_file import StackFile
from gpufleet_tools.check.finding import Finding

WARN_DAYS = 14
"""Days before the last job on which a warning begins."""

NAMES = frozenset({"runner-expires", "unknown-runner-version"})
"""Names that an acknowledgement can give."""


def findings(settings: Settings, file: StackFile, today: datetime.date) -> Iterator[Finding]:
    """Yield what is to be said of each profile in use, and of labels without one, on a day."""
    releases = runner_releases.known()
    for path, (profile, labels) in _images(settings, file).items():
        version = profile.held_runner_version
        if version is None:
            yield _unknown(path, profile.image, labels)
        else:
            yield from _expiring(path, version, labels, releases, today)


def _images(settings: Settings, file: StackFile) -> Mapping[Path, tuple[Profile, list[str]]]:
    """Return the labels of each profile, by the setting that decides its runner version. GitHub Enterprise Server takes
    old runners too, so labels of its projects are left out."""
    found: dict[Path, tuple[Profile, list[str]]] = {}
    for label, runner in settings.runners.items():
        if not runner_releases.is_enforced(settings.projects[runner.project].config_url):
            continue
        path: Path = ("runners", label)
        if runner.profile is not None:
            path = ("profiles", runner.profile)
            own = ((*path, "runnerVersion"), (*path, "image"))
            path = next((each for each in own if file.written(each) is not None), path)
        found.setdefault(path, (settings.profile(runner), []))[1].append(label)
    return found


def _unknown(path: Path, image: str, labels: list[str]) -> Finding:
    return Finding(
        "unknown-runner-version",
        "warning",
        path,
        f"nothing says which runner version {image} holds, so nobody is warned before GitHub gives {_labels(labels)} no"
        f" jobs; look with: gpufleet pins --image {image}, and write it as runnerVersion",
    )


def _expiring(
    path: Path, version: str, labels: list[str], releases: RunnerReleases, today: datetime.date
) -> Iterator[Finding]:
    update = f"use runner {releases.newest.version} or newer"
    if not releases.registers(version):
        message = (
            f"GitHub registers no runner {version}: {_jobs(labels)} wait; the oldest that it registers is"
            f" {releases.minimum_to_register}; {update}"
        )
        yield Finding("runner-expires", "error", path, message)
        return
    day = releases.no_jobs_from(version)
    if day is not None and today >= day:
        message = f"GitHub has given runner {version} no jobs since {day}: {_jobs(labels)} wait; {update}"
        yield Finding("runner-expires", "error", path, message)
    elif day is not None and today >= day - datetime.timedelta(days=WARN_DAYS):
        message = f"GitHub gives runner {version} no jobs from {day} on: {_jobs(labels)} will wait then; {update}"
        yield Finding("runner-expires", "warning", path, message)


def _labels(labels: list[str]) -> str:
    """Return up to three labels by name, or `linux-gpu-1 and 3 more labels`."""
    return listed(labels, "and") if len(labels) <= 3 else f"{labels[0]} and {len(labels) - 1} more labels"


def _jobs(labels: list[str]) -> str:
    return f"jobs for {_labels(labels)}"
