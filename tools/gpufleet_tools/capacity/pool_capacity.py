"""Capacity of a node pool and its labels: pools of existing machines, and pools that Karpenter provisions."""

from __future__ import annotations

import datetime
from typing import Literal

from gpufleet_stacks.settings.documented import Documented
from gpufleet_tools.capacity.packing import Amounts, Fit


class Blocker(Documented):
    """Another label whose jobs can leave no room for a single job of this label."""

    label: str
    """The other label."""
    jobs: int
    """Number of its jobs that suffices, in the worst placement."""


class LabelCapacity(Documented):
    """Capacity of a pool for one label."""

    label: str
    """Value of `runs-on`."""
    gpus: int
    """GPUs of one job; shares of GPUs if several jobs share one."""
    max: int
    """Maximum number of simultaneous runners, from the stack file."""
    guaranteed: int
    """Jobs that always find room: with every other label at its max, in any placement, and on any of the pool's
    instance types."""
    guaranteed_exactly: bool
    """Whether `guaranteed` is exact. If False, it is a lower bound, because a full search takes too long."""
    burst: int
    """Jobs that run if no other label uses the pool, at most `max`. In a pool of Karpenter, with the instance types
    that hold the most within the limits."""
    burst_exactly: bool = True
    """Whether `burst` is exact. If False, it is a lower bound, because a full search takes too long."""
    limited_by: list[Blocker]
    """Labels that alone can leave no room for a single job, sorted by the number of jobs that suffices. In a pool of
    Karpenter, the list may be incomplete if a full search takes too long."""
    shares: dict[str, float]
    """Share of a node that one job uses, by resource, on the smallest node that admits it. Empty if no instance type
    in the table admits it."""


class NodeMaintenance(Documented):
    """Maintenance of a machine, whose capacity is missing."""

    node: str
    """Name of the node."""
    until: datetime.date
    """Expected last day."""
    why: str
    """Reason."""


class AnyPoolCapacity(Documented):
    """Capacity of any pool."""

    pool: str
    """Name of the pool."""
    fits: Fit
    """Whether all labels at their max, and other pods of the pool, fit at the same time; in a pool of Karpenter, on
    the best instance types. `yes` and `no` are certain; `unknown` means that a full search takes too long."""
    overcommit: bool
    """Whether the stack file allows overcommitting the pool."""
    labels: list[LabelCapacity]
    """Labels of the pool, sorted."""

    @property
    def too_much(self) -> str:
        """Message for labels whose maxima do not fit at the same time."""
        raise NotImplementedError

    @property
    def excess(self) -> str | None:
        """Message if the pool is overcommitted and the stack file does not allow it."""
        return self.too_much if self.fits == "no" and not self.overcommit else None


class PoolCapacity(AnyPoolCapacity):
    """Capacity of a pool of existing machines."""

    kind: Literal["fixed"] = "fixed"
    """Discriminator: nodes exist already."""
    nodes: int
    """Number of nodes, without those in maintenance."""
    gpus: int
    """GPUs of these nodes."""
    maintenance: list[NodeMaintenance]
    """Nodes in maintenance."""
    requested: int
    """GPUs that all labels request at their max."""

    @property
    def too_much(self) -> str:
        """Message for labels whose maxima do not fit at the same time."""
        request = f"request {self.requested} of {self.gpus} GPUs"
        if self.requested <= self.gpus:
            request = f"do not fit on its {self.nodes} nodes, although it has their {self.requested} GPUs"
        return (
            f"all labels at their max {request}: some jobs queue although their label is below its max; lower a max,"
            " add nodes, or write 'overcommit: allowed'"
        )


class ElasticPoolCapacity(AnyPoolCapacity):
    """Capacity of a pool whose nodes Karpenter provisions when jobs wait."""

    kind: Literal["elastic"] = "elastic"
    """Discriminator: Karpenter provisions nodes."""
    types: list[str]
    """Names of the instance types that the pool may provision and whose first node its limits admit."""
    limits: str
    """Limits, as text."""
    shared_by: int
    """Jobs that share one GPU; 1 if jobs do not share GPUs."""
    unknown_requests: list[str]
    """EKS addons whose requests on each node are unknown, so that jobs may find less room than reported."""
    whichever: bool
    """Whether all labels fit on any of the instance types."""
    paused: bool
    """Whether a limit of zero keeps Karpenter from provisioning any node."""

    @property
    def provisioned(self) -> dict[str, str]:
        """Instance families, limits and GPU sharing, as text."""
        families = sorted({name.partition(".")[0] for name in self.types})
        what = ", ".join(families) if len(families) <= _FEW else f"{len(self.types)} types"
        shared = {"jobs on a GPU": str(self.shared_by)} if any(label.gpus for label in self.labels) else {}
        return {"instances": what or "none", "limits": self.limits, **shared}

    @property
    def too_much(self) -> str:
        """Message for labels whose maxima do not fit at the same time."""
        return (
            f"all labels at their max do not fit within its limits ({self.limits}) on any instance type: some jobs"
            " queue although their label is below its max; lower a max, raise a limit, or write 'overcommit: allowed'"
        )


_FEW = 4
"""Maximum number of instance families listed by name."""

RESOURCES = ("GPU", "CPU", "memory", "disk", "pods", "EFA")
"""Resources of `Amounts`, in order. Units: devices, thousandths of a core, bytes, bytes, pods, interfaces. Pools of
your own machines have no EFA interfaces."""


def shares(asks: Amounts, node: Amounts) -> dict[str, float]:
    """Return the share of a node that one job uses, by resource."""
    amounts = zip(RESOURCES[: len(asks)], asks, node, strict=True)
    return {name: round(ask / have, 4) for name, ask, have in amounts if ask and have}
