"""Cost per hour of a stack whose labels run their maximum number of jobs: nodes of Karpenter's pools, at list prices.

Existing machines, the control plane, system nodes, disks and traffic are not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from gpufleet.aws.karpenter.node_pool_fit import paused
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.capacity.cheapest_purchase import Purchase, cheapest
from gpufleet_tools.capacity.elastic_pools import SMOKE, Market, market_of
from gpufleet_tools.capacity.instance_prices import MICRO, basis, money, prices
from gpufleet_tools.capacity.packing import Demand
from gpufleet_tools.capacity.stack_capacity import StackCapacity
from gpufleet_tools.terminal import UNBOUNDED, folded


class LabelCost(Documented):
    """Cost per hour of a label when nothing else runs on its pool."""

    label: str
    """Value of `runs-on`."""
    jobs: int
    """Jobs that run: the label's max, or as many as the pool's limits admit."""
    cost_per_hour: float | None
    """US dollars for the nodes; None if no instance type that holds a job has a price."""
    nodes: dict[str, int]
    """Number of nodes, by instance type."""
    cheapest: bool
    """Whether no cheaper nodes hold the jobs. If False, the cheapest node was chosen for each job in turn, because a
    full search takes too long or the limits admit fewer jobs than the max."""


class PoolCost(Documented):
    """Cost per hour of a pool when all its labels run their max, with the pool's other pods."""

    pool: str
    """Name of the pool."""
    cost_per_hour: float | None
    """US dollars for the nodes; None if, for some label, no instance type that holds a job has a price."""
    nodes: dict[str, int]
    """Number of nodes, by instance type."""
    waiting: int
    """Jobs that wait, because the pool's limits admit no more nodes."""
    cheapest: bool
    """Whether no cheaper nodes hold the jobs. If False, the cheapest node was chosen for each job in turn, largest jobs
    first."""
    labels: list[LabelCost]
    """Labels of the pool, sorted."""


class StackCost(Documented):
    """Maximum cost per hour of a stack."""

    basis: str
    """Type and date of the prices. On-demand prices; spot is usually lower."""
    cost_per_hour: float | None
    """US dollars for the nodes of all pools; None if the cost of some pool is unknown."""
    pools: list[PoolCost]
    """Pools whose nodes Karpenter provisions, sorted."""


class PricedCapacity(StackCapacity):
    """Capacity of a stack's node pools, with their cost."""

    cost: StackCost | None
    """Cost at max; None for a stack on existing machines."""


def priced(found: StackCapacity, settings: Settings) -> PricedCapacity:
    """Return the capacity with its cost."""
    return PricedCapacity.model_construct(stack=found.stack, pools=found.pools, cost=stack_cost(settings))


def stack_cost(settings: Settings) -> StackCost | None:
    """Return the cost per hour of a stack whose labels all run their max; None for a stack on existing machines."""
    if settings.cluster.kind != "eks":
        return None
    eks = cast("EksSettings", settings)
    pools = [_pool(name, market_of(eks, name)) for name in sorted(eks.cluster.node_pools)]
    known = [pool.cost_per_hour for pool in pools if pool.cost_per_hour is not None]
    return StackCost.model_construct(
        basis=basis(), cost_per_hour=_sum(known) if len(known) == len(pools) else None, pools=pools
    )


def _sum(dollars: Iterable[float]) -> float:
    """Return the sum without rounding errors of floating point: 0.1 and 0.2 are 0.3."""
    return sum(round(each * MICRO) for each in dollars) / MICRO


def _pool(name: str, market: Market) -> PoolCost:
    found = _cheapest(market, market.demands)
    return PoolCost.model_construct(
        pool=name,
        cost_per_hour=_dollars(found),
        nodes=_nodes(found),
        waiting=found.waiting if found else 0,
        cheapest=found is not None and found.exact,
        labels=[_label(market, demand) for demand in market.demands if demand.label != SMOKE],
    )


def _label(market: Market, demand: Demand) -> LabelCost:
    found = _cheapest(market, [demand])
    return LabelCost.model_construct(
        label=demand.label,
        jobs=demand.most - found.waiting if found else demand.most,
        cost_per_hour=_dollars(found),
        nodes=_nodes(found),
        cheapest=found is not None and found.exact,
    )


def _cheapest(market: Market, demands: Iterable[Demand]) -> Purchase | None:
    if paused(market.args):
        return Purchase(0, {}, waiting=sum(each.most for each in demands), exact=True)
    return cheapest(list(demands), market.offers, market.limits, prices())


def _dollars(found: Purchase | None) -> float | None:
    return None if found is None else found.price / MICRO


def _nodes(found: Purchase | None) -> dict[str, int]:
    return {} if found is None else dict(sorted(found.nodes.items()))


# -- as text ----------------------------------------------------------------------------------------------------------


def text(cost: StackCost, columns: int = UNBOUNDED) -> str:
    """Return a line for each label, each pool and the stack."""
    lines = [
        f"cost per hour at max, on the cheapest nodes that hold the jobs ({cost.basis}; spot is usually lower;"
        " Karpenter may choose fewer, larger nodes that cost more):"
    ]
    for pool in cost.pools:
        for each in pool.labels:
            lines.append(f"  {each.label}, {_jobs(each.jobs)}: {money(each.cost_per_hour)}{_named(each.nodes)}")
        lines.append(f"  pool {pool.pool}: {money(pool.cost_per_hour)}{_named(pool.nodes)}{_waiting(pool)}")
    lines.append(f"  total: {money(cost.cost_per_hour)}")
    return folded("\n".join(lines), columns)


def _named(nodes: Mapping[str, int]) -> str:
    return f" for {', '.join(f'{number} {name}' for name, number in nodes.items())}" if nodes else ""


def _waiting(pool: PoolCost) -> str:
    return f"; {_jobs(pool.waiting)} waiting, beyond the limits" if pool.waiting else ""


def _jobs(number: int) -> str:
    return f"{number} job{'s' * (number != 1)}"
