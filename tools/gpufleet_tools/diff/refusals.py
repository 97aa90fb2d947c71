"""Changes of a stack that should not be merged unseen, beside those of its labels. Each names what to do instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.problems import listed, nearest
from gpufleet_tools.diff.environment.jobs import runner_releases
from gpufleet_tools.diff.environment.pools import pool_refusals
from gpufleet_tools.diff.evaluation import EvaluatedResource, EvaluatedStack
from gpufleet_tools.diff.labels import CONTRACT
from gpufleet_tools.diff.machines import kubespray_refusals
from gpufleet_tools.diff.resources import ResourceChange
from gpufleet_tools.plan.plan import RELEASE

_NOT_UNSEEN = frozenset({"mutable-image", "open-endpoint"})
"""Findings that nobody should merge in passing, though they may be meant: they are no errors."""

_OWN = frozenset(
    {
        "arc-minor-version",
        "arc-replaced",
        "cluster-moved",
        "downgrade",
        "immutable",
        "kubespray",
        "moved-without-alias",
        "namespace-changed",
        "protected",
        "protection-removed",
        "shorter-grace-period",
        "spot-capacity",
    }
)
"""Names of the refusals that are no findings."""

_CONTROLLER, _SCALE_SET = "gha-runner-scale-set-controller", "gha-runner-scale-set"

_TITLES = {
    _CONTROLLER: "ARC",
    "karpenter": "Karpenter",
    "nvidia-device-plugin": "NVIDIA's device plugin",
    "gpu-operator": "NVIDIA's GPU operator",
}
"""Charts whose older version may not understand what the newer one left, by name."""

Found = Iterator[tuple[str, str]]
"""Name and message of each refusal."""


def unknown_allowances(allowed: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    """Yield one line for each allowed name that is the name of no refusal; `found` are refusals of this comparison."""
    known = {*_OWN, *CONTRACT, *_NOT_UNSEEN, *found}
    if unknown := sorted({*allowed} - known):
        known |= _findings()
    for name in unknown:
        if name not in known:
            yield f"--allow {name}: there is no such refusal; {nearest(name, known)}"


def _findings() -> frozenset[str]:
    # Imported here: most comparisons allow nothing.
    from gpufleet_tools.check.findings import every_name

    return every_name()


class NewFinding(Documented):
    """A finding that the base does not have."""

    name: str
    """Kind of finding."""
    severity: Literal["error", "warning", "note"]
    """How bad it is."""
    path: str
    """Setting that it arises from."""
    message: str
    """What is so, and what to do."""


def refusals(
    moved: str,
    changes: Sequence[ResourceChange],
    findings: Sequence[NewFinding],
    before: EvaluatedStack | None,
    after: EvaluatedStack | None,
) -> Found:
    """Yield what should not be merged as it is in one stack. `moved` is its region and account, before and after."""
    old, new = before or EvaluatedStack(), after or EvaluatedStack()
    if moved:
        yield "cluster-moved", f"{moved}: {_ANOTHER_STACK}"
    for change in changes:
        if change.moved and change.action == "deleted":
            name = change.name.replace("'", "")
            remedy = f"keep its name, or pass aliases=[pulumi.Alias(name='{name}')] in the program's ResourceOptions"
            yield "moved-without-alias", f"{change.title}: {change.reasons[0]}; {remedy}"
        if change.protected:
            yield "protected", f"{change.title} is protected and would be {change.action}: pulumi up refuses"
        if change.action == "refused":
            yield "immutable", f"{change.title}: {', '.join(change.reasons)}; give the new one another name"
    for finding in findings:
        if finding.severity == "error" or finding.name in _NOT_UNSEEN:
            yield finding.name, f"{finding.path}: {finding.message}"
    yield from _namespaces(old.resources, new.resources)
    yield from _controller_replaced(old.resources, new.resources)
    yield from _controllers(old, new)
    yield from _unprotected(old.resources, new.resources)
    yield from _downgrades(old.resources, new.resources)
    yield from pool_refusals(old.resources, new.resources)
    yield from (("kubespray", refusal) for refusal in kubespray_refusals(old.resources, new.resources))


_ANOTHER_STACK = (
    "Pulumi cannot move a cluster, and none of its resources is in the other place; write a second stack file for the"
    " new place, deprecate this one's labels, then run pulumi destroy on this one"
)


# -- ARC --------------------------------------------------------------------------------------------------------------


def _namespaces(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    """pulumi-kubernetes replaces a release create-first (helm_release.go), ARC 0.14.2 takes GitHub's scale set of that
    name where there is one, and deletes it with the scale set of the old namespace
    (autoscalingrunnerset_controller.go)."""
    before, after = runner_releases(old), runner_releases(new)
    moves: dict[tuple[str, str], list[str]] = {}
    for label in before.keys() & after.keys():
        was, now = (str(side[label].inputs.get("namespace")) for side in (before, after))
        if was != now and _registers_alike(before[label], after[label]):
            moves.setdefault((was, now), []).append(label)
    for (was, now), labels in sorted(moves.items()):
        named = listed(sorted(labels), "and")
        yield (
            "namespace-changed",
            f"namespace {was} → {now} of {named}: the new scale set registers under the id that GitHub has for the old"
            " one, which Pulumi deletes after it with that id, and the label may get no jobs any more; in two steps:"
            f" remove {named} from the stack file (--allow label-removed) and run pulumi up, then change the namespace,"
            " put them back and run pulumi up",
        )


def _registers_alike(*releases: EvaluatedResource) -> bool:
    """Whether GitHub has one scale set for both: its name is unique in a runner group."""
    values = [release.inputs.get("values", {}) for release in releases]
    return len({(str(each.get("githubConfigUrl")), each.get("runnerGroup")) for each in values}) == 1


def _controller_replaced(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    """The release is replaced create-first. Its ClusterRole has the release's name, whatever the namespace
    (manager_cluster_role.yaml of the chart)."""
    before, after = ({each.urn: each for each in side if chart(each) == _CONTROLLER} for side in (old, new))
    with_runners = any(chart(each) == _SCALE_SET for each in old)
    for urn in before.keys() & after.keys():
        moved = {
            what: f"{what} {before[urn].inputs.get(key)} → {after[urn].inputs.get(key)}"
            for what, key in (("namespace", "namespace"), ("release", "name"))
            if before[urn].inputs.get(key) != after[urn].inputs.get(key)
        }
        title = f"ARC's {' and '.join(moved.values())}"
        both = "arc.namespace and arc.release together" if "namespace" in moved else "arc.release"
        if moved and with_runners:
            yield (
                "arc-replaced",
                f"{title}: Pulumi installs the new controller while the old one runs, and both would manage the same"
                " scale sets; in two steps: remove the runners from the stack file (--allow label-removed) and run"
                f" pulumi up, then change {both}, put the runners back and run pulumi up",
            )
        elif [*moved] == ["namespace"]:
            yield (
                "arc-replaced",
                f"{title}: Pulumi installs the new release before it deletes the old one, and Helm refuses a"
                " ClusterRole that another release owns; change arc.release with it",
            )


def _controllers(old: EvaluatedStack, new: EvaluatedStack) -> Found:
    """A controller deletes scale sets of another minor version than its own, with the jobs that they run."""
    versions = {_version(each) for each in old.resources if chart(each) == _CONTROLLER}
    wanted = {_version(each) for each in new.resources if chart(each) == _CONTROLLER}
    kept = {each.urn for each in old.resources if chart(each) == _SCALE_SET}
    kept &= {each.urn for each in new.resources if chart(each) == _SCALE_SET}
    minors = [{version.rpartition(".")[0] for version in side} for side in (versions, wanted)]
    if kept and all(minors) and minors[0] != minors[1]:
        many = f"{len(kept)} scale set{'s' * (len(kept) > 1)}"
        message = (
            f"ARC goes from {', '.join(sorted(versions))} to {', '.join(sorted(wanted))} with {many} in place, and a"
            " controller deletes scale sets of another minor version: remove the runners first, then change the"
            " version, then put them back"
        )
        yield "arc-minor-version", message


# -- protection and versions ------------------------------------------------------------------------------------------


def _unprotected(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    after = {each.urn: each for each in new}
    lost = [
        f"{each.type.split(':')[-1]} {each.name}"
        for each in old
        if each.urn in after and any(has(each) and not has(after[each.urn]) for has in (_is_protected, _keeps_itself))
    ]
    if lost:
        yield (
            "protection-removed",
            f"{listed(lost, 'and')} would no longer be protected: pulumi destroy, or a change that replaces them, takes"
            " the cluster with all jobs; keep protect and deletionProtection on, and switch them off only in the pull"
            " request before a pulumi destroy (--allow protection-removed)",
        )


def _is_protected(each: EvaluatedResource) -> bool:
    return bool(each.options.get("protect"))


def _keeps_itself(each: EvaluatedResource) -> bool:
    return each.inputs.get("deletionProtection") is True


def _downgrades(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    before = {each.urn: each for each in old}
    for each in new:
        was = before.get(each.urn)
        if was is None or not (pairs := list(_versioned(was, each))):
            continue
        for title, older, newer in pairs:
            if _is_older(newer, older):
                yield (
                    "downgrade",
                    f"{title} {older} → {newer}: an older version may not read the objects and CRDs that the newer one"
                    f" left, and Helm does not take CRDs back; keep {older} or newer, or read its release notes on"
                    " the way back and run with --allow downgrade",
                )


def _versioned(old: EvaluatedResource, new: EvaluatedResource) -> Iterator[tuple[str, str, str]]:
    """Yield the title, and the version before and after, of everything in a resource that has a version."""
    name = chart(new)
    if name in _TITLES and name == chart(old):
        yield _TITLES[name], _version(old), _version(new)
    if new.type == "kubernetes:apps/v1:DaemonSet":
        images = [_images(side) for side in (old, new)]
        for container in images[0].keys() & images[1].keys():
            (repository, was), (other, now) = images[0][container], images[1][container]
            if repository == other:
                yield f"DaemonSet {new.name}", was, now


def _images(each: EvaluatedResource) -> dict[str, tuple[str, str]]:
    """Repository and tag of each container's image, by name of the container."""
    containers = each.inputs.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    pairs = {item.get("name"): re.match(r"(.+):([^:/@]+)(@|$)", str(item.get("image"))) for item in containers}
    return {name: (match[1], match[2]) for name, match in pairs.items() if match}


