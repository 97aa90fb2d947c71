"""Changes of a stack, beside those of its labels, that should not be merged as they are. Each message has a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from gpufleet.arc.charts import CONTROLLER_CHART, SCALE_SET_CHART
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.problems import listed, nearest
from gpufleet_tools.diff.environment.arc_versions import (
    chart,
    declared_upgrade,
    refused_arc_versions,
    version,
)
from gpufleet_tools.diff.environment.jobs import runner_releases
from gpufleet_tools.diff.environment.network import refused_admissions, refused_zone_changes
from gpufleet_tools.diff.environment.pools import refused_pool_changes
from gpufleet_tools.diff.evaluation import EvaluatedResource, EvaluatedStack
from gpufleet_tools.diff.labels import CONTRACT
from gpufleet_tools.diff.machines import hands_over, refused_kubespray_changes, resets_a_cluster
from gpufleet_tools.diff.resources import ResourceChange

_REFUSED_WARNINGS = frozenset({"mutable-image", "open-endpoint"})
"""Findings that are no errors, but refused because they should be merged deliberately only."""

_OWN = frozenset(
    {
        "additional-labels",
        "arc-minor-version",
        "arc-replaced",
        "arc-upgrade",
        "cluster-moved",
        "config-url-changed",
        "control-plane-zones",
        "downgrade",
        "endpoint-opened",
        "immutable",
        "kubespray",
        "moved-without-alias",
        "namespace-changed",
        "project-renamed",
        "protected",
        "protection-removed",
        "scale-set-removed",
        "shorter-grace-period",
        "spot-capacity",
        "upgraded-at-once",
        "zone-removed",
    }
)
"""Names of refused changes that are not findings."""

_TITLES = {
    CONTROLLER_CHART: "ARC",
    "karpenter": "Karpenter",
    "nvidia-device-plugin": "NVIDIA's device plugin",
    "gpu-operator": "NVIDIA's GPU operator",
}
"""Charts whose older versions may not support the objects of newer ones, by name."""

Found = Iterator[tuple[str, str]]
"""Name and message of each refused change."""


def unknown_allowances(allowed: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    """Yield one line for each allowed name that no refused change can have. `found` are those of this comparison."""
    known = {*_OWN, *CONTRACT, *_REFUSED_WARNINGS, *found}
    if unknown := sorted({*allowed} - known):
        known |= _findings()
    for name in unknown:
        if name not in known:
            yield f"--allow {name}: unknown name of a refused change; {nearest(name, known)}"


def _findings() -> frozenset[str]:
    # Imported here: most comparisons have no --allow.
    from gpufleet_tools.check.findings import every_name

    return every_name()


class NewFinding(Documented):
    """A finding that the base does not have."""

    name: str
    """Kind of the finding."""
    severity: Literal["error", "warning", "note"]
    """Severity of the finding."""
    path: str
    """Setting that causes the finding."""
    message: str
    """Fact, consequence and remedy."""


def refused_changes(
    moved: str,
    changes: Sequence[ResourceChange],
    findings: Sequence[NewFinding],
    before: EvaluatedStack | None,
    after: EvaluatedStack | None,
) -> Found:
    """Yield the refused changes of one stack. `moved` is the region and account of its cluster, before and after."""
    old, new = before or EvaluatedStack(), after or EvaluatedStack()
    if moved:
        yield "cluster-moved", f"{moved}: {_ANOTHER_STACK}"
    projects = [sorted({_project(each.urn) for each in side.resources}) for side in (old, new)]
    renamed = bool(before and after) and len(projects[0]) == len(projects[1]) == 1 and projects[0] != projects[1]
    if renamed:
        yield "project-renamed", _project_renamed(*projects[0], *projects[1])
    for change in () if renamed else changes:
        if change.moved and change.action == "deleted":
            name = change.name.replace("'", "")
            remedy = f"keep its name, or pass aliases=[pulumi.Alias(name='{name}')] in the program's ResourceOptions"
            yield "moved-without-alias", f"{change.title}: {change.reasons[0]}; {remedy}"
        if change.protected:
            yield "protected", f"{change.title} is protected and would be {change.action}: pulumi up would fail"
        if change.action == "refused":
            yield "immutable", f"{change.title}: {', '.join(change.reasons)}; use another name for the new object"
    for finding in findings:
        if finding.severity == "error" or finding.name in _REFUSED_WARNINGS:
            yield finding.name, f"{finding.path}: {finding.message}"
    if before and after and not moved:
        yield from _without_scale_set(old, new)
    yield from _namespaces(old.resources, new.resources)
    yield from _config_urls(old.resources, new.resources)
    yield from _additional_labels(old.resources, new.resources)
    yield from _controller_replaced(old.resources, new.resources)
    yield from refused_arc_versions(old.resources, new.resources)
    yield from _unprotected(old.resources, new.resources)
    yield from _downgrades(old.resources, new.resources)
    yield from refused_pool_changes(old.resources, new.resources)
    if not moved:
        yield from refused_zone_changes(old, new)
        yield from refused_admissions(old, new)
    yield from (("kubespray", message) for message in refused_kubespray_changes(old.resources, new.resources))


def _project(urn: str) -> str:
    """Return the Pulumi project in a URN: urn:pulumi:STACK::PROJECT::TYPES::NAME."""
    return urn.split("::")[1]


def _project_renamed(was: str, now: str) -> str:
    return (
        f"name of the project {was} → {now} in Pulumi.yaml: Pulumi finds no resource under the new name, and would"
        " create all of them a second time; keep the name, or rename each stack's project right before the merge:"
        f" pulumi stack rename ORGANIZATION/{now}/STACK"
    )


_ANOTHER_STACK = (
    "Pulumi cannot move or rename a cluster: it would create an empty one, and delete this one with all jobs; keep it,"
    " or create a second stack, deprecate the labels of this one, then run pulumi destroy on this one"
)


# -- ARC --------------------------------------------------------------------------------------------------------------


def _namespaces(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    """Yield changed namespaces of labels. pulumi-kubernetes creates the new release before it deletes the old one
    (helm_release.go). ARC 0.14.2 adopts an existing scale set of that name at GitHub, and deletes it with the scale set
    of the old namespace (autoscalingrunnerset_controller.go)."""
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
            f"namespace {was} → {now} of {named}: the new scale set adopts the old one's ID at GitHub, deleting the old"
            " one then deletes that ID, and the label may get no jobs; change it in two steps: remove"
            f" {named} from the stack file (--allow label-removed) and run pulumi up; then change the namespace,"
            " restore the labels and run pulumi up",
        )


def _config_urls(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    """Yield changed URLs of existing scale sets. ARC 0.14.2 creates a scale set at GitHub only while its object has no
    ID (`shouldCreateScaleSet` in autoscalingrunnerset_controller.go), and the ID stays."""
    before, after = runner_releases(old), runner_releases(new)
    moves: dict[tuple[str, str], list[str]] = {}
    for label in before.keys() & after.keys():
        was, now = (str(side[label].inputs["values"].get("githubConfigUrl")) for side in (before, after))
        stays = before[label].inputs.get("namespace") == after[label].inputs.get("namespace")
        if stays and was.rstrip("/").casefold() != now.rstrip("/").casefold():
            moves.setdefault((was, now), []).append(label)
    for (was, now), labels in sorted(moves.items()):
        named = listed(sorted(labels), "and")
        yield (
            "config-url-changed",
            f"configUrl {was} → {now} of {named}: ARC keeps the ID of the scale set at the old URL, so the label gets"
            f" no jobs at the new one; change it in two steps: remove {named} from the stack file (--allow"
            " label-removed) and run pulumi up; then change the URL, restore the labels and run pulumi up",
        )


def _without_scale_set(old: EvaluatedStack, new: EvaluatedStack) -> Found:
    """Yield labels that the stack file still has, but whose scale set the program no longer registers."""
    registered = runner_releases(old.resources).keys() - runner_releases(new.resources).keys()
    for label in sorted(registered & {each.label for each in new.labels} & {each.label for each in old.labels}):
        yield (
            "scale-set-removed",
            f"the program no longer creates the scale set of {label}, which the stack file has: Pulumi deletes it with"
            " its running jobs, and further jobs queue for 24 hours and then fail; restore it in the program, or"
            " announce the end of the label with deprecated: {until: DATE, use: LABEL}",
        )


def _additional_labels(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    """Yield changed additional labels of existing scale sets. ARC sends them to GitHub only with a new scale set
    (actions/actions-runner-controller#4424)."""
    before, after = runner_releases(old), runner_releases(new)
    for label in sorted(before.keys() & after.keys()):
        was, now = ([*side[label].inputs["values"].get("scaleSetLabels", [])] for side in (before, after))
        if was != now:
            yield (
                "additional-labels",
                f"additionalLabels of {label} {', '.join(was) or 'none'} → {', '.join(now) or 'none'}: ARC sends labels"
                " to GitHub only when it creates a scale set, so GitHub keeps the old ones, and jobs with new ones"
                " queue; add a runner with the new labels, and deprecate this one",
            )


def _registers_alike(*releases: EvaluatedResource) -> bool:
    """Return whether both are the same scale set at GitHub: its name is unique in a runner group."""
    values = [release.inputs.get("values", {}) for release in releases]
    return len({(str(each.get("githubConfigUrl")), each.get("runnerGroup")) for each in values}) == 1


def _controller_replaced(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    """Yield replacements of ARC's controller. Pulumi creates the new release first. Its ClusterRole has the release's
    name, regardless of the namespace (manager_cluster_role.yaml of the chart)."""
    before, after = ({each.urn: each for each in side if chart(each) == CONTROLLER_CHART} for side in (old, new))
    with_runners = any(chart(each) == SCALE_SET_CHART for each in old)
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
                " scale sets; change it in two steps: remove the runners from the stack file (--allow label-removed)"
                f" and run pulumi up; then change {both}, restore the runners and run pulumi up",
            )
        elif [*moved] == ["namespace"]:
            yield (
                "arc-replaced",
                f"{title}: Pulumi installs the new release before it deletes the old one, and Helm rejects a"
                " ClusterRole that another release owns; change arc.release too",
            )


# -- protection and versions ------------------------------------------------------------------------------------------


def _unprotected(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    after = {each.urn: each for each in new if not hands_over(each)}
    lost = [
        f"{each.type.split(':')[-1]} {each.name}"
        for each in old
        if each.urn in after
        and any(has(each) and not has(after[each.urn]) for has in (_is_protected, _has_deletion_protection))
    ]
    if lost:
        yield (
            "protection-removed",
            f"{listed(lost, 'and')} would no longer be protected: pulumi destroy, or a change that replaces them, would"
            " delete the cluster with all jobs; keep protect and deletionProtection on, and turn them off only in the"
            " pull request before a pulumi destroy (--allow protection-removed)",
        )


def unprotected_clusters(side: Sequence[EvaluatedResource]) -> list[str]:
    """Return the clusters whose deletion nothing refuses, each with the setting that allows it."""
    return [
        *(f"{each.name}: deletionProtection: false" for each in side if each.inputs.get("deletionProtection") is False),
        *(
            f"{each.name.removesuffix('-cluster')}: protect: false"
            for each in side
            if resets_a_cluster(each) and not _is_protected(each)
        ),
    ]


def _is_protected(each: EvaluatedResource) -> bool:
    return bool(each.options.get("protect"))


def _has_deletion_protection(each: EvaluatedResource) -> bool:
    return each.inputs.get("deletionProtection") is True


def _downgrades(old: Sequence[EvaluatedResource], new: Sequence[EvaluatedResource]) -> Found:
    before = {each.urn: each for each in old}
    for each in new:
        was = before.get(each.urn)
        if was is None or not (pairs := list(_versioned(was, each))):
            continue
        if chart(each) == CONTROLLER_CHART and declared_upgrade(new) is not None:
            # The way back from an upgrade, which keeps the newer CRDs.
            continue
        for title, older, newer in pairs:
            if _is_older(newer, older):
                yield (
                    "downgrade",
                    f"{title} {older} → {newer}: an older version may not support the objects and CRDs of the newer"
                    f" one, and Helm does not downgrade CRDs; keep {older} or newer, or follow the release notes about"
                    " downgrades and use --allow downgrade",
                )


def _versioned(old: EvaluatedResource, new: EvaluatedResource) -> Iterator[tuple[str, str, str]]:
    """Yield title, old version and new version of a chart or a container in the resource."""
    name = chart(new)
    if name in _TITLES and name == chart(old):
        yield _TITLES[name], version(old), version(new)
    if new.type == "kubernetes:apps/v1:DaemonSet":
        images = [_images(side) for side in (old, new)]
        for container in images[0].keys() & images[1].keys():
            (repository, was), (other, now) = images[0][container], images[1][container]
            if repository == other:
                yield f"DaemonSet {new.name}", was, now


def _images(each: EvaluatedResource) -> dict[str, tuple[str, str]]:
    """Return repository and tag of each container's image, by name of the container."""
    containers = each.inputs.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    pairs = {item.get("name"): re.match(r"(.+):([^:/@]+)(@|$)", str(item.get("image"))) for item in containers}
    return {name: (match[1], match[2]) for name, match in pairs.items() if match}


def _is_older(version: str, other: str) -> bool:
    try:
        return Version(version) < Version(other)
    except InvalidVersion:
        return False


def cluster_moved(old: EvaluatedStack, new: EvaluatedStack) -> str:
    """Return the changes of a stack's AWS region and account, and of the name of a cluster that Pulumi creates; empty
    if there are none."""
    before, after = ({each.urn: each.inputs for each in side.resources if _is_aws(each)} for side in (old, new))
    moves = {
        f"{what} {_place(before[urn].get(key))} → {_place(after[urn].get(key))}": None
        for urn in before.keys() & after.keys()
        for what, key in (("region", "region"), ("account", "allowedAccountIds"))
        if before[urn].get(key) != after[urn].get(key)
    }
    was, now = (dict(side.settings or ()).get(_NAME) for side in (old, new))
    if was != now and was and now and any(map(_creates_cluster, old.resources)):
        moves[f"name {was} → {now}"] = None
    return ", ".join(moves)


_NAME = ("cluster", "name")
"""Path of the setting."""


def _creates_cluster(each: EvaluatedResource) -> bool:
    return each.type == "eks:index:Cluster" or resets_a_cluster(each)


def _is_aws(each: EvaluatedResource) -> bool:
    return each.type == "pulumi:providers:aws"


def _place(value: Any) -> str:
    return re.sub(r"[\[\]\"\s]", "", str(value)) if value else "none"
