"""Capacity of a pool whose nodes Karpenter provisions when jobs wait, within the pool's limits.

A node's resources are those that Karpenter expects before it provisions one
(gpufleet/aws/karpenter/node_pool_fit.py), minus the requests of the cluster's own DaemonSets
(gpufleet_stacks/settings/daemon_requests.py). Empty nodes are assumed to be deprovisioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import InstanceType
from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.karpenter.node_pool_args import KarpenterNodePoolArgs
from gpufleet.aws.karpenter.node_pool_fit import (
    allocatable,
    instance_types_of,
    only_reserved,
    paused,
    reserved_instances,
    within_limits,
)
from gpufleet.aws.karpenter.node_pool_fit import capacity as whole
from gpufleet.nvidia.sharing import GPU
from gpufleet_stacks.settings.args.node_pools import node_pool_args, selected_types
from gpufleet_stacks.settings.daemon_requests import addons_of_unknown_requests, daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.karpenter import KarpenterPool
from gpufleet_stacks.settings.rules.eks import requests_of
from gpufleet_tools.capacity import elastic_packing
from gpufleet_tools.capacity.elastic_packing import Offer
from gpufleet_tools.capacity.packing import Amounts, Demand, Fit, slots
from gpufleet_tools.capacity.pool_capacity import Blocker, ElasticPoolCapacity, LabelCapacity, shares

SMOKE = "the smoke workload"
"""Name of its pods among labels: they take room like jobs."""


@dataclass(frozen=True)
class Market:
    """Instance types that Karpenter may provision for a pool, and the pods that they are for."""

    args: KarpenterNodePoolArgs
    """Arguments of the pool."""
    offers: Sequence[Offer]
    """Instance types that the pool may provision and whose first node its limits admit."""
    demands: Sequence[Demand]
    """Labels of the pool, and the smoke workload if it runs there."""
    limits: Amounts
    """Limits, in the order of an offer's cost."""


def market_of(settings: EksSettings, name: str) -> Market:
    """Return the market of one pool."""
    args = node_pool_args(name, settings.cluster)
    types = [each for each in instance_types_of(args) if within_limits(each, args)]
    demands = list(_demands(settings, name, args, types))
    taken = daemon_requests(settings, name)
    return Market(args, [_offer(each, args, taken) for each in types], demands, _limits(args))


def elastic_pool(settings: EksSettings, name: str, overcommit: bool, *, labels: bool = True) -> ElasticPoolCapacity:
    """Return the capacity of one pool; without `labels` only whether everything fits."""
    market = market_of(settings, name)
    offers, demands, limits = market.offers, market.demands, market.limits
    held = [
        _label(demand, [other for other in demands if other is not demand], offers, limits)
        for demand in demands if labels
    ]  # fmt: skip
    return ElasticPoolCapacity.model_construct(
        pool=name,
        types=[each.name for each in offers],
        limits=limits_as_text(settings.cluster.node_pools[name]),
        shared_by=settings.shares(name),
        unknown_requests=addons_of_unknown_requests(settings),
        fits=_fit(market),
        whichever=all(each.guaranteed >= each.max for each in held),
        paused=paused(market.args),
        overcommit=overcommit,
        labels=[each for each in held if each.label != SMOKE],
    )


def _fit(market: Market) -> Fit:
    """Return whether everything fits at the same time. Of types that the table lacks, only the limits are known."""
    found = elastic_packing.fit(market.demands, market.offers, market.limits)
    if found == "no" and market.args.gpu_counts is not None and not _asks_too_much(market):
        return "unknown"
    return found


def _asks_too_much(market: Market) -> bool:
    """Return whether jobs request more of a resource than the limits admit, whatever the nodes are."""
    requested = [sum(demand.most * demand.asks[index] for demand in market.demands) for index in range(len(_NAMES))]
    most = dict(zip(sorted(market.args.limits), market.limits, strict=False))
    return any(name in most and ask > most[name] for name, ask in zip(_NAMES, requested, strict=True))


