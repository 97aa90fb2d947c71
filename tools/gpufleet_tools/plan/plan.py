"""What a stack's program asks the engine for: a fleet on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpufleet_stacks.settings.secrets import SECRET, redacted, secret_keys

RELEASE = "kubernetes:helm.sh/v3:Release"


Kind = Literal["component", "resource", "lookup", "provider"]
"""`component` groups others, `lookup` exists already and is only read, `provider` leads to a cluster or cloud."""


class Unknown:
    """A value that only a provider could tell, once it runs."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = Unknown()


@dataclass(frozen=True, repr=False)
class Hidden:
    """A secret value. It can be handed on, but not shown."""

    value: Any

    def __repr__(self) -> str:
        return SECRET


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One registration."""

    urn: str
    """Its identity: stack, project, types from its parent's down, and name."""
    type: str
    """Type token."""
    name: str
    """Logical name."""
    parent: str | None
    """URN of its parent; None for a child of the stack."""
    component: bool
    """Whether it only groups others."""
    read_id: str | None
    """Id of an object that exists already and is only looked up; None for what the stack owns."""
    provider: str | None
    """URN of its provider."""
    depends_on: tuple[str, ...]
    """URNs of what has to be there before it, and has to stay until it is gone."""
    inputs: Mapping[str, Any]
    """Its inputs: plain data, with Hidden and UNKNOWN among the leaves."""
    options: Mapping[str, Any]
    """Resource options that differ from their defaults."""
    outputs: Mapping[str, Any] | None
    """What a component registered as its outputs; None when it never did."""

    @property
    def kind(self) -> Kind:
        if self.read_id is not None:
            return "lookup"
        if self.type.startswith("pulumi:providers:"):
            return "provider"
        return "component" if self.component else "resource"

    @property
    def opaque(self) -> str | None:
        """What of it cannot be known before a provider runs; None when all is said."""
        if self.type == RELEASE:
            return "the chart's objects are known once Helm renders them"
        if self.component and not self.type.startswith("gpu-runners:"):
            return "its children are known once its provider makes them"
        return None


@dataclass(frozen=True, kw_only=True)
class Release:
    """A Helm release: opaque until Helm runs, except for what it is told."""

    resource: Resource
    """Its registration."""
    name: str
    """Release name."""
    namespace: str
    """Namespace."""
    chart: str
    """Chart reference or name."""
    version: str
    """Chart version."""
    repository: str | None
    """Chart repository that a bare chart name is looked up in; None for an OCI reference or a file."""
    values: Mapping[str, Any]
    """Chart values."""

    @property
    def chart_name(self) -> str:
        """The chart's own name, wherever it is taken from."""
        return self.chart.split("/")[-1].removesuffix(".tgz").removesuffix(f"-{self.version}")

    @property
    def is_scale_set(self) -> bool:
        """Whether its chart is that of a runner scale set."""
        return self.chart_name == "gha-runner-scale-set"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that one stack's program registers, sorted by URN."""

    stack: str
    """Name of the stack."""
    resources: tuple[Resource, ...]
    """Registrations, the stack itself left out."""
    exports: Mapping[str, Any]
    """The stack's outputs."""

    def owned(self) -> Iterator[Resource]:
        """What the stack creates: without what it only looks up."""
        return (resource for resource in self.resources if resource.read_id is None)

    def objects(self) -> list[dict[str, Any]]:
        """The Kubernetes objects that the stack applies itself, as manifests, secrets hidden."""
        return [dict(resource.inputs) for resource in self.owned() if is_object(resource)]

    def expected_objects(self) -> list[dict[str, Any]]:
        """Kubernetes objects that have to be there already, by kind and name."""
        return [
            _reference(resource.type, resource.read_id)
            for resource in self.resources
            if resource.read_id is not None and resource.type.startswith("kubernetes:")
        ]

    def releases(self) -> list[Release]:
        """The Helm releases."""
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
    """Whether the registration is a single Kubernetes object, and no release, chart or provider."""
    return resource.type.startswith("kubernetes:") and "kind" in resource.inputs


def _reference(type_token: str, object_id: str) -> dict[str, Any]:
    group_version, kind = type_token.split(":")[1:]
    namespace, _, name = object_id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    api_version = group_version.removeprefix("core/")
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def shown(value: Any) -> Any:
    """The value as it may be shown: plain data, a secret as `<secret>`, leaf by leaf. What looks like a secret is shown
    as one, even if Pulumi does not know it as a secret."""
    if isinstance(value, Hidden | Unknown):
        return repr(value)
    if isinstance(value, Mapping):
        secrets = secret_keys(value)
        return {key: SECRET if key in secrets else shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return redacted(value) if isinstance(value, str) else value


def revealed(value: Any) -> Any:
    """The value with its secrets, to be handed on and never shown."""
    if isinstance(value, Hidden):
        return revealed(value.value)
    if isinstance(value, Mapping):
        return {key: revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(item) for item in value]
    return value
