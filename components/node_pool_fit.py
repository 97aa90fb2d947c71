"""What a node of a pool has room for, as Karpenter reckons before it buys one.

The figures follow pkg/providers/instancetype/types.go of aws/karpenter-provider-aws at v1.14.1, for Linux. They are an
estimate: once a node of a type has registered, Karpenter goes on with the memory that this one has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from components import quantity
from components.ec2_instance_types import InstanceType
from components.gpu_sharing import GPU, TimeSlicing, largest_request
from components.gpu_sharing import allocatable as gpus_offered
from components.instance_type_requirements import matching
from components.node_pool_args import ALIAS_FAMILIES, KarpenterNodePoolArgs, NodeClass, Requirement

VM_MEMORY_OVERHEAD = 0.075
"""Part of the memory that the hypervisor is taken to keep; Karpenter's option `vmMemoryOverheadPercent` (default in
pkg/operator/options/options.go)."""

MIB = 1024**2

CPU_RESERVED = ((1000, Decimal("0.06")), (2000, Decimal("0.01")), (4000, Decimal("0.005")), (2**31, Decimal("0.0025")))
"""Part of the CPU that Kubernetes keeps for itself, up to that many millicores (`kubeReservedResources`)."""

Amounts = Mapping[str, Decimal]
"""Cores, bytes or numbers, by the name of the resource."""


def requirements(args: KarpenterNodePoolArgs) -> list[Requirement]:
    """What an instance type has to meet: labels of the pool's nodes count as requirements too."""
    labels = [Requirement(key=key, operator="In", values=[value]) for key, value in args.labels.items()]
    return [*args.requirements, *labels]


def instance_types_of(args: KarpenterNodePoolArgs) -> list[InstanceType]:
    """The instance types that a pool may buy, by name; only those offered in its zones, where it names any."""
    reserved = bool(args.node_class.capacity_reservation_terms)
    found = matching(requirements(args), args.zones, reserved=reserved)
    # AL2023 does not run on the first Graviton (pkg/providers/instancetype/compatibility/compatibility.go).
    return [each for each in found if not (each.family == "a1" and ami_family(args.node_class) == "AL2023")]


def gpu_counts(args: KarpenterNodePoolArgs, types: Sequence[InstanceType] | None = None) -> list[int]:
    """How many GPUs the pool's instance types have: every count that occurs, in order. What is given wins over the
    table. Parts of a GPU are not counted: no pod is ever put on one for `nvidia.com/gpu`. The types are looked for
    unless they are given."""
    if args.gpu_counts is not None:
        return sorted(set(args.gpu_counts))
    types = instance_types_of(args) if types is None else types
    return sorted({each.gpus.number for each in types if each.gpus and each.gpus.number})


def ami_family(node_class: NodeClass) -> str:
    """The AMI family that is given, or that of the alias."""
    aliases = [term.alias.partition("@")[0] for term in node_class.ami_terms if term.alias]
    return node_class.ami_family or next((ALIAS_FAMILIES.get(alias, alias) for alias in aliases), "Custom")


def capacity(instance_type: InstanceType, node_class: NodeClass, sharing: TimeSlicing | None = None) -> Amounts:
    """What such a node is taken to have: what the pool's limits are measured in (`computeCapacity`)."""
    amounts = {
        "cpu": Decimal(instance_type.cpus),
        "memory": Decimal(_memory(instance_type)),
        "ephemeral-storage": _disk(instance_type, node_class),
        "pods": Decimal(_pods(instance_type, node_class)),
    }
    if instance_type.gpus and instance_type.gpus.manufacturer == "NVIDIA" and instance_type.gpus.number:
        amounts[GPU] = Decimal(gpus_offered(instance_type.gpus.number, sharing))
    return amounts


def allocatable(instance_type: InstanceType, node_class: NodeClass, sharing: TimeSlicing | None = None) -> Amounts:
    """What such a node has for pods, daemons included: its capacity without what Kubernetes and the system keep, and
    without the amounts at which pods are evicted."""
    whole = capacity(instance_type, node_class, sharing)
    kubelet = node_class.kubelet
    pods = _pods(instance_type, node_class) if ami_family(node_class) == "Bottlerocket" else instance_type.pods
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
    """Bytes. A Graviton keeps another 64 MiB for itself (`memory`)."""
    told = instance_type.memory - (64 if instance_type.architecture == "arm64" else 0)
    return (told - math.ceil(told * MIB * VM_MEMORY_OVERHEAD / 1024 / 1024)) * MIB


def _disk(instance_type: InstanceType, node_class: NodeClass) -> Decimal:
    """The instance's own disks where they are made one volume, else the root volume (`ephemeralStorage`)."""
    if node_class.instance_store_policy == "RAID0" and instance_type.disk:
        return Decimal(instance_type.disk) * 10**9
    return quantity.parsed(node_class.root_volume_size)


