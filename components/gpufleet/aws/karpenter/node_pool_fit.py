"""Capacity of a pool's nodes, calculated as Karpenter does before it provisions one.

The figures follow pkg/providers/instancetype/types.go of aws/karpenter-provider-aws at v1.14.1, for Linux. They are an
estimate: once a node of a type has registered, Karpenter uses that node's memory instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import ZONE, InstanceType
from gpufleet.aws.ec2.requirements import intersected, matching
from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.karpenter.node_pool_args import ALIAS_FAMILIES, KarpenterNodePoolArgs, NodeClass, Requirement
from gpufleet.nvidia.sharing import GPU, Sharing, largest_request
from gpufleet.nvidia.sharing import allocatable as gpus_offered

VM_MEMORY_OVERHEAD = 0.075
"""Fraction of the memory that Karpenter assumes for the hypervisor; its option `vmMemoryOverheadPercent` (default in
pkg/operator/options/options.go)."""

MIB = 1024**2

CPU_RESERVED = ((1000, Decimal("0.06")), (2000, Decimal("0.01")), (4000, Decimal("0.005")), (2**31, Decimal("0.0025")))
"""Fractions of the CPU reserved for Kubernetes, up to that many millicores (`kubeReservedResources`)."""

Amounts = Mapping[str, Decimal]
"""Amounts in cores, bytes or numbers, by resource name."""


def requirements(args: KarpenterNodePoolArgs) -> list[Requirement]:
    """Return the requirements on instance types. Labels of the pool's nodes count as requirements too."""
    labels = [Requirement(key=key, operator="In", values=[value]) for key, value in args.labels.items()]
    return [*args.requirements, *labels]


def instance_types_of(args: KarpenterNodePoolArgs) -> list[InstanceType]:
    """Return the instance types that a pool may provision, by name. If it names zones, only types offered there."""
    terms = args.node_class.capacity_reservation_terms
    found = matching(requirements(args), args.zones, reserved=bool(terms))
    if terms and all(term.holds for term in terms):
        # All reservations are known, so other types can only be provisioned on demand or as spot.
        others = matching(requirements(args), args.zones)
        found = [each for each in found if each in others or each.name in reserved_instances(args)]
    efas = args.node_class.efa_only_interfaces
    # `networkInterfaces` of a node class excludes types with fewer (same file as below).
    found = [each for each in found if not efas or (each.efa and each.efa.interfaces >= efas)]
    # AL2023 does not run on first-generation Graviton (pkg/providers/instancetype/compatibility/compatibility.go).
    return [each for each in found if not (each.family == "a1" and ami_family(args.node_class) == "AL2023")]


def reserved_instances(args: KarpenterNodePoolArgs) -> dict[str, int]:
    """Return the number of reserved instances in the pool's zones by instance type, as far as it is known."""
    allowed = intersected(requirements(args)).get(ZONE)
    found: dict[str, int] = {}
    for term in args.node_class.capacity_reservation_terms:
        holds = term.holds
        if holds and (not args.zones or holds.zone in args.zones) and (allowed is None or allowed.has(holds.zone)):
            found[holds.instance_type] = found.get(holds.instance_type, 0) + holds.instances
    return found


def only_reserved(args: KarpenterNodePoolArgs) -> bool:
    """Return whether the pool only provisions reserved instances, all of them known."""
    terms = args.node_class.capacity_reservation_terms
    known = bool(terms) and all(term.holds for term in terms)
    return known and not matching(requirements(args), args.zones)


def gpu_counts(args: KarpenterNodePoolArgs, types: Sequence[InstanceType] | None = None) -> list[int]:
    """Return all GPU counts of the pool's instance types, in order. Explicit counts take precedence over the table.
    Fractions of a GPU are not counted, because no pod that requests `nvidia.com/gpu` is placed there. Instance types
    are looked up unless given."""
    if args.gpu_counts is not None:
        return sorted(set(args.gpu_counts))
    types = instance_types_of(args) if types is None else types
    return sorted({each.gpus.number for each in types if each.gpus and each.gpus.number})


def ami_family(node_class: NodeClass) -> str:
    """Return the explicit AMI family, or that of the alias."""
    aliases = [term.alias.partition("@")[0] for term in node_class.ami_terms if term.alias]
    return node_class.ami_family or next((ALIAS_FAMILIES.get(alias, alias) for alias in aliases), "Custom")


