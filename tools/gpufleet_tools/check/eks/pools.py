"""Node pools of a stack on EKS, with their paths in the stack file."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.problem import Path
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.karpenter import KarpenterPool


def pools(settings: EksSettings) -> Iterator[tuple[str, Path, KarpenterPool]]:
    """Yield every node pool: name, path, settings."""
    for name, pool in settings.cluster.node_pools.items():
        yield name, ("cluster", "nodePools", name), pool
