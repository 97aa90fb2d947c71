"""What a node pool cannot be: Karpenter's own rules, and what its API server takes though no node would come of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from components import quantity
from components.instance_type_rules import instance_type_violations
from components.node_pool_args import (
    ALIAS_FAMILIES,
    INSTANCE_LABELS,
    AmiFamily,
    AmiTerm,
    ConsolidationPolicy,
    DisruptionBudget,
    DisruptionReason,
    KarpenterNodePoolArgs,
    Kubelet,
    NodeClass,
    Operator,
    Requirement,
)
from components.node_pool_specs import ami_term, reservation, stated
from components.taint import TaintEffect

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_QUALIFIED_NAME = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_DURATION = re.compile(r"(?:[0-9]+[smh])+")
_BUDGET_DURATION = re.compile(r"(?:[0-9]+[hm]|[0-9]+h[0-9]+m)(?:0s)?")
_BUDGET_NODES = re.compile(r"(?:100|[0-9]{1,2})%|[0-9]+")
_SCHEDULE = re.compile(r"@(?:annually|yearly|monthly|weekly|daily|midnight|hourly)|[!-~]+(?: [!-~]+){4}")
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

Fault = Iterator[str]


def violations(args: KarpenterNodePoolArgs) -> list[str]:
    """Why such a pool cannot be, one line for each reason: what the rules of Karpenter's CRDs refuse, and what they let
    through although no node could ever come of it, or jobs would be lost. Empty when all is well."""
    of_pool: tuple[Callable[[KarpenterNodePoolArgs], Fault], ...] = (_wrong_names, _wrong_taints, _wrong_disruption)
    of_pool += (_wrong_lifetime, _wrong_requirements, _wrong_labels, _wrong_limits, _wrong_zones)
    of_node_class = (_wrong_images, _wrong_identity, _wrong_places, _wrong_reservations, _wrong_machine, _wrong_kubelet)
    found = [fault for part in of_pool for fault in part(args)]
    found += [f"node class: {fault}" for part in of_node_class for fault in part(args.node_class)]
    return found + instance_type_violations(args, readable=not any(_unreadable(args)))


def _unreadable(args: KarpenterNodePoolArgs) -> Fault:
    """What keeps from working out which instance types the pool may buy, and what they hold."""
    for of_pool in (_wrong_requirements, _wrong_labels, _wrong_limits, _wrong_zones):
        yield from of_pool(args)
    for of_node_class in (_wrong_machine, _wrong_kubelet):
        yield from of_node_class(args.node_class)


def _wrong_names(args: KarpenterNodePoolArgs) -> Fault:
    for what, name in (("pool", args.pool), ("node class", args.node_class.name)):
        if not _OBJECT_NAME.fullmatch(name) or len(name) > 63:
            yield (
                f"{what} {name!r} is no name; 1 to 63 lower-case letters, digits and inner hyphens are allowed, since"
                " nodes carry it as a label; rename it"
            )
    if args.weight is not None and not 1 <= args.weight <= 100:
        yield f"weight: {args.weight}; 1 to 100 is allowed; leave it out for the lowest"


def _restricted(key: str) -> str | None:
    """Why Karpenter keeps that label to itself, if it does."""
    domain = key.partition("/")[0]
    if key == "kubernetes.io/hostname":
        return "each node has its own"
    if domain.endswith("karpenter.sh") and key != "karpenter.sh/capacity-type":
        return "of the domain karpenter.sh, only karpenter.sh/capacity-type is allowed"
    if domain.endswith("karpenter.k8s.aws") and key not in INSTANCE_LABELS:
        return f"of the domain karpenter.k8s.aws, only {', '.join(sorted(INSTANCE_LABELS))} are allowed"
    return None


def _wrong_key(where: str, key: str) -> Fault:
    if not _QUALIFIED_NAME.fullmatch(key) or len(key) > 316:
        yield f"{where}: {key!r} is no label's key; [domain/]name of at most 316 characters is allowed; correct it"
    elif reason := _restricted(key):
        yield f"{where}: {key} is Karpenter's own; {reason}; remove it or choose one of those"


def _wrong_requirements(args: KarpenterNodePoolArgs) -> Fault:
    if len(args.requirements) > 100:
        yield f"requirements: {len(args.requirements)}; at most 100 are allowed; join those of one key"
    for requirement in args.requirements:
        where = f"requirement {requirement.key!r}"
        yield from _wrong_key("requirements", requirement.key)
        if requirement.operator not in get_args(Operator):
            yield f"{where}: operator {requirement.operator!r}; {_one_of(Operator)}; choose one"
        else:
            yield from _wrong_values(where, requirement)
        if requirement.min_values is not None and not 1 <= requirement.min_values <= 50:
            yield f"{where}: min values {requirement.min_values}; 1 to 50 is allowed; leave it out for any number"


def _wrong_values(where: str, requirement: Requirement) -> Fault:
    """How many values go with an operator, and of what kind."""
    operator, values = requirement.operator, list(requirement.values)
    if operator in ("In", "NotIn") and not values:
        yield f"{where}: {operator} without values; at least one is needed; name the values, or use Exists"
    if operator in ("Exists", "DoesNotExist") and values:
        yield f"{where}: {operator} with values {', '.join(values)}; none are allowed; remove them, or use In or NotIn"
    if operator in ("Gt", "Lt", "Gte", "Lte") and not (
        len(values) == 1 and re.fullmatch(r"[0-9]{1,18}", str(values[0]))
    ):
        yield f"{where}: {operator} with values {values}; exactly one whole number, 0 or more, as text; correct them"
    if operator in ("In", "NotIn"):
        for value in values:
            yield from _wrong_label_value(where, value)
    if operator == "In" and requirement.min_values is not None and requirement.min_values > len(values) > 0:
        yield (
            f"{where}: min values {requirement.min_values} of {len(values)} values; at most as many as there are;"
            " lower it or add values"
        )


def _wrong_label_value(where: str, value: object) -> Fault:
    if not isinstance(value, str):
        yield f"{where}: {value!r} is no text; values of labels are text; write {str(value)!r}"
    elif len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        yield (
            f"{where}: {value!r} is no label's value; at most 63 letters, digits, '-', '_' and '.' are allowed, the"
            " first and last a letter or digit; correct it"
        )


def _wrong_labels(args: KarpenterNodePoolArgs) -> Fault:
    if len(args.labels) > 100:
        yield f"labels: {len(args.labels)}; at most 100 are allowed; remove some"
    for key, value in args.labels.items():
        yield from _wrong_key("labels", key)
        yield from _wrong_label_value(f"label {key!r}", value)


def _wrong_taints(args: KarpenterNodePoolArgs) -> Fault:
    for what, taints in (("taint", args.taints), ("startup taint", args.startup_taints)):
        for taint in taints:
            if not _QUALIFIED_NAME.fullmatch(taint.key):
                yield f"{what} {taint.key!r}: no key of a taint; [domain/]name is allowed; correct it"
            if taint.effect not in get_args(TaintEffect):
                yield f"{what} {taint.key!r}: effect {taint.effect!r}; {_one_of(TaintEffect)}; choose one"
            if taint.value is not None and not (taint.value and _LABEL_VALUE.fullmatch(taint.value)):
                yield f"{what} {taint.key!r}: value {taint.value!r}; a label's value is allowed; leave out an empty one"


def _wrong_limits(args: KarpenterNodePoolArgs) -> Fault:
    for resource, limit in args.limits.items():
        yield from _wrong_quantity(f"limit {resource!r}", limit)


def _wrong_zones(args: KarpenterNodePoolArgs) -> Fault:
    for zone in args.zones:
        if not _ZONE.fullmatch(zone):
            yield f"zones: {zone!r} is no zone; a region and what tells its zones apart is allowed; as eu-central-1a"


def _wrong_quantity(where: str, amount: object) -> Fault:
    if not isinstance(amount, str):
        yield (
            f"{where}: {amount!r} is no text; quantities are text, since the API server turns numbers into text and"
            f" every preview would show a change; write {str(amount)!r}"
        )
    elif not _QUANTITY.fullmatch(amount):
        yield f"{where}: {amount!r} is no quantity; a number with or without a unit is allowed; write 80 or 128Gi"


def _wrong_disruption(args: KarpenterNodePoolArgs) -> Fault:
    disruption = args.disruption
    if disruption.consolidation_policy not in get_args(ConsolidationPolicy):
        got = disruption.consolidation_policy
        yield f"disruption: consolidation policy {got!r}; {_one_of(ConsolidationPolicy)}; choose WhenEmpty for CI"
    yield from _wrong_duration("disruption: consolidate after", disruption.consolidate_after, or_never=True)
    if len(disruption.budgets) > 50:
        yield f"disruption: {len(disruption.budgets)} budgets; at most 50 are allowed; remove some"
    for budget in disruption.budgets:
        yield from _wrong_budget(budget)


def _wrong_budget(budget: DisruptionBudget) -> Fault:
    where = f"disruption: budget of {budget.nodes!r} nodes"
    if not isinstance(budget.nodes, str) or not _BUDGET_NODES.fullmatch(budget.nodes):
        yield f"{where}: no such number; a number or a percentage up to 100% is allowed; write '2' or '10%' as text"
    for reason in budget.reasons:
        if reason not in get_args(DisruptionReason):
            yield f"{where}: reason {reason!r}; {_one_of(DisruptionReason)}; choose among them"
    if (budget.schedule is None) != (budget.duration is None):
        got, missing = ("schedule", "duration") if budget.duration is None else ("duration", "schedule")
        yield f"{where}: a {got} without a {missing}; both or neither are allowed; add the {missing}"
    if budget.schedule is not None and not _SCHEDULE.fullmatch(budget.schedule):
        yield f"{where}: schedule {budget.schedule!r}; five fields of cron or @daily and the like; as '0 8 * * 1-5'"
    if budget.duration is not None and not _BUDGET_DURATION.fullmatch(budget.duration):
        yield f"{where}: duration {budget.duration!r}; hours and minutes only are allowed; write '8h' or '1h30m'"


def _wrong_duration(where: str, duration: object, *, or_never: bool) -> Fault:
    if not isinstance(duration, str) or not (_DURATION.fullmatch(duration) or (or_never and duration == "Never")):
        allowed = "whole hours, minutes and seconds" + (", or Never," if or_never else "")
        never = "; without it there is no limit" if duration == "Never" else ""
        yield f"{where}: {duration!r}; {allowed} are allowed; write '90m' or '24h'{never}"


def _wrong_lifetime(args: KarpenterNodePoolArgs) -> Fault:
    yield from _wrong_duration("expire after", args.expire_after, or_never=True)
    if args.termination_grace_period is not None:
        yield from _wrong_duration("termination grace period", args.termination_grace_period, or_never=False)


def _wrong_images(node_class: NodeClass) -> Fault:
    terms = list(node_class.ami_terms)
    aliases = [term.alias for term in terms if term.alias is not None]
    if not 1 <= len(terms) <= 30:
        yield f"AMI terms: {len(terms)}; 1 to 30 are allowed; name an alias such as al2023@v20250501"
    if aliases and len(terms) > 1:
        yield f"AMI terms: alias {aliases[0]} beside {len(terms) - 1} other terms; an alias stands alone; keep one kind"
    for term in terms:
        yield from _wrong_ami_term(term)
    for alias in aliases:
        yield from _wrong_alias(alias, node_class.ami_family)
    if node_class.ami_family is not None and node_class.ami_family not in get_args(AmiFamily):
        yield f"AMI family: {node_class.ami_family!r}; {_one_of(AmiFamily)}; choose one"
    if terms and not aliases and node_class.ami_family is None:
        yield "AMI family: none; it is needed where no alias names it; set it, as 'AL2023'"


def _wrong_ami_term(term: AmiTerm) -> Fault:
    given = ami_term(term)
    for alone in ("alias", "id"):
        if alone in given and len(given) > 1:
            others = ", ".join(sorted(given.keys() - {alone}))
            yield f"AMI terms: {alone} with {others}; {alone} stands alone; remove {others}"
            break
    if not given.keys() & {"tags", "id", "name", "alias", "ssmParameter"}:
        yield "AMI terms: a term without anything to select by; alias, id, name, tags or SSM parameter; name one"
    yield from _wrong_tags("AMI terms", term.tags)
    yield from _wrong_id("AMI terms", term.id, "ami")


def _wrong_alias(alias: str, ami_family: AmiFamily | None) -> Fault:
    family, _, version = alias.partition("@")
    if not _ALIAS.fullmatch(alias) or len(alias) > 30:
        yield f"AMI alias {alias!r}: malformed; family@version of at most 30 characters is allowed; as al2023@v20250501"
    elif family not in ALIAS_FAMILIES:
        yield f"AMI alias {alias!r}: family {family!r}; {', '.join(ALIAS_FAMILIES)} are allowed; choose one"
    elif ami_family in ALIAS_FAMILIES.values() and ami_family != ALIAS_FAMILIES[family]:
        yield (
            f"AMI family: {ami_family!r} with alias {alias}; {ALIAS_FAMILIES[family]} or Custom is allowed; remove it"
        )
    elif family.startswith("windows"):
        yield f"AMI alias {alias!r}: Windows has @latest only; a pinned version is allowed; select images by id instead"
    elif version == "latest":
        yield (
            f"AMI alias {alias!r}: each new image would replace every node of the pool; a pinned version is allowed;"
            f" write {family}@ and a release, as al2023@v20250501"
        )


def _wrong_identity(node_class: NodeClass) -> Fault:
    if (node_class.role is None) == (node_class.instance_profile is None):
        got = "neither role nor instance profile" if node_class.role is None else "role and instance profile"
        yield f"identity: {got}; exactly one of them is allowed; give the role, or the profile where IAM is not reached"
    for what, name in (("role", node_class.role), ("instance profile", node_class.instance_profile)):
        if name == "":
            yield f"{what}: empty; a name is needed; write the {what}'s name"


def _wrong_places(node_class: NodeClass) -> Fault:
    for what, terms in (
        ("subnet terms", node_class.subnet_terms),
        ("security group terms", node_class.security_group_terms),
    ):
        if not 1 <= len(terms) <= 30:
            yield f"{what}: {len(terms)}; 1 to 30 are allowed; name the tag karpenter.sh/discovery"
    for subnet in node_class.subnet_terms:
        given = stated(tags=dict(subnet.tags), id=subnet.id)
        yield from _exactly_one("subnet terms", given, "tags or id")
        yield from _wrong_tags("subnet terms", subnet.tags)
        yield from _wrong_id("subnet terms", subnet.id, "subnet")
    for group in node_class.security_group_terms:
        given = stated(tags=dict(group.tags), id=group.id, name=group.name)
        yield from _exactly_one("security group terms", given, "tags, id or name")
        yield from _wrong_tags("security group terms", group.tags)
        yield from _wrong_id("security group terms", group.id, "sg")


def _exactly_one(where: str, given: Mapping[str, object], allowed: str) -> Fault:
    if len(given) != 1:
        yield f"{where}: a term with {' and '.join(sorted(given)) or 'nothing'}; {allowed}; give exactly one"


def _wrong_reservations(node_class: NodeClass) -> Fault:
    terms, where = node_class.capacity_reservation_terms, "capacity reservations"
    if len(terms) > 30:
        yield f"{where}: {len(terms)} terms; at most 30 are allowed; select by tags"
    for term in terms:
        given = reservation(term)
        if "id" in given and len(given) > 1:
            yield f"{where}: id with {', '.join(sorted(given.keys() - {'id'}))}; id stands alone; remove the others"
        if not given.keys() & {"tags", "id", "instanceMatchCriteria"}:
            yield f"{where}: a term without anything to select by; id, tags or match criteria; name one"
        if term.owner_id is not None and not re.fullmatch(r"[0-9]{12}", term.owner_id):
            yield f"{where}: owner {term.owner_id!r}; an account of 12 digits is allowed; write it as text"
        if term.match_criteria not in (None, "open", "targeted"):
            yield f"{where}: match criteria {term.match_criteria!r}; open and targeted are allowed; choose one"
        yield from _wrong_tags(where, term.tags)
        yield from _wrong_id(where, term.id, "cr")


def _wrong_machine(node_class: NodeClass) -> Fault:
    if not _VOLUME_SIZE.fullmatch(node_class.root_volume_size):
        got = node_class.root_volume_size
        yield f"root volume: {got!r}; whole G, Gi, T or Ti up to 64T are allowed; write '200Gi'"
    if not 1 <= node_class.metadata_hop_limit <= 64:
        yield f"metadata hop limit: {node_class.metadata_hop_limit}; 1 to 64 is allowed; 1 keeps pods out"
    if node_class.instance_store_policy not in (None, "RAID0"):
        yield f"instance store policy: {node_class.instance_store_policy!r}; RAID0 is allowed; leave out any other"
    for key in node_class.tags:
        if key in _KARPENTERS_OWN_TAGS or key.startswith("kubernetes.io/cluster") or not key:
            yield f"tags: {key!r} is Karpenter's own or empty; any other key is allowed; remove it"


def _wrong_kubelet(node_class: NodeClass) -> Fault:
    kubelet = node_class.kubelet
    for what, number in (("max pods", kubelet.max_pods), ("pods per core", kubelet.pods_per_core)):
        if number is not None and number < 0:
            yield f"kubelet: {what} {number}; 0 or more is allowed; leave it out for the instance type's own"
    for what, reserved in (("kube reserved", kubelet.kube_reserved), ("system reserved", kubelet.system_reserved)):
        for name, amount in reserved.items():
            if name not in _RESERVED:
                yield f"kubelet: {what} {name!r}; {', '.join(sorted(_RESERVED))} are allowed; remove it"
            yield from _wrong_quantity(f"kubelet: {what} {name!r}", amount)
    for signal, threshold in kubelet.eviction_hard.items():
        if signal not in _EVICTION_SIGNALS:
            yield f"kubelet: eviction {signal!r}; {', '.join(sorted(_EVICTION_SIGNALS))} are allowed; correct it"
        if not _PERCENTAGE.fullmatch(threshold):
            yield from _wrong_quantity(f"kubelet: eviction {signal!r}", threshold)
    yield from _wrong_image_thresholds(kubelet)


def _wrong_image_thresholds(kubelet: Kubelet) -> Fault:
    high, low = kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent
    for what, percent in (("high", high), ("low", low)):
        if percent is not None and not 0 <= percent <= 100:
            yield f"kubelet: {what} threshold of images {percent}; 0 to 100 is allowed; correct it"
    if high is not None and low is not None and high <= low:
        yield f"kubelet: images are removed from {high} % down to {low} %; the first must be higher; swap them"


def _wrong_tags(where: str, tags: Mapping[str, str]) -> Fault:
    if len(tags) > 20:
        yield f"{where}: {len(tags)} tags; at most 20 are allowed; remove some"
    if any(not key or not value for key, value in tags.items()):
        yield f"{where}: an empty key or value among tags; both are needed; write '*' for any value"


def _wrong_id(where: str, found: object, prefix: str) -> Fault:
    """An id that is known already; one that is an output is checked by the API server."""
    if isinstance(found, str) and not re.fullmatch(rf"{prefix}-[0-9a-z]+", found):
        yield f"{where}: id {found!r}; {prefix}- with digits and lower-case letters is allowed; correct it"


def _one_of(literal: Any) -> str:
    return f"{', '.join(get_args(literal))} are allowed"