def limits_as_text(pool: KarpenterPool) -> str:
    """Return the limits as in the stack file, with physical GPUs."""
    given = pool.limits
    found = (
        f"{given.cpu} cores" if given.cpu is not None else None,
        given.memory,
        _counted(given.gpus, "GPU"),
        _counted(given.nodes, "node"),
    )
    return ", ".join(each for each in found if each is not None) or "none"


def _counted(number: int | None, what: str) -> str | None:
    return None if number is None else f"{number} {what}{'s' * (number != 1)}"


def _label(demand: Demand, others: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> LabelCapacity:
    promised = elastic_packing.guaranteed(demand, others, offers, limits)
    best = elastic_packing.burst(demand, offers, limits)
    found = [(elastic_packing.blocking(demand, other, offers, limits), other.label) for other in others]
    holding = [each.amounts for each in offers if each.name in demand.shapes and slots(each.amounts, demand.asks)]
    return LabelCapacity.model_construct(
        label=demand.label,
        gpus=demand.asks[0],
        max=demand.most,
        guaranteed=promised.jobs,
        guaranteed_exactly=promised.exact,
        burst=best.jobs,
        burst_exactly=best.exact,
        limited_by=[
            Blocker.model_construct(label=label, jobs=jobs)
            for jobs, label in sorted((jobs, label) for jobs, label in found if jobs is not None)
        ],
        shares=shares(demand.asks, min(holding)) if holding else {},
    )


# -- settings as amounts ----------------------------------------------------------------------------------------------


def _limits(args: KarpenterNodePoolArgs) -> Amounts:
    """The pool's own limits, and where all is reserved, the number of instances of each type."""
    own = [int(_fine(name, quantity.parsed(limit), ROUND_FLOOR)) for name, limit in sorted(args.limits.items())]
    return (*own, *_reserved(args).values())


def _reserved(args: KarpenterNodePoolArgs) -> Mapping[str, int]:
    return reserved_instances(args) if only_reserved(args) else {}


def _offer(instance_type: InstanceType, args: KarpenterNodePoolArgs, taken: Mapping[str, Decimal]) -> Offer:
    has = whole(instance_type, args.node_class, args.sharing)
    # Karpenter counts a node as one of `nodes`.
    counted = {**has, "nodes": Decimal(1)}
    cost = tuple(int(_fine(name, counted.get(name, Decimal(0)), ROUND_CEILING)) for name in sorted(args.limits))
    reserved = tuple(int(name == instance_type.name) for name in _reserved(args))
    room = allocatable(instance_type, args.node_class, args.sharing)
    free = {name: amount - taken.get(name, Decimal(0)) for name, amount in room.items()}
    return Offer(instance_type.name, (*cost, *reserved), _amounts(free, ROUND_FLOOR))


_NAMES = (GPU, "cpu", "memory", "ephemeral-storage", "pods", EFA)


def _amounts(amounts: Mapping[str, Decimal], rounding: str) -> Amounts:
    return tuple(max(0, int(_fine(name, amounts.get(name, Decimal(0)), rounding))) for name in _NAMES)


def _fine(name: str, amount: Decimal, rounding: str) -> Decimal:
    """Return an amount in thousandths of a core, bytes, or units."""
    return (amount * 1000 if name == "cpu" else amount).to_integral_value(rounding)


def _demands(
    settings: EksSettings, pool: str, args: KarpenterNodePoolArgs, types: Sequence[InstanceType]
) -> Iterator[Demand]:
    for name, runner in sorted(settings.runners.items()):
        if settings.pool_name(runner) == pool:
            asks = {resource: quantity.parsed(amount) for resource, amount in requests_of(settings, runner).items()}
            selected = selected_types(settings.profile(runner).node_selector, args, types)
            taking = frozenset(each.name for each in selected)
            yield Demand(name, _amounts({**asks, "pods": Decimal(1)}, ROUND_CEILING), runner.max, taking)
    smoke = settings.cluster.smoke_workload
    if smoke is not None and smoke.pool == pool:
        asks = {GPU: Decimal(smoke.gpus), "pods": Decimal(1)}
        yield Demand(SMOKE, _amounts(asks, ROUND_CEILING), smoke.replicas, frozenset(each.name for each in types))
