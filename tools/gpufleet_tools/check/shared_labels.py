"""Findings about labels that several stacks of the project serve to the same users, such as two regions of one fleet.

GitHub gives a job to any scale set with its label, in whatever runner group. A scale set's name is unique in its group
(https://docs.github.com/en/actions/hosting-your-own-runners/managing-self-hosted-runners-with-actions-runner-controller/deploying-runner-scale-sets-with-actions-runner-controller#high-availability-and-automatic-failover).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpufleet.problem import Path
from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.models.settings import Project, Settings
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_stacks.settings.stack_file import StackFile, read, stack_files
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.labels.github_url import is_repository, same_users

if TYPE_CHECKING:
    from gpufleet_tools.plan.stack import Stack

NAMES = frozenset({"same-scale-set", "different-runners"})
"""Names of these findings."""


def findings(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield the findings about each label that another stack serves to the same users."""
    for other, other_file in _others(settings, file):
        for label in settings.runners.keys() & other.runners.keys():
            own, there = (each.projects[each.runners[label].project] for each in (settings, other))
            if not same_users(own.config_url, there.config_url):
                continue
            place = f"{other_file.name}:{other_file.line(('runners', label))}"
            if _group(own) == _group(there):
                yield _same_scale_set(label, place, own)
            yield from _differences(label, place, (settings, file), (other, other_file))


def _others(settings: Settings, file: StackFile) -> Iterator[tuple[Settings, StackFile]]:
    """Yield the other stacks with a label of the same name. Those with problems are skipped: their own check reports
    them."""
    for path in stack_files(file.path.parent):
        if path != file.path:
            with contextlib.suppress(InvalidSettings):
                runners = read(path).values.get("runners")
                if isinstance(runners, dict) and settings.runners.keys() & runners.keys():
                    yield load.from_file(path)


def _group(project: Project) -> str:
    """Return the runner group; GitHub's default group is named Default."""
    return project.runner_group or "Default"


def _same_scale_set(label: str, place: str, project: Project) -> Finding:
    remedy = "give the project of one of them another runnerGroup"
    if is_repository(project.config_url):
        remedy = "use another label, or the organisation's configUrl with a runnerGroup for each stack"
    return Finding(
        "same-scale-set",
        "error",
        ("runners", label),
        f"{place} serves it to the same users in the same runner group, {project.runner_group or 'the default one'}:"
        " both clusters would use one scale set, one of them would get no jobs, and removing the label from either"
        f" would delete it for both; {remedy}",
    )


def _differences(
    label: str, place: str, own: tuple[Settings, StackFile], other: tuple[Settings, StackFile]
) -> Iterator[Finding]:
    here, there = _environment(label, *own), _environment(label, *other)
    different = [f"{name} {here[name]}, there {there[name]}" for name in here if here[name] != there[name]]
    if different:
        where: Path = ("runners", label)
        yield Finding(
            "different-runners",
            "warning",
            where,
            f"GitHub gives its jobs to {place} too, where they find something else ({'; '.join(different)}); make both"
            " equal, or use two labels",
        )


def _environment(label: str, settings: Settings, file: StackFile) -> dict[str, str]:
    """Return what a job of the label finds, by name."""
    # Imported here: few projects have such labels.
    from gpufleet_tools.labels import catalogue
    from gpufleet_tools.plan.stack import Stack

    stack: Stack = Stack(file.path.parent, file, settings)
    entry = catalogue.entry(label, stack)
    profile = settings.profile(settings.runners[label])
    return {
        "GPUs": catalogue.gpu_words(entry),
        "architecture": entry.architecture or "unknown",
        "CPU": catalogue.core_words(entry),
        "memory": catalogue.memory_words(entry),
        "disk": profile.ephemeral_storage or "unlimited",
        "containers": catalogue.container_words(entry),
        "image": profile.image,
    }
