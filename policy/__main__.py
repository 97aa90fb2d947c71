"""The policy pack: the rules of fleet/policy.py, run by the engine on every resource before it is made.

`pulumi up --policy-pack policy`. Errors refuse the update, warnings are said. What the stack file acknowledges is borne
here too.
"""

from __future__ import annotations

import datetime
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from fleet.plan import UNKNOWN
from fleet.policy import RULES, Rule, is_borne

PROJECT = "gpu-runners"
LEVELS = {"error": EnforcementLevel.MANDATORY, "warning": EnforcementLevel.ADVISORY}


def plain(value: Any) -> Any:
    """The SDK's view of a resource's inputs as plain data: it raises wherever something unknown is touched."""
    if isinstance(value, Mapping):
        return {key: known(value, key) for key in value}
    if hasattr(value, "__getitem__") and not isinstance(value, str | bytes):
        return [known(value, index) for index in range(len(value))]
    return value


def known(value: Any, key: Any) -> Any:
    """One part of it, or UNKNOWN."""
    try:
        return plain(value[key])
    except UnknownValueError:
        return UNKNOWN


def validation(rule: Rule) -> ResourceValidation:
    """The rule as the SDK calls it."""

    def validate(args: ResourceValidationArgs, report_violation: ReportViolation) -> None:
        acknowledged = pulumi.Config(PROJECT).get_object("acknowledged") or []
        if not is_borne(rule.name, args.name, acknowledged, datetime.date.today()):
            for message in rule.judge(args.resource_type, args.name, plain(args.props)):
                report_violation(message, None)

    return validate


PolicyPack(
    name=PROJECT,
    policies=[
        ResourceValidationPolicy(
            name=rule.name,
            description=rule.description,
            enforcement_level=LEVELS[rule.severity],
            validate=validation(rule),
        )
        for rule in RULES
        if not rule.needs_secrets
    ],
)
