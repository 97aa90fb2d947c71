"""Requests of an EKS cluster's DaemonSets on each node of a pool, which jobs cannot use.

Requests of EKS addons come from the manifests that AWS publishes, requests of NVIDIA's chart from its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpufleet import quantity
from gpufleet.aws.eks.cluster_args import NODE_MONITORING_AGENT
from gpufleet_stacks.settings.args.node_pools import plugin_pools, pools_with_gpus
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.taints import Toleration


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A DaemonSet's pod on a node."""

    cpu: str = "0"
    """Total CPU requests of its containers."""
    memory: str = "0"
    """Total memory requests of its containers."""


ADDONS: Mapping[str, Daemon | None] = {
    # Two containers with the same `resources`: charts/aws-vpc-cni/values.yaml and templates/daemonset.yaml of
    # aws/amazon-vpc-cni-k8s at v1.20.0, v1.22.4 and v1.23.0.
    "vpc-cni": Daemon(cpu="50m"),
    # Its manifest is published in clusters only: last-applied-configuration at v1.28.1-minimal-eksbuild.1.
    "kube-proxy": Daemon(cpu="100m"),
    # `resources: {}` at v0.1.20: hack/testdata/expected_eks_pod_identity_agent_default_helm_template.yaml of
    # aws/eks-pod-identity-agent.
    "eks-pod-identity-agent": Daemon(),
    # Three containers with the same `resources`: charts/aws-ebs-csi-driver/values.yaml and templates/_node.tpl of
    # kubernetes-sigs/aws-ebs-csi-driver.
    "aws-ebs-csi-driver": Daemon(cpu="30m", memory="120Mi"),
    # charts/eks-node-monitoring-agent/values.yaml of aws/eks-node-monitoring-agent at v1.6.0 and v1.7.0.
    NODE_MONITORING_AGENT: Daemon(cpu="10m", memory="30Mi"),
    "coredns": None,
    "metrics-server": None,
    "snapshot-controller": None,
}
"""Pod that each EKS addon runs on every node, whatever its taints; None for addons that are Deployments."""

DCGM = Daemon()
"""The second DaemonSet of that chart, `dcgm-server`, on nodes with GPUs: `resources: {}`."""

DEVICE_PLUGIN = Daemon()
"""`resources: {}` in deployments/helm/nvidia-device-plugin/values.yaml of NVIDIA/k8s-device-plugin at v0.20.0, for GPU
feature discovery too."""

NODE_FEATURE_DISCOVERY = Daemon(cpu="5m", memory="64Mi")
"""The worker, by values.yaml of node-feature-discovery 0.19.0, which that chart contains."""


def daemon_requests(settings: EksSettings, pool: str) -> dict[str, Decimal]:
    """Return the total requests on a node of the pool: cores, bytes, and the number of pods."""
    return _sum(list(_daemons(settings, pool)))


def addon_requests(addons: Iterable[str]) -> dict[str, Decimal]:
    """Return the requests of the addons' DaemonSets on every node: cores, bytes, and the number of pods."""
    return _sum([daemon for addon in addons if (daemon := ADDONS.get(addon))])


def _sum(found: Sequence[Daemon]) -> dict[str, Decimal]:
    return {
        "cpu": sum((quantity.parsed(each.cpu) for each in found), Decimal(0)),
        "memory": sum((quantity.parsed(each.memory) for each in found), Decimal(0)),
        "pods": Decimal(len(found)),
    }


def addons_of_unknown_requests(settings: EksSettings) -> list[str]:
    """Return the addons whose requests on each node are unknown, sorted."""
    return sorted(settings.cluster.addons.keys() - ADDONS.keys())


def _daemons(settings: EksSettings, pool: str) -> Iterator[Daemon]:
    for addon in settings.cluster.addons:
        if daemon := ADDONS.get(addon):
            yield daemon
    if pool in pools_with_gpus(settings.cluster) and NODE_MONITORING_AGENT in settings.cluster.addons:
        yield DCGM
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
    return all(
        taint.effect == "PreferNoSchedule" or any(each.tolerates(taint) for each in tolerations)
        for taint in pools[pool].taints
    )
