"""What a stack's node pools hold: jobs of each label that always find room, those that do when nobody else asks, and
who keeps whom out. Pure arithmetic over settings: no cluster, no scheduler."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, cast

from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.capacity import packing
from gpufleet_tools.capacity.packing import Amounts, Demand, NodeShape
from gpufleet_tools.capacity.pool_capacity import Blocker, ElasticPoolCapacity, LabelCapacity, PoolCapacity, shares
from gpufleet_tools.terminal import UNBOUNDED, aligned, folded

if TYPE_CHECKING:
    from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool
    from gpufleet_stacks.settings.models.eks import EksSettings


Pool = PoolCapacity | ElasticPoolCapacity


class StackCapacity(Documented):
    """What the node pools of a stack hold."""

    stack: str
    """Name of the stack."""
    pools: list[Pool]
    """Its pools, sorted."""


def capacity(stack: str, settings: Settings, overcommit: Collection[str] = ()) -> StackCapacity:
    """What each pool holds; `overcommit` names pools of which it is declared that they are sold more than once."""
    pools = [_reckoned(settings, name, name in overcommit) for name in sorted(settings.cluster.node_pools)]
    return StackCapacity.model_construct(stack=stack, pools=pools)


def declared(settings: Settings) -> frozenset[str]:
    """Names of the pools of which the settings declare that they are sold more than once: paused ones too."""
    pools = settings.cluster.node_pools
    declared = {name for name, pool in pools.items() if pool.overcommit == "allowed"}
    if settings.cluster.kind == "eks":
        declared |= {name for name, pool in cast("EksSettings", settings).cluster.node_pools.items() if pool.paused}
    return frozenset(declared)


def excesses(settings: Settings) -> Mapping[str, str]:
    """What to do about each pool that is sold more than once while nobody has declared it. A moment, where the capacity
    of every label takes seconds."""
    undeclared = sorted(settings.cluster.node_pools.keys() - declared(settings))
    pools = {name: _reckoned(settings, name, False, labels=False) for name in undeclared}
    return {name: pool.excess for name, pool in pools.items() if pool.excess}


def _reckoned(settings: Settings, name: str, overcommit: bool, *, labels: bool = True) -> Pool:
    if settings.cluster.kind == "eks":
        # Imported here: only such stacks need the table of instance types.
        from gpufleet_tools.capacity.elastic_pools import elastic_pool

        return elastic_pool(cast("EksSettings", settings), name, overcommit, labels=labels)
    return _pool(cast("BareMetalSettings", settings), name, overcommit, labels=labels)


def _pool(settings: BareMetalSettings, name: str, overcommit: bool, *, labels: bool = True) -> PoolCapacity:
    pool = settings.cluster.node_pools[name]
    runners = {label: runner for label, runner in settings.runners.items() if settings.pool(runner) is pool}
    shapes, demands = _shapes(pool), [_demand(settings, label, runner) for label, runner in sorted(runners.items())]
    return PoolCapacity.model_construct(
        pool=name,
        nodes=len(pool.nodes),
        gpus=len(pool.nodes) * pool.accelerator.devices,
        asked=sum(runner.max * runner.gpus for runner in runners.values()),
        fits=packing.fit(demands, shapes),
        overcommit=overcommit,
        labels=[_label(each, [other for other in demands if other is not each], shapes) for each in demands if labels],
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
        shares=shares(demand.asks, node),
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

_LEFT = frozenset({"runs-on", "pool", "of a node", "kept out by"})
"""Columns of words, which start at the left; numbers end at the right."""


def text(found: StackCapacity, columns: int = UNBOUNDED) -> str:
    """A table of labels, then what is to be said of each pool."""
    rows = [_COLUMNS, *(_row(pool, label) for pool in found.pools for label in pool.labels)]
    lines = [*aligned(rows, _LEFT, columns), ""] if len(rows) > 1 else []
    for pool in found.pools:
        lines += [f"pool {pool.pool}: {line}" for line in _said(pool)]
    return folded("\n".join(lines), columns)


def _row(pool: Pool, label: LabelCapacity) -> tuple[str, ...]:
    used = ", ".join(f"{name} {share:.0%}" for name, share in label.shares.items() if name != "pods")
    blockers = ", ".join(f"{each.jobs} of {each.label}" for each in label.kept_out_by) or "none"
    held = ((label.guaranteed, label.guaranteed_exactly), (label.burst, label.burst_exactly))
    bounds = (f"{'' if exact else 'at least '}{jobs}" for jobs, exact in held)
    return (label.label, pool.pool, str(label.gpus), str(label.max), *bounds, used, blockers)


def _said(pool: Pool) -> Iterator[str]:
    if pool.fits == "no":
        yield ("declared: " if pool.overcommit else "") + pool.too_much
    else:
        yield _fitting(pool) if pool.kind == "fixed" else _fitting_if_bought(pool)
    if pool.kind == "elastic" and pool.unreckoned:
        yield f"what {listed(pool.unreckoned, 'and')} may ask for on each node is not known, and not taken off"
    for label in pool.labels:
        if label.gpus and label.shares:
            more = [f"{name} {label.shares[name]:.0%}" for name in ("CPU", "memory", "disk") if _exceeds(label, name)]
            if more:
                yield f"{label.label} takes {', '.join(more)} of a node for {label.shares['GPU']:.0%} of its GPUs"
        for each in label.kept_out_by[:1]:
            yield (
                f"{each.jobs} job{'s' * (each.jobs > 1)} of {each.label}, spread over its nodes, leave no room for any"
                f" of {label.label}"
            )


def _fitting(pool: PoolCapacity) -> str:
    if pool.fits == "yes":
        return f"all labels at their max fit at once: {pool.asked} of {pool.gpus} GPUs"
    return "largest first, the labels at their max do not fit at once; whether they can was not found out"


def _fitting_if_bought(pool: ElasticPoolCapacity) -> str:
    within = f"within its limits ({pool.limits})"
    if not pool.labels:
        return f"no label runs on it; it buys {within}"
    said = f"all labels at their max fit at once {within}"
    if pool.whichever:
        return f"{said}, whichever of its {len(pool.types)} instance types are bought" if len(pool.types) > 1 else said
    if pool.fits == "yes":
        return f"{said} if the right ones of its {len(pool.types)} instance types are bought, not whichever are"
    return f"whether all labels at their max fit at once {within} was not found out"


def _exceeds(label: LabelCapacity, name: str) -> bool:
    return label.shares.get(name, 0) > label.shares["GPU"]
