"""Findings about the age of runners: GitHub silently assigns no jobs to a runner that is too old."""

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
"""Days of warning before GitHub assigns no more jobs."""

NAMES = frozenset({"runner-expires", "unknown-runner-version"})
"""Names that an acknowledgement can give."""


def findings(settings: Settings, file: StackFile, today: datetime.date) -> Iterator[Finding]:
    """Yield findings about the runner version of each profile in use, and of labels without a profile."""
    releases = runner_releases.known()
    for path, (profile, labels) in _images(settings, file).items():
        version = profile.held_runner_version
        if version is None:
            yield _unknown(path, profile.image, labels)
        else:
            yield from _expiring(path, version, labels, releases, today)


def _images(settings: Settings, file: StackFile) -> Mapping[Path, tuple[Profile, list[str]]]:
    """Return profiles and their labels, by the setting that determines the runner version. Labels of projects on GitHub
    Enterprise Server are omitted: it accepts old runners."""
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
        f"the runner version of {image} is unknown: no warning will precede the day on which GitHub stops assigning"
        f" jobs to {_labels(labels)}; run gpufleet pins --image {image}, and set runnerVersion",
    )


def _expiring(
    path: Path, version: str, labels: list[str], releases: RunnerReleases, today: datetime.date
) -> Iterator[Finding]:
    update = f"use runner {releases.newest.version} or newer"
    if not releases.registers(version):
        message = (
            f"GitHub does not register runner {version}: {_jobs(labels)} wait; the minimum version is"
            f" {releases.minimum_to_register}; {update}"
        )
        yield Finding("runner-expires", "error", path, message)
        return
    day = releases.no_jobs_from(version)
    if day is not None and today >= day:
        message = f"GitHub has assigned no jobs to runner {version} since {day}: {_jobs(labels)} wait; {update}"
        yield Finding("runner-expires", "error", path, message)
    elif day is not None and today >= day - datetime.timedelta(days=WARN_DAYS):
        message = f"GitHub assigns no jobs to runner {version} from {day} on: {_jobs(labels)} will wait; {update}"
        yield Finding("runner-expires", "warning", path, message)


def _labels(labels: list[str]) -> str:
    """Return up to three labels by name, or `linux-gpu-1 and 3 more labels`."""
    return listed(labels, "and") if len(labels) <= 3 else f"{labels[0]} and {len(labels) - 1} more labels"


def _jobs(labels: list[str]) -> str:
    return f"jobs for {_labels(labels)}"
