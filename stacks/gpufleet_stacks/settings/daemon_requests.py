"""What the DaemonSets of a cluster on EKS ask for on each node of a pool: what jobs do not get.

Those of EKS's addons by the manifests that AWS publishes, that of NVIDIA's chart by the values that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.args.node_pools import pools_with_gpus
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.taints import Toleration


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """One pod that a node has."""

    cpu: str = "0"
    """Cores that its containers ask for together."""
    memory: str = "0"
    """Memory that they ask for together."""


ADDONS: Mapping[str, Daemon | None] = {
    # Two containers with the same `resources`: charts/aws-vpc-cni/values.yaml and templates/daemonset.yaml of
    # aws/amazon-vpc-cni-k8s at v1.20.0, v1.22.4 and v1.23.0.
    "vpc-cni": Daemon(cpu="50m"),
    # Its manifest is published nowhere but in clusters: last-applied-configuration at v1.28.1-minimal-eksbuild.1.
    "kube-proxy": Daemon(cpu="100m"),
    # `resources: {}` at v0.1.20: hack/testdata/expected_eks_pod_identity_agent_default_helm_template.yaml of
    # aws/eks-pod-identity-agent.
    "eks-pod-identity-agent": Daemon(),
    # Three containers with the same `resources`: charts/aws-ebs-csi-driver/values.yaml and templates/_node.tpl of
    # kubernetes-sigs/aws-ebs-csi-driver.
    "aws-ebs-csi-driver": Daemon(cpu="30m", memory="120Mi"),
    "coredns": None,
    "metrics-server": None,
    "snapshot-controller": None,
}
"""What EKS's addons run on every node, whatever its taints; None for those that are Deployments."""

DEVICE_PLUGIN = Daemon()
"""`resources: {}` in deployments/helm/nvidia-device-plugin/values.yaml of NVIDIA/k8s-device-plugin at v0.20.0, for GPU
feature discovery too."""

NODE_FEATURE_DISCOVERY = Daemon(cpu="5m", memory="64Mi")
"""The worker, by values.yaml of node-feature-discovery 0.19.0, which that chart is delivered with."""


def daemon_requests(settings: EksSettings, pool: str) -> dict[str, Decimal]:
    """What all of them ask for on a node of the pool: cores, bytes, and places for pods."""
    return _sum(list(_daemons(settings, pool)))


def addon_requests(addons: Iterable[str]) -> dict[str, Decimal]:
    """What the addons' DaemonSets ask for on every node, one of Karpenter's or none: cores, bytes, and places for
    pods."""
    return _sum([daemon for addon in addons if (daemon := ADDONS.get(addon))])


def _sum(found: Sequence[Daemon]) -> dict[str, Decimal]:
    return {
        "cpu": sum((quantity.parse(each.cpu) for each in found), Decimal(0)),
        "memory": sum((quantity.parse(each.memory) for each in found), Decimal(0)),
        "pods": Decimal(len(found)),
    }


def unreckoned(settings: EksSettings) -> list[str]:
    """Addons of which it is not known what they run on each node, sorted."""
    return sorted(settings.cluster.addons.keys() - ADDONS.keys())


def _daemons(settings: EksSettings, pool: str) -> Iterator[Daemon]:
    for addon in settings.cluster.addons:
        if daemon := ADDONS.get(addon):
            yield daemon
    with_gpus = pools_with_gpus(settings.cluster)
    if pool in with_gpus:
        yield DEVICE_PLUGIN
    if with_gpus and settings.nvidia_plugin.feature_discovery:
        if pool in with_gpus:
            yield DEVICE_PLUGIN
        if _discovered(settings, pool, with_gpus):
            yield NODE_FEATURE_DISCOVERY


def _discovered(settings: EksSettings, pool: str, with_gpus: list[str]) -> bool:
    """Whether node feature discovery runs on the pool's nodes: it tolerates the taints of those with GPUs, and no
    others."""
    pools = settings.cluster.node_pools
    known = {(taint.key, taint.effect) for name in with_gpus for taint in pools[name].taints}
    tolerations = [
        Toleration(key=key, operator="Exists", effect=effect)
        for key, effect in {*known, ("nvidia.com/gpu", "NoSchedule")}
    ]
    return all(
        taint.effect == "PreferNoSchedule" or any(each.tolerates(taint) for each in tolerations)
        for taint in pools[pool].taints
    )
