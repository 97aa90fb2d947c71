"""Changes of Karpenter's node pools: provisioning and disruption of their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpufleet_tools.diff.evaluation import EvaluatedResource

POOL_LABEL = "karpenter.sh/nodepool"
"""Label of the nodes of a pool."""

_NODE_POOL, _NODE_CLASS = "kubernetes:karpenter.sh/v1:NodePool", "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"

JOB_LIMIT = 6 * 3600
"""Seconds that a job may run: GitHub's default of `timeout-minutes`, 360."""

_CAPACITY, _ZONE = "karpenter.sh/capacity-type", "topology.kubernetes.io/zone"

_REQUIREMENTS = {_CAPACITY: "capacity", _ZONE: "zones", "kubernetes.io/arch": "architecture"}
"""Names of common requirements; others are named by the last part of their key."""

_SHOWN = frozenset({"karpenter.k8s.aws/instance-family", "node.kubernetes.io/instance-type"})
"""Requirements that are part of a pool's `instances`, which are compared elsewhere."""

Fields = dict[str, str]
"""Fields of a pool as text."""


def node_pools(resources: Sequence[EvaluatedResource]) -> dict[str | None, Fields]:
    """Return the fields of each node pool, by its name in the cluster."""
    classes = {_name(each): each.inputs.get("spec", {}) for each in resources if each.type == _NODE_CLASS}
    return {_name(each): _fields(each.inputs.get("spec", {}), classes) for each in resources if each.type == _NODE_POOL}


def pool_changes(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> dict[str, str]:
    """Return the changes of each pool that both sides have, as text."""
    old, new = node_pools(before), node_pools(after)
    changes = {
        str(name): "; ".join(f"{what} {was} → {now}" for what, was, now in _differing(old[name], new[name]))
        for name in sorted(old.keys() & new.keys(), key=str)
    }
    return {name: line for name, line in changes.items() if line}


def pool_environment(old: Fields | None, new: Fields | None) -> Iterator[tuple[str, str, str]]:
    """Yield the changes of a pool that its jobs notice: interruptions, zones and time to end."""
    for change in _differing(old, new) if old and new else ():
        if change[0] in ("capacity", "zones", "architecture", "terminationGracePeriod"):
            yield change


def refused_pool_changes(
    before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]
) -> Iterator[tuple[str, str]]:
    """Yield changes that interrupt jobs, as name and message."""
    old, new = node_pools(before), node_pools(after)
    for name in sorted(old.keys() & new.keys(), key=str):
        was, now = old[name], new[name]
        if "spot" in now["capacity"] and "spot" not in was["capacity"]:
            yield (
                "spot-capacity",
                f"pool {name}: capacity {was['capacity']} → {now['capacity']}: AWS interrupts spot instances with two"
                " minutes' notice, and their jobs are lost; create a separate pool and label for jobs that can be"
                " retried, or use --allow spot-capacity",
            )
        before_grace, grace = was["terminationGracePeriod"], now["terminationGracePeriod"]
        if _seconds(grace) < min(_seconds(before_grace), JOB_LIMIT):
            yield (
                "shorter-grace-period",
                f"pool {name}: terminationGracePeriod {before_grace} → {grace}: when a node expires or its pool"
                " changes, Karpenter ends jobs that run longer, and GitHub's default limit of a job is 6h; use"
                f" {before_grace if _seconds(before_grace) < JOB_LIMIT else '6h'} or more",
            )


def _seconds(text: str) -> float:
    """Return the seconds of a duration such as `1h30m`; infinity for other text, which means no limit."""
    parts = re.findall(r"(\d+)([hms])", text)
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts) if parts else float("inf")


def _differing(old: Fields, new: Fields) -> list[tuple[str, str, str]]:
    return [
        (what, old.get(what, "any"), new.get(what, "any")) for what in {**old, **new} if old.get(what) != new.get(what)
    ]


def _fields(spec: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> Fields:
    template, disruption = spec.get("template", {}).get("spec", {}), spec.get("disruption", {})
    node_class = classes.get(str(template.get("nodeClassRef", {}).get("name")), {})
    return {
        "capacity": "on-demand",
        **_requirements(template.get("requirements", [])),
        "terminationGracePeriod": str(template.get("terminationGracePeriod", "none")),
        "expireAfter": str(template.get("expireAfter", "none")),
        "consolidationPolicy": str(disruption.get("consolidationPolicy", "none")),
        "consolidateAfter": str(disruption.get("consolidateAfter", "none")),
        "disruption budgets": _budgets(disruption.get("budgets", [])),
        "taints": _listed(template.get("taints", [])),
        "AMI": _listed(node_class.get("amiSelectorTerms", [])),
    }


def _requirements(requirements: Sequence[Mapping[str, Any]]) -> Fields:
    """Return the requirements as text, by name. A key may have several, such as `Gt` and `Lt`."""
    fields: Fields = {}
    for each in requirements:
        if each["key"] in _SHOWN:
            continue
        what = _REQUIREMENTS.get(each["key"], each["key"].rpartition("/")[2])
        operator = "" if each["operator"] == "In" else f"{each['operator']} "
        values = f"{operator}{', '.join(map(str, each.get('values', [])))}"
        fields[what] = f"{fields[what]} and {values}" if what in fields else values
    return fields


def _listed(items: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(":".join(map(str, each.values())) for each in items) or "none"


def _budgets(budgets: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(" ".join(f"{key} {value}" for key, value in each.items()) for each in budgets) or "none"


def _name(each: EvaluatedResource) -> str:
    return str(each.inputs.get("metadata", {}).get("name"))
