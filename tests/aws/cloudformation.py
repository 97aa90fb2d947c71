"""Recorded AWS resources as one CloudFormation template, and what cfn-lint says about it.

Nobody deploys the template. cfn-lint knows AWS's resource schemas and hundreds of rules beside them, none of which we
wrote: enumerations, formats, names of IAM actions, and whether what is referred to is of the right type, so that a
security group's id in place of a subnet's is found.

Not covered: what no schema says (quotas, versions, what exists in an account), and everything about the provider.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from cfnlint.api import ManualArgs, lint
from cfnlint.core import get_rules
from cfnlint.match import Match
from cfnlint.rules import RulesCollection
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from gpufleet_tools.plan.plan import Plan, Resource
from tests.aws.forms import Form, form_of_schema
from tests.aws.references import REFERENCE, Reference, kind_of, referred
from tests.aws.resource_type import REGION, Part
from tests.aws.resource_types import TYPES
from tests.aws.said import Said, aws_resources, in_order, inputs_of, parts_of, value_of

EXCEPTIONS = {
    "W3010": "a zone is written out: the program plans for one region, and asks no provider which zones it has",
}
"""Rules of cfn-lint that are no findings here, and why."""


def refused_by_cloudformation(plan: Plan) -> list[str]:
    """What cfn-lint finds, by resource and rule, and inputs that have no place in a template."""
    made, problems = template(plan)
    return problems + [
        f"{match.path[1] if len(match.path) > 1 else ''}: {match.rule.id}: {match.message}"
        for match in findings(made)
        if match.rule.id not in EXCEPTIONS
    ]


def findings(made: Mapping[str, Any]) -> list[Match]:
    """Everything that cfn-lint says of a template."""
    found: list[Match] = lint(json.dumps(made), rules=_rules(), config=ManualArgs(regions=[REGION]))
    return found


def template(plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """The template of all AWS resources of the plan, and inputs that have no place in it."""
    problems: list[str] = []
    resources: dict[str, Any] = {}
    for resource in in_order(plan):
        if resource.type not in TYPES:
            continue
        for index, said in enumerate(parts_of(resource, TYPES[resource.type].template, _form, problems)):
            other = _other(said, plan)
            name = logical(other) if other else logical(resource) + (str(index) if index else "")
            into = resources.setdefault(name, {"Type": said.part.of, "Properties": {}})
            if into["Type"] != said.part.of:
                problems.append(f"{resource.name}: {name} is {into['Type']} and not {said.part.of}")
            merge(into["Properties"], said.content)
    referring = _referring(plan)
    made = {
        name: {"Type": each["Type"], "Properties": with_functions(each["Properties"], referring)}
        for name, each in resources.items()
    }
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": made}, problems


def logical(resource: Resource) -> str:
    """The resource's name in the template."""
    words = re.split(r"[^A-Za-z0-9]+", resource.name)
    return kind_of(resource) + "".join(word[:1].upper() + word[1:] for word in words)


def merge(into: dict[str, Any], content: Mapping[str, Any]) -> None:
    """Lays content over properties: lists are joined, objects are merged, everything else has to be new."""
    for key, value in content.items():
        if isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = into[key] + value
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def with_functions(value: Any, referring: Callable[[Reference], Any]) -> Any:
    """Properties with CloudFormation's functions in place of references."""
    if isinstance(value, dict):
        return {key: with_functions(item, referring) for key, item in value.items()}
    if isinstance(value, list):
        return [with_functions(item, referring) for item in value]
    if not isinstance(value, str) or not REFERENCE.search(value):
        return value
    whole = referred(value)
    if whole:
        return referring(whole)
    text = value.replace("${", "${!")
    return {"Fn::Sub": REFERENCE.sub(lambda match: _in_text(referring(Reference(*match.groups()))), text)}


def _in_text(function: Any) -> str:
    if isinstance(function, str):
        return function
    if "Ref" in function:
        return f"${{{function['Ref']}}}"
    return f"${{{'.'.join(function['Fn::GetAtt'])}}}"


def _referring(plan: Plan) -> Callable[[Reference], Any]:
    by_name = {(kind_of(each), each.name): each for each in aws_resources(plan)}
    value = value_of(plan)

    def function(reference: Reference) -> Any:
        resource = by_name[reference.kind, reference.name]
        attribute = TYPES[resource.type].attributes.get(reference.output)
        if attribute is None:
            return with_functions(value(reference), function)
        return {"Ref": logical(resource)} if attribute == "Ref" else {"Fn::GetAtt": [logical(resource), attribute]}

    return function


def _other(said: Said, plan: Plan) -> Resource | None:
    """The resource that this is a part of, where it is not one of its own."""
    if not said.part.into:
        return None
    kind, key, others = said.part.into
    given = inputs_of(said.resource).get(key)
    reference = referred(given) if isinstance(given, str) else None
    for resource in aws_resources(plan):
        if kind_of(resource) != kind:
            continue
        if (reference and reference.name == resource.name and reference.kind == kind) or inputs_of(resource).get(
            others
        ) == given:
            return resource
    return None


def _form(part: Part) -> Form:
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, part.of).schema
    return form_of_schema(schema, schema)


@functools.cache
def _rules() -> RulesCollection:
    """cfn-lint's own rules; reading them takes longer than applying them."""
    return get_rules([], [], [])
