"""Findings about system nodes and EKS add-ons."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from gpufleet import quantity
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.system_requests import KARPENTER, system_node_room, system_requests
from gpufleet_tools.check.eks.pools import pools
from gpufleet_tools.check.finding import Finding

_UNPINNED_ADDONS = ("metrics-server", "snapshot-controller")
"""Add-ons with Deployments whose configuration values have no published schema, so that the program sets none."""


def addons_on_any_node(settings: EksSettings) -> Iterator[Finding]:
    for addon in _UNPINNED_ADDONS:
        given = settings.cluster.addon_configuration.get(addon, {})
        if addon in settings.cluster.addons and not {"nodeSelector", "affinity"} & given.keys():
            yield Finding(
                "addon-on-any-node",
                "note",
                ("cluster", "addons", addon),
                "runs on any node, and a node of Karpenter is kept for as long as it does; set"
                f" addonConfiguration.{addon}.nodeSelector to {{gpu-runners/nodes: system}}",
            )


def useless_prefixes(settings: EksSettings) -> Iterator[Finding]:
    """Yield pools without `maxPods`: Karpenter and the kubelet then compute the number of pods from network interfaces
    (`pods` in pkg/providers/instancetype/types.go of aws/karpenter-provider-aws at v1.14.1)."""
    environment = settings.cluster.addon_configuration.get("vpc-cni", {}).get("env")
    if not isinstance(environment, dict) or environment.get("ENABLE_PREFIX_DELEGATION") != "true":
        return
    for _, where, pool in pools(settings):
        if pool.kubelet.max_pods is None:
            yield Finding(
                "useless-prefixes",
                "note",
                (*where, "kubelet"),
                "ENABLE_PREFIX_DELEGATION gives nodes more addresses, but no more pods, because Karpenter computes"
                " their number from network interfaces; set maxPods, for example to 110",
            )


def full_system_nodes(settings: EksSettings) -> Iterator[Finding]:
    nodes, room = settings.cluster.system_nodes, system_node_room(settings)
    if room is None:
        return
    requested = system_requests(settings)
    for resource, show in (("cpu", quantity.cores), ("memory", quantity.gibibytes), ("pods", str)):
        # While a node is replaced, it runs nothing, and Karpenter's second replica can wait.
        spared = Decimal(1) if resource == "pods" else quantity.parsed(KARPENTER.requests[resource])
        available, wanted = room[resource] * (nodes.count - 1), requested[resource] - spared
        if wanted > available:
            what = "pods" if resource == "pods" else resource
            yield Finding(
                "full-system-nodes",
                "error" if requested[resource] > room[resource] * nodes.count else "warning",
                ("cluster", "systemNodes"),
                f"Karpenter, ARC, add-ons and the listeners of {len(settings.runners)} labels request {show(wanted)}"
                f" {what}, but while a node is replaced, {nodes.count - 1} of {nodes.instance_type} have"
                f" {show(available)}; raise count, or use a larger instanceType",
            )