def capacity(instance_type: InstanceType, node_class: NodeClass, sharing: Sharing | None = None) -> Amounts:
    """Return the capacity of a node of the type, by which Karpenter measures the pool's limits (`computeCapacity`)."""
    amounts = {
        "cpu": Decimal(instance_type.cpus),
        "memory": Decimal(_memory(instance_type)),
        "ephemeral-storage": _disk(instance_type, node_class),
        "pods": Decimal(_pods(instance_type, node_class)),
    }
    if instance_type.gpus and instance_type.gpus.manufacturer == "NVIDIA" and instance_type.gpus.number:
        amounts[GPU] = Decimal(gpus_offered(instance_type.gpus.number, sharing))
    if instance_type.efa:
        amounts[EFA] = Decimal(node_class.efa_only_interfaces or instance_type.efa.interfaces)
    return amounts


def allocatable(instance_type: InstanceType, node_class: NodeClass, sharing: Sharing | None = None) -> Amounts:
    """Return what a node of the type offers to pods, including daemons: its capacity minus the reservations of
    Kubernetes and the system, and minus the eviction thresholds."""
    whole = capacity(instance_type, node_class, sharing)
    kubelet = node_class.kubelet
    bottlerocket = ami_family(node_class) == "Bottlerocket"
    pods = _pods(instance_type, node_class) if bottlerocket else _addresses(instance_type, node_class)
    kube = {
        "cpu": _cpu_reserved(instance_type.cpus),
        "memory": Decimal((11 * pods + 255) * MIB),
        "ephemeral-storage": Decimal(1024 * MIB),
        **_parsed(kubelet.kube_reserved),
    }
    eviction = {
        "memory": _threshold(kubelet.eviction_hard.get("memory.available", "100Mi"), whole["memory"]),
        "ephemeral-storage": _threshold(
            kubelet.eviction_hard.get("nodefs.available", "10%"), whole["ephemeral-storage"]
        ),
    }
    kept = (kube, _parsed(kubelet.system_reserved), eviction)
    return {name: amount - sum(each.get(name, Decimal(0)) for each in kept) for name, amount in whole.items()}


def _parsed(quantities: Mapping[str, str]) -> dict[str, Decimal]:
    return {name: quantity.parsed(text) for name, text in quantities.items()}


def _memory(instance_type: InstanceType) -> int:
    """Return the memory in bytes. Graviton instances reserve another 64 MiB (`memory`)."""
    mebibytes = instance_type.memory - (64 if instance_type.architecture == "arm64" else 0)
    return (mebibytes - math.ceil(mebibytes * MIB * VM_MEMORY_OVERHEAD / 1024 / 1024)) * MIB


def _disk(instance_type: InstanceType, node_class: NodeClass) -> Decimal:
    """Return the size of the local disks if they form one volume, otherwise of the root volume (`ephemeralStorage`)."""
    if node_class.instance_store_policy == "RAID0" and instance_type.disk:
        return Decimal(instance_type.disk) * 10**9
    return quantity.parsed(node_class.root_volume_size)


def _pods(instance_type: InstanceType, node_class: NodeClass) -> int:
    """Return the maximum number of pods (`pods`). Bottlerocket ignores the number per core."""
    kubelet = node_class.kubelet
    most = _addresses(instance_type, node_class) if kubelet.max_pods is None else kubelet.max_pods
    if kubelet.pods_per_core and ami_family(node_class) != "Bottlerocket":
        return min(most, kubelet.pods_per_core * instance_type.cpus)
    return most


def _addresses(instance_type: InstanceType, node_class: NodeClass) -> int:
    """Return the number of pods that the network interfaces have addresses for (`ENILimitedPods`). An EFA-only
    interface on the first network card takes the place of one with addresses."""
    taken = instance_type.efa.addresses if instance_type.efa and node_class.efa_only_interfaces else 0
    return instance_type.pods - taken


def _cpu_reserved(cpus: int) -> Decimal:
    """Return the reserved cores; each step is truncated to whole millicores."""
    reserved, start = Decimal(0), 0
    for end, part in CPU_RESERVED:
        if cpus * 1000 >= start:
            reserved += Decimal(int((min(cpus * 1000, end) - start) * part))
        start = end
    return reserved / 1000


