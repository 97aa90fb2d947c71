"""Requests of an EKS cluster's DaemonSets on each node of a pool, which jobs cannot use.

Requests of NVIDIA's chart come from its values, those of EKS add-ons from `addon_pods`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from gpufleet.aws.eks.cluster_args import NODE_MONITORING_AGENT
from gpufleet_stacks.settings.addon_pods import DAEMONS, DCGM
from gpufleet_stacks.settings.args.node_pools import plugin_pools, pools_with_gpus
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.eks_cluster import EksClusterSettings
from gpufleet_stacks.settings.models.taints import Toleration, repelling

Amounts = Mapping[str, Decimal]
"""Requests of one pod, in cores and bytes."""

DEVICE_PLUGIN: Amounts = {}
"""`resources: {}` in deployments/helm/nvidia-device-plugin/values.yaml of NVIDIA/k8s-device-plugin at v0.20.0, for GPU
feature discovery too."""

NODE_FEATURE_DISCOVERY: Amounts = {"cpu": Decimal("0.005"), "memory": Decimal(64 * 1024**2)}
"""The worker, by values.yaml of node-feature-discovery 0.19.0, which that chart contains."""


EFA_PLUGIN: Amounts = {"cpu": Decimal("0.01"), "memory": Decimal(20 * 1024**2)}
"""The EFA device plugin, by stable/aws-efa-k8s-device-plugin/values.yaml of aws/eks-charts at v0.5.30."""


def daemon_requests(settings: EksSettings, pool: str) -> dict[str, Decimal]:
    """Return the total requests on a node of the pool: cores, bytes, and the number of pods."""
    return _sum(list(_daemons(settings, pool)))


def addon_requests(cluster: EksClusterSettings) -> dict[str, Decimal]:
    """Return the requests of the add-ons' DaemonSets on every node: cores, bytes, and the number of pods."""
    return _sum(list(_addon_daemons(cluster)))


def _sum(found: Sequence[Amounts]) -> dict[str, Decimal]:
    total = {name: sum((each.get(name, Decimal(0)) for each in found), Decimal(0)) for name in ("cpu", "memory")}
    return {**total, "pods": Decimal(len(found))}


def addons_of_unknown_requests(settings: EksSettings) -> list[str]:
    """Return the addons whose requests on each node are unknown, sorted."""
    return sorted(settings.cluster.addons.keys() - DAEMONS.keys())


def _addon_daemons(cluster: EksClusterSettings) -> Iterator[Amounts]:
    for addon in cluster.addons:
        if daemon := DAEMONS.get(addon):
            yield daemon.requests(cluster.addon_configuration.get(addon, {}))


def _daemons(settings: EksSettings, pool: str) -> Iterator[Amounts]:
    cluster = settings.cluster
    yield from _addon_daemons(cluster)
    if pool in pools_with_gpus(cluster) and NODE_MONITORING_AGENT in cluster.addons:
        yield DCGM.requests(cluster.addon_configuration.get(NODE_MONITORING_AGENT, {}))
    if cluster.node_pools[pool].efa:
        yield EFA_PLUGIN
    served = plugin_pools(settings.cluster)
    if pool in served:
        yield DEVICE_PLUGIN
        if (sharing := settings.cluster.node_pools[pool].sharing) and sharing.mps:
            # The control daemon, of the same chart and with the same `resources`.
            yield DEVICE_PLUGIN
    if served and settings.nvidia_plugin.feature_discovery:
        if pool in served:
            yield DEVICE_PLUGIN
        if _discovered(settings, pool, served):
            yield NODE_FEATURE_DISCOVERY


def _discovered(settings: EksSettings, pool: str, served: list[str]) -> bool:
    """Return whether node feature discovery runs on the pool's nodes. It tolerates only the taints of pools
    that the device plugin serves."""
    pools = settings.cluster.node_pools
    known = {(taint.key, taint.effect) for name in served for taint in pools[name].taints}
    tolerations = [
        Toleration(key=key, operator="Exists", effect=effect)
        for key, effect in {*known, ("nvidia.com/gpu", "NoSchedule")}
    ]
    return not repelling(pools[pool].taints, tolerations)
