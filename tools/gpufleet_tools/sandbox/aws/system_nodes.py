"""Simulated nodes of managed node groups, which run all pods outside Karpenter's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.aws.ec2.instance_types import instance_types, zones_of
from gpufleet_tools.plan.plan import Plan, Resource, revealed

NODE_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""Label of a node with the name of its node group."""

_NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
"""Effects of taints in Kubernetes, by their name in EKS."""


def system_nodes(plan: Plan, region: str) -> list[dict[str, Any]]:
    """Return the desired number of nodes of each node group in the plan, of its first instance type, spread over the
    region's zones."""
    groups = [resource for resource in plan.owned() if resource.type == _NODE_GROUP]
    return [node for group in groups for node in _nodes(group, region)]


def _nodes(group: Resource, region: str) -> Iterator[dict[str, Any]]:
    inputs: Mapping[str, Any] = revealed(group.inputs)
    kind = instance_types()[inputs["instanceTypes"][0]]
    zones = sorted(zone for zone in zones_of(kind) if zone.startswith(region)) or [f"{region}a"]
    # Without the kubelet's reserved resources, on which nothing here depends.
    amounts = {"cpu": str(kind.cpus), "memory": _memory(kind.memory), "pods": str(kind.pods)}
    for number in range(1, inputs["scalingConfig"]["desiredSize"] + 1):
        zone = zones[(number - 1) % len(zones)]
        name = f"{group.name}-{number}"
        labels = {
            "kubernetes.io/arch": kind.architecture,
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name,
            "node.kubernetes.io/instance-type": kind.name,
            "topology.kubernetes.io/region": region,
            "topology.kubernetes.io/zone": zone,
            NODE_GROUP_LABEL: group.name,
            "eks.amazonaws.com/capacityType": inputs.get("capacityType", "ON_DEMAND"),
            **inputs.get("labels", {}),
        }
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": [_taint(taint) for taint in inputs.get("taints", [])]} if inputs.get("taints") else {},
            "status": {"capacity": amounts, "allocatable": amounts},
        }


def _memory(mebibytes: int) -> str:
    """Return the memory in the API server's notation; another notation would show as a change."""
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"


def _taint(taint: Mapping[str, str]) -> dict[str, str]:
    value = {"value": taint["value"]} if taint.get("value") else {}
    return {"key": taint["key"], "effect": _EFFECTS[taint["effect"]], **value}
