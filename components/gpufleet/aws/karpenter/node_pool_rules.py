"""Rules for node pools: Karpenter's own, and mistakes that its API server accepts although no node could be
provisioned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from gpufleet import quantity
from gpufleet.aws.karpenter._instance_type_rules import instance_type_problems
from gpufleet.aws.karpenter._node_pool_specs import ami_term, reservation, stated
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
    yield from under(("node_class",), disk_problems(args.node_class, ami_family(args.node_class)))
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
                f"{name!r} is not a valid name; 1 to 63 lower-case letters, digits and inner hyphens are allowed,"
                " since nodes"
                " carry it as a label; rename it"
            )
            yield Problem(where, "object-name", message)
    lowest, highest = WEIGHTS
    if args.weight is not None and not lowest <= args.weight <= highest:
        message = f"{args.weight}; {lowest} to {highest} is allowed; leave it out for the lowest"
        yield Problem(("weight",), "weight", message)


def _restricted(key: str) -> str | None:
    """Return why Karpenter reserves a label; None if it does not."""
    domain = key.partition("/")[0]
    if key == "kubernetes.io/hostname":
        return "each node has its own"
    if domain.endswith("karpenter.sh") and key != "karpenter.sh/capacity-type":
        return "of the domain karpenter.sh, only karpenter.sh/capacity-type is allowed"
    if domain.endswith("karpenter.k8s.aws") and key not in INSTANCE_LABELS:
        return f"of the domain karpenter.k8s.aws, only {', '.join(sorted(INSTANCE_LABELS))} are allowed"
    return None


def _label_key(key: str) -> Iterator[Problem]:
    if not _QUALIFIED_NAME.fullmatch(key) or len(key) > 316:
        message = f"{key!r} is not a valid label key; [domain/]name of at most 316 characters is allowed; correct it"
        yield Problem((), "label-key", message)
    elif reason := _restricted(key):
        message = f"{key} is reserved by Karpenter; {reason}; remove it or choose one of those"
        yield Problem((), "label-of-karpenter", message)


def _requirements(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    if len(args.requirements) > 100:
        message = f"{len(args.requirements)}; at most 100 are allowed; merge requirements of the same key"
        yield Problem(("requirements",), "too-many-requirements", message)
    for index, requirement in enumerate(args.requirements):
        yield from under(("requirements", index), _requirement(requirement))


def _requirement(requirement: Requirement) -> Iterator[Problem]:
    yield from under(("key",), _label_key(requirement.key))
    if requirement.operator not in get_args(Operator):
        message = f"operator {requirement.operator!r}; {_one_of(Operator)}; choose one"
        yield Problem(("operator",), "operator", message)
    else:
        yield from under(("values",), _values(requirement))
    fewest, most = MIN_VALUES
    if requirement.min_values is not None and not fewest <= requirement.min_values <= most:
        message = f"min values {requirement.min_values}; {fewest} to {most} is allowed; leave it out for any number"
        yield Problem(("min_values",), "min-values", message)


def _values(requirement: Requirement) -> Iterator[Problem]:
    """Yield problems of the number and type of an operator's values."""
    operator, values = requirement.operator, list(requirement.values)
    if operator in ("In", "NotIn") and not values:
        message = f"{operator} without values; at least one is required; name the values, or use Exists"
        yield Problem((), "values-missing", message)
    if operator in ("Exists", "DoesNotExist") and values:
        message = f"{operator} with values {', '.join(values)}; none are allowed; remove them, or use In or NotIn"
        yield Problem((), "values-without-use", message)
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (
        len(values) == 1 and re.fullmatch(r"[0-9]{1,18}", str(values[0]))
    ):
        message = f"{operator} with values {values}; exactly one whole number, 0 or more, as text; correct them"
        yield Problem((), "values-of-a-bound", message)
    if operator in ("In", "NotIn"):
        for index, value in enumerate(values):
            yield from under((index,), _label_value(value))
    if operator == "In" and requirement.min_values is not None and requirement.min_values > len(values) > 0:
        message = (
            f"min values {requirement.min_values} of {len(values)} values; at most as many as there are; lower it or"
            " add values"
        )
        yield Problem((), "too-few-values", message)


