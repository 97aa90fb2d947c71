"""A program recorded so that every output it uses can be recognised: `<<Kind.name:property>>` in place of a value.

The recorder answers a preview, where nothing has an output yet, so that `role.arn` and `vpc.id` are both UNKNOWN in
what is recorded, and a policy that an output goes into is UNKNOWN as a whole. Here each output that is a text is a
reference instead. It passes through `apply` and JSON as texts do, and says afterwards what it was: a template of
CloudFormation can name it, an API call can have a value of its shape, an account in memory can have its own.

Outputs that are no text stay UNKNOWN, but for whole numbers, which are 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2
from pulumi import _types
from pulumi.runtime import settings
from pulumi.runtime.proto import resource_pb2

from gpufleet_tools.plan.plan import Plan, Resource
from tests.input_types import resource_classes
from tests.recording import recorded

REFERENCE = re.compile(r"<<(\w+)\.([^:<>]+):(\w+)>>")


@dataclass(frozen=True)
class Reference:
    """An output of a resource."""

    kind: str
    """Last part of the resource's type: `Role`."""
    name: str
    """Logical name of the resource."""
    output: str
    """The output, in Pulumi's own spelling: `arn`, `vpcId`."""

    def __str__(self) -> str:
        return f"<<{self.kind}.{self.name}:{self.output}>>"


def recorded_with_references(build: Callable[[], object]) -> Plan:
    """The plan of a program that is a function, references for outputs."""

    def program() -> None:
        # The recorder's monitor, and between it and the SDK one that adds outputs to its answers.
        surrounding: Any = settings.SETTINGS
        surrounding.monitor = _Answering(surrounding.monitor)
        build()

    return recorded(program)


def referred(value: str) -> Reference | None:
    """What the text refers to, where it is a reference and nothing else."""
    match = REFERENCE.fullmatch(value)
    return Reference(*match.groups()) if match else None


def references(value: Any) -> set[Reference]:
    """Every reference in plain data."""
    if isinstance(value, str):
        return {Reference(*found) for found in REFERENCE.findall(value)}
    if isinstance(value, Mapping):
        return {found for item in value.values() for found in references(item)}
    if isinstance(value, list):
        return {found for item in value for found in references(item)}
    return set()


def replaced(value: Any, by: Callable[[Reference], str]) -> Any:
    """Plain data with a value in place of every reference."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda match: by(Reference(*match.groups())), value)
    if isinstance(value, Mapping):
        return {key: replaced(item, by) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, by) for item in value]
    return value


def kind_of(resource: Resource) -> str:
    return resource.type.rpartition(":")[2]


class _Answering:
    """Hands everything on to another monitor, and adds references to what that says about a new resource."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._monitor, name)

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802  (the service's own name)
        answer = self._monitor.RegisterResource(request)
        if not (request.custom and request.type.startswith("aws:")):
            return answer
        kind = request.type.rpartition(":")[2]
        outputs = struct_pb2.Struct()
        outputs.update(_outputs(kind, request.name, resource_classes()[request.type]))
        return resource_pb2.RegisterResourceResponse(
            urn=answer.urn, id=str(Reference(kind, request.name, "id")), object=outputs
        )


def _outputs(kind: str, name: str, cls: type) -> dict[str, str | int]:
    """References for the texts among a class's outputs, and 1 for whole numbers, by Pulumi's names."""
    hints = _types.resource_types(cls).items()
    texts: dict[str, str | int] = {output: str(Reference(kind, name, output)) for output, hint in hints if hint is str}
    return texts | {output: 1 for output, hint in hints if hint is int}