def _is_older(version: str, other: str) -> bool:
    try:
        return Version(version) < Version(other)
    except InvalidVersion:
        return False


def _version(each: EvaluatedResource) -> str:
    return str(each.inputs.get("version", ""))


def chart(each: EvaluatedResource) -> str | None:
    """Return the name of the chart of a Helm release, wherever it comes from; None for other resources."""
    if each.type != RELEASE:
        return None
    name = str(each.inputs.get("chart", "")).split("/")[-1]
    return name.removesuffix(".tgz").removesuffix(f"-{_version(each)}")


def cluster_moved(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> str:
    """Return how a stack's AWS region or account changes; empty where neither does."""
    before, after = ({each.urn: each.inputs for each in side if _is_aws(each)} for side in (old, new))
    moves = {
        f"{what} {_place(before[urn].get(key))} → {_place(after[urn].get(key))}": None
        for urn in before.keys() & after.keys()
        for what, key in (("region", "region"), ("account", "allowedAccountIds"))
        if before[urn].get(key) != after[urn].get(key)
    }
    return ", ".join(moves)


def _is_aws(each: EvaluatedResource) -> bool:
    return each.type == "pulumi:providers:aws"


def _place(value: Any) -> str:
    return re.sub(r"[\[\]\"\s]", "", str(value)) if value else "none"
