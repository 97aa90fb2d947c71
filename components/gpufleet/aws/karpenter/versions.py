"""Compatibility of Karpenter and Kubernetes versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpufleet.problem import Problem

KARPENTER_VERSION = "1.14.1"

OLDEST_KARPENTER: Mapping[str, tuple[int, int]] = {
    "1.33": (1, 5),
    "1.34": (1, 6),
    "1.35": (1, 9),
    "1.36": (1, 13),
}
"""Oldest compatible minor version of Karpenter for each Kubernetes version of EKS
(website/content/en/docs/upgrading/compatibility.md of aws/karpenter-provider-aws at v1.14.1)."""


def version_problems(kubernetes: str, karpenter: str) -> Iterator[Problem]:
    """Yield a problem if the versions of Kubernetes and Karpenter are incompatible."""
    where = ("kubernetes_version",)
    oldest = OLDEST_KARPENTER.get(kubernetes)
    if oldest is None:
        known = ", ".join(OLDEST_KARPENTER)
        message = f"{kubernetes} is not a version that Karpenter has been tested with; use one of {known}"
        yield Problem(where, "kubernetes-untested", message)
        return
    version = tuple(map(int, karpenter.split(".")[:2]))
    if version < oldest:
        fitting = [minor for minor, least in OLDEST_KARPENTER.items() if version >= least]
        older = f", or Kubernetes {fitting[-1]}" if fitting else ""
        message = (
            f"{kubernetes} requires Karpenter {'.'.join(map(str, oldest))} or newer, but this is {karpenter}; use a"
            f" newer Karpenter{older}"
        )
        yield Problem(where, "karpenter-too-old", message)
