"""Capacity of a stack's node pools: guaranteed and burst jobs of each label, and the labels that limit it.

Calculated from settings alone, without a cluster or a scheduler.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, cast

from gpufleet import quantity
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.capacity import packing
from gpufleet_tools.capacity.packing import Amounts, Demand, NodeShape
from gpufleet_tools.capacity.pool_capacity import (
    Blocker,
    ElasticPoolCapacity,
    LabelCapacity,
    NodeMaintenance,
    PoolCapacity,
    shares,
)
from gpufleet_tools.terminal import UNBOUNDED, aligned, folded

if TYPE_CHECKING:
    from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool
    from gpufleet_stacks.settings.models.eks import EksSettings


Pool = PoolCapacity | ElasticPoolCapacity


class StackCapacity(Documented):
    """Capacity of a stack's node pools."""

    stack: str
    """Name of the stack."""
    pools: list[Pool]
    """Pools, sorted."""


def capacity(stack: str, settings: Settings, overcommit: Collection[str] = ()) -> StackCapacity:
    """Return the capacity of each pool; `overcommit` has the names of pools that may be overcommitted."""
    pools = [_capacity(settings, name, name in overcommit) for name in sorted(settings.cluster.node_pools)]
    return StackCapacity.model_construct(stack=stack, pools=pools)


def declared(settings: Settings) -> frozenset[str]:
    """Return the names of the pools that the settings allow to be overcommitted; paused pools are among them."""
    pools = settings.cluster.node_pools
    declared = {name for name, pool in pools.items() if pool.overcommit == "allowed"}
    if settings.cluster.kind == "eks":
        declared |= {name for name, pool in cast("EksSettings", settings).cluster.node_pools.items() if pool.paused}
    return frozenset(declared)


def excesses(settings: Settings) -> Mapping[str, str]:
    """Return a message for each pool that is overcommitted although the settings do not allow it. Much faster than
    `capacity`, because it skips the labels."""
    undeclared = sorted(settings.cluster.node_pools.keys() - declared(settings))
    pools = {name: _capacity(settings, name, False, labels=False) for name in undeclared}
    return {name: pool.excess for name, pool in pools.items() if pool.excess}


def _capacity(settings: Settings, name: str, overcommit: bool, *, labels: bool = True) -> Pool:
    if settings.cluster.kind == "eks":
        # Imported here: only such stacks need the table of instance types.
        from gpufleet_tools.capacity.elastic_pools import elastic_pool

        return elastic_pool(cast("EksSettings", settings), name, overcommit, labels=labels)
    return _pool(cast("BareMetalSettings", settings), name, overcommit, labels=labels)


def _pool(settings: BareMetalSettings, name: str, overcommit: bool, *, labels: bool = True) -> PoolCapacity:
    pool = settings.cluster.node_pools[name]
    labels_of_pool = [label for label, runner in settings.runners.items() if settings.pool(runner) is pool]
    runners = {label: settings.effective(label) for label in labels_of_pool}
    shapes, demands = _shapes(pool), [_demand(settings, label, runner) for label, runner in sorted(runners.items())]
    return PoolCapacity.model_construct(
        pool=name,
        nodes=len(pool.available()),
        gpus=len(pool.available()) * pool.accelerator.devices,
        maintenance=[
            NodeMaintenance.model_construct(node=name, until=entry.until, why=entry.why)
            for name, entry in pool.in_maintenance().items()
        ],
        requested=sum(runner.max * runner.gpus for runner in runners.values()),
        fits=packing.fit(demands, shapes),
        overcommit=overcommit,
        labels=[_label(each, [other for other in demands if other is not each], shapes) for each in demands if labels],
    )


def _label(demand: Demand, others: Sequence[Demand], shapes: Sequence[NodeShape]) -> LabelCapacity:
    promised = packing.guaranteed(demand, others, shapes)
    blockers = [(packing.blocking(demand, other, shapes), other.label) for other in others]
    node = min((shape.amounts for shape in shapes if shape.name in demand.shapes), default=None)
    return LabelCapacity.model_construct(
        label=demand.label,
        gpus=demand.asks[0],
        max=demand.most,
        guaranteed=promised.jobs,
        guaranteed_exactly=promised.exact,
        burst=min(demand.most, packing.alone(demand, shapes)),
        limited_by=[
            Blocker.model_construct(label=label, jobs=jobs)
            for jobs, label in sorted((jobs, label) for jobs, label in blockers if jobs is not None)
        ],
        shares=shares(demand.asks, node) if node else {},
    )


# -- settings as amounts ----------------------------------------------------------------------------------------------


def _shapes(pool: NodePool) -> list[NodeShape]:
    """Return a shape for each set of node labels; everything else is the same in a pool."""
    has = _amounts(
        pool.accelerator.devices,
        pool.allocatable.cpu,
        pool.allocatable.memory,
        pool.allocatable.ephemeral_storage,
        pool.allocatable.pods,
        ROUND_FLOOR,
    )
    names = sorted(_shape_name(pool.node_labels(node)) for node in pool.available().values())
    return [NodeShape(name, has, len(list(group))) for name, group in itertools.groupby(names)]


