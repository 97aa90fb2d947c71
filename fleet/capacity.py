"""What a stack's node pools hold: jobs of each label that always find room, those that do when nobody else asks, and
who keeps whom out. Pure arithmetic over settings: no cluster, no scheduler."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, cast

from fleet import packing
from fleet.packing import Amounts, Demand, Fit, NodeShape
from stacks import quantity
from stacks.documented import Documented
from stacks.settings import Runner, Settings

if TYPE_CHECKING:
    from stacks.bare_metal_settings import BareMetalSettings, NodePool


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
    """GPUs of one job."""
    max: int
    """Most runners at once, as the stack file says."""
    guaranteed: int
    """Jobs that find room whatever the other labels run, each up to its own max, and wherever their jobs stand."""
    guaranteed_exactly: bool
    """Whether there are situations with no more; else it is a lower bound, since trying all takes too long."""
    burst: int
    """Jobs that run when no other label has any: never more than max."""
    kept_out_by: list[Blocker]
    """Labels that alone can leave no room for a single job, those that need the fewest jobs first."""
    shares: dict[str, float]
    """Part of the smallest node that takes it which one job uses, by resource."""


class PoolCapacity(Documented):
    """What a node pool holds."""

    pool: str
    """Name of the pool."""
    nodes: int
    """Nodes that it has."""
    gpus: int
    """GPUs of all of them."""
    asked: int
    """GPUs that all labels at their max ask for."""
    fits: Fit
    """Whether all labels at their max fit at once. `yes` and `no` are certain; `unknown` is where putting the largest
    jobs first finds no way, and trying all of them takes too long."""
    overcommit: bool
    """Whether it is declared that they need not."""
    labels: list[LabelCapacity]
    """Labels whose runners it takes, sorted."""

    @property
    def excess(self) -> str | None:
        """What to do where it is sold more than once and nobody has declared it."""
        return _excess(self.nodes, self.gpus, self.asked) if self.fits == "no" and not self.overcommit else None


class StackCapacity(Documented):
    """What the node pools of a stack hold."""

    stack: str
    """Name of the stack."""
    pools: list[PoolCapacity]
    """Its pools of machines that somebody owns, sorted."""
    elastic: list[str]
    """Its pools whose nodes are bought when jobs wait, sorted: what they hold depends on what is bought, within limits
    of their own, and is not reckoned here."""


_RESOURCES = ("GPU", "CPU", "memory", "disk", "pods")
"""What amounts count, in this order: devices, thousandths of a core, bytes, bytes, pods."""


def capacity(stack: str, settings: Settings, overcommit: Collection[str] = ()) -> StackCapacity:
    """What each pool holds; `overcommit` names pools of which it is declared that they are sold more than once."""
    names = sorted(settings.cluster.node_pools)
    if settings.cluster.kind == "eks":
        return StackCapacity.model_construct(stack=stack, pools=[], elastic=names)
    owned = cast("BareMetalSettings", settings)
    return StackCapacity.model_construct(
        stack=stack, pools=[_pool(owned, name, name in overcommit) for name in names], elastic=[]
    )


def declared(settings: Settings) -> frozenset[str]:
    """Names of the pools of which the settings declare that they are sold more than once."""
    if settings.cluster.kind == "eks":
        return frozenset()
    pools = cast("BareMetalSettings", settings).cluster.node_pools
    return frozenset(name for name, pool in pools.items() if pool.overcommit == "allowed")


def excesses(settings: Settings) -> Mapping[str, str]:
    """What to do about each pool that is sold more than once while nobody has declared it. Milliseconds, where the
    capacity of every label takes seconds."""
    if settings.cluster.kind == "eks":
        return {}
    owned, found = cast("BareMetalSettings", settings), {}
    for name in owned.cluster.node_pools.keys() - declared(settings):
        pool = owned.cluster.node_pools[name]
        runners, shapes, demands = _parts(owned, pool)
        if packing.fit(demands, shapes) == "no":
            found[name] = _excess(len(pool.nodes), owned.devices_of_pool(name), _asked(runners))
    return found


def _excess(nodes: int, gpus: int, asked: int) -> str:
    what = f"ask for {asked} GPUs of {gpus}"
    if asked <= gpus:
        what = f"do not fit on its {nodes} nodes, though their {asked} GPUs are there"
    return (
        f"all labels at their max {what}: some jobs queue while their label still has room; lower a max, add nodes,"
        " or write 'overcommit: allowed'"
    )


def _asked(runners: Mapping[str, Runner]) -> int:
    return sum(runner.max * runner.gpus for runner in runners.values())


def _parts(settings: BareMetalSettings, pool: NodePool) -> tuple[Mapping[str, Runner], list[NodeShape], list[Demand]]:
    """The pool's runners by label, its nodes and what the runners ask of them."""
    runners = {label: runner for label, runner in settings.runners.items() if settings.pool(runner) is pool}
    return runners, _shapes(pool), [_demand(settings, label, runner) for label, runner in sorted(runners.items())]


def _pool(settings: BareMetalSettings, name: str, overcommit: bool) -> PoolCapacity:
    pool = settings.cluster.node_pools[name]
    runners, shapes, demands = _parts(settings, pool)
    labels = [_label(demand, [other for other in demands if other is not demand], shapes) for demand in demands]
    return PoolCapacity.model_construct(
        pool=name,
        nodes=len(pool.nodes),
        gpus=len(pool.nodes) * pool.accelerator.devices,
        asked=_asked(runners),
        fits=packing.fit(demands, shapes),
        overcommit=overcommit,
        labels=labels,
    )


