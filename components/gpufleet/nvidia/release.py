"""Helm releases of NVIDIA's charts, each in its own privileged namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pulumi
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.helm.v3 import Release

from gpufleet.chart import Chart
from gpufleet.problem import Problem

GPU_TOLERATION: Mapping[str, str] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""Toleration of the usual taint of GPU nodes, with any value or none."""

PRIVILEGED_NAMESPACE: Mapping[str, str] = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Namespace label that allows pods with host folders. Clusters with the default `baseline` or `restricted` reject them
otherwise (gpu-operator/getting-started.rst of NVIDIA/cloud-native-docs)."""


class ReleaseArguments(Protocol):
    """Arguments that the components of both charts have."""

    @property
    def namespace(self) -> str: ...
    @property
    def release(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def chart_mirror(self) -> str | None: ...


def privileged_namespace(name: str, args: ReleaseArguments, component: pulumi.ComponentResource) -> Namespace:
    """Create the namespace of a component's release."""
    return Namespace(
        f"{name}-namespace",
        metadata={"name": args.namespace, "labels": dict(PRIVILEGED_NAMESPACE)},
        opts=pulumi.ResourceOptions(parent=component),
    )


def chart_release(
    name: str,
    args: ReleaseArguments,
    component: pulumi.ComponentResource,
    *,
    chart: str,
    registry: str,
    needs: Sequence[pulumi.Resource],
    **further: Any,
) -> Release:
    """Create the Helm release of a component after the resources that it needs. `further` are arguments of
    `Chart.release`."""
    source = Chart(name=chart, registry=registry, version=args.version, mirror=args.chart_mirror)
    return source.release(
        name,
        release=args.release,
        namespace=args.namespace,
        opts=pulumi.ResourceOptions(parent=component, depends_on=[*needs]),
        **further,
    )


def namespace_problems(namespace: str) -> list[Problem]:
    """Return the problems of a namespace that a component creates; empty if there are none."""
    if namespace == "default" or namespace.startswith("kube-"):
        message = f"{namespace!r} already exists, and would be deleted with the component; use another"
        return [Problem(("namespace",), "namespace-of-kubernetes", message)]
    return []


def gpu_tolerations(further: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tolerations of pods that run on every GPU node. Lists in values replace the chart's lists."""
    return [dict(GPU_TOLERATION), *(dict(toleration) for toleration in further)]