def _threshold(signal: str, whole: Decimal) -> Decimal:
    """Return the amount at which pods are evicted. A percentage refers to the capacity; 100% disables eviction."""
    if not signal.endswith("%"):
        return quantity.parsed(signal)
    percent = float(signal.removesuffix("%"))
    # Floating point, as in Karpenter: exact arithmetic would sometimes differ by one byte.
    return Decimal(math.ceil(float(whole) / 100 * (percent if percent != 100 else 0)))


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """A resource that no instance type of a pool has enough of."""

    resource: str
    """Resource name."""
    requested: Decimal
    """Requested amount."""
    largest: str
    """Name of the instance type with the most of it for one pod."""
    room: Decimal
    """Amount that this type offers."""

    def __str__(self) -> str:
        return (
            f"{self.resource}: {shown(self.resource, self.requested)} requested, but the largest type, {self.largest},"
            f" has {shown(self.resource, self.room)}"
        )


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Instance types of a pool that hold a pod, or the reasons why none does."""

    instance_types: Sequence[InstanceType]
    """Instance types that hold the pod, by name."""
    shortages: Sequence[Shortage] = ()
    """Resources that no type has enough of. Empty if a type holds the pod, or if only the combination of resources is
    too large."""
    reason: str = ""
    """Reason why no type holds the pod. Empty if one does, or if the table has no type of the pool."""


def fit(
    requests: Mapping[str, str],
    args: KarpenterNodePoolArgs,
    daemons: Amounts | None = None,
    types: Sequence[InstanceType] | None = None,
) -> Fit:
    """Return which of a pool's instance types hold one pod with these requests, besides the daemons of every node.

    Requests are quantities by resource name: `cpu`, `memory`, `ephemeral-storage`, `nvidia.com/gpu`. `daemons` are the
    total requests of a node's daemons. `types` are the types that the pod selects; None for all of the pool's. Types
    beyond the pool's limits are excluded.

    Raise ValueError for text that is not a quantity.
    """
    requested, taken = _parsed({"pods": "1", **requests}), daemons or {}
    types = instance_types_of(args) if types is None else types
    rooms = {each: _room(each, args, taken) for each in types if within_limits(each, args)}
    holding = [each for each, room in rooms.items() if not _short(requested, room)]
    if holding or not rooms:
        return Fit(instance_types=holding)
    shortages = _shortages(requested, rooms)
    return Fit(instance_types=(), shortages=shortages, reason=_reason(requested, shortages))


def paused(args: KarpenterNodePoolArgs) -> bool:
    """Return whether a limit of zero keeps Karpenter from provisioning any node of the pool."""
    return any(limit == 0 for limit in _parsed(args.limits).values())


def within_limits(instance_type: InstanceType, args: KarpenterNodePoolArgs) -> bool:
    """Return whether the pool's limits allow one node of the type (`filterByRemainingResources` in
    pkg/controllers/provisioning/scheduling/scheduler.go of kubernetes-sigs/karpenter at v1.14.1)."""
    whole = capacity(instance_type, args.node_class, args.sharing)
    return all(whole.get(name, Decimal(0)) <= limit for name, limit in _parsed(args.limits).items())


def _room(instance_type: InstanceType, args: KarpenterNodePoolArgs, taken: Amounts) -> Amounts:
    """Return what one pod can get at most on a node of the type."""
    room = dict(allocatable(instance_type, args.node_class, args.sharing))
    for name, amount in taken.items():
        room[name] = room.get(name, Decimal(0)) - amount
    if GPU in room and instance_type.gpus:
        room[GPU] = min(room[GPU], Decimal(largest_request(instance_type.gpus.number, args.sharing)))
    return room


def _short(requested: Amounts, room: Amounts) -> list[str]:
    """Return the resources that are too small."""
    return [name for name, amount in requested.items() if amount > room.get(name, Decimal(0))]


def _shortages(requested: Amounts, rooms: Mapping[InstanceType, Amounts]) -> list[Shortage]:
    found = []
    for name, amount in requested.items():
        largest = max(rooms, key=lambda each: rooms[each].get(name, Decimal(0)))
        room = rooms[largest].get(name, Decimal(0))
        if amount > room:
            found.append(Shortage(resource=name, requested=amount, largest=largest.name, room=room))
    return found


def _reason(requested: Amounts, shortages: Sequence[Shortage]) -> str:
    if shortages:
        return ", ".join(map(str, shortages))
    wanted = ", ".join(f"{name} {shown(name, amount)}" for name, amount in requested.items() if name != "pods")
    return f"{wanted}: no type has room for all of them, although each fits some type"


def shown(resource: str, amount: Decimal) -> str:
    """Return an amount as readable text."""
    if resource == "cpu":
        return quantity.cores(amount)
    return quantity.mebibytes(amount) if resource in ("memory", "ephemeral-storage") else str(int(amount))
