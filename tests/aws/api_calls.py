"""Recorded AWS resources as calls of AWS's API, and what botocore's models of the services do not allow in them.

The models are AWS's own. They know names, types, required members, enumerations, patterns and lengths; they do not know
whether what is named exists, whether it goes together, or what the provider checks before it calls.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import botocore.session
import regex
from botocore.model import OperationModel, Shape
from botocore.validate import ParamValidator

from gpufleet_tools.plan.plan import Plan
from tests.aws.forms import Form, form_of_shape
from tests.aws.references import replaced
from tests.aws.resource_type import Part
from tests.aws.resource_types import TYPES
from tests.aws.said import in_order, parts_of, value_of


@dataclass(frozen=True)
class ApiCall:
    """One call that the provider makes for a resource, as far as it is modelled here."""

    name: str
    """Logical name of the resource."""
    kind: str
    """Type of the resource."""
    operation: str
    """`ec2.CreateVpc`."""
    parameters: dict[str, Any]
    """In botocore's form, with references to other resources in them."""


def api_calls(plan: Plan) -> tuple[list[ApiCall], list[str]]:
    """Every call for the plan's AWS resources, in an order in which each finds what it refers to; and inputs that have
    no place in any."""
    problems: list[str] = []
    calls = [
        ApiCall(said.resource.name, said.resource.type, said.part.of, said.content)
        for resource in in_order(plan)
        if resource.type in TYPES
        for said in parts_of(resource, TYPES[resource.type].calls, _form, problems)
    ]
    return calls, problems


def refused_by_api(plan: Plan) -> list[str]:
    """What botocore's models do not allow, by resource and operation."""
    calls, problems = api_calls(plan)
    value = value_of(plan)
    for call in calls:
        shape = operation(call.operation).input_shape
        parameters = replaced(call.parameters, value)
        report = ParamValidator().validate(parameters, shape).generate_report()
        found = [*filter(None, report.splitlines()), *beyond(parameters, shape)]
        problems += [f"{call.name}: {call.operation}: {each}" for each in found]
    return problems


def beyond(value: Any, shape: Shape, path: str = "input") -> Iterator[str]:
    """What the model forbids and botocore lets pass: a value of no enumeration, against a pattern, too much."""
    if shape.type_name == "structure" and isinstance(value, dict):
        for name, item in value.items():
            if name in shape.members:
                yield from beyond(item, shape.members[name], f"{path}.{name}")
    elif shape.type_name == "map" and isinstance(value, dict):
        for name, item in value.items():
            yield from beyond(name, shape.key, f"{path} key")
            yield from beyond(item, shape.value, f"{path}.{name}")
    elif shape.type_name == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from beyond(item, shape.member, f"{path}[{index}]")
    limits = shape.metadata
    size = value if isinstance(value, int) else len(value) if isinstance(value, str | list | dict) else 0
    if "max" in limits and size > limits["max"]:
        yield f"{path}: {size} is more than {limits['max']}"
    if isinstance(value, str):
        if limits.get("enum") and value not in limits["enum"]:
            yield f"{path}: {value!r} is none of {limits['enum']}"
        if "pattern" in limits and not regex.fullmatch(limits["pattern"], value):
            yield f"{path}: {value[:80]!r} does not match {limits['pattern']}"


def _form(part: Part) -> Form:
    return form_of_shape(operation(part.of).input_shape)


@functools.cache
def operation(name: str) -> OperationModel:
    """botocore's model of an operation."""
    service, _, call = name.partition(".")
    return _service(service).operation_model(call)


@functools.cache
def _service(name: str) -> Any:
    return botocore.session.get_session().get_service_model(name)
