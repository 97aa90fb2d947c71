"""Arguments of Karpenter's node pools, from the settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pulumi

from gpufleet.aws.ec2.instance_types import LABELS, Devices, InstanceType
from gpufleet.aws.ec2.instance_types import label as label_values
from gpufleet.aws.efa.interfaces import EFA_LABEL
from gpufleet.aws.eks.network_args import DISCOVERY_TAG
from gpufleet.aws.karpenter.bottlerocket import is_bottlerocket
from gpufleet.aws.karpenter.node_pool_args import (
    AmiTerm,
    CapacityReservationTerm,
    Disruption,
    DisruptionBudget,
    KarpenterNodePoolArgs,
    Kubelet,
    NodeClass,
    PlacementGroup,
    Requirement,
    ReservedInstances,
    SecurityGroupTerm,
    SubnetTerm,
)
from gpufleet.aws.karpenter.node_pool_fit import gpu_counts, instance_types_of
from gpufleet.aws.karpenter.policies import Scope
from gpufleet.nvidia.device_plugin import CONFIG_LABEL, MPS_LABEL
from gpufleet.nvidia.sharing import GPU, Mig, Mps, TimeSlicing, allocatable, config_name, mig_instances
from gpufleet.nvidia.sharing import Sharing as GpuSharing
from gpufleet.problem import Path
from gpufleet.taint import Taint
from gpufleet_stacks.settings.models.eks_cluster import EksClusterSettings
from gpufleet_stacks.settings.models.karpenter import (
    Instances,
    KarpenterPool,
    PoolLimits,
    ReservedInstancesSettings,
)
from gpufleet_stacks.settings.models.taints import TaintSettings

_AWS = "karpenter.k8s.aws"


def node_pool_args(
    name: str, cluster: EksClusterSettings, needs: Sequence[pulumi.Resource] = ()
) -> KarpenterNodePoolArgs:
    """Return the arguments of a pool."""
    pool = cluster.node_pools[name]
    args = _unshared(name, cluster, needs)
    if pool.efa == "always":
        interfaces = dataclasses.replace(args.node_class, efa_only_interfaces=max(efa_counts(args), default=0))
        args = dataclasses.replace(args, node_class=interfaces)
    sharing = sharing_of(pool, args)
    if sharing is None:
        return args
    return dataclasses.replace(args, sharing=sharing, limits=limits(pool.limits, sharing))


def labelled(args: KarpenterNodePoolArgs, cluster: EksClusterSettings) -> KarpenterNodePoolArgs:
    """Return the pool with the labels by which the charts of device plugins select nodes and configurations. Pools with
    the default sharing of NVIDIA's plugin need no label for it."""
    _, configs = plugin_sharings(cluster)
    name = config_name(args.sharing)
    chosen = {CONFIG_LABEL: name} if name in configs and args.pool in plugin_pools(cluster) else {}
    served = {MPS_LABEL: "true"} if isinstance(args.sharing, Mps) else {}
    with_efa = {EFA_LABEL: "true"} if cluster.node_pools[args.pool].efa else {}
    return dataclasses.replace(args, labels={**args.labels, **chosen, **served, **with_efa})


def _unshared(name: str, cluster: EksClusterSettings, needs: Sequence[pulumi.Resource]) -> KarpenterNodePoolArgs:
    """Return the arguments of a pool without its GPU sharing."""
    pool = cluster.node_pools[name]
    return KarpenterNodePoolArgs(
        pool=name,
        node_class=node_class(name, cluster),
        requirements=requirements(pool),
        labels=pool.labels,
        taints=[taint_args(taint) for taint in pool.taints],
        startup_taints=[taint_args(taint) for taint in pool.startup_taints],
        limits=limits(pool.limits, None),
        weight=pool.weight,
        disruption=disruption(pool),
        expire_after=pool.expire_after,
        termination_grace_period=pool.termination_grace_period,
        gpu_counts=pool.instances.gpu_counts,
        zones=() if pool.instances.gpu_counts is not None else pool.zones or zones(cluster),
        needs=needs,
    )


def taint_args(taint: TaintSettings) -> Taint:
    """Return the component's form of a taint."""
    return Taint(key=taint.key, value=taint.value or None, effect=taint.effect)