def _shape_name(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _demand(settings: BareMetalSettings, label: str, runner: Runner) -> Demand:
    profile, pool = settings.profile(runner), settings.pool(runner)
    asks = _amounts(runner.gpus, runner.cpu, runner.memory, profile.ephemeral_storage or "0", 1, ROUND_CEILING)
    selected, available = pool.selected_by(profile.node_selector), pool.available()
    taking = (_shape_name(pool.node_labels(node)) for name, node in selected.items() if name in available)
    return Demand(label, asks, runner.max, frozenset(taking))


def _amounts(gpus: int, cpu: str, memory: str, storage: str, pods: int, rounding: str) -> Amounts:
    cores, size, disk = (quantity.parsed(text) for text in (cpu, memory, storage))
    whole = [int(each.to_integral_value(rounding)) for each in (cores * Decimal(1000), size, disk)]
    return (gpus, *whole, pods)


# -- as text ----------------------------------------------------------------------------------------------------------

_COLUMNS = ("runs-on", "pool", "GPUs", "max", "guaranteed", "burst", "share of a node", "limited by")

_LEFT = frozenset({"runs-on", "pool", "share of a node", "limited by"})
"""Columns of text, aligned left; numbers are aligned right."""


def text(found: StackCapacity, columns: int = UNBOUNDED) -> str:
    """Return a table of labels, then lines about each pool."""
    rows = [_COLUMNS, *(_row(pool, label) for pool in found.pools for label in pool.labels)]
    lines = [*aligned(rows, _LEFT, columns), ""] if len(rows) > 1 else []
    for pool in found.pools:
        lines += [f"pool {pool.pool}: {line}" for line in _lines(pool)]
    return folded("\n".join(lines), columns)


def _row(pool: Pool, label: LabelCapacity) -> tuple[str, ...]:
    used = ", ".join(f"{name} {share:.0%}" for name, share in label.shares.items() if name != "pods")
    blockers = ", ".join(f"{each.jobs} of {each.label}" for each in label.limited_by) or "none"
    held = ((label.guaranteed, label.guaranteed_exactly), (label.burst, label.burst_exactly))
    bounds = (f"{'' if exact else 'at least '}{jobs}" for jobs, exact in held)
    return (label.label, pool.pool, str(label.gpus), str(label.max), *bounds, used, blockers)


def _lines(pool: Pool) -> Iterator[str]:
    if pool.kind == "elastic" and pool.paused:
        yield f"paused by its limits ({pool.limits}): Karpenter provisions no node, and all jobs wait"
    elif pool.fits == "no":
        yield ("overcommit allowed: " if pool.overcommit else "") + pool.too_much
    else:
        yield _fitting(pool) if pool.kind == "fixed" else _fitting_on_types(pool)
    if pool.kind == "fixed":
        for entry in pool.maintenance:
            yield f"reduced until {entry.until}: {entry.node} is in maintenance ({entry.why})"
    if pool.kind == "elastic" and pool.unknown_requests:
        yield f"requests of {listed(pool.unknown_requests, 'and')} on each node are unknown and not subtracted"
    for label in pool.labels:
        if label.gpus and label.shares:
            more = [f"{name} {label.shares[name]:.0%}" for name in ("CPU", "memory", "disk") if _exceeds(label, name)]
            if more:
                yield f"{label.label} uses {', '.join(more)} of a node, but only {label.shares['GPU']:.0%} of its GPUs"
        for each in label.limited_by[:1]:
            yield (
                f"{each.jobs} job{'s' * (each.jobs > 1)} of {each.label}, spread over its nodes, can leave no room for"
                f" {label.label}"
            )


def _fitting(pool: PoolCapacity) -> str:
    if pool.fits == "yes":
        return f"all labels at their max fit at the same time: {pool.requested} of {pool.gpus} GPUs"
    return "unknown whether all labels at their max fit at the same time: a full search takes too long"


def _fitting_on_types(pool: ElasticPoolCapacity) -> str:
    within = f"within its limits ({pool.limits})"
    if not pool.labels:
        return f"no label uses it; Karpenter provisions nodes {within}"
    fits = f"all labels at their max fit at the same time {within}"
    if pool.whichever:
        return f"{fits}, on any of its {len(pool.types)} instance types" if len(pool.types) > 1 else fits
    if pool.fits == "yes":
        return f"{fits} only if Karpenter provisions the best of its {len(pool.types)} types; others hold fewer"
    return f"unknown whether {fits}: a full search takes too long"


def _exceeds(label: LabelCapacity, name: str) -> bool:
    return label.shares.get(name, 0) > label.shares["GPU"]