def _pods(instance_type: InstanceType, node_class: NodeClass) -> int:
    """Most pods (`pods`); Bottlerocket does not mind the number for each core."""
    kubelet = node_class.kubelet
    most = instance_type.pods if kubelet.max_pods is None else kubelet.max_pods
    if kubelet.pods_per_core and ami_family(node_class) != "Bottlerocket":
        return min(most, kubelet.pods_per_core * instance_type.cpus)
    return most


def _cpu_reserved(cpus: int) -> Decimal:
    """Cores; each step is cut to whole millicores."""
    reserved, start = Decimal(0), 0
    for end, part in CPU_RESERVED:
        if cpus * 1000 >= start:
            reserved += Decimal(int((min(cpus * 1000, end) - start) * part))
        start = end
    return reserved / 1000


def _threshold(signal: str, whole: Decimal) -> Decimal:
    """The amount at which pods are evicted; a percentage is of the capacity, and 100% means never."""
    if not signal.endswith("%"):
        return quantity.parsed(signal)
    percent = float(signal.removesuffix("%"))
    # In floating point, as there: exact figures would be one byte off now and then.
    return Decimal(math.ceil(float(whole) / 100 * (percent if percent != 100 else 0)))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Whether a node that a pool may buy has room for a pod."""

    instance_types: Sequence[InstanceType]
    """Those that have, by name."""
    reason: str = ""
    """Why none has: which resource, what is asked for and what the largest type offers. Empty where one has, and where
    the table knows no type of the pool."""


def fit(requests: Mapping[str, str], args: KarpenterNodePoolArgs, daemons: Mapping[str, str] | None = None) -> Fit:
    """Which of a pool's instance types hold one pod with these requests, beside the daemons of every node.

    Requests of the pod, and those of all daemons together, are quantities by the name of the resource: `cpu`, `memory`,
    `ephemeral-storage`, `nvidia.com/gpu`. Types that the pool's limits do not admit are left out. Raises ValueError for
    text that is no quantity.
    """
    asked, taken = _parsed({"pods": "1", **requests}), _parsed(daemons or {})
    rooms = {each: _room(each, args, taken) for each in instance_types_of(args) if within_limits(each, args)}
    holding = [each for each, room in rooms.items() if not _short(asked, room)]
    return Fit(instance_types=holding, reason="" if holding or not rooms else _why_none(asked, rooms))


def within_limits(instance_type: InstanceType, args: KarpenterNodePoolArgs) -> bool:
    """Whether the pool's limits admit one node of that type (`filterByRemainingResources` in
    pkg/controllers/provisioning/scheduling/scheduler.go of kubernetes-sigs/karpenter at v1.14.1)."""
    whole = capacity(instance_type, args.node_class, args.sharing)
    return all(whole.get(name, Decimal(0)) <= limit for name, limit in _parsed(args.limits).items())


def _room(instance_type: InstanceType, args: KarpenterNodePoolArgs, taken: Amounts) -> Amounts:
    """What one pod is given there at most."""
    room = dict(allocatable(instance_type, args.node_class, args.sharing))
    for name, amount in taken.items():
        room[name] = room.get(name, Decimal(0)) - amount
    if GPU in room and instance_type.gpus:
        room[GPU] = min(room[GPU], Decimal(largest_request(instance_type.gpus.number, args.sharing)))
    return room


def _short(asked: Amounts, room: Amounts) -> list[str]:
    """Resources of which there is too little."""
    return [name for name, amount in asked.items() if amount > room.get(name, Decimal(0))]


def _why_none(asked: Amounts, rooms: Mapping[InstanceType, Amounts]) -> str:
    largest = {name: max(rooms, key=lambda each: rooms[each].get(name, Decimal(0))) for name in asked}
    missing = [name for name, best in largest.items() if asked[name] > rooms[best].get(name, Decimal(0))]
    if not missing:
        wanted = ", ".join(f"{name} {shown(name, amount)}" for name, amount in asked.items() if name != "pods")
        return f"{wanted}: some types have each of them, none has all"
    return ", ".join(
        f"{name}: {shown(name, asked[name])} asked for, and the largest type, {largest[name].name}, has"
        f" {shown(name, rooms[largest[name]].get(name, Decimal(0)))}"
        for name in missing
    )


def shown(resource: str, amount: Decimal) -> str:
    """An amount for people."""
    if resource == "cpu":
        return quantity.cores(amount)
    return quantity.mebibytes(amount) if resource in ("memory", "ephemeral-storage") else str(int(amount))
