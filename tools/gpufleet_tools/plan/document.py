"""The plan as a JSON document. Its schema, `preview.schema.json`, is a public interface."""

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
    """`component` groups resources, `lookup` is read but not managed, `provider` connects to a cluster or cloud."""
    provider: str | None
    """URN of its provider."""
    waits_for: list[str]
    """URNs of its dependencies: created before it, deleted after it."""
    inputs: dict[str, Any]
    """Inputs. Each leaf of a secret is `<secret>`; a value that only a provider knows is `<unknown>`; a resource is its
    URN."""
    options: dict[str, Any]
    """Resource options that differ from their defaults."""
    opaque: str | None
    """Part of the resource that is unknown until a provider runs; null if the plan is complete."""


class FindingDocument(_Part):
    """A finding about the stack."""

    name: str
    """Kind of the finding; acknowledgements refer to it."""
    severity: Literal["error", "warning", "note"]
    """Severity of the finding."""
    file: str
    """Stack file."""
    line: int | None
    """Line in the stack file, counted from 1."""
    path: str
    """Setting that causes the finding."""
    message: str
    """Fact, consequence and remedy."""


class PlanDocument(_Part):
    """Plan of `pulumi up` for a stack that does not exist yet."""

    schema_version: Literal[1] = Field(default=1)
    """Version of the schema."""
    stack: str
    """Name of the stack."""
    resources: list[ResourceDocument]
    """Registrations, sorted by URN."""
    outputs: dict[str, Any]
    """The stack's outputs."""
    findings: list[FindingDocument]
    """Open findings, in the order of the file."""


def document(plan: Plan, report: Report) -> PlanDocument:
    """Return the plan and its findings as a document."""
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
