"""Requests on the system nodes of an EKS cluster: Karpenter, ARC with a listener for each label, and add-ons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import InstanceType, instance_types
from gpufleet.aws.karpenter.node_pool_args import AmiTerm, NodeClass
from gpufleet.aws.karpenter.node_pool_fit import allocatable
from gpufleet_stacks.settings.addon_pods import DEPLOYMENTS
from gpufleet_stacks.settings.daemon_requests import addon_requests
from gpufleet_stacks.settings.models.eks import EksSettings


@dataclass(frozen=True, kw_only=True)
class SystemPod:
    """Pods of one kind on the system nodes."""

    replicas: int = 1
    """Number of pods."""
    requests: Mapping[str, str]
    """Requests of one pod: `cpu` and `memory`."""


KARPENTER = SystemPod(replicas=2, requests={"cpu": "1", "memory": "1Gi"})
"""Karpenter's controller, with the requests of Karpenter's own instructions. Its two replicas never share a node."""

ARC_CONTROLLER = SystemPod(requests={"cpu": "100m", "memory": "256Mi"})
"""ARC's controller. The program sets these requests; the chart has none."""

LISTENER = SystemPod(requests={"cpu": "10m", "memory": "64Mi"})
"""The listener of one label. The program sets these requests; ARC has none."""

Amounts = dict[str, Decimal]


def system_pods(settings: EksSettings) -> Iterator[tuple[int, Amounts]]:
    """Yield the pods that run on the system nodes only: their number, and the requests of one in cores and bytes."""
    cluster = settings.cluster
    for pod, number in ((KARPENTER, KARPENTER.replicas), (ARC_CONTROLLER, 1), (LISTENER, len(settings.runners))):
        yield number, {name: quantity.parsed(text) for name, text in pod.requests.items()}
    for addon in cluster.addons:
        if deployment := DEPLOYMENTS.get(addon):
            configuration = cluster.addon_configuration.get(addon, {})
            yield deployment.count(configuration), deployment.requests(configuration)


def system_requests(settings: EksSettings) -> Amounts:
    """Return the total requests of these pods: cores, bytes, and the number of pods."""
    pods = list(system_pods(settings))
    amounts = {name: sum((number * one[name] for number, one in pods), Decimal(0)) for name in ("cpu", "memory")}
    return {**amounts, "pods": Decimal(sum(number for number, _ in pods))}


def system_node_room(settings: EksSettings) -> Amounts | None:
    """Return the room of one system node for these pods, besides its DaemonSets: cores, bytes, and the number of pods.
    None for an instance type that the table does not contain."""
    instance_type = instance_types().get(settings.cluster.system_nodes.instance_type)
    return None if instance_type is None else _room(instance_type, settings)


def _room(instance_type: InstanceType, settings: EksSettings) -> Amounts:
    machine = NodeClass(
        name="system", ami_terms=[AmiTerm(alias="al2023@v20260512")], subnet_terms=[], security_group_terms=[]
    )
    taken = addon_requests(settings.cluster)
    return {name: amount - taken.get(name, Decimal(0)) for name, amount in allocatable(instance_type, machine).items()}
