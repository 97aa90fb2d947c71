"""What the system nodes of a cluster on EKS have to hold: Karpenter, ARC with a listener for each label, and addons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpufleet.aws.ec2.instance_types import InstanceType, instance_types
from gpufleet.aws.karpenter.node_pool_args import AmiTerm, NodeClass
from gpufleet.aws.karpenter.node_pool_fit import allocatable
from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.daemon_requests import addon_requests
from gpufleet_stacks.settings.models.eks import EksSettings


@dataclass(frozen=True, kw_only=True)
class SystemPod:
    """Pods of one kind on the system nodes."""

    replicas: int = 1
    """Number of them."""
    requests: Mapping[str, str]
    """Requests of one: `cpu` and `memory`."""


KARPENTER = SystemPod(replicas=2, requests={"cpu": "1", "memory": "1Gi"})
"""The program gives it these, as Karpenter's own instructions do. Two replicas refuse to share a node."""

ARC_CONTROLLER = SystemPod(requests={"cpu": "100m", "memory": "256Mi"})
"""The program gives it these requests; its chart has none."""

LISTENER = SystemPod(requests={"cpu": "10m", "memory": "64Mi"})
"""The listener of one label. The program gives it these requests; ARC has none."""

ADDON_PODS: Mapping[str, SystemPod] = {
    # Two replicas, each with the requests of the manifest that EKS installs.
    "coredns": SystemPod(replicas=2, requests={"cpu": "100m", "memory": "70Mi"}),
    # Six containers with the same `resources` (charts/aws-ebs-csi-driver/values.yaml).
    "aws-ebs-csi-driver": SystemPod(replicas=2, requests={"cpu": "60m", "memory": "240Mi"}),
}
"""Deployments of EKS's addons that the program keeps on the system nodes."""

Amounts = dict[str, Decimal]


def system_pods(settings: EksSettings) -> Iterator[SystemPod]:
    """Pods that are on the system nodes and on no others."""
    yield KARPENTER
    yield ARC_CONTROLLER
    yield SystemPod(replicas=len(settings.runners), requests=LISTENER.requests)
    for addon in settings.cluster.addons:
        if addon in ADDON_PODS:
            yield ADDON_PODS[addon]


def system_requests(settings: EksSettings) -> Amounts:
    """Cores, bytes and pods that all of them request together."""
    pods = list(system_pods(settings))
    amounts = {
        name: sum((each.replicas * quantity.parse(each.requests[name]) for each in pods), Decimal(0))
        for name in ("cpu", "memory")
    }
    return {**amounts, "pods": Decimal(sum(each.replicas for each in pods))}


def system_node_room(settings: EksSettings) -> Amounts | None:
    """Cores, bytes and pods that one system node has for them, beside its DaemonSets; None for a type that the table
    does not have."""
    instance_type = instance_types().get(settings.cluster.system_nodes.instance_type)
    return None if instance_type is None else _room(instance_type, settings)


def _room(instance_type: InstanceType, settings: EksSettings) -> Amounts:
    machine = NodeClass(
        name="system", ami_terms=[AmiTerm(alias="al2023@v20260512")], subnet_terms=[], security_group_terms=[]
    )
    taken = addon_requests(settings.cluster.addons)
    return {name: amount - taken.get(name, Decimal(0)) for name, amount in allocatable(instance_type, machine).items()}
