"""Rules for node pools: Karpenter's own, and mistakes that its API server accepts although no node could be
provisioned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from gpufleet import quantity
from gpufleet.aws.karpenter._instance_type_rules import instance_type_problems
from gpufleet.aws.karpenter._interconnect_rules import interconnect_problems
from gpufleet.aws.karpenter._node_pool_specs import ami_term, reservation, stated
from gpufleet.aws.karpenter.bottlerocket import bottlerocket_problems, is_bottlerocket
from gpufleet.aws.karpenter.node_disk import disk_problems
from gpufleet.aws.karpenter.node_pool_args import (
    ALIAS_FAMILIES,
    BUDGET_DURATION,
    BUDGET_NODES,
    DURATION,
    HOP_LIMITS,
    INSTANCE_LABELS,
    MIN_VALUES,
    MOST_AMI_TERMS,
    MOST_BUDGETS,
    SCHEDULE,
    WEIGHTS,
    AmiFamily,
    AmiTerm,
    CapacityReservationTerm,
    ConsolidationPolicy,
    DisruptionBudget,
    DisruptionReason,
    KarpenterNodePoolArgs,
    Kubelet,
    NodeClass,
    Operator,
    Requirement,
)
from gpufleet.aws.karpenter.node_pool_fit import ami_family
from gpufleet.problem import Path, Problem, under
from gpufleet.taint import Taint, TaintEffect

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_QUALIFIED_NAME = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_ZONE = re.compile(r"[a-z]+(?:-[a-z]+)+-[0-9]+(?:-[a-z]+-[0-9]+)?[a-z]")
_ALIAS = re.compile(r"[a-zA-Z0-9]+@[-a-zA-Z0-9_.+]+")
_QUANTITY = quantity.PATTERN
_PERCENTAGE = re.compile(r"(?:[0-9]{1,2}(?:\.[0-9]{1,2})?|100(?:\.0{1,2})?)%")
_VOLUME_SIZE = re.compile(
    r"(?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    # The CRD's own pattern of these two leaves out 18Ti, 19Ti and the like.
    r"|(?:[1-9]|[1-5][0-7]|58)Ti|(?:[1-9]|[1-5][0-9]|6[0-3]|64)T"
)
_RESERVED = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
_EVICTION_SIGNALS = frozenset(
    {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    }
)
_KARPENTERS_OWN_TAGS = frozenset(
    {"eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"}
)


def node_pool_problems(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield every problem of a pool: what Karpenter's CRDs reject, and what they accept although no node could be
    provisioned or jobs would be lost."""
    for of_pool in (_names, _taints, _disruption, _lifetime, _requirements, _labels, _limits, _zones):
        yield from of_pool(args)
    for of_node_class in (_images, _identity, _places, _reservations, _machine, _kubelet):
        yield from under(("node_class",), of_node_class(args.node_class))
    if not any(_unreadable(args)):
        yield from interconnect_problems(args)
    yield from under(("node_class",), disk_problems(args.node_class, ami_family(args.node_class)))
    if is_bottlerocket(args.node_class):
        yield from bottlerocket_problems(args)
    yield from instance_type_problems(args, readable=not any(_unreadable(args)))


