"""Policy pack with the rules of gpufleet_tools/policy, which the engine runs on every resource before it is created.

Use it with `pulumi up --policy-pack policy`. Errors stop the update; warnings are printed. Findings that the stack file
acknowledges are omitted.
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
    deserialize,
)
from pulumi_policy.proxy import UnknownValueError

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "stacks"), str(ROOT / "tools")]

from gpufleet_tools.plan.plan import UNKNOWN, Hidden  # noqa: E402
from gpufleet_tools.policy.rules import RULES, Rule, is_acknowledged, rules  # noqa: E402

PROJECT = "gpu-runners"
LEVELS = {"error": EnforcementLevel.MANDATORY, "warning": EnforcementLevel.ADVISORY}


_deserialized = deserialize._deserialize_property


def with_secrets(value: Any, proxy_secrets: bool = False) -> Any:
    """Return one part of a resource's inputs, as Hidden if it is a Pulumi secret."""
    found = _deserialized(value, proxy_secrets)
    secret = isinstance(value, Mapping) and value.get(deserialize.SPECIAL_SIG_KEY) == deserialize.SPECIAL_SECRET_SIG
    return Hidden(found) if secret and not proxy_secrets else found


# The SDK passes secrets to validations as plain text, but the rule `plain-secret` must distinguish them from other text
# (deserialize.py of pulumi-policy 1.21.0, which requirements.txt pins).
deserialize._deserialize_property = with_secrets


def plain(value: Any) -> Any:
    """Return the SDK's proxy of a resource's inputs as plain data. Access to an unknown value raises an error."""
    if isinstance(value, Mapping):
        return {key: known(value, key) for key in value}
    if hasattr(value, "__getitem__") and not isinstance(value, str | bytes):
        return [known(value, index) for index in range(len(value))]
    return value


def known(value: Any, key: Any) -> Any:
    """Return one part of the inputs, or UNKNOWN."""
    try:
        return plain(value[key])
    except UnknownValueError:
        return UNKNOWN


def validation(rule: Rule) -> ResourceValidation:
    """Return the SDK's validation function of a rule."""

    def validate(args: ResourceValidationArgs, report_violation: ReportViolation) -> None:
        config = pulumi.Config(PROJECT)
        if is_acknowledged(rule.name, args.name, config.get_object("acknowledged") or [], datetime.date.today()):
            return
        (own,) = (each for each in rules(config.get_object("hostPaths") or ()) if each.name == rule.name)
        for message in own.judge(args.resource_type, args.name, plain(args.props)):
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
    ],
)
