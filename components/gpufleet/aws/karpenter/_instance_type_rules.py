"""Rules for the instance types of a node pool: none match, GPUs of the wrong kind, or larger than the limits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import (
    FAMILY,
    INSTANCE_TYPE,
    LABELS,
    InstanceType,
    by_label,
    label,
    offered,
    region_of,
    zones_of,
)
from gpufleet.aws.ec2.requirements import matching
from gpufleet.aws.karpenter._interconnect_rules import efa_problems
from gpufleet.aws.karpenter.node_pool_args import KarpenterNodePoolArgs, Requirement
from gpufleet.aws.karpenter.node_pool_fit import (
    capacity,
    gpu_counts,
    instance_types_of,
    paused,
    requirements,
    shown,
    within_limits,
)
from gpufleet.nvidia.sharing import GPU, Mig, TimeSlicing, allocatable, mig_instances, mig_profiles, sharing_problems
from gpufleet.problem import Problem

_AMD_FAMILIES = frozenset({"g4ad"})


def instance_type_problems(args: KarpenterNodePoolArgs, *, readable: bool) -> list[Problem]:
    """Return problems of a pool that would provision no nodes, or none that its jobs can use. If requirements, limits
    or node class are not `readable`, rules that use the table of instance types are skipped."""
    known = [*_counts(args), *_sharing(args)]
    if known or not readable:
        return known
    wrong = [*_makers(args), *_parts_of_gpus(args), *_unknown_counts(args), *efa_problems(args)]
    named, types = [*wrong, *_not_offered(args)], instance_types_of(args)
    if wrong or (named and not types):
        return named
    if args.gpu_counts is None and (wrong := [*_nothing_matches(args, types), *_of_two_kinds(types)]):
        return [*named, *wrong]
    counts = gpu_counts(args, types)
    return [
        *named,
        *_partitions(args, types),
        *_unbounded_gpus(args, counts),
        *_limits_for_nothing(args, types, counts),
    ]


def _partitions(args: KarpenterNodePoolArgs, types: Sequence[InstanceType]) -> Iterator[Problem]:
    """Yield a problem for instance types whose GPUs lack the MIG profile, or if nothing creates the instances."""
    if not isinstance(args.sharing, Mig):
        return
    profile, where = args.sharing.profile, ("sharing", "profile")
    for each in types:
        gpus = each.gpus
        if gpus is None or mig_instances(gpus.name, gpus.memory, profile) == args.sharing.instances:
            continue
        has = ", ".join(mig_profiles(gpus.name, gpus.memory)) if gpus else ""
        held = mig_instances(gpus.name, gpus.memory, profile)
        if held:
            message = (
                f"{profile}: a GPU of {each.name} holds {held} instances, other types' GPUs {args.sharing.instances};"
                " restrict the pool to one GPU model"
            )
        elif has:
            message = f"{profile}: GPUs of {each.name} ({gpus.name}) do not support it; use one of {has}"
        else:
            message = (
                f"{profile}: GPUs of {each.name} ({gpus.name}) do not support MIG; exclude the type, or use another"
                " sharing method"
            )
        yield Problem(where, "mig-profile", message)
        return
    if args.node_class.user_data is None and any(term.alias for term in args.node_class.ami_terms):
        message = (
            "EKS's AMIs create no MIG instances, so nodes would offer whole GPUs; create them in user data, which runs"
            " before the kubelet, or use your own AMI"
        )
        yield Problem(("sharing",), "nobody-partitions", message)


def _counts(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for index, count in enumerate(args.gpu_counts or ()):
        if not isinstance(count, int) or count < 1:
            message = f"{count!r} is not a whole number from 1; omit types without GPUs"
            yield Problem(("gpu_counts", index), "gpu-count", message)


def _sharing(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    problems = sharing_problems(args.sharing)
    yield from problems
    if not problems and isinstance(args.sharing, TimeSlicing) and args.sharing.rename_by_default:
        message = f"must be False; Karpenter provisions nodes for {GPU} only, not for {GPU}.shared"
        yield Problem(("sharing", "rename_by_default"), "sharing-renamed", message, {"gpu": GPU})


def _makers(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    aliased = any(term.alias for term in args.node_class.ami_terms)
    for index, requirement in _named(args, FAMILY):
        amd = sorted(_AMD_FAMILIES.intersection(requirement.values))
        if amd and aliased:
            message = (
                f"{', '.join(amd)} has AMD GPUs, but an alias selects the NVIDIA image for all types with GPUs; remove"
                " it"
            )
            yield Problem(("requirements", index, "values"), "gpus-of-amd", message)


def _parts_of_gpus(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for key in (FAMILY, INSTANCE_TYPE):
        for index, requirement in _named(args, key):
            types = by_label(key)
            if named := sorted(
                {value for value in requirement.values if any(each.has_part_of_a_gpu for each in types.get(value, ()))}
            ):
                message = (
                    f"{', '.join(named)} has a fraction of a GPU, which Karpenter counts as 0; remove it, and share"
                    " whole GPUs instead"
                )
                yield Problem(("requirements", index, "values"), "part-of-a-gpu", message)


def _unknown_counts(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    if args.gpu_counts is None:
        return
    for _, requirement in _named(args, "karpenter.k8s.aws/instance-gpu-count"):
        unknown = [value for value in requirement.values if value not in {str(count) for count in args.gpu_counts}]
        if unknown:
            message = f"lacks {', '.join(unknown)}, which the requirements name; add them"
            yield Problem(("gpu_counts",), "gpu-counts-incomplete", message)


def _not_offered(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield families and types that are named explicitly, but not offered in any of the pool's zones."""
    for key in (FAMILY, INSTANCE_TYPE) if args.zones else ():
        for value in (value for _, requirement in _named(args, key) for value in requirement.values):
            named = by_label(key).get(value, ())
            if named and not any(offered(each, args.zones) for each in named):
                facts = {"requested": value, "zones": ", ".join(args.zones), "elsewhere": _where(named, args)}
                message = (
                    "{requested} is not offered in {zones}, only in {elsewhere}; add subnets there, or remove"
                    " {requested}".format(**facts)
                )
                yield Problem(("zones",), "not-offered-here", message, facts)


