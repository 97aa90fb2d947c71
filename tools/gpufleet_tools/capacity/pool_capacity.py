"""What is said of a node pool and its labels, whether its nodes are there or are bought."""

from __future__ import annotations

from typing import Literal

from gpufleet_stacks.settings.documented import Documented
from gpufleet_tools.capacity.packing import Amounts, Fit


class Blocker(Documented):
    """Another label whose jobs can keep all jobs of this one out."""

    label: str
    """The other label."""
    jobs: int
    """Jobs of it that are enough, when each stands on the node where it does most harm."""


class LabelCapacity(Documented):
    """What a pool holds of one label."""

    label: str
    """What `runs-on` says."""
    gpus: int
    """GPUs of one job; shares of them, where several jobs share one."""
    max: int
    """Most runners at once, as the stack file says."""
    guaranteed: int
    """Jobs that find room whatever the other labels run, each up to its own max, and wherever their jobs stand; where
    nodes are bought, whichever of the pool's instance types they are of."""
    guaranteed_exactly: bool
    """Whether there are situations with no more; else it is a lower bound, since trying all takes too long."""
    burst: int
    """Jobs that run when no other label has any: never more than max. Where nodes are bought, with the types that hold
    most within the limits."""
    burst_exactly: bool = True
    """Whether it is no lower bound; it is one where trying all takes too long."""
    kept_out_by: list[Blocker]
    """Labels that alone can leave no room for a single job, those that need the fewest jobs first. Where nodes are
    bought and trying all takes too long, one may be missing."""
    shares: dict[str, float]
    """Part of the smallest node that takes it which one job uses, by resource; empty where the table of instance types
    has none that takes it."""


class SoldPool(Documented):
    """What is said of every pool."""

    pool: str
    """Name of the pool."""
    fits: Fit
    """Whether all labels at their max, and what else keeps nodes of the pool, fit at once; where nodes are bought, with
    the best types. `yes` and `no` are certain; `unknown` is where trying all takes too long."""
    overcommit: bool
    """Whether it is declared that they need not."""
    labels: list[LabelCapacity]
    """Labels whose runners it takes, sorted."""

    @property
    def too_much(self) -> str:
        """What is so and what to do where its labels' maxima do not fit at once, declared or not."""
        raise NotImplementedError

    @property
    def excess(self) -> str | None:
        """What to do where it is sold more than once and nobody has declared it."""
        return self.too_much if self.fits == "no" and not self.overcommit else None


class PoolCapacity(SoldPool):
    """What a pool of machines holds that somebody owns."""

    kind: Literal["fixed"] = "fixed"
    """Tells it from a pool whose nodes are bought."""
    nodes: int
    """Nodes that it has."""
    gpus: int
    """GPUs of all of them."""
    asked: int
    """GPUs that all labels at their max ask for."""

    @property
    def too_much(self) -> str:
        """What is so and what to do where its labels' maxima do not fit at once, declared or not."""
        asked = f"ask for {self.asked} GPUs of {self.gpus}"
        if self.asked <= self.gpus:
            asked = f"do not fit on its {self.nodes} nodes, though their {self.asked} GPUs are there"
        return (
            f"all labels at their max {asked}: some jobs queue while their label still has room; lower a max, add"
            " nodes, or write 'overcommit: allowed'"
        )


class ElasticPoolCapacity(SoldPool):
    """What a pool holds whose nodes are bought when jobs wait."""

    kind: Literal["elastic"] = "elastic"
    """Tells it from a pool of machines that somebody owns."""
    types: list[str]
    """Instance types that it may buy and of which its limits admit one, by name."""
    limits: str
    """Its limits, for people."""
    shared_by: int
    """Jobs that may be on one GPU; 1 is a job of its own for each."""
    unreckoned: list[str]
    """EKS addons of which it is not known what they ask for on each node, so that jobs may get less than is said."""
    whichever: bool
    """Whether they do whichever types are bought."""

    @property
    def bought(self) -> dict[str, str]:
        """What is bought, within which limits, and how many jobs are on one GPU, for people."""
        families = sorted({name.partition(".")[0] for name in self.types})
        what = ", ".join(families) if len(families) <= _FEW else f"{len(self.types)} types"
        shared = {"jobs on a GPU": str(self.shared_by)} if any(label.gpus for label in self.labels) else {}
        return {"instances": what or "none", "limits": self.limits, **shared}

    @property
    def too_much(self) -> str:
        """What is so and what to do where its labels' maxima do not fit at once, declared or not."""
        return (
            f"all labels at their max do not fit within its limits ({self.limits}), whatever is bought: some jobs queue"
            " while their label still has room; lower a max, raise a limit, or write 'overcommit:"
            " allowed'"
        )


_FEW = 4
"""Families of instance types that are named one by one."""

RESOURCES = ("GPU", "CPU", "memory", "disk", "pods")
"""What amounts count, in this order: devices, thousandths of a core, bytes, bytes, pods."""


def shares(asks: Amounts, node: Amounts) -> dict[str, float]:
    """Part of a node that one job uses, by resource."""
    return {
        name: round(ask / have, 4) for name, ask, have in zip(RESOURCES, asks, node, strict=True) if ask and have
    }  # fmt: skip