def _label_value(value: object) -> Iterator[Problem]:
    if not isinstance(value, str):
        message = f"{value!r} is not text; label values are text; write {str(value)!r}"
        yield Problem((), "label-value-no-text", message)
    elif len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        message = (
            f"{value!r} is not a valid label value; at most 63 letters, digits, '-', '_' and '.' are allowed, the"
            " first and"
            " last a letter or digit; correct it"
        )
        yield Problem((), "label-value", message)


def _labels(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    if len(args.labels) > 100:
        yield Problem(("labels",), "too-many-labels", f"{len(args.labels)}; at most 100 are allowed; remove some")
    for key, value in args.labels.items():
        yield from under(("labels", key), (*_label_key(key), *_label_value(value)))


def _taints(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for index, taint in enumerate(args.taints):
        yield from under(("taints", index), _taint(taint))
    for index, taint in enumerate(args.startup_taints):
        yield from under(("startup_taints", index), _taint(taint))


def _taint(taint: Taint) -> Iterator[Problem]:
    if not _QUALIFIED_NAME.fullmatch(taint.key):
        message = f"{taint.key!r} is not a valid taint key; [domain/]name is allowed; correct it"
        yield Problem(("key",), "taint-key", message)
    if taint.effect not in get_args(TaintEffect):
        message = f"effect {taint.effect!r} of {taint.key!r}; {_one_of(TaintEffect)}; choose one"
        yield Problem(("effect",), "taint-effect", message)
    if taint.value is not None and not (taint.value and _LABEL_VALUE.fullmatch(taint.value)):
        message = f"value {taint.value!r} of {taint.key!r}; a label's value is allowed; leave out an empty one"
        yield Problem(("value",), "taint-value", message)


def _limits(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for resource, limit in args.limits.items():
        yield from under(("limits", resource), _quantity(limit))


def _zones(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    for index, zone in enumerate(args.zones):
        if not _ZONE.fullmatch(zone):
            message = f"{zone!r} is not a zone; a region and a letter are allowed; write for example eu-central-1a"
            yield Problem(("zones", index), "zone", message)


def _quantity(amount: object) -> Iterator[Problem]:
    if not isinstance(amount, str):
        message = (
            f"{amount!r} is not text; quantities are text, because the API server converts numbers and every preview"
            f" would show a change; write {str(amount)!r}"
        )
        yield Problem((), "quantity-no-text", message)
    elif not _QUANTITY.fullmatch(amount):
        message = f"{amount!r} is not a quantity; a number with or without a unit is allowed; write 80 or 128Gi"
        yield Problem((), "quantity", message)


def _disruption(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    disruption, where = args.disruption, ("disruption",)
    if disruption.consolidation_policy not in get_args(ConsolidationPolicy):
        got = disruption.consolidation_policy
        message = f"consolidation policy {got!r}; {_one_of(ConsolidationPolicy)}; choose WhenEmpty for CI"
        yield Problem((*where, "consolidation_policy"), "consolidation-policy", message)
    yield from under((*where, "consolidate_after"), _duration(disruption.consolidate_after, or_never=True))
    if len(disruption.budgets) > MOST_BUDGETS:
        message = f"{len(disruption.budgets)} budgets; at most {MOST_BUDGETS} are allowed; remove some"
        yield Problem((*where, "budgets"), "too-many-budgets", message)
    for index, budget in enumerate(disruption.budgets):
        yield from under((*where, "budgets", index), _budget(budget))


def _budget(budget: DisruptionBudget) -> Iterator[Problem]:
    if not isinstance(budget.nodes, str) or not re.fullmatch(BUDGET_NODES, budget.nodes):
        message = f"{budget.nodes!r} nodes; a number or a percentage up to 100% is allowed; write '2' or '10%' as text"
        yield Problem(("nodes",), "budget-nodes", message)
    for index, reason in enumerate(budget.reasons):
        if reason not in get_args(DisruptionReason):
            message = f"reason {reason!r}; {_one_of(DisruptionReason)}; choose among them"
            yield Problem(("reasons", index), "budget-reason", message)
    if (budget.schedule is None) != (budget.duration is None):
        got, missing = ("schedule", "duration") if budget.duration is None else ("duration", "schedule")
        message = f"a {got} without a {missing}; both or neither are allowed; add the {missing}, or remove the {got}"
        yield Problem((), "budget-incomplete", message)
    if budget.schedule is not None and not re.fullmatch(SCHEDULE, budget.schedule):
        message = f"schedule {budget.schedule!r}; five fields of cron or @daily and the like; as '0 8 * * 1-5'"
        yield Problem(("schedule",), "budget-schedule", message)
    if budget.duration is not None and not re.fullmatch(BUDGET_DURATION, budget.duration):
        message = f"duration {budget.duration!r}; hours and minutes only are allowed; write '8h' or '1h30m'"
        yield Problem(("duration",), "budget-duration", message)


def _duration(duration: object, *, or_never: bool) -> Iterator[Problem]:
    if not isinstance(duration, str) or not (re.fullmatch(DURATION, duration) or (or_never and duration == "Never")):
        allowed = "whole hours, minutes and seconds" + (", or Never," if or_never else "")
        never = "; without it there is no limit" if duration == "Never" else ""
        yield Problem((), "duration", f"{duration!r}; {allowed} are allowed; write '90m' or '24h'{never}")


def _lifetime(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    yield from under(("expire_after",), _duration(args.expire_after, or_never=True))
    if args.termination_grace_period is not None:
        yield from under(("termination_grace_period",), _duration(args.termination_grace_period, or_never=False))


def _images(node_class: NodeClass) -> Iterator[Problem]:
    terms, where = list(node_class.ami_terms), ("ami_terms",)
    aliases = [term.alias for term in terms if term.alias is not None]
    if not 1 <= len(terms) <= MOST_AMI_TERMS:
        message = f"{len(terms)}; 1 to {MOST_AMI_TERMS} are allowed; name an alias such as al2023@v20250501"
        yield Problem(where, "number-of-ami-terms", message)
    if aliases and len(terms) > 1:
        message = (
            f"alias {aliases[0]} beside {len(terms) - 1} other terms; an alias must be the only term; keep one kind"
        )
        yield Problem(where, "alias-beside-terms", message)
    for index, term in enumerate(terms):
        yield from under((*where, index), _ami_term(term))
        if term.alias is not None:
            yield from _alias((*where, index, "alias"), term.alias, node_class.ami_family)
    if node_class.ami_family is not None and node_class.ami_family not in get_args(AmiFamily):
        message = f"{node_class.ami_family!r}; {_one_of(AmiFamily)}; choose one"
        yield Problem(("ami_family",), "ami-family", message)
    if terms and not aliases and node_class.ami_family is None:
        message = "is missing; it is required without an alias; set it, for example to 'AL2023'"
        yield Problem(("ami_family",), "ami-family-missing", message)


def _ami_term(term: AmiTerm) -> Iterator[Problem]:
    given = ami_term(term)
    for alone in ("alias", "id"):
        if alone in given and len(given) > 1:
            others = ", ".join(sorted(given.keys() - {alone}))
            message = f"{alone} with {others}; {alone} must be the only key; remove {others}"
            yield Problem((), "ami-term-not-alone", message)
            break
    if not given.keys() & {"tags", "id", "name", "alias", "ssmParameter"}:
        message = "a term that selects nothing; alias, id, name, tags or SSM parameter is required; give one"
        yield Problem((), "ami-term-empty", message)
    yield from under(("tags",), _tags(term.tags))
    yield from under(("id",), _id(term.id, "ami"))


def _alias(where: Path, alias: str, ami_family: AmiFamily | None) -> Iterator[Problem]:
    family, _, version = alias.partition("@")
    if not _ALIAS.fullmatch(alias) or len(alias) > 30:
        message = f"{alias!r}: malformed; family@version of at most 30 characters is allowed; as al2023@v20250501"
        yield Problem(where, "alias-malformed", message)
    elif family not in ALIAS_FAMILIES:
        message = f"{alias!r}: family {family!r}; {', '.join(ALIAS_FAMILIES)} are allowed; choose one"
        yield Problem(where, "alias-family", message)
    elif ami_family in ALIAS_FAMILIES.values() and ami_family != ALIAS_FAMILIES[family]:
        message = f"{ami_family!r} with alias {alias}; {ALIAS_FAMILIES[family]} or Custom is allowed; remove it"
        yield Problem(("ami_family",), "ami-family-of-another-alias", message)
    elif family.startswith("windows"):
        message = f"{alias!r}: Windows has @latest only; a pinned version is allowed; select images by id instead"
        yield Problem(where, "alias-of-windows", message)
    elif version == "latest":
        message = (
            f"{alias!r}: each new image would replace every node of the pool; a pinned version is allowed;"
            f" write {family}@ and a release, as al2023@v20250501"
        )
        yield Problem(where, "alias-of-the-latest", message)


def _identity(node_class: NodeClass) -> Iterator[Problem]:
    allowed = "exactly one of them is allowed; give the role, or the instance profile if Karpenter cannot reach IAM"
    if node_class.role is None and node_class.instance_profile is None:
        yield Problem(("role",), "identity-missing", f"neither role nor instance profile; {allowed}")
    if node_class.role is not None and node_class.instance_profile is not None:
        yield Problem(("instance_profile",), "identity-twice", f"role and instance profile; {allowed}")
    if node_class.role == "":
        yield Problem(("role",), "role-empty", "empty; a name is needed; write the role's name")
    if node_class.instance_profile == "":
        message = "empty; a name is needed; write the instance profile's name"
        yield Problem(("instance_profile",), "instance-profile-empty", message)


def _places(node_class: NodeClass) -> Iterator[Problem]:
    subnets, groups = ("subnet_terms",), ("security_group_terms",)
    yield from under(subnets, _number_of_terms(node_class.subnet_terms))
    for index, subnet in enumerate(node_class.subnet_terms):
        given = stated(tags=dict(subnet.tags), id=subnet.id)
        found = (*_exactly_one(given, "tags or id"), *_selection(subnet.tags, subnet.id, "subnet"))
        yield from under((*subnets, index), found)
    yield from under(groups, _number_of_terms(node_class.security_group_terms))
    for index, group in enumerate(node_class.security_group_terms):
        given = stated(tags=dict(group.tags), id=group.id, name=group.name)
        found = (*_exactly_one(given, "tags, id or name"), *_selection(group.tags, group.id, "sg"))
        yield from under((*groups, index), found)


def _number_of_terms(terms: Sequence[object]) -> Iterator[Problem]:
    if not 1 <= len(terms) <= 30:
        message = f"{len(terms)}; 1 to 30 are allowed; name the tag karpenter.sh/discovery"
        yield Problem((), "number-of-terms", message)


def _exactly_one(given: Mapping[str, object], allowed: str) -> Iterator[Problem]:
    if len(given) != 1:
        message = f"a term with {' and '.join(sorted(given)) or 'nothing'}; {allowed}; give exactly one"
        yield Problem((), "term-not-alone", message)


def _reservations(node_class: NodeClass) -> Iterator[Problem]:
    terms, where = node_class.capacity_reservation_terms, ("capacity_reservation_terms",)
    if len(terms) > 30:
        yield Problem(where, "too-many-reservations", f"{len(terms)} terms; at most 30 are allowed; select by tags")
    for index, term in enumerate(terms):
        yield from under((*where, index), _reservation(term))


def _reservation(term: CapacityReservationTerm) -> Iterator[Problem]:
    given = reservation(term)
    if "id" in given and len(given) > 1:
        message = f"id with {', '.join(sorted(given.keys() - {'id'}))}; id must be the only key; remove the others"
        yield Problem((), "reservation-not-alone", message)
    if not given.keys() & {"tags", "id", "instanceMatchCriteria"}:
        message = "a term that selects nothing; id, tags or match criteria is required; give one"
        yield Problem((), "reservation-empty", message)
    if term.owner_id is not None and not re.fullmatch(r"[0-9]{12}", term.owner_id):
        message = f"owner {term.owner_id!r}; an account of 12 digits is allowed; write it as text"
        yield Problem(("owner_id",), "reservation-owner", message)
    if term.match_criteria not in (None, "open", "targeted"):
        message = f"match criteria {term.match_criteria!r}; open and targeted are allowed; choose one"
        yield Problem(("match_criteria",), "match-criteria", message)
    yield from _selection(term.tags, term.id, "cr")


def _machine(node_class: NodeClass) -> Iterator[Problem]:
    if not _VOLUME_SIZE.fullmatch(node_class.root_volume_size):
        message = f"{node_class.root_volume_size!r}; whole G, Gi, T or Ti up to 64T are allowed; write '200Gi'"
        yield Problem(("root_volume_size",), "root-volume", message)
    fewest, most = HOP_LIMITS
    if not fewest <= node_class.metadata_hop_limit <= most:
        message = f"{node_class.metadata_hop_limit}; {fewest} to {most} is allowed; 1 blocks access from pods"
        yield Problem(("metadata_hop_limit",), "hop-limit", message)
    if node_class.instance_store_policy not in (None, "RAID0"):
        message = f"{node_class.instance_store_policy!r}; RAID0 is allowed; leave out any other"
        yield Problem(("instance_store_policy",), "instance-store-policy", message)
    for key in node_class.tags:
        if key in _KARPENTERS_OWN_TAGS or key.startswith("kubernetes.io/cluster") or not key:
            message = f"{key!r} is reserved by Karpenter, or empty; any other key is allowed; remove it"
            yield Problem(("tags", key), "tag-of-karpenter", message)


def _kubelet(node_class: NodeClass) -> Iterator[Problem]:
    kubelet = node_class.kubelet
    yield from under(("kubelet",), (*_pods(kubelet), *_reserved(kubelet), *_eviction(kubelet), *_thresholds(kubelet)))


def _pods(kubelet: Kubelet) -> Iterator[Problem]:
    for argument, what, number in (
        ("max_pods", "max pods", kubelet.max_pods),
        ("pods_per_core", "pods per core", kubelet.pods_per_core),
    ):
        if number is not None and number < 0:
            message = f"{what} {number}; 0 or more is allowed; leave it out for the instance type's own"
            yield Problem((argument,), "negative-pods", message)


def _reserved(kubelet: Kubelet) -> Iterator[Problem]:
    for argument, what, reserved in (
        ("kube_reserved", "kube reserved", kubelet.kube_reserved),
        ("system_reserved", "system reserved", kubelet.system_reserved),
    ):
        for name, amount in reserved.items():
            if name not in _RESERVED:
                message = f"{what} {name!r}; {', '.join(sorted(_RESERVED))} are allowed; remove it"
                yield Problem((argument, name), "reserved-resource", message)
            yield from under((argument, name), _quantity(amount))


def _eviction(kubelet: Kubelet) -> Iterator[Problem]:
    for signal, threshold in kubelet.eviction_hard.items():
        where = ("eviction_hard", signal)
        if signal not in _EVICTION_SIGNALS:
            message = f"eviction {signal!r}; {', '.join(sorted(_EVICTION_SIGNALS))} are allowed; correct it"
            yield Problem(where, "eviction-signal", message)
        if not _PERCENTAGE.fullmatch(threshold):
            yield from under(where, _quantity(threshold))


def _thresholds(kubelet: Kubelet) -> Iterator[Problem]:
    high, low = kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent
    for argument, what, percent in (
        ("image_gc_high_threshold_percent", "high", high),
        ("image_gc_low_threshold_percent", "low", low),
    ):
        if percent is not None and not 0 <= percent <= 100:
            message = f"{what} threshold of images {percent}; 0 to 100 is allowed; correct it"
            yield Problem((argument,), "image-threshold", message)
    if high is not None and low is not None and high <= low:
        message = (
            f"garbage collection of images starts at {high} % and stops at {low} %; the start must be higher; swap them"
        )
        yield Problem(("image_gc_high_threshold_percent",), "image-thresholds-swapped", message)


def _selection(tags: Mapping[str, str], found: object, prefix: str) -> Iterator[Problem]:
    """Yield problems of a selection, which must be either by tags or by ID."""
    yield from under(("tags",), _tags(tags))
    yield from under(("id",), _id(found, prefix))


def _tags(tags: Mapping[str, str]) -> Iterator[Problem]:
    if len(tags) > 20:
        yield Problem((), "too-many-tags", f"{len(tags)} tags; at most 20 are allowed; remove some")
    if any(not key or not value for key, value in tags.items()):
        message = "an empty key or value among tags; both are required; write '*' for any value"
        yield Problem((), "tag-empty", message)


def _id(found: object, prefix: str) -> Iterator[Problem]:
    """Yield problems of a known ID; the API server validates outputs."""
    if isinstance(found, str) and not re.fullmatch(rf"{prefix}-[0-9a-z]+", found):
        message = f"id {found!r}; {prefix}- with digits and lower-case letters is allowed; correct it"
        yield Problem((), "resource-id", message)


def _one_of(literal: Any) -> str:
    return f"{', '.join(get_args(literal))} are allowed"
