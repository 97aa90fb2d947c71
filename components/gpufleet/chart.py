"""Sources of Helm charts: the vendor's registry, or a mirror of your own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release, ReleaseArgs, RepositoryOptsArgs

HELM_TEMPLATE = "kubernetes:helm:template"
"""The provider's function that renders a chart (`Invoke` in provider.go of pulumi/pulumi-kubernetes)."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Helm chart at an exact version."""

    name: str
    """Chart name, also the last part of its OCI path."""
    registry: str
    """The vendor's OCI registry and path without the chart name, such as `oci://ghcr.io/org/charts`, or an `https://`
    chart repository."""
    version: str
    """Exact chart version, never a range: a scale set and its controller must match."""
    mirror: str | None = None
    """Mirror for sites without internet access: an `oci://` path, an `https://` chart repository, or a folder with
    `<name>-<version>.tgz`. None uses the vendor's registry."""

    @property
    def reference(self) -> str:
        """Return the `chart` argument of a Helm release: an OCI reference, a file or, for a chart repository, a
        name."""
        source = self.source
        if source.startswith("oci://"):
            return f"{source}/{self.name}"
        if source.startswith(("https://", "http://")):
            return self.name
        return f"{source}/{self.name}-{self.version}.tgz"

    @property
    def repository(self) -> RepositoryOptsArgs | None:
        """Return the repository options of a Helm release; only HTTP chart repositories have them."""
        return RepositoryOptsArgs(repo=self.source) if self.source.startswith(("https://", "http://")) else None

    @property
    def source(self) -> str:
        return (self.mirror or self.registry).rstrip("/")

    def release(
        self,
        name: str,
        *,
        release: str,
        namespace: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
        values: Mapping[str, Any] | None = None,
        **further: Any,
    ) -> Release:
        """Return a Helm release of the chart: real Helm with hooks, and one resource in the tree. `further` are
        arguments of `ReleaseArgs`."""
        args = ReleaseArgs(
            name=release,
            namespace=namespace,
            chart=self.reference,
            repository_opts=self.repository,
            version=self.version,
            values=values,
            **further,
        )
        return Release(name, args, opts=opts)

    def definitions(self, parent: pulumi.Resource) -> pulumi.Output[dict[str, Any]]:
        """Return the chart's CustomResourceDefinitions by name, as the parent's Kubernetes provider renders them. In a
        preview, they are unknown if the provider's cluster is."""
        arguments = {"jsonOpts": self.template_options()}
        rendered = pulumi.runtime.invoke_output(HELM_TEMPLATE, arguments, pulumi.InvokeOutputOptions(parent=parent))
        return rendered.apply(_definitions)

    def template_options(self) -> str:
        """Return the options of the provider's rendering, as JSON (`HelmChartOpts` in invoke_helm_template.go)."""
        options: dict[str, Any] = {"chart": self.reference, "version": self.version}
        if self.repository:
            options["fetch_opts"] = {"repo": self.source}
        elif not self.source.startswith("oci://"):
            options = {"path": self.reference}
        return json.dumps(options | {"release_name": self.name})


def _definitions(answer: Mapping[str, Any]) -> Any:
    """Return the definitions by name. The engine answers with an empty map for a provider whose configuration is
    unknown (`Invoke` in provider_plugin.go of pulumi/pulumi)."""
    if not answer:
        return pulumi.UNKNOWN
    return {each["metadata"]["name"]: each for each in answer["result"] if each["kind"] == "CustomResourceDefinition"}


def laid_over(values: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Return chart values merged with additional ones as Helm does: maps by key, everything else as a whole."""
    merged = dict(values)
    for key, value in further.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
