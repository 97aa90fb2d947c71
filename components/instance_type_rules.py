"""What is wrong with the instance types that a node pool may buy: none, GPUs of the wrong kind, or too large for it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from components import quantity
from components.ec2_instance_types import (
    FAMILY,
    INSTANCE_TYPE,
    LABELS,
    InstanceType,
    instance_types,
    label,
    offered,
    region_of,
    zones_of,
)
from components.gpu_sharing import GPU, allocatable, sharing_refusals
from components.instance_type_requirements import matching
from components.node_pool_args import KarpenterNodePoolArgs, Requirement
from components.node_pool_fit import capacity, gpu_counts, instance_types_of, requirements, shown, within_limits

_AMD_FAMILIES = frozenset({"g4ad"})

Fault = Iterator[str]


def instance_type_violations(args: KarpenterNodePoolArgs, *, readable: bool) -> list[str]:
    """Why a pool would buy nothing, or what its jobs cannot use, one line for each reason. What follows from the table
    of instance types is left out where requirements, limits or machines are not `readable`: they are told of first."""
    known = [*_wrong_counts(args), *_wrong_sharing(args)]
    if known or not readable:
        return known
    wrong = [*_wrong_makers(args), *_parts_of_gpus(args), *_unknown_counts(args)]
    named, types = [*wrong, *_not_offered(args)], instance_types_of(args)
    if wrong or (named and not types):
        return named
    if args.gpu_counts is None and (wrong := [*_nothing_matches(args, types), *_of_two_kinds(types)]):
        return [*named, *wrong]
    counts = gpu_counts(args, types)
    return [*named, *_unbounded_gpus(args, counts), *_limits_for_nothing(args, types, counts)]


def _wrong_counts(args: KarpenterNodePoolArgs) -> Fault:
    for count in args.gpu_counts or ():
        if not isinstance(count, int) or count < 1:
            yield f"GPU counts: {count!r}; whole numbers from 1 are allowed; leave out types without a GPU"


def _wrong_sharing(args: KarpenterNodePoolArgs) -> Fault:
    refusals = sharing_refusals(args.sharing)
    yield from refusals
    if not refusals and args.sharing and args.sharing.rename_by_default:
        yield f"sharing: renames {GPU}; Karpenter buys for that name alone; leave rename_by_default off"


def _wrong_makers(args: KarpenterNodePoolArgs) -> Fault:
    aliased = any(term.alias for term in args.node_class.ami_terms)
    for requirement in _named(args, FAMILY):
        amd = sorted(_AMD_FAMILIES.intersection(requirement.values))
        if amd and aliased:
            yield (
                f"requirement {requirement.key!r}: {', '.join(amd)} has AMD GPUs, and an alias gives every type with a"
                " GPU NVIDIA's image; only families with NVIDIA GPUs are allowed; remove it"
            )


def _parts_of_gpus(args: KarpenterNodePoolArgs) -> Fault:
    for key in (FAMILY, INSTANCE_TYPE):
        parts = {value for each in instance_types().values() if each.has_part_of_a_gpu for value in label(each, key)}
        for requirement in _named(args, key):
            if named := sorted(parts.intersection(requirement.values)):
                yield (
                    f"requirement {key!r}: {', '.join(named)} has a part of a GPU, which Karpenter counts as none;"
                    " whole GPUs are allowed; remove it, and share whole GPUs instead"
                )


def _unknown_counts(args: KarpenterNodePoolArgs) -> Fault:
    if args.gpu_counts is None:
        return
    for requirement in _named(args, "karpenter.k8s.aws/instance-gpu-count"):
        unknown = [value for value in requirement.values if value not in {str(count) for count in args.gpu_counts}]
        if unknown:
            yield f"GPU counts: {list(args.gpu_counts)}; requirements ask for {', '.join(unknown)} too; add them"


def _not_offered(args: KarpenterNodePoolArgs) -> Fault:
    """Families and types that are asked for by name, and offered in none of the pool's zones."""
    for key in (FAMILY, INSTANCE_TYPE) if args.zones else ():
        for value in (value for requirement in _named(args, key) for value in requirement.values):
            named = [each for each in instance_types().values() if value in label(each, key)]
            if named and not any(offered(each, args.zones) for each in named):
                yield (
                    f"zones: {', '.join(args.zones)}; {value} is offered in none of them, but in {_where(named, args)};"
                    f" have subnets there, or remove {value}"
                )


def _where(named: Iterable[InstanceType], args: KarpenterNodePoolArgs) -> str:
    """Zones of the pool's own region, or else three regions, its neighbours first, and how many more."""
    zones = frozenset[str]().union(*map(zones_of, named))
    own = {region_of(zone) for zone in args.zones}
    if near := sorted(zone for zone in zones if region_of(zone) in own):
        return ", ".join(near)
    continents = {region.partition("-")[0] for region in own}
    regions = sorted(
        {region_of(zone) for zone in zones}, key=lambda each: (each.partition("-")[0] not in continents, each)
    )
    more = len(regions) - 3
    return ", ".join(regions[:3]) + (f" and {more} more regions" if more > 0 else "")


