"""Where Helm charts come from: the vendor's registry, or a mirror of the site's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release, ReleaseArgs, RepositoryOptsArgs


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One Helm chart at one exact version."""

    name: str
    """Chart name, which is also the last part of its OCI path."""
    registry: str
    """The vendor's OCI registry and path without the chart name, `oci://ghcr.io/org/charts`, or an `https://` chart
    repository."""
    version: str
    """Exact chart version. Never a range: a scale set and its controller must agree on it."""
    mirror: str | None = None
    """For sites without a way out: an `oci://` path, an `https://` chart repository, or a folder that holds
    `<name>-<version>.tgz`. None takes the vendor's registry."""

    @property
    def reference(self) -> str:
        """What a Helm release takes as `chart`: an OCI reference, a file, or (in a repository) a name."""
        source = self.source
        if source.startswith("oci://"):
            return f"{source}/{self.name}"
        if source.startswith(("https://", "http://")):
            return self.name
        return f"{source}/{self.name}-{self.version}.tgz"

    @property
    def repository(self) -> RepositoryOptsArgs | None:
        """The repository option of a Helm release: only a chart repository over HTTP has one."""
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
        """The chart's release of that name: real Helm, with hooks, and one resource in the tree. `further` are
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
