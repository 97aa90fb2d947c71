"""Plan of a stack: every resource that its program registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpufleet_stacks.settings.secrets import SECRET, redacted, secret_keys

RELEASE = "kubernetes:helm.sh/v3:Release"


Kind = Literal["component", "resource", "lookup", "provider"]
"""`component` groups resources, `lookup` is read but not managed, `provider` connects to a cluster or cloud."""


class Unknown:
    """A value that is unknown until its provider runs."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = Unknown()


@dataclass(frozen=True, repr=False)
class Hidden:
    """A secret value, which is never shown."""

    value: Any

    def __repr__(self) -> str:
        return SECRET


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One registration."""

    urn: str
    """Identity: stack, project, types from the outermost parent down, name."""
    type: str
    """Type token."""
    name: str
    """Logical name."""
    parent: str | None
    """URN of its parent; None for a child of the stack."""
    component: bool
    """Whether it is a component."""
    read_id: str | None
    """ID of an existing object that is only read; None for a resource that the stack manages."""
    provider: str | None
    """URN of its provider."""
    depends_on: tuple[str, ...]
    """URNs of its dependencies: created before it, deleted after it."""
    inputs: Mapping[str, Any]
    """Inputs: plain data, with Hidden and UNKNOWN among the leaves."""
    options: Mapping[str, Any]
    """Resource options that differ from their defaults."""
    outputs: Mapping[str, Any] | None
    """Registered outputs of a component; None if it registered none."""

    @property
    def kind(self) -> Kind:
        if self.read_id is not None:
            return "lookup"
        if self.type.startswith("pulumi:providers:"):
            return "provider"
        return "component" if self.component else "resource"

    @property
    def opaque(self) -> str | None:
        """Part of the resource that is unknown until a provider runs; None if the plan is complete."""
        if self.type == RELEASE:
            return "the chart's objects are known once Helm renders them"
        if self.component and not self.type.startswith("gpu-runners:"):
            return "its children are known once its provider creates them"
        return None


@dataclass(frozen=True, kw_only=True)
class Release:
    """A Helm release. Its objects are unknown until Helm renders the chart."""

    resource: Resource
    """Registration of the release."""
    name: str
    """Release name."""
    namespace: str
    """Namespace."""
    chart: str
    """Chart reference or name."""
    version: str
    """Chart version."""
    repository: str | None
    """Repository of a chart that is referred to by name; None for an OCI reference or a file."""
    values: Mapping[str, Any]
    """Chart values."""

    @property
    def chart_name(self) -> str:
        """Name of the chart without its location and version."""
        return self.chart.split("/")[-1].removesuffix(".tgz").removesuffix(f"-{self.version}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that one stack's program registers, sorted by URN."""

    stack: str
    """Name of the stack."""
    resources: tuple[Resource, ...]
    """Registrations, except the stack itself."""
    exports: Mapping[str, Any]
    """The stack's outputs."""

    def owned(self) -> Iterator[Resource]:
        """Return the resources that the stack manages, without lookups."""
        return (resource for resource in self.resources if resource.read_id is None)

    def objects(self) -> list[dict[str, Any]]:
        """Return the manifests of the Kubernetes objects that the stack applies itself, with hidden secrets."""
        return [dict(resource.inputs) for resource in self.owned() if is_object(resource)]

    def expected_objects(self) -> list[dict[str, Any]]:
        """Return references to the Kubernetes objects that must exist already."""
        return [
            _reference(resource.type, resource.read_id)
            for resource in self.resources
            if resource.read_id is not None and resource.type.startswith("kubernetes:")
        ]

    def releases(self) -> list[Release]:
        """Return the Helm releases."""
        return [
            Release(
                resource=resource,
                name=resource.inputs["name"],
                namespace=resource.inputs["namespace"],
                chart=resource.inputs["chart"],
                version=resource.inputs["version"],
                repository=resource.inputs.get("repositoryOpts", {}).get("repo"),
                values=resource.inputs.get("values", {}),
            )
            for resource in self.owned()
            if resource.type == RELEASE
        ]


def is_object(resource: Resource) -> bool:
    """Return whether the registration is a single Kubernetes object: no release, chart, provider or patch."""
    whole = resource.type.startswith("kubernetes:") and not resource.type.endswith("Patch")
    return whole and "kind" in resource.inputs


def _reference(type_token: str, object_id: str) -> dict[str, Any]:
    group_version, kind = type_token.split(":")[1:]
    namespace, _, name = object_id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    api_version = group_version.removeprefix("core/")
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def shown(value: Any) -> Any:
    """Return the value as plain data in which every leaf of a secret is `<secret>`. Values that look like secrets are
    redacted too, even if Pulumi does not treat them as secrets."""
    if isinstance(value, Hidden | Unknown):
        return repr(value)
    if isinstance(value, Mapping):
        secrets = secret_keys(value)
        return {key: SECRET if key in secrets else shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return redacted(value) if isinstance(value, str) else value


def revealed(value: Any) -> Any:
    """Return the value with its secrets in plain text. Never print it."""
    if isinstance(value, Hidden):
        return revealed(value.value)
    if isinstance(value, Mapping):
        return {key: revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(item) for item in value]
    return value