def _named(args: KarpenterNodePoolArgs, key: str) -> list[Requirement]:
    """Requirements that name values of a label."""
    return [each for each in args.requirements if each.key == key and each.operator == "In"]


def _nothing_matches(args: KarpenterNodePoolArgs, types: Sequence[InstanceType]) -> Fault:
    if types:
        return
    if elsewhere := matching(requirements(args)):
        yield (
            f"zones: {', '.join(args.zones)}; none of the types that meet the requirements, such as"
            f" {_some(elsewhere)}, is offered there, but in {_where(elsewhere, args)}; have subnets there"
        )
        return
    hints = [hint for key in sorted(LABELS) for hint in _without(args, key)]
    yield (
        "requirements: no instance type meets all of them;"
        f" {' or '.join(hints) or 'nor would any if one of them were left out'};"
        " correct them, or give GPU counts where the types are newer than the table"
    )


def _without(args: KarpenterNodePoolArgs, key: str) -> Fault:
    """What would meet the requirements if those on one label were others."""
    on_key = [each for each in requirements(args) if each.key == key]
    others = matching([each for each in requirements(args) if each.key != key]) if on_key else []
    if not others:
        return
    asked = [value for each in on_key for value in each.values]
    near = _nearest(asked, sorted({value for each in others for value in label(each, key)}))
    having = [each for each in others if not near or set(near).intersection(label(each, key))]
    yield f"{_some(having)} would {f'with {key} ' + ', '.join(near) if near else f'without {key}'}"


def _nearest(asked: Sequence[str], found: Sequence[str]) -> list[str]:
    """The values of a label that are most like those asked for: near in number, or in writing."""
    wanted = asked[0] if asked else ""
    numbers = [value for value in found if value.isdigit()]
    if numbers:
        near = sorted(numbers, key=lambda value: abs(int(value) - int(wanted if wanted.isdigit() else 0)))[:3]
        return sorted(near, key=int)
    return difflib.get_close_matches(wanted, found, cutoff=0)


def _some(found: Sequence[InstanceType]) -> str:
    """A type by name, and how many more there are."""
    more = len(found) - 1
    return found[0].name + (f" and {more} more" if more else "")


def _of_two_kinds(types: Sequence[InstanceType]) -> Fault:
    """Without a taint such a pool buys GPUs for any job that asks for one; with a taint it has no use for the rest."""
    with_gpu = [each for each in types if each.gpus and each.gpus.number]
    without = [each for each in types if not each.gpus]
    if with_gpu and without:
        yield (
            f"requirements: met by types with GPUs ({_some(with_gpu)}) and without ({_some(without)}); one kind in a"
            " pool is allowed; add karpenter.k8s.aws/instance-gpu-count Exists or DoesNotExist, or give the GPU counts"
        )


def _unbounded_gpus(args: KarpenterNodePoolArgs, counts: Sequence[int]) -> Fault:
    """What Karpenter lets through and a pool with GPUs cannot do without."""
    if args.sharing and not counts:
        yield "sharing: no instance type of the pool has a GPU; only a pool with GPUs shares them; leave sharing out"
    if not counts:
        return
    if args.termination_grace_period is None:
        yield "termination grace period: none; a pool with GPUs needs one; set it to the longest job, as '6h'"
    if GPU not in args.limits:
        yield f"limits: no {GPU}; a pool with GPUs needs that limit; set it to the most GPUs to pay for"


def _limits_for_nothing(args: KarpenterNodePoolArgs, types: Sequence[InstanceType], counts: Sequence[int]) -> Fault:
    """Limits that admit no node. CPUs or memory of 0 close the pool, which is how one is paused."""
    if any(quantity.parsed(args.limits.get(name, "1")) == 0 for name in ("cpu", "memory")):
        return
    alone = [*_small_gpu_limit(args, counts), *_small_limits(args, types)]
    yield from alone
    if types and not alone and not any(within_limits(each, args) for each in types):
        told = ", ".join(f"{name} {limit}" for name, limit in args.limits.items())
        yield f"limits: {told}; each admits some type of the pool, together they admit none; raise one of them"


def _small_gpu_limit(args: KarpenterNodePoolArgs, counts: Sequence[int]) -> Fault:
    """By the counts of GPUs, which may be those of types that the table does not have."""
    smallest = allocatable(min(counts, default=0), args.sharing)
    if GPU in args.limits and quantity.parsed(args.limits[GPU]) < smallest:
        yield (
            f"limit {GPU!r}: {args.limits[GPU]}; the smallest node offers {smallest} as shared, so none could start;"
            f" at least {smallest}"
        )


def _small_limits(args: KarpenterNodePoolArgs, types: Sequence[InstanceType]) -> Fault:
    """Limits below what the smallest type has."""
    for name in ("cpu", "memory"):
        if name not in args.limits or not types:
            continue
        smallest = min(types, key=lambda each: (each.cpus if name == "cpu" else each.memory, each.name))
        least = capacity(smallest, args.node_class)[name]
        if quantity.parsed(args.limits[name]) < least:
            yield (
                f"limit {name!r}: {args.limits[name]}; the smallest type of the pool, {smallest.name}, has"
                f" {shown(name, least)}, so none could start; raise it at least to that"
            )
