"""Fleet: the components of a stack, for programs that add their own resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pulumi_kubernetes

    from gpufleet.arc import ArcController, RunnerProject, RunnerScaleSet
    from gpufleet.aws import EksCluster, KarpenterNodePool
    from gpufleet.bare_metal import KubesprayCluster


@dataclass(frozen=True, kw_only=True)
class Runners:
    """ARC, the projects and the scale sets of a stack."""

    controller: ArcController
    """The ARC controller."""
    projects: Mapping[str, RunnerProject]
    """Projects, by their name in the stack file."""
    scale_sets: Mapping[str, RunnerScaleSet]
    """Scale sets, by label."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The components of a stack."""

    provider: pulumi_kubernetes.Provider
    """Kubernetes provider of the cluster. Resources that use it are created after the cluster."""
    cluster: EksCluster | KubesprayCluster | None
    """The cluster; None if the stack uses an existing one."""
    runners: Runners
    """ARC, the projects and the scale sets."""
    node_pools: Mapping[str, KarpenterNodePool] = field(default_factory=dict)
    """Karpenter's node pools, by their name in the stack file; empty on bare metal."""
