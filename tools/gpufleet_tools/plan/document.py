"""The plan as a JSON document. Its schema is `preview.schema.json`, and people build on it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.problems import dotted
from gpufleet_tools.check.findings import Report
from gpufleet_tools.plan.plan import Kind, Plan, Resource, shown


class _Part(Documented):
    model_config = ConfigDict(validate_by_name=True)


class ResourceDocument(_Part):
    """One registration of the program."""

    urn: str
    """Identity: stack, project, types from the outermost parent down, name."""
    type: str
    """Type token."""
    name: str
    """Logical name."""
    parent: str | None
    """URN of the component it belongs to; null at the top."""
    kind: Kind
    """`component` groups others, `lookup` exists already and is only read, `provider` leads to a cluster or cloud."""
    provider: str | None
    """URN of its provider."""
    waits_for: list[str]
    """URNs of what has to be there before it, and stays until it is gone."""
    inputs: dict[str, Any]
    """Inputs. A secret is `<secret>`, leaf by leaf; a value known only to a provider is `<unknown>`; a resource is its
    URN."""
    options: dict[str, Any]
    """Resource options that differ from their defaults."""
    opaque: str | None
    """What of it cannot be known before a provider runs; null when all is said."""


class FindingDocument(_Part):
    """Something to say about the stack."""

    name: str
    """Kind of finding; acknowledgements name it."""
    severity: Literal["error", "warning", "note"]
    """How bad it is."""
    file: str
    """Stack file."""
    line: int | None
    """Line in it, counted from 1."""
    path: str
    """Setting that it arises from."""
    message: str
    """What is so, why it matters, what to do."""


class PlanDocument(_Part):
    """What `pulumi up` would create for a stack of which nothing exists yet."""

    schema_version: Literal[1] = Field(default=1)
    """Version of this form."""
    stack: str
    """Name of the stack."""
    resources: list[ResourceDocument]
    """Registrations, sorted by URN."""
    outputs: dict[str, Any]
    """The stack's outputs."""
    findings: list[FindingDocument]
    """Open findings, in the order of the file."""


def document(plan: Plan, report: Report) -> PlanDocument:
    """The plan and its findings as a document."""
    return PlanDocument(
        stack=plan.stack,
        resources=[_resource(resource) for resource in plan.resources],
        outputs=shown(plan.exports),
        findings=[
            FindingDocument(
                name=finding.name,
                severity=finding.severity,
                file=at.file,
                line=at.line,
                path=dotted(at.path),
                message=finding.message,
            )
            for finding, at in report.open
        ],
    )


def _resource(resource: Resource) -> ResourceDocument:
    return ResourceDocument(
        urn=resource.urn,
        type=resource.type,
        name=resource.name,
        parent=resource.parent,
        kind=resource.kind,
        provider=resource.provider,
        waits_for=list(resource.depends_on),
        inputs=shown(resource.inputs),
        options=dict(resource.options),
        opaque=resource.opaque,
    )