def pools_with_gpus(cluster: EksClusterSettings) -> list[str]:
    """Return the names of pools with GPUs."""
    return [name for name in cluster.node_pools if gpu_counts(node_pool_args(name, cluster))]


def plugin_pools(cluster: EksClusterSettings) -> list[str]:
    """Return the names of the pools that the device plugin's DaemonSet serves: those with GPUs, except Bottlerocket's,
    whose images include the plugin."""
    return [name for name in pools_with_gpus(cluster) if not is_bottlerocket(node_class(name, cluster))]


def gpus_of(name: str, cluster: EksClusterSettings) -> list[Devices]:
    """Return the GPUs of the instance types that a pool may provision, one entry for each type with GPUs."""
    types = instance_types_of(node_pool_args(name, cluster))
    return [each.gpus for each in types if each.gpus and each.gpus.number]


def efa_pools(cluster: EksClusterSettings) -> list[KarpenterPool]:
    """Return the pools with EFA interfaces."""
    return [pool for pool in cluster.node_pools.values() if pool.efa]


def efa_counts(args: KarpenterNodePoolArgs) -> set[int]:
    """Return the numbers of EFA interfaces of the pool's instance types."""
    return {each.efa.interfaces if each.efa else 0 for each in instance_types_of(args)}


def selected_types(
    node_selector: Mapping[str, str], args: KarpenterNodePoolArgs, types: Sequence[InstanceType] | None = None
) -> list[InstanceType]:
    """Return the pool's instance types that a node selector allows. Labels that do not depend on the type are ignored.
    Instance types are looked up unless given."""
    return [
        each
        for each in (instance_types_of(args) if types is None else types)
        if all(value in label_values(each, key, args.zones) for key, value in node_selector.items() if key in LABELS)
    ]


def zones(cluster: EksClusterSettings) -> tuple[str, ...]:
    """Return the zones of the cluster's network."""
    return cluster.network.zones if cluster.network.kind == "own" else tuple(cluster.network.private_subnets)


def sharing_of(pool: KarpenterPool, args: KarpenterNodePoolArgs) -> GpuSharing | None:
    """Return the component's form of GPU sharing. The number of MIG instances of a GPU is that of the first instance
    type of `args`, the pool without sharing, that has the profile."""
    sharing = pool.sharing
    if sharing is None:
        return None
    if sharing.mps:
        return Mps(replicas=sharing.mps.replicas)
    if sharing.mig:
        profile = sharing.mig.profile
        held = (
            mig_instances(each.gpus.name, each.gpus.memory, profile) for each in instance_types_of(args) if each.gpus
        )
        return Mig(profile=profile, instances=next(filter(None, held), 1))
    sliced = sharing.time_slicing
    assert sliced, "the model has one of the three"
    return TimeSlicing(
        replicas=sliced.replicas,
        rename_by_default=sliced.rename_by_default,
        fail_requests_greater_than_one=sliced.fail_requests_greater_than_one,
    )


def plugin_sharings(cluster: EksClusterSettings) -> tuple[GpuSharing | None, dict[str, GpuSharing | None]]:
    """Return the device plugin's default sharing, which is that of the first pool it serves, and the other pools'
    sharing by name. MIG is always selected by name."""
    sharings = [node_pool_args(name, cluster).sharing for name in plugin_pools(cluster)]
    first = sharings[0] if sharings and not isinstance(sharings[0], Mig) else None
    return first, {config_name(each): each for each in sharings if each != first}


def node_class(name: str, cluster: EksClusterSettings) -> NodeClass:
    """Return the node class of a pool. Role and instance profile are passed on unchanged; a rule rejects both at
    once."""
    pool = cluster.node_pools[name]
    discovery = {DISCOVERY_TAG: cluster.name}
    own_role = None if pool.instance_profile else node_role(cluster)
    return NodeClass(
        name=pool.node_class or name,
        ami_terms=[AmiTerm(**dict(ami)) for ami in pool.amis],
        subnet_terms=[SubnetTerm(tags=discovery)],
        security_group_terms=[SecurityGroupTerm(tags=discovery)],
        role=pool.role or own_role,
        instance_profile=pool.instance_profile,
        ami_family=pool.ami_family,
        root_volume_size=pool.root_volume,
        root_volume_iops=pool.root_volume_iops,
        root_volume_throughput=pool.root_volume_throughput,
        root_volume_key=pool.root_volume_key,
        image_snapshot=pool.image_snapshot,
        fast_image_pull=pool.fast_image_pull,
        placement_group=placement_group(name, cluster),
        kubelet=Kubelet(**dict(pool.kubelet)),
        user_data=pool.user_data,
        instance_store_policy=pool.instance_store,
        metadata_hop_limit=pool.metadata_hop_limit,
        capacity_reservation_terms=[
            CapacityReservationTerm(
                id=reservation.id,
                tags=reservation.tags,
                owner_id=reservation.owner_id,
                match_criteria=reservation.match_criteria,
                holds=reserved_instances(reservation.holds),
            )
            for reservation in pool.reservations
        ],
        tags=cluster.tags | pool.tags,
    )


