"""Which Karpenter goes with which Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

KARPENTER_VERSION = "1.14.1"

OLDEST_KARPENTER: Mapping[str, tuple[int, int]] = {
    "1.33": (1, 5),
    "1.34": (1, 6),
    "1.35": (1, 9),
    "1.36": (1, 13),
}
"""Oldest minor version of Karpenter for each Kubernetes that EKS offers
(website/content/en/docs/upgrading/compatibility.md of aws/karpenter-provider-aws at v1.14.1)."""


def kubernetes_refusal(kubernetes: str, karpenter: str) -> str | None:
    """Why a cluster of that minor version cannot have that Karpenter; None where it can."""
    oldest = OLDEST_KARPENTER.get(kubernetes)
    if oldest is None:
        known = ", ".join(OLDEST_KARPENTER)
        return f"{kubernetes} is none of {known}, which Karpenter's releases are tested with; use one of them"
    if tuple(map(int, karpenter.split(".")[:2])) >= oldest:
        return None
    needed = ".".join(map(str, oldest))
    fitting = [minor for minor, least in OLDEST_KARPENTER.items() if tuple(map(int, karpenter.split(".")[:2])) >= least]
    older = f", or Kubernetes {fitting[-1]}" if fitting else ""
    return f"{kubernetes} needs Karpenter {needed} or newer, and this is {karpenter}; use a newer one{older}"
