"""Rules about a cluster on EKS and its node pools, and about runners there."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.eks_settings import EksSettings
from stacks.fault import Breach


def broken(settings: EksSettings, placed: EksSettings) -> Iterator[Breach]:
    """What is wrong with the cluster, and with those runners of which it is certain where they run."""
    yield from ()
