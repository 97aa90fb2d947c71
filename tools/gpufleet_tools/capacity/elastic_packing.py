"""How many jobs run on nodes that are bought when jobs wait, within limits: plain arithmetic over whole numbers.

A node is bought for a job that no node has room for, of any type that can hold it and that the limits still admit
(`filterByRemainingResources` in pkg/controllers/provisioning/scheduling/scheduler.go of kubernetes-sigs/karpenter at
v1.14.1). A node on which nothing runs is given back. Which type is bought depends on prices and on what can be had, so
there are two questions: what the best choice holds, and what the worst one leaves.
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
    """An instance type that can be bought."""

    name: str
    """Name, which demands give."""
    cost: Amounts
    """What one takes of each limit."""
    amounts: Amounts
    """What one has for jobs."""


# -- the best choice --------------------------------------------------------------------------------------------------


def burst(demand: Demand, offers: Sequence[Offer], limits: Amounts) -> Bound:
    """Jobs that run when nothing else does and the best types are bought, never more than its most."""
    try:
        left = min(state[0] for state in _left([demand], offers, limits))
        return Bound(demand.most - left, exact=True)
    except TooManyCombinations:
        holding = _holding(demand, offers)
        alike = (_count(offer, limits, demand.most) * slots(offer.amounts, demand.asks) for offer in holding)
        found = min(demand.most, max(alike, default=0))
        return Bound(found, exact=found == demand.most)


def fit(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> Fit:
    """Whether all demands at their most fit at once when the best types are bought. `yes` and `no` are certain."""
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
    """Nodes of that type that the limits admit, or as many as can be of use."""
    return min([most, *(limit // cost for limit, cost in zip(limits, offer.cost, strict=True) if cost)])


def _sums_allow(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> bool:
    """Whether no limit is passed even if jobs were as fine as sand: each needs its part of some type."""
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
    """Jobs that are left over, by demand, after every purchase that the limits admit; only those of which no other
    purchase leaves less for less."""
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
    """Types that have room for a job."""
    return [offer for offer in offers if offer.name in demand.shapes and slots(offer.amounts, demand.asks)]


def _distinct(offers: Sequence[Offer], demands: Sequence[Demand]) -> Iterator[Offer]:
    """One of those that cost the same, take the same demands and have the same of what they ask for: what is more than
    all of them ask for is no matter."""
    asked = [sum(demand.most * demand.asks[i] for demand in demands) for i in range(len(demands[0].asks))]
    seen = set()
    for offer in offers:
        has = tuple(min(amount, ask) for amount, ask in zip(offer.amounts, asked, strict=True))
        taking = tuple(offer.name in demand.shapes for demand in demands)
        if (offer.cost, has, taking) not in seen:
            seen.add((offer.cost, has, taking))
            yield offer


# -- the worst choice -------------------------------------------------------------------------------------------------


def guaranteed(demand: Demand, others: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> Bound:
    """Jobs that run whichever types are bought, whatever the others run, each up to its most, and wherever their jobs
    stand: the fewest with which no node has room and the limits admit no further node for one.

    Every such end is counted that nodes and jobs allow, one to which no order of jobs may lead among them, so that in
    truth it can be more. Exact is meant of those ends.
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
    """The fewest jobs of another kind that leave no room for a single one, on the types and in the places where they do
    most harm; None where any number of them leaves some, or where trying all takes too long."""
    holding, spent = _holding(demand, offers), Budget()
    if not holding or _rate_bound(demand, [other], offers, limits):
        return None
    try:
        # What counts is the jobs of the other; it may have one more than its most before the search ends.
        moves = [
            (taken[0], (), cost) for cost, taken, held in _fillings(demand, [other], offers, spent) if not held
        ]  # fmt: skip
        return _least_stuck(moves, [], holding, limits, other.most + 1, spent, _Reached())
    except TooManyCombinations:
        return None


def _fillings(
    demand: Demand, rivals: Sequence[Demand], offers: Sequence[Offer], spent: Budget
) -> Iterator[tuple[Amounts, Amounts, int]]:
    """What a node may cost, how many jobs of each rival it may have, and how many jobs it holds beside them; only those
    of which no other holds fewer beside fewer at the same cost. On every node something runs."""
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
    """How far a search has come, for when it is given up."""

    price = 0
    """No end is cheaper."""


def _least_stuck(
    moves: Sequence[tuple[int, Amounts, Amounts]],
    most: Sequence[int],
    holding: Sequence[Offer],
    limits: Amounts,
    enough: int,
    spent: Budget,
    reached: _Reached,
) -> int | None:
    """The lowest price of nodes after which the limits admit none that would hold a job; None where it is not below
    `enough`. A move is a node's price, what it has of the rivals, and its cost. The cheapest is looked at first, so
    that the first end is the one."""
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
    """Jobs at least. No type is admitted any more because some limit is used up nearly, by nodes that hold jobs at the
    worst rate of all types, but for what the rivals' jobs take away of that."""
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
    """Jobs that one job of the rival prevents at most: by the places that it takes, or by all of its node; on a type
    that holds none anyway, by what this one uses of the limit."""
    useful = {each.name for each in _holding(demand, offers)}
    costs = {each.name: each.cost[index] for each in _holding(rival, offers)}
    useless = max((cost for name, cost in costs.items() if name not in useful), default=0)
    places = packing.slots_taken(rival, demand)
    return max(rate * useless, min(Fraction(places), rate * max(costs.values(), default=0)))