def _unreadable(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield problems that prevent working out which instance types the pool may provision, and what they hold."""
    for of_pool in (_requirements, _labels, _limits, _zones):
        yield from of_pool(args)
    for of_node_class in (_machine, _kubelet):
        yield from of_node_class(args.node_class)


def _names(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for where, name in ((("pool",), args.pool), (("node_class", "name"), args.node_class.name)):
        if not _OBJECT_NAME.fullmatch(name) or len(name) > 63:
            message = (
                f"{name!r} is not a valid name, which nodes get as a label; use 1 to 63 lower-case letters, digits and"
                " inner hyphens"
            )
            yield Problem(where, "object-name", message)
    lowest, highest = WEIGHTS
    if args.weight is not None and not lowest <= args.weight <= highest:
        message = f"{args.weight} is not between {lowest} and {highest}; omit it for the lowest"
        yield Problem(("weight",), "weight", message)


def _restricted(key: str) -> str | None:
    """Return what to do about a label that Karpenter reserves; None for other labels."""
    domain = key.partition("/")[0]
    if key == "kubernetes.io/hostname":
        return "each node has its own; remove it"
    if domain.endswith("karpenter.sh") and key != "karpenter.sh/capacity-type":
        return "of the domain karpenter.sh, use only karpenter.sh/capacity-type"
    if domain.endswith("karpenter.k8s.aws") and key not in INSTANCE_LABELS:
        return f"of the domain karpenter.k8s.aws, use only {', '.join(sorted(INSTANCE_LABELS))}"
    return None


def _label_key(key: str) -> Iterator[Problem]:
    if not _QUALIFIED_NAME.fullmatch(key) or len(key) > 316:
        message = f"{key!r} is not a valid label key; write [domain/]name with at most 316 characters"
        yield Problem((), "label-key", message)
    elif advice := _restricted(key):
        yield Problem((), "label-of-karpenter", f"{key} is reserved by Karpenter; {advice}")


def _requirements(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    if len(args.requirements) > 100:
        message = f"has {len(args.requirements)} entries; at most 100 are allowed; merge those with the same key"
        yield Problem(("requirements",), "too-many-requirements", message)
    for index, requirement in enumerate(args.requirements):
        yield from under(("requirements", index), _requirement(requirement))


def _requirement(requirement: Requirement) -> Iterator[Problem]:
    yield from under(("key",), _label_key(requirement.key))
    if requirement.operator not in get_args(Operator):
        message = f"{requirement.operator!r} is not an operator; {_one_of(Operator)}"
        yield Problem(("operator",), "operator", message)
    else:
        yield from under(("values",), _values(requirement))
    fewest, most = MIN_VALUES
    if requirement.min_values is not None and not fewest <= requirement.min_values <= most:
        message = f"{requirement.min_values} is not between {fewest} and {most}; omit it for any number"
        yield Problem(("min_values",), "min-values", message)


def _values(requirement: Requirement) -> Iterator[Problem]:
    """Yield problems of the number and type of an operator's values."""
    operator, values = requirement.operator, list(requirement.values)
    if operator in ("In", "NotIn") and not values:
        message = f"{operator} requires at least one value; add the values, or use Exists"
        yield Problem((), "values-missing", message)
    if operator in ("Exists", "DoesNotExist") and values:
        message = f"{operator} takes no values, but has {', '.join(values)}; remove them, or use In or NotIn"
        yield Problem((), "values-without-use", message)
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (
        len(values) == 1 and re.fullmatch(r"[0-9]{1,18}", str(values[0]))
    ):
        message = f"{operator} requires exactly one whole number as text, but has {values}; correct it"
        yield Problem((), "values-of-a-bound", message)
    if operator in ("In", "NotIn"):
        for index, value in enumerate(values):
            yield from under((index,), _label_value(value))
    if operator == "In" and requirement.min_values is not None and requirement.min_values > len(values) > 0:
        message = (
            f"has {len(values)} values, fewer than the minimum of {requirement.min_values}; lower that, or add values"
        )
        yield Problem((), "too-few-values", message)


def _label_value(value: object) -> Iterator[Problem]:
    if not isinstance(value, str):
        message = f"{value!r} is not text; write {str(value)!r}"
        yield Problem((), "label-value-no-text", message)
    elif len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        message = (
            f"{value!r} is not a valid label value; use at most 63 letters, digits, '-', '_' and '.', and begin and end"
            " with a letter or digit"
        )
        yield Problem((), "label-value", message)


def _labels(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    if len(args.labels) > 100:
        yield Problem(("labels",), "too-many-labels", f"has {len(args.labels)} entries; at most 100 are allowed")
    for key, value in args.labels.items():
        yield from under(("labels", key), (*_label_key(key), *_label_value(value)))


def _taints(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for index, taint in enumerate(args.taints):
        yield from under(("taints", index), _taint(taint))
    for index, taint in enumerate(args.startup_taints):
        yield from under(("startup_taints", index), _taint(taint))


def _taint(taint: Taint) -> Iterator[Problem]:
    if not _QUALIFIED_NAME.fullmatch(taint.key):
        message = f"{taint.key!r} is not a valid taint key; write [domain/]name"
        yield Problem(("key",), "taint-key", message)
    if taint.effect not in get_args(TaintEffect):
        message = f"{taint.effect!r} is not an effect; {_one_of(TaintEffect)}"
        yield Problem(("effect",), "taint-effect", message)
    if taint.value is not None and not (taint.value and _LABEL_VALUE.fullmatch(taint.value)):
        message = f"{taint.value!r} is not a valid taint value; write a label value, or omit an empty one"
        yield Problem(("value",), "taint-value", message)


def _limits(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for resource, limit in args.limits.items():
        yield from under(("limits", resource), _quantity(limit))


def _zones(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for index, zone in enumerate(args.zones):
        if not _ZONE.fullmatch(zone):
            message = f"{zone!r} is not a zone; write for example eu-central-1a"
            yield Problem(("zones", index), "zone", message)


def _quantity(amount: object) -> Iterator[Problem]:
    if not isinstance(amount, str):
        message = (
            f"{amount!r} is not text; the API server converts numbers to text, so every preview would show a change;"
            f" write {str(amount)!r}"
        )
        yield Problem((), "quantity-no-text", message)
    elif not _QUANTITY.fullmatch(amount):
        message = f"{amount!r} is not a Kubernetes quantity; write for example 80 or 128Gi"
        yield Problem((), "quantity", message)


def _disruption(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    disruption, where = args.disruption, ("disruption",)
    if disruption.consolidation_policy not in get_args(ConsolidationPolicy):
        policy = disruption.consolidation_policy
        message = f"{policy!r} is not a policy; {_one_of(ConsolidationPolicy)}; use WhenEmpty for CI"
        yield Problem((*where, "consolidation_policy"), "consolidation-policy", message)
    yield from under((*where, "consolidate_after"), _duration(disruption.consolidate_after, or_never=True))
    if len(disruption.budgets) > MOST_BUDGETS:
        message = f"has {len(disruption.budgets)} entries; at most {MOST_BUDGETS} are allowed"
        yield Problem((*where, "budgets"), "too-many-budgets", message)
    for index, budget in enumerate(disruption.budgets):
        yield from under((*where, "budgets", index), _budget(budget))


def _budget(budget: DisruptionBudget) -> Iterator[Problem]:
    if not isinstance(budget.nodes, str) or not re.fullmatch(BUDGET_NODES, budget.nodes):
        message = f"{budget.nodes!r} is not a number or a percentage up to 100%; write it as text: '2' or '10%'"
        yield Problem(("nodes",), "budget-nodes", message)
    for index, reason in enumerate(budget.reasons):
        if reason not in get_args(DisruptionReason):
            message = f"{reason!r} is not a disruption reason; {_one_of(DisruptionReason)}"
            yield Problem(("reasons", index), "budget-reason", message)
    if (budget.schedule is None) != (budget.duration is None):
        present, missing = ("schedule", "duration") if budget.duration is None else ("duration", "schedule")
        message = f"has a {present} but no {missing}; add the {missing}, or remove the {present}"
        yield Problem((), "budget-incomplete", message)
    if budget.schedule is not None and not re.fullmatch(SCHEDULE, budget.schedule):
        message = f"{budget.schedule!r} is not a cron schedule; write five fields such as '0 8 * * 1-5', or @daily"
        yield Problem(("schedule",), "budget-schedule", message)
    if budget.duration is not None and not re.fullmatch(BUDGET_DURATION, budget.duration):
        message = f"{budget.duration!r} is not a duration in hours and minutes; write for example '8h' or '1h30m'"
        yield Problem(("duration",), "budget-duration", message)


def _duration(duration: object, *, or_never: bool) -> Iterator[Problem]:
    if not isinstance(duration, str) or not (re.fullmatch(DURATION, duration) or (or_never and duration == "Never")):
        never = ", or Never" if or_never else ""
        unlimited = "; omit it for no limit" if duration == "Never" else ""
        message = f"{duration!r} is not a duration; write for example '90m' or '24h'{never}{unlimited}"
        yield Problem((), "duration", message)


def _lifetime(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    yield from under(("expire_after",), _duration(args.expire_after, or_never=True))
    if args.termination_grace_period is not None:
        yield from under(("termination_grace_period",), _duration(args.termination_grace_period, or_never=False))


def _images(node_class: NodeClass) -> Iterator[Problem]:
    terms, where = list(node_class.ami_terms), ("ami_terms",)
    aliases = [term.alias for term in terms if term.alias is not None]
    if not 1 <= len(terms) <= MOST_AMI_TERMS:
        message = (
            f"has {len(terms)} entries; 1 to {MOST_AMI_TERMS} are allowed; use for example the alias al2023@v20250501"
        )
        yield Problem(where, "number-of-ami-terms", message)
    if aliases and len(terms) > 1:
        message = (
            f"has the alias {aliases[0]} and {len(terms) - 1} other terms; an alias must be the only term; remove the"
            " alias or the others"
        )
        yield Problem(where, "alias-beside-terms", message)
    for index, term in enumerate(terms):
        yield from under((*where, index), _ami_term(term))
        if term.alias is not None:
            yield from _alias((*where, index, "alias"), term.alias, node_class.ami_family)
    if node_class.ami_family is not None and node_class.ami_family not in get_args(AmiFamily):
        message = f"{node_class.ami_family!r} is not an AMI family; {_one_of(AmiFamily)}"
        yield Problem(("ami_family",), "ami-family", message)
    if terms and not aliases and node_class.ami_family is None:
        message = "is missing, but required without an alias; set it, for example to 'AL2023'"
        yield Problem(("ami_family",), "ami-family-missing", message)


def _ami_term(term: AmiTerm) -> Iterator[Problem]:
    given = ami_term(term)
    for alone in ("alias", "id"):
        if alone in given and len(given) > 1:
            others = ", ".join(sorted(given.keys() - {alone}))
            message = f"has {alone} and {others}; {alone} must be the only key; remove {others}"
            yield Problem((), "ami-term-not-alone", message)
            break
    if not given.keys() & {"tags", "id", "name", "alias", "ssmParameter"}:
        message = "selects nothing; one of alias, id, name, tags and SSM parameter is required"
        yield Problem((), "ami-term-empty", message)
    yield from under(("tags",), _tags(term.tags))
    yield from under(("id",), _id(term.id, "ami"))


def _alias(where: Path, alias: str, ami_family: AmiFamily | None) -> Iterator[Problem]:
    family, _, version = alias.partition("@")
    if not _ALIAS.fullmatch(alias) or len(alias) > 30:
        message = (
            f"{alias!r} is not an alias; write family@version with at most 30 characters, for example al2023@v20250501"
        )
        yield Problem(where, "alias-malformed", message)
    elif family not in ALIAS_FAMILIES:
        message = f"{alias!r}: {family!r} is not an AMI family; allowed: {', '.join(ALIAS_FAMILIES)}"
        yield Problem(where, "alias-family", message)
    elif ami_family in ALIAS_FAMILIES.values() and ami_family != ALIAS_FAMILIES[family]:
        message = f"{ami_family!r} contradicts the alias {alias}; use {ALIAS_FAMILIES[family]} or Custom, or remove it"
        yield Problem(("ami_family",), "ami-family-of-another-alias", message)
    elif family.startswith("windows"):
        message = f"{alias!r}: Windows aliases cannot be pinned to a version; select AMIs by ID instead"
        yield Problem(where, "alias-of-windows", message)
    elif version == "latest":
        message = (
            f"{alias!r}: every new AMI would replace all nodes of the pool; pin a release, for example al2023@v20250501"
        )
        yield Problem(where, "alias-of-the-latest", message)


def _identity(node_class: NodeClass) -> Iterator[Problem]:
    advice = "set the role, or the instance profile if Karpenter cannot reach IAM"
    if node_class.role is None and node_class.instance_profile is None:
        yield Problem(("role",), "identity-missing", f"is missing, as is the instance profile; {advice}")
    if node_class.role is not None and node_class.instance_profile is not None:
        yield Problem(("instance_profile",), "identity-twice", f"is set together with role; {advice}, but not both")
    if node_class.role == "":
        yield Problem(("role",), "role-empty", "is empty; write the role's name")
    if node_class.instance_profile == "":
        message = "is empty; write the instance profile's name"
        yield Problem(("instance_profile",), "instance-profile-empty", message)


def _places(node_class: NodeClass) -> Iterator[Problem]:
    subnets, groups = ("subnet_terms",), ("security_group_terms",)
    yield from under(subnets, _number_of_terms(node_class.subnet_terms))
    for index, subnet in enumerate(node_class.subnet_terms):
        given = stated(tags=dict(subnet.tags), id=subnet.id)
        found = (*_exactly_one(given, "tags and id"), *_selection(subnet.tags, subnet.id, "subnet"))
        yield from under((*subnets, index), found)
    yield from under(groups, _number_of_terms(node_class.security_group_terms))
    for index, group in enumerate(node_class.security_group_terms):
        given = stated(tags=dict(group.tags), id=group.id, name=group.name)
        found = (*_exactly_one(given, "tags, id and name"), *_selection(group.tags, group.id, "sg"))
        yield from under((*groups, index), found)


def _number_of_terms(terms: Sequence[object]) -> Iterator[Problem]:
    if not 1 <= len(terms) <= 30:
        message = f"has {len(terms)} entries; 1 to 30 are allowed; select for example by the tag karpenter.sh/discovery"
        yield Problem((), "number-of-terms", message)


def _exactly_one(given: Mapping[str, object], allowed: str) -> Iterator[Problem]:
    if len(given) != 1:
        message = f"has {' and '.join(sorted(given)) or 'no key'}; exactly one of {allowed} is required"
        yield Problem((), "term-not-alone", message)


def _reservations(node_class: NodeClass) -> Iterator[Problem]:
    terms, where = node_class.capacity_reservation_terms, ("capacity_reservation_terms",)
    if len(terms) > 30:
        message = f"has {len(terms)} entries; at most 30 are allowed; select reservations by tags"
        yield Problem(where, "too-many-reservations", message)
    for index, term in enumerate(terms):
        yield from under((*where, index), _reservation(term))


def _reservation(term: CapacityReservationTerm) -> Iterator[Problem]:
    given = reservation(term)
    if "id" in given and len(given) > 1:
        message = f"has id and {', '.join(sorted(given.keys() - {'id'}))}; id must be the only key; remove the others"
        yield Problem((), "reservation-not-alone", message)
    if not given.keys() & {"tags", "id", "instanceMatchCriteria"}:
        message = "selects nothing; one of id, tags and match criteria is required"
        yield Problem((), "reservation-empty", message)
    if term.owner_id is not None and not re.fullmatch(r"[0-9]{12}", term.owner_id):
        message = f"{term.owner_id!r} is not an account ID; write 12 digits as text"
        yield Problem(("owner_id",), "reservation-owner", message)
    if term.match_criteria not in (None, "open", "targeted"):
        message = f"{term.match_criteria!r} is not valid; allowed: open, targeted"
        yield Problem(("match_criteria",), "match-criteria", message)
    yield from _selection(term.tags, term.id, "cr")


def _machine(node_class: NodeClass) -> Iterator[Problem]:
    if not _VOLUME_SIZE.fullmatch(node_class.root_volume_size):
        message = (
            f"{node_class.root_volume_size!r} is not a volume size; write whole G, Gi, T or Ti up to 64T, for example"
            " '200Gi'"
        )
        yield Problem(("root_volume_size",), "root-volume", message)
    fewest, most = HOP_LIMITS
    if not fewest <= node_class.metadata_hop_limit <= most:
        message = f"{node_class.metadata_hop_limit} is not between {fewest} and {most}; 1 blocks access from pods"
        yield Problem(("metadata_hop_limit",), "hop-limit", message)
    if node_class.instance_store_policy not in (None, "RAID0"):
        message = f"{node_class.instance_store_policy!r} is not valid; write RAID0, or omit it"
        yield Problem(("instance_store_policy",), "instance-store-policy", message)
    for key in node_class.tags:
        if key in _KARPENTERS_OWN_TAGS or key.startswith("kubernetes.io/cluster") or not key:
            message = f"{key!r} is reserved by Karpenter; remove it" if key else "has an empty key; remove it"
            yield Problem(("tags", key), "tag-of-karpenter", message)


def _kubelet(node_class: NodeClass) -> Iterator[Problem]:
    kubelet = node_class.kubelet
    yield from under(("kubelet",), (*_pods(kubelet), *_reserved(kubelet), *_eviction(kubelet), *_thresholds(kubelet)))


def _pods(kubelet: Kubelet) -> Iterator[Problem]:
    for argument, number in (("max_pods", kubelet.max_pods), ("pods_per_core", kubelet.pods_per_core)):
        if number is not None and number < 0:
            message = f"{number} is negative; omit it for the instance type's maximum"
            yield Problem((argument,), "negative-pods", message)


def _reserved(kubelet: Kubelet) -> Iterator[Problem]:
    for argument, reserved in (("kube_reserved", kubelet.kube_reserved), ("system_reserved", kubelet.system_reserved)):
        for name, amount in reserved.items():
            if name not in _RESERVED:
                message = f"{name!r} cannot be reserved; allowed: {', '.join(sorted(_RESERVED))}"
                yield Problem((argument, name), "reserved-resource", message)
            yield from under((argument, name), _quantity(amount))


def _eviction(kubelet: Kubelet) -> Iterator[Problem]:
    for signal, threshold in kubelet.eviction_hard.items():
        where = ("eviction_hard", signal)
        if signal not in _EVICTION_SIGNALS:
            message = f"{signal!r} is not an eviction signal; allowed: {', '.join(sorted(_EVICTION_SIGNALS))}"
            yield Problem(where, "eviction-signal", message)
        if not _PERCENTAGE.fullmatch(threshold):
            yield from under(where, _quantity(threshold))


def _thresholds(kubelet: Kubelet) -> Iterator[Problem]:
    high, low = kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent
    for argument, percent in (("image_gc_high_threshold_percent", high), ("image_gc_low_threshold_percent", low)):
        if percent is not None and not 0 <= percent <= 100:
            yield Problem((argument,), "image-threshold", f"{percent} is not between 0 and 100; correct it")
    if high is not None and low is not None and high <= low:
        message = (
            f"garbage collection of images starts at {high} % and stops at {low} %; the start must be higher; correct"
            " them"
        )
        yield Problem(("image_gc_high_threshold_percent",), "image-thresholds-swapped", message)


def _selection(tags: Mapping[str, str], found: object, prefix: str) -> Iterator[Problem]:
    """Yield problems of a selection, which must be either by tags or by ID."""
    yield from under(("tags",), _tags(tags))
    yield from under(("id",), _id(found, prefix))


def _tags(tags: Mapping[str, str]) -> Iterator[Problem]:
    if len(tags) > 20:
        yield Problem((), "too-many-tags", f"has {len(tags)} tags; at most 20 are allowed")
    if any(not key or not value for key, value in tags.items()):
        message = "has an empty key or value; both are required; write '*' for any value"
        yield Problem((), "tag-empty", message)


def _id(found: object, prefix: str) -> Iterator[Problem]:
    """Yield problems of a known ID; the API server validates outputs."""
    if isinstance(found, str) and not re.fullmatch(rf"{prefix}-[0-9a-z]+", found):
        message = f"{found!r} is not a valid ID; write '{prefix}-' followed by digits and lower-case letters"
        yield Problem((), "resource-id", message)


def _one_of(literal: Any) -> str:
    return f"allowed: {', '.join(get_args(literal))}"