def placement_group(name: str, cluster: EksClusterSettings) -> PlacementGroup | None:
    """Return the component's form of a pool's placement group."""
    group = cluster.node_pools[name].placement_group
    if group is None:
        return None
    created = f"{cluster.name}-{name}" if group.strategy and group.id is None else None
    return PlacementGroup(strategy=group.strategy, name=group.name or created, id=group.id)


def reserved_instances(holds: ReservedInstancesSettings | None) -> ReservedInstances | None:
    """Return the component's form of reserved instances."""
    return None if holds is None else ReservedInstances(**dict(holds))


def node_role(cluster: EksClusterSettings) -> str:
    """Return the name of the IAM role of Karpenter's nodes."""
    scope = Scope(cluster=cluster.name, region=cluster.region, account=cluster.account, partition=cluster.partition)
    return scope.node_role


def requirements(pool: KarpenterPool) -> list[Requirement]:
    """Return a pool's requirements on instance types and capacity types, with those in Karpenter's own syntax last."""
    return [requirement for _, requirement in _requirements(pool)]


def sources_of_requirements(pool: KarpenterPool) -> list[Path]:
    """Return the setting from which each of a pool's requirements comes, in the same order."""
    return [source for source, _ in _requirements(pool)]


def _requirements(pool: KarpenterPool) -> Iterator[tuple[Path, Requirement]]:
    yield from _of_instances(pool.instances)
    architecture = Requirement(key="kubernetes.io/arch", operator="In", values=[pool.instances.architecture])
    yield ("instances", "architecture"), architecture
    yield ("capacity",), Requirement(key="karpenter.sh/capacity-type", operator="In", values=pool.capacity)
    if pool.zones:
        yield ("zones",), Requirement(key="topology.kubernetes.io/zone", operator="In", values=pool.zones)
    for index, own in enumerate(pool.requirements):
        yield ("requirements", index), Requirement(**dict(own))


def _of_instances(instances: Instances) -> Iterator[tuple[Path, Requirement]]:
    for setting, label, values in (
        ("categories", "category", instances.categories),
        ("families", "family", instances.families),
        ("sizes", "size", instances.sizes),
        ("cpus", "cpu", tuple(map(str, instances.cpus))),
        ("hypervisor", "hypervisor", (instances.hypervisor,) if instances.hypervisor else ()),
    ):
        if values:
            requirement = Requirement(key=f"{_AWS}/instance-{label}", operator="In", values=values)
            yield ("instances", setting), requirement
    if instances.generation_above is not None:
        above = str(instances.generation_above)
        requirement = Requirement(key=f"{_AWS}/instance-generation", operator="Gt", values=[above])
        yield ("instances", "generationAbove"), requirement


def limits(settings: PoolLimits, sharing: GpuSharing | None) -> dict[str, str]:
    """Return the limits of a pool by resource. Karpenter counts GPUs after sharing."""
    gpus = None if settings.gpus is None else str(allocatable(settings.gpus, sharing))
    nodes = None if settings.nodes is None else str(settings.nodes)
    found = {"cpu": settings.cpu, "memory": settings.memory, GPU: gpus, "nodes": nodes}
    return {resource: limit for resource, limit in found.items() if limit is not None}


def disruption(pool: KarpenterPool) -> Disruption:
    """Return the component's form of disruption settings."""
    return Disruption(
        consolidation_policy=pool.disruption.consolidation_policy,
        consolidate_after=pool.disruption.consolidate_after,
        budgets=[DisruptionBudget(**dict(budget)) for budget in pool.disruption.budgets],
    )
