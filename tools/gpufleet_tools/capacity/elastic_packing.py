"""Packing of jobs on nodes that Karpenter provisions within limits, in whole numbers.

Karpenter provisions a node for a job that fits on no existing node. The node has any type that holds the job and that
the limits still admit (`filterByRemainingResources` in pkg/controllers/provisioning/scheduling/scheduler.go of
kubernetes-sigs/karpenter at v1.14.1). An empty node is deprovisioned. The choice of the type depends on prices and
availability. So there are two questions: how much the best choice holds, and how much room the worst choice leaves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpufleet_tools.capacity import packing
from gpufleet_tools.capacity.packing import (
    Amounts,
    Bound,
    Budget,
    Demand,
    Fit,
    NodeShape,
    TooManyCombinations,
    slots,
    unbeaten,
    ways,
)


@dataclass(frozen=True)
class Offer:
    """An instance type that Karpenter can provision."""

    name: str
    """Name that demands refer to."""
    cost: Amounts
    """Amount of each limit that one node uses."""
    amounts: Amounts
    """Resources of one node that are available to jobs."""


# -- the best choice --------------------------------------------------------------------------------------------------


def burst(demand: Demand, offers: Sequence[Offer], limits: Amounts) -> Bound:
    """Return the number of jobs that run if nothing else does, on the best types; at most `demand.most`."""
    try:
        left = min(state[0] for state in _left([demand], offers, limits))
        return Bound(demand.most - left, exact=True)
    except TooManyCombinations:
        holding = _holding(demand, offers)
        alike = (_count(offer, limits, demand.most) * slots(offer.amounts, demand.asks) for offer in holding)
        found = min(demand.most, max(alike, default=0))
        return Bound(found, exact=found == demand.most)


def fit(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> Fit:
    """Return whether all demands at their maximum fit at once on the best types. `yes` and `no` are certain."""
    if not _sums_allow(demands, offers, limits):
        return "no"
    jobs = sum(demand.most for demand in demands)
    for offer in offers:
        if packing.first_fit_decreasing(demands, [NodeShape(offer.name, offer.amounts, _count(offer, limits, jobs))]):
            return "yes"
    try:
        return "yes" if any(not any(state) for state in _left(demands, offers, limits)) else "no"
    except TooManyCombinations:
        return "unknown"


def _count(offer: Offer, limits: Amounts, most: int) -> int:
    """Return the number of nodes of that type that the limits admit, at most `most`."""
    return min([most, *(limit // cost for limit, cost in zip(limits, offer.cost, strict=True) if cost)])


def _sums_allow(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> bool:
    """Return whether the limits suffice if jobs could be divided: a necessary condition. Each job needs its share of
    some type."""
    for index, limit in enumerate(limits):
        for resource in range(len(demands[0].asks) if demands else 0):
            needed = 0.0
            for demand in demands:
                parts = [
                    offer.cost[index] / offer.amounts[resource] for offer in _holding(demand, offers)
                    if offer.amounts[resource]
                ]  # fmt: skip
                if demand.asks[resource] and parts:
                    needed += demand.most * demand.asks[resource] * min(parts)
            if needed > limit * (1 + 1e-9):
                return False
    return all(not demand.most or _holding(demand, offers) for demand in demands)


def _left(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> set[Amounts]:
    """Return the remaining jobs of each demand, for every set of nodes that the limits admit. Sets of nodes that leave
    more jobs at a higher cost than another are omitted."""
    spent, many = Budget(), len(demands)
    found = [
        (*(-jobs for jobs in way), *offer.cost)
        for offer in _distinct(offers, demands)
        for way in ways(_one(offer), demands, spent)
        if any(way)
    ]
    moves = unbeaten(found, spent)
    states = frontier = [(*(demand.most for demand in demands), *(0 for _ in limits))]
    while frontier:
        reached = set(states)
        for state in frontier:
            for move in moves:
                spent.one_more()
                total = [a + b for a, b in zip(state, move, strict=True)]
                if all(used <= limit for used, limit in zip(total[many:], limits, strict=True)):
                    reached.add((*(max(0, jobs) for jobs in total[:many]), *total[many:]))
        before, states = set(states), unbeaten(reached, spent)
        frontier = [state for state in states if state not in before]
    return {state[:many] for state in states}


def _one(offer: Offer) -> NodeShape:
    return NodeShape(offer.name, offer.amounts, 1)


def _holding(demand: Demand, offers: Iterable[Offer]) -> list[Offer]:
    """Return the types that hold at least one job."""
    return [offer for offer in offers if offer.name in demand.shapes and slots(offer.amounts, demand.asks)]


def _distinct(offers: Sequence[Offer], demands: Sequence[Demand]) -> Iterator[Offer]:
    """Yield one of the offers that are equivalent: same cost, same demands, same resources up to the total request."""
    requested = [sum(demand.most * demand.asks[i] for demand in demands) for i in range(len(demands[0].asks))]
    seen = set()
    for offer in offers:
        has = tuple(min(amount, ask) for amount, ask in zip(offer.amounts, requested, strict=True))
        taking = tuple(offer.name in demand.shapes for demand in demands)
        if (offer.cost, has, taking) not in seen:
            seen.add((offer.cost, has, taking))
            yield offer


# -- the worst choice -------------------------------------------------------------------------------------------------


def guaranteed(demand: Demand, others: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> Bound:
    """Return the number of jobs that always run: on any types, with every other demand at its maximum, in any
    placement. It is the minimum with which no node has room and the limits admit no further node.

    Every final state of nodes and jobs counts, including states that no order of jobs leads to, so the real number can
    be higher. `exact` refers to the minimum over these states.
    """
    holding = _holding(demand, offers)
    if not holding:
        return Bound(0, exact=True)
    rivals = [other for other in others if other.most]
    least = _rate_bound(demand, rivals, offers, limits)
    if least >= demand.most:
        return Bound(demand.most, exact=True)
    spent, reached = Budget(), _Reached()
    try:
        moves = [(held, taken, cost) for cost, taken, held in _fillings(demand, rivals, offers, spent)]
        stuck = _least_stuck(moves, [rival.most for rival in rivals], holding, limits, demand.most, spent, reached)
        return Bound(demand.most if stuck is None else stuck, exact=True)
    except TooManyCombinations:
        return Bound(max(reached.price, least), exact=False)


def blocking(demand: Demand, other: Demand, offers: Sequence[Offer], limits: Amounts) -> int | None:
    """Return the minimum number of jobs of another demand that leave no room for a single job, on the worst types and
    in the worst placement. None if any number of them leaves room, or if a full search takes too long."""
    holding, spent = _holding(demand, offers), Budget()
    if not holding or _rate_bound(demand, [other], offers, limits):
        return None
    try:
        # The price of a move is the number of the other's jobs; one more than its maximum ends the search.
        moves = [
            (taken[0], (), cost) for cost, taken, held in _fillings(demand, [other], offers, spent) if not held
        ]  # fmt: skip
        return _least_stuck(moves, [], holding, limits, other.most + 1, spent, _Reached())
    except TooManyCombinations:
        return None


def _fillings(
    demand: Demand, rivals: Sequence[Demand], offers: Sequence[Offer], spent: Budget
) -> Iterator[tuple[Amounts, Amounts, int]]:
    """Yield fillings of a node: its cost, the jobs of each rival, and the number of jobs that it holds beside them. A
    filling is omitted if another at the same cost has no more of either. Every node runs something."""
    by_cost: dict[Amounts, set[Amounts]] = {}
    for offer in _distinct(offers, [demand, *rivals]):
        for way in ways(_one(offer), rivals, spent):
            room = packing.rest(_one(offer), way, rivals)
            held = slots(room, demand.asks) if offer.name in demand.shapes else 0
            if held or any(way):
                by_cost.setdefault(offer.cost, set()).add((min(held, demand.most), *way))
    for cost, points in by_cost.items():
        for held, *taken in unbeaten(points, spent):
            yield cost, tuple(taken), held


class _Reached:
    """Progress of a search, for when it exceeds its budget."""

    price = 0
    """Lower bound of the price."""


def _least_stuck(
    moves: Sequence[tuple[int, Amounts, Amounts]],
    most: Sequence[int],
    holding: Sequence[Offer],
    limits: Amounts,
    enough: int,
    spent: Budget,
    reached: _Reached,
) -> int | None:
    """Return the lowest price of nodes after which the limits admit no node that holds a job; None if it is not below
    `enough`. A move is a node's price, its jobs of the rivals, and its cost. The search visits cheaper states first,
    so the first final state is the answer."""
    doors = unbeaten({offer.cost for offer in holding}, spent)
    start = (0, tuple(0 for _ in most), tuple(0 for _ in limits))
    heap, seen = [(0, 0, *start[1:])], {start}
    while heap:
        price, fullness, taken, used = heapq.heappop(heap)
        reached.price = price
        if not any(_admits(limits, used, door) for door in doors):
            return price
        for held, jobs, cost in moves:
            spent.one_more()
            if price + held >= enough or not _admits(limits, used, cost):
                continue
            now = tuple(map(sum, zip(taken, jobs, strict=True)))
            if any(number > limit for number, limit in zip(now, most, strict=True)):
                continue
            state = (price + held, now, tuple(map(sum, zip(used, cost, strict=True))))
            if state not in seen:
                seen.add(state)
                heapq.heappush(heap, (state[0], fullness - 1, *state[1:]))
    return None


def _admits(limits: Amounts, used: Amounts, cost: Amounts) -> bool:
    return all(have + more <= limit for have, more, limit in zip(used, cost, limits, strict=True))


def _rate_bound(demand: Demand, rivals: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> int:
    """Return a lower bound of the guaranteed jobs. When no type is admitted any more, some limit is nearly used up. The
    nodes that use it hold jobs at the worst rate of all types, minus the jobs that rivals prevent."""
    holding = _holding(demand, offers)
    rates = [
        min(
            (Fraction(slots(each.amounts, demand.asks), each.cost[i]) for each in holding if each.cost[i]), default=None
        )
        for i in range(len(limits))
    ]
    lost = [
        sum((rival.most * _lost(rival, demand, offers, rate, i) for rival in rivals), Fraction())
        if rate
        else Fraction()
        for i, rate in enumerate(rates)
    ]
    return max(
        min(
            (
                max(0, math.ceil(rate * (limits[i] - cost + 1) - lost[i]))
                for i, (rate, cost) in enumerate(zip(rates, door, strict=True))
                if rate and cost
            ),
            default=demand.most,
        )
        for door in {each.cost for each in holding}
    )


def _lost(rival: Demand, demand: Demand, offers: Sequence[Offer], rate: Fraction, index: int) -> Fraction:
    """Return the maximum number of jobs that one job of the rival prevents: by the slots that it takes, by its whole
    node, or, on a type that holds no job, by the amount of the limit that the node uses."""
    useful = {each.name for each in _holding(demand, offers)}
    costs = {each.name: each.cost[index] for each in _holding(rival, offers)}
    useless = max((cost for name, cost in costs.items() if name not in useful), default=0)
    places = packing.slots_taken(rival, demand)
    return max(rate * useless, min(Fraction(places), rate * max(costs.values(), default=0)))