def _where(named: Iterable[InstanceType], args: KarpenterNodePoolArgs) -> str:
    """Return zones of the pool's own region, or else three regions, nearest first, and the number of others."""
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


def _named(args: KarpenterNodePoolArgs, key: str) -> list[tuple[int, Requirement]]:
    """Return requirements that name values of a label, by index."""
    return [(index, each) for index, each in enumerate(args.requirements) if each.key == key and each.operator == "In"]


def _nothing_matches(args: KarpenterNodePoolArgs, types: Sequence[InstanceType]) -> Iterator[Problem]:
    if types:
        return
    if elsewhere := matching(requirements(args)):
        facts = {"types": _some(elsewhere), "zones": ", ".join(args.zones), "elsewhere": _where(elsewhere, args)}
        message = (
            "no instance type that meets the requirements ({types}) is offered in {zones}, only in {elsewhere}; add"
            " subnets there".format(**facts)
        )
        yield Problem(("zones",), "nothing-offered-here", message, facts)
        return
    alternatives = Alternatives(found=[each for key in sorted(LABELS) for each in _alternatives(args, key)])
    message = (
        f"no instance type meets all requirements; {alternatives.text({})}; correct them, or set gpu_counts if the"
        " types are newer than the table"
    )
    yield Problem(("requirements",), "no-instance-type", message, {"alternatives": alternatives})


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A change of one label's requirement that would make instance types match."""

    types: str
    """Matching instance types."""
    label: str
    """Label whose requirement would change."""
    values: Sequence[str]
    """Values that would match; empty if the requirement must be removed."""


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """All changes of one requirement that would make instance types match."""

    found: Sequence[Alternative]
    """One change for each label that prevents a match."""

    def text(self, names: Mapping[str, str]) -> str:
        """Return the changes as text; `names` replaces labels by other names."""
        texts = []
        for each in self.found:
            name = names.get(each.label, each.label)
            change = f"with {name} {', '.join(each.values)}" if each.values else f"without {name}"
            texts.append(f"{each.types} would match {change}")
        return " or ".join(texts) or "removing one of them would not help"


def _alternatives(args: KarpenterNodePoolArgs, key: str) -> Iterator[Alternative]:
    on_key = [each for each in requirements(args) if each.key == key]
    others = matching([each for each in requirements(args) if each.key != key]) if on_key else []
    if not others:
        return
    asked = [value for each in on_key for value in each.values]
    near = _nearest(asked, sorted({value for each in others for value in label(each, key)}))
    having = [each for each in others if not near or set(near).intersection(label(each, key))]
    yield Alternative(types=_some(having), label=key, values=near)