def _label(demand: Demand, others: Sequence[Demand], shapes: Sequence[NodeShape]) -> LabelCapacity:
    promised = packing.guaranteed(demand, others, shapes)
    blockers = [(packing.blocking(demand, other, shapes), other.label) for other in others]
    node = min(shape.amounts for shape in shapes if shape.name in demand.shapes)
    return LabelCapacity.model_construct(
        label=demand.label,
        gpus=demand.asks[0],
        max=demand.most,
        guaranteed=promised.jobs,
        guaranteed_exactly=promised.exact,
        burst=min(demand.most, packing.alone(demand, shapes)),
        kept_out_by=[
            Blocker.model_construct(label=label, jobs=jobs)
            for jobs, label in sorted((jobs, label) for jobs, label in blockers if jobs is not None)
        ],
        shares={
            name: round(ask / have, 4)
            for name, ask, have in zip(_RESOURCES, demand.asks, node, strict=True)
            if ask and have
        },
    )


# -- settings as amounts ----------------------------------------------------------------------------------------------


def _shapes(pool: NodePool) -> list[NodeShape]:
    """Nodes with the same labels are alike: their pool says everything else."""
    has = _amounts(
        pool.accelerator.devices,
        pool.allocatable.cpu,
        pool.allocatable.memory,
        pool.allocatable.ephemeral_storage,
        pool.allocatable.pods,
        ROUND_FLOOR,
    )
    names = sorted(_shape_name(pool.node_labels(node)) for node in pool.nodes.values())
    return [NodeShape(name, has, len(list(group))) for name, group in itertools.groupby(names)]


def _shape_name(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _demand(settings: BareMetalSettings, label: str, runner: Runner) -> Demand:
    profile, pool = settings.profile(runner), settings.pool(runner)
    asks = _amounts(runner.gpus, runner.cpu, runner.memory, profile.ephemeral_storage or "0", 1, ROUND_CEILING)
    taking = (
        _shape_name(pool.node_labels(node))
        for node in pool.nodes.values()
        if profile.node_selector.items() <= pool.node_labels(node).items()
    )
    return Demand(label, asks, runner.max, frozenset(taking))


def _amounts(gpus: int, cpu: str, memory: str, storage: str, pods: int, rounding: str) -> Amounts:
    cores, size, disk = (quantity.parse(text) for text in (cpu, memory, storage))
    whole = [int(each.to_integral_value(rounding)) for each in (cores * Decimal(1000), size, disk)]
    return (gpus, *whole, pods)


# -- for people -------------------------------------------------------------------------------------------------------

_COLUMNS = ("runs-on", "pool", "GPUs", "max", "guaranteed", "burst", "of a node", "kept out by")

_LEFT = frozenset({0, 1, 6, 7})
"""Columns of words, which start at the left; numbers end at the right."""


def text(found: StackCapacity) -> str:
    """A table of labels, then what is to be said of each pool."""
    rows = [_COLUMNS, *(_row(pool, label) for pool in found.pools for label in pool.labels)]
    lines = [*_aligned(rows), ""] if found.pools else []
    for pool in found.pools:
        lines += [f"pool {pool.pool}: {line}" for line in _said(pool)]
    lines += [f"pool {name}: its nodes are bought when jobs wait, within its limits" for name in found.elastic]
    return "".join(f"{line}\n" for line in lines)


def _row(pool: PoolCapacity, label: LabelCapacity) -> tuple[str, ...]:
    guaranteed = f"{'' if label.guaranteed_exactly else 'at least '}{label.guaranteed}"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in label.shares.items() if name != "pods")
    blockers = ", ".join(f"{each.jobs} of {each.label}" for each in label.kept_out_by) or "none"
    numbers = (str(label.gpus), str(label.max), guaranteed, str(label.burst))
    return (label.label, pool.pool, *numbers, shares, blockers)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(c.ljust(w) if i in _LEFT else c.rjust(w) for i, (c, w) in cells).rstrip()


def _said(pool: PoolCapacity) -> Iterator[str]:
    if pool.fits == "yes":
        yield f"all labels at their max fit at once: {pool.asked} of {pool.gpus} GPUs"
    elif pool.fits == "no":
        yield ("declared: " if pool.overcommit else "") + _excess(pool.nodes, pool.gpus, pool.asked)
    else:
        yield "largest first, the labels at their max do not fit at once; whether they can was not found out"
    for label in pool.labels:
        if label.gpus:
            more = [f"{name} {label.shares[name]:.0%}" for name in ("CPU", "memory", "disk") if _exceeds(label, name)]
            if more:
                yield f"{label.label} takes {', '.join(more)} of a node for {label.shares['GPU']:.0%} of its GPUs"
        for each in label.kept_out_by[:1]:
            yield (
                f"{each.jobs} job{'s' * (each.jobs > 1)} of {each.label}, spread over its nodes, leave no room for any"
                f" of {label.label}"
            )


def _exceeds(label: LabelCapacity, name: str) -> bool:
    return label.shares.get(name, 0) > label.shares["GPU"]
