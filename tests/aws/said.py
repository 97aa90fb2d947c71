"""A recorded resource as the calls of an API, or as resources of a template: what both have in common."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet_tools.plan.plan import Plan, Resource, Unknown, revealed
from tests.aws.forms import Form, put
from tests.aws.references import Reference, kind_of, references, replaced
from tests.aws.resource_type import Part
from tests.aws.resource_types import TYPES

UNKNOWN_VALUES = {
    "clusterName": "cluster",
    "principalArn": "arn:aws:iam::111122223333:role/unknown",
    "securityGroupId": "sg-0123456789abcdef0",
    "referencedSecurityGroupId": "sg-0123456789abcdef0",
    "securityGroupIds": ["sg-0123456789abcdef0"],
    "vpcSecurityGroupIds": ["sg-0123456789abcdef0"],
    "resourceId": "sg-0123456789abcdef0",
    "url": "https://oidc.eks.eu-west-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
}
"""Values for what is UNKNOWN even here, by key: the outputs of a cluster that Pulumi's EKS provider makes."""


@dataclass(frozen=True)
class Said:
    """One part of a resource, put together."""

    resource: Resource
    part: Part
    content: dict[str, Any]


def aws_resources(plan: Plan) -> list[Resource]:
    """What the plan makes in AWS by itself: a cluster of Pulumi's EKS provider is opaque, and left out."""
    return [each for each in plan.owned() if each.type.startswith("aws:") and not each.component]


def in_order(plan: Plan) -> list[Resource]:
    """The plan's AWS resources, each after those that it refers to."""
    left = {(kind_of(each), each.name): each for each in aws_resources(plan)}
    found: list[Resource] = []

    def take(key: tuple[str, str]) -> None:
        resource = left.pop(key, None)
        if resource is None:
            return
        for reference in sorted(references(revealed(resource.inputs)), key=str):
            take((reference.kind, reference.name))
        found.append(resource)

    for key in list(left):
        take(key)
    return found


def untold(plan: Plan) -> list[str]:
    """Types of AWS resources that have no line in the table."""
    return [f"{each.name}: no line for {each.type}" for each in aws_resources(plan) if each.type not in TYPES]


def parts_of(
    resource: Resource, parts: tuple[Part, ...], form: Callable[[Part], Form], problems: list[str]
) -> Iterator[Said]:
    """Each part of the resource that there is, references still in it. What has no place in any of them is a fault."""
    kind = TYPES[resource.type]
    inputs = inputs_of(resource)
    left = inputs.keys() - {"id"} - kind.provider
    for index, part in enumerate(parts):
        if (part.when and inputs.get(part.when) in (None, False)) or (part.each and not inputs.get(part.each)):
            left -= {part.when, part.each}
            continue
        if part.each:
            left -= {part.each}
            for item in inputs[part.each]:
                given = {**(item if isinstance(item, Mapping) else {"item": item}), **_own(inputs)}
                content, placed = _put_together(given, part, form(part), resource.name, problems, alike=True)
                missing = given.keys() - placed - {"description", *_own(inputs)}
                problems += [
                    f"{resource.name}.{part.each}.{key}: {part.of} has no such member" for key in sorted(missing)
                ]
                yield Said(resource, part, content)
        else:
            content, placed = _put_together(inputs, part, form(part), resource.name, problems, alike=index == 0)
            left -= placed
            yield Said(resource, part, content)
    if parts:
        problems += [f"{resource.name}.{key}: {parts[0].of} has no such member" for key in sorted(left)]


def _own(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: inputs[key] for key in ("id", "name") if key in inputs}


def _put_together(
    inputs: Mapping[str, Any], part: Part, form: Form, path: str, problems: list[str], *, alike: bool
) -> tuple[dict[str, Any], set[str]]:
    """The part's content, and the keys that are in it. Keys that are called alike are taken where that is asked for."""
    content: dict[str, Any] = {}
    placed: set[str] = set()
    unknown: list[str] = []
    for key, value in inputs.items():
        place = part.places.get(key)
        if place is None and key != "id" and (alike or key == part.when):
            place = _place_of(key, form, part.within)
        if place is None:
            continue
        placed.add(key)
        if place:
            put(content, place, value, form, f"{path}.{key}", unknown)
    problems += [f"{each}: {part.of} has no such member" for each in unknown]
    return content, placed


def _place_of(key: str, form: Form, within: str | None) -> str | None:
    name = form.member(key)
    if name is not None or within is None:
        return name
    below = form.members[within]()
    below = below.members["*"]() if below.kind == "list" else below
    name = below.member(key)
    return name and f"{within}.{name}"


def inputs_of(resource: Resource) -> dict[str, Any]:
    """The resource's inputs, with what the provider adds to them, and without what is for the provider alone."""
    kind = TYPES[resource.type]
    inputs: dict[str, Any] = _known(revealed({key: item for key, item in resource.inputs.items() if key != "region"}))
    if kind.named and kind.named not in inputs:
        inputs[kind.named] = f"{resource.name}-{digits(resource)[:7]}"
    if kind_of(resource) == "SecurityGroup":
        inputs.setdefault("description", "Managed by Pulumi")
        for direction in ("ingress", "egress"):
            inputs[direction] = [flat for rule in inputs.get(direction, []) for flat in flat_rules(rule, resource)]
    inputs["id"] = str(Reference(kind_of(resource), resource.name, "id"))
    return inputs


def flat_rules(rule: Mapping[str, Any], resource: Resource) -> Iterator[dict[str, Any]]:
    """A rule within a security group, as one rule for each peer, which is how rules of their own are written."""
    common = {key: rule[key] for key in ("fromPort", "toPort", "description") if key in rule}
    this = str(Reference(kind_of(resource), resource.name, "id"))
    common |= {"ipProtocol": rule.get("protocol"), "securityGroupId": this}
    peers = {
        "cidrIpv4": rule.get("cidrBlocks", []),
        "cidrIpv6": rule.get("ipv6CidrBlocks", []),
        "referencedSecurityGroupId": [*rule.get("securityGroups", []), *([this] if rule.get("self") else [])],
    }
    yield from (common | {key: peer} for key, found in peers.items() for peer in found)


def _known(value: Any, key: str = "") -> Any:
    if isinstance(value, Unknown):
        return UNKNOWN_VALUES[key]
    if isinstance(value, Mapping):
        return {name: _known(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_known(item, key) for item in value]
    return value


def digits(resource: Resource) -> str:
    """Hexadecimal digits of the resource's own, as in its id."""
    return hashlib.sha256(resource.urn.encode()).hexdigest()[:17]


def value_of(plan: Plan, told_already: Mapping[Reference, str] | None = None) -> Callable[[Reference], str]:
    """A value for each reference: a known one, or else one in the form that AWS uses."""
    by_name = {(kind_of(each), each.name): each for each in aws_resources(plan)}
    known = {} if told_already is None else told_already

    def value(reference: Reference) -> str:
        if reference in known:
            return known[reference]
        resource = by_name[reference.kind, reference.name]
        kind, inputs = TYPES[resource.type], inputs_of(resource)
        if reference.output in kind.outputs:
            return kind.outputs[reference.output].format(
                name=inputs.get(kind.named or "", resource.name),
                hex=digits(resource),
                uuid=uuid.uuid5(uuid.NAMESPACE_URL, resource.urn),
            )
        found = replaced(inputs[reference.output], value)
        return found if isinstance(found, str) else json.dumps(found)

    return value