def _nearest(asked: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return the values of a label closest to those requested, numerically or by spelling."""
    wanted = asked[0] if asked else ""
    numbers = [value for value in found if value.isdigit()]
    if numbers:
        near = sorted(numbers, key=lambda value: abs(int(value) - int(wanted if wanted.isdigit() else 0)))[:3]
        return sorted(near, key=int)
    return difflib.get_close_matches(wanted, found, cutoff=0)


def _some(found: Sequence[InstanceType]) -> str:
    """Return the name of one type, and the number of others."""
    more = len(found) - 1
    return found[0].name + (f" and {more} more" if more else "")


def _of_two_kinds(types: Sequence[InstanceType]) -> Iterator[Problem]:
    """Yield a problem if some types have GPUs and others do not. Without a taint, any job that requests a GPU gets
    these nodes; with a taint, types without GPUs are useless."""
    with_gpu = [each for each in types if each.gpus and each.gpus.number]
    without = [each for each in types if not each.gpus]
    if with_gpu and without:
        facts = {"with_gpus": _some(with_gpu), "without": _some(without)}
        message = (
            "allow types with GPUs ({with_gpus}) and without ({without}); a pool must have one kind; add"
            " karpenter.k8s.aws/instance-gpu-count Exists or DoesNotExist, or set gpu_counts".format(**facts)
        )
        yield Problem(("requirements",), "types-of-two-kinds", message, facts)


def _unbounded_gpus(args: KarpenterNodePoolArgs, counts: Sequence[int]) -> Iterator[Problem]:
    """Yield limits that a pool with GPUs requires, although Karpenter accepts it without them."""
    if args.sharing and not counts:
        message = "requires GPUs, but no instance type of the pool has any; remove it"
        yield Problem(("sharing",), "sharing-without-gpus", message)
    if not counts:
        return
    if args.termination_grace_period is None:
        message = (
            "is missing; a pool with GPUs requires it; set it to the duration of the longest job, for example '6h'"
        )
        yield Problem(("termination_grace_period",), "grace-period-missing", message)
    if GPU not in args.limits:
        message = f"{GPU} is missing; a pool with GPUs requires it; set it to the maximum number of GPUs"
        yield Problem(("limits",), "gpu-limit-missing", message)


def _limits_for_nothing(
    args: KarpenterNodePoolArgs, types: Sequence[InstanceType], counts: Sequence[int]
) -> Iterator[Problem]:
    """Yield limits too small for any node. A limit of 0 is intended: it pauses the pool."""
    if paused(args):
        return
    alone = [*_small_gpu_limit(args, counts), *_small_limits(args, types)]
    yield from alone
    if types and not alone and not any(within_limits(each, args) for each in types):
        limits = ", ".join(f"{name} {limit}" for name, limit in args.limits.items())
        message = (
            f"no instance type of the pool is within all limits ({limits}), although each limit alone allows some;"
            " raise one of them"
        )
        yield Problem(("limits",), "limits-admit-nothing", message)


def _small_gpu_limit(args: KarpenterNodePoolArgs, counts: Sequence[int]) -> Iterator[Problem]:
    """Yield a GPU limit below every GPU count. Works for types that the table does not contain."""
    physical = min(counts, default=0)
    smallest = allocatable(physical, args.sharing)
    if GPU in args.limits and quantity.parsed(args.limits[GPU]) < smallest:
        message = (
            f"{args.limits[GPU]} is too small; the smallest node offers {smallest} after sharing, so no node could"
            f" start; use at least {smallest}"
        )
        yield Problem(("limits", GPU), "gpu-limit-too-small", message, {"physical": physical})


def _small_limits(args: KarpenterNodePoolArgs, types: Sequence[InstanceType]) -> Iterator[Problem]:
    """Yield limits below the smallest type's resources."""
    for name in ("cpu", "memory"):
        if name not in args.limits or not types:
            continue
        smallest = min(types, key=lambda each: (each.cpus if name == "cpu" else each.memory, each.name))
        least = capacity(smallest, args.node_class)[name]
        if quantity.parsed(args.limits[name]) < least:
            message = (
                f"{args.limits[name]} is too small; the smallest type of the pool, {smallest.name}, has"
                f" {shown(name, least)}, so no node could start; use at least that"
            )
            yield Problem(("limits", name), "limit-too-small", message)
