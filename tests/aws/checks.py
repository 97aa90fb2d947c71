"""Everything that recorded AWS inputs are checked with, by name. Each check says what it finds, and nothing of an
unharmed program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from gpufleet_tools.plan.plan import Plan, revealed
from tests.aws.account import is_made, refused_by_account
from tests.aws.api_calls import refused_by_api
from tests.aws.cloudformation import refused_by_cloudformation
from tests.aws.packets import blocked
from tests.aws.references import kind_of, references
from tests.aws.resource_types import TYPES
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
    "packets": blocked,
}
"""Pulumi's type hints, botocore's models, cfn-lint, rules of ours, the evaluator of policies, moto, and packets that
security groups let through."""


def finders(plan: Plan, kind: str, name: str) -> tuple[str, ...]:
    """Names of the checks that find something in a plan in which one resource is not what it was.

    cfn-lint sees that resource and all that it refers to, and moto is asked only where the resource is of a service
    that it has: the rest of the plan is as it was when it was checked as a whole.
    """
    found = []
    for check, finding in CHECKS.items():
        if check == "account" and not is_of_account(kind):
            continue
        if finding(around(plan, kind, name) if check == "CloudFormation" else plan):
            found.append(check)
    return tuple(found)


def is_of_account(kind: str) -> bool:
    """Whether resources of that kind are made in the account in memory."""
    types = [each for token, each in TYPES.items() if token.endswith(f":{kind}")]
    return any(is_made(each.calls[0].of) for each in types)


def around(plan: Plan, kind: str, name: str) -> Plan:
    """A resource and all that it refers to; nothing where it is missing."""
    by_name = {(kind_of(each), each.name): each for each in plan.resources}
    left = [by_name[kind, name]] if (kind, name) in by_name else []
    found = {}
    while left:
        resource = left.pop()
        found[resource.urn] = resource
        others = (by_name.get((each.kind, each.name)) for each in references(revealed(resource.inputs)))
        left += [each for each in others if each and each.urn not in found]
    return dataclasses.replace(plan, resources=tuple(found.values()))
