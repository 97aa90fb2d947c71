"""Node pools of a stack file as their component takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pulumi

from components.ec2_instance_types import Devices
from components.eks_network_args import DISCOVERY_TAG
from components.gpu_sharing import GPU
from components.gpu_sharing import TimeSlicing as SlicedGpu
from components.karpenter_policies import Scope
from components.node_pool_args import (
    AmiTerm,
    CapacityReservationTerm,
    Disruption,
    DisruptionBudget,
    KarpenterNodePoolArgs,
    NodeClass,
    Requirement,
    SecurityGroupTerm,
    SubnetTerm,
)
from components.node_pool_fit import gpu_counts, instance_types_of
from components.taint import Taint
from stacks.eks_settings import EksCluster
from stacks.karpenter_settings import Instances, KarpenterPool, PoolLimits, Sharing

_AWS = "karpenter.k8s.aws"


def node_pool_args(name: str, cluster: EksCluster, needs: Sequence[pulumi.Resource] = ()) -> KarpenterNodePoolArgs:
    """A pool of the cluster."""
    pool = cluster.node_pools[name]
    sharing = time_slicing(pool.sharing)
    return KarpenterNodePoolArgs(
        pool=name,
        node_class=node_class(name, cluster),
        requirements=list(requirements(pool)),
        labels=pool.labels,
        taints=[Taint(key=taint.key, value=taint.value or None, effect=taint.effect) for taint in pool.taints],
        limits=limits(pool.limits, sharing),
        weight=pool.weight,
        disruption=disruption(pool),
        expire_after=pool.expire_after,
        termination_grace_period=pool.termination_grace_period,
        gpu_counts=pool.instances.gpu_counts,
        sharing=sharing,
        zones=() if pool.instances.gpu_counts is not None else pool.zones or zones(cluster),
        needs=needs,
    )


def pools_with_gpus(cluster: EksCluster) -> list[str]:
    """Names of the pools that have GPUs."""
    return [name for name in cluster.node_pools if gpu_counts(node_pool_args(name, cluster))]


def gpus_of(name: str, cluster: EksCluster) -> list[Devices]:
    """GPUs of the instance types that a pool may buy, one entry for each type that has some."""
    types = instance_types_of(node_pool_args(name, cluster))
    return [each.gpus for each in types if each.gpus and each.gpus.number]


def zones(cluster: EksCluster) -> tuple[str, ...]:
    """Zones of the cluster's network."""
    return cluster.network.zones if cluster.network.kind == "own" else tuple(cluster.network.private_subnets)


def time_slicing(sharing: Sharing | None) -> SlicedGpu | None:
    """How GPUs are shared, as components take it."""
    if sharing is None:
        return None
    sliced = sharing.time_slicing
    return SlicedGpu(
        replicas=sliced.replicas,
        rename_by_default=sliced.rename_by_default,
        fail_requests_greater_than_one=sliced.fail_requests_greater_than_one,
    )


def node_class(name: str, cluster: EksCluster) -> NodeClass:
    """The machines of a pool. Role and instance profile are left as they are: both at once is for a rule to tell."""
    pool = cluster.node_pools[name]
    discovery = {DISCOVERY_TAG: cluster.name}
    own_role = None if pool.instance_profile else node_role(cluster)
    return NodeClass(
        name=pool.node_class or name,
        ami_terms=[
            AmiTerm(
                alias=ami.alias,
                id=ami.id,
                name=ami.name,
                owner=ami.owner,
                tags=ami.tags,
                ssm_parameter=ami.ssm_parameter,
            )
            for ami in pool.amis
        ],
        subnet_terms=[SubnetTerm(tags=discovery)],
        security_group_terms=[SecurityGroupTerm(tags=discovery)],
        role=pool.role or own_role,
        instance_profile=pool.instance_profile,
        ami_family=pool.ami_family,
        root_volume_size=pool.root_volume,
        instance_store_policy=pool.instance_store,
        metadata_hop_limit=pool.metadata_hop_limit,
        capacity_reservation_terms=[
            CapacityReservationTerm(
                id=reservation.id,
                tags=reservation.tags,
                owner_id=reservation.owner_id,
                match_criteria=reservation.match_criteria,
            )
            for reservation in pool.reservations
        ],
        tags=cluster.tags | pool.tags,
    )


def node_role(cluster: EksCluster) -> str:
    """Name of the role that Karpenter's nodes have."""
    scope = Scope(cluster=cluster.name, region=cluster.region, account=cluster.account, partition=cluster.partition)
    return scope.node_role


def requirements(pool: KarpenterPool) -> Iterator[Requirement]:
    """What instance types are bought, and how: the pool's choices, then what it asks for in Karpenter's own words."""
    yield from _of_instances(pool.instances)
    yield Requirement(key="kubernetes.io/arch", operator="In", values=[pool.instances.architecture])
    yield Requirement(key="karpenter.sh/capacity-type", operator="In", values=pool.capacity)
    if pool.zones:
        yield Requirement(key="topology.kubernetes.io/zone", operator="In", values=pool.zones)
    for asked in pool.requirements:
        yield Requirement(key=asked.key, operator=asked.operator, values=asked.values, min_values=asked.min_values)


def _of_instances(instances: Instances) -> Iterator[Requirement]:
    for label, values in (
        ("category", instances.categories),
        ("family", instances.families),
        ("size", instances.sizes),
        ("cpu", tuple(map(str, instances.cpus))),
        ("hypervisor", (instances.hypervisor,) if instances.hypervisor else ()),
    ):
        if values:
            yield Requirement(key=f"{_AWS}/instance-{label}", operator="In", values=values)
    if instances.generation_above is not None:
        above = str(instances.generation_above)
        yield Requirement(key=f"{_AWS}/instance-generation", operator="Gt", values=[above])


def limits(given: PoolLimits, sharing: SlicedGpu | None) -> dict[str, str]:
    """Most of each resource in all nodes. Karpenter counts GPUs as they are offered, shared or not."""
    gpus = None if given.gpus is None else str(given.gpus * (sharing.replicas if sharing else 1))
    nodes = None if given.nodes is None else str(given.nodes)
    found = {"cpu": given.cpu, "memory": given.memory, GPU: gpus, "nodes": nodes}
    return {resource: limit for resource, limit in found.items() if limit is not None}


def disruption(pool: KarpenterPool) -> Disruption:
    """When nodes are taken away."""
    return Disruption(
        consolidation_policy=pool.disruption.consolidation_policy,
        consolidate_after=pool.disruption.consolidate_after,
        budgets=[
            DisruptionBudget(
                nodes=budget.nodes, reasons=budget.reasons, schedule=budget.schedule, duration=budget.duration
            )
            for budget in pool.disruption.budgets
        ],
    )
