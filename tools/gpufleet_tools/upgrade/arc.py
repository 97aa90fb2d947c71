"""Change of ARC's version in a stack file: checked, written, and explained."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gpufleet.arc.versions import minor_steps, numbers
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.check import compatibility
from gpufleet_tools.labels.github_url import serves
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.upgrade import cluster
from gpufleet_tools.upgrade.stack_file_edit import NotEditable, edited
from gpufleet_tools.upgrade.steps import steps


class UpgradeError(Exception):
    """The upgrade is refused; one line for each reason."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    to: str | None = None
    """Wanted version."""
    installed: str | None = None
    """Version that the cluster has, if it is not the stack file's."""
    rollback: bool = False
    """Whether to return to an older version."""
    finish: bool = False
    """Whether to end an upgrade."""
    kubeconfig: pathlib.Path | None = None
    """Kubeconfig of the cluster to examine; None to examine none."""
    context: str | None = None
    """Context of the kubeconfig; None for its current one."""


def run(root: pathlib.Path, name: str, request: Request) -> list[str]:
    """Write the change to the stack file, and return the lines that explain it.

    Raises UpgradeError, and InvalidSettings for an invalid stack file. The file is unchanged then.
    """
    read = stack.read(root, name)
    others = [*_others(read)]
    if request.finish:
        return _finished(read, request)
    installed, wanted = _versions(read, request)
    _refuse(read, others, installed, wanted, rollback=request.rollback)
    _examine(read, request, installed)
    _write(read, {"version": wanted, "upgradeFrom": installed})
    lines = [f"{read.file.name}: arc.version is {wanted}, arc.upgradeFrom is {installed}"]
    lines += [f"note: {note}" for note in _notes(read, others)]
    lines += ["The next pulumi up upgrades ARC; if it is interrupted, run it again:"]
    found = steps(installed, wanted, len(read.settings.runners))
    lines += [f"  {number}. {step}" for number, step in enumerate(found, 1)]
    return [*lines, f"Afterwards, end the upgrade: gpufleet upgrade arc {name} --finish"]


def _finished(read: Stack, request: Request) -> list[str]:
    if read.settings.arc.upgrade_from is None:
        raise UpgradeError(f"{read.file.name}: arc.upgradeFrom is not set: there is no upgrade to finish")
    _examine(read, request, read.settings.arc.version)
    _write(read, {"upgradeFrom": None})
    return [
        f"{read.file.name}: arc.upgradeFrom is removed",
        "The next pulumi up deletes the admission policy of the upgrade. ARC's CRDs stay.",
    ]


def _versions(read: Stack, request: Request) -> tuple[str, str]:
    """Return the installed and the wanted version. Raises UpgradeError while another upgrade is in progress."""
    arc = read.settings.arc
    if arc.upgrade_from is None:
        installed = request.installed or arc.version
        if request.to is None:
            raise UpgradeError("name the wanted version: --to VERSION")
        return installed, request.to
    if request.rollback and request.to in (None, arc.upgrade_from):
        return arc.version, arc.upgrade_from
    raise UpgradeError(
        f"{read.file.name}: an upgrade from {arc.upgrade_from} to {arc.version} is in progress; end it with --finish"
        f" after its pulumi up, or return to {arc.upgrade_from} with --rollback"
    )


def _refuse(read: Stack, others: list[tuple[Stack, str]], installed: str, wanted: str, *, rollback: bool) -> None:
    """Raise UpgradeError for a version that cannot be reached from the installed one."""
    reviewed = next(each.versions for each in compatibility.whole().reviewed if each.name == "arc")
    reason = None
    if not _is_in(wanted, reviewed):
        reason = f"--to {wanted}: unknown version of ARC; reviewed are {reviewed.replace(',', ', ')}"
    elif wanted == installed:
        reason = f"--to {wanted}: {read.file.name} has this version already"
    elif numbers(wanted) < numbers(installed) and not rollback:
        reason = f"--to {wanted} is older than {installed}; add --rollback to return to an older version"
    elif minor_steps(installed, wanted) > 1:
        major, minor, _ = numbers(installed)
        following = f"{major}.{minor + (1 if numbers(wanted) > numbers(installed) else -1)}"
        reason = f"--to {wanted}: {installed} is several minor versions away; upgrade to a {following} version first"
    elif open_ := [f"'{each.name}'" for each, _ in others if each.settings.arc.upgrade_from is not None]:
        reason = f"stack {', '.join(open_)} serves the same labels and is being upgraded; finish that upgrade first"
    if reason:
        raise UpgradeError(reason)


def _is_in(version: str, versions: str) -> bool:
    try:
        return Version(version) in SpecifierSet(versions)
    except InvalidVersion:
        return False


def _examine(read: Stack, request: Request, version: str) -> None:
    if request.kubeconfig is None:
        return
    try:
        found = cluster.obstacles(read.settings, request.kubeconfig, request.context, version)
    except cluster.Unreadable as error:
        raise UpgradeError(str(error)) from error
    if found:
        raise UpgradeError("\n".join(found))


def _others(read: Stack) -> Iterator[tuple[Stack, str]]:
    """Yield the project's other stacks that serve a label of this one for the same users, each with the first label."""
    for name in stack.names(read.root):
        if name == read.name:
            continue
        try:
            other = stack.read(read.root, name)
        except InvalidSettings:
            continue
        for label in sorted(read.settings.runners.keys() & other.settings.runners.keys()):
            one, two = (side.settings.projects[side.settings.runners[label].project] for side in (read, other))
            if serves(one.config_url, two.config_url) or serves(two.config_url, one.config_url):
                yield other, label
                break


def _notes(read: Stack, others: list[tuple[Stack, str]]) -> Iterator[str]:
    for other, label in others:
        yield f"stack {other.name} also serves {label}; upgrade it only after this upgrade is finished"


def _write(read: Stack, values: dict[str, str | None]) -> None:
    """Write the values into the section `arc` of the stack file. Raises UpgradeError if only a person can do that."""
    text = read.file.path.read_text()
    advice = ", ".join(f"arc.{key}: {value or 'none'}" for key, value in values.items())
    try:
        changed = edited(text, read.file.project, values)
    except NotEditable as error:
        raise UpgradeError(f"{read.file.name}: {error}; change it by hand: {advice}") from error
    before, after = (_sections(each, read.file.project) for each in (text, changed))
    if before[0] != after[0] or after[1] != {key: value for key, value in (before[1] | values).items() if value}:
        raise UpgradeError(f"{read.file.name} is written in a way that cannot be edited; change it by hand: {advice}")
    read.file.path.write_text(changed)


def _sections(text: str, project: str) -> tuple[object, dict[str, str | None]]:
    """Return everything but the section `arc`, and the section."""
    content = yaml.safe_load(text)
    config = dict(content["config"])
    found: dict[str, str | None] = {}
    for key in ("gpu-runners:arc", "arc", f"{project}:arc"):
        found |= config.pop(key, None) or {}
    return {**content, "config": config}, found
