"""Everything that recorded AWS inputs are checked with, by name. Each check says what it finds, and nothing of an
unharmed program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from fleet.plan import Plan
from tests.aws.account import refused_by_account
from tests.aws.api_calls import refused_by_api
from tests.aws.cloudformation import refused_by_cloudformation
from tests.aws.references import kind_of, references
from tests.aws.rules import broken_rules
from tests.aws.verdicts import wrong_verdicts
from tests.input_types import wrong_inputs

CHECKS: dict[str, Callable[[Plan], list[str]]] = {
    "SDK": wrong_inputs,
    "API": refused_by_api,
    "CloudFormation": refused_by_cloudformation,
    "rules": broken_rules,
    "verdicts": wrong_verdicts,
    "account": refused_by_account,
}
"""Pulumi's type hints, botocore's models, cfn-lint, rules of ours, the evaluator of policies, and moto."""


def around(plan: Plan, name: str) -> Plan:
    """The resources of that name and all that they refer to: what cfn-lint has to see of a defect in one of them."""
    left = [each for each in plan.resources if each.name == name]
    by_name = {(kind_of(each), each.name): each for each in plan.resources}
    found = {}
    while left:
        resource = left.pop()
        found[resource.urn] = resource
        others = (by_name.get((each.kind, each.name)) for each in references(resource.inputs))
        left += [each for each in others if each and each.urn not in found]
    return dataclasses.replace(plan, resources=tuple(found.values()))
