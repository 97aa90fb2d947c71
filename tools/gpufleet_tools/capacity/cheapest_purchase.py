"""Cheapest nodes that hold given jobs, in whole numbers."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_tools.capacity.elastic_packing import Offer
from gpufleet_tools.capacity.packing import (
    Amounts,
    Budget,
    Demand,
    NodeShape,
    TooManyCombinations,
    slots,
    unbeaten,
    ways,
)


@dataclass(frozen=True)
class Purchase:
    """Nodes and their price."""

    price: int
    """Total price per hour, in the unit of the given prices."""
    nodes: Mapping[str, int]
    """Number of nodes, by instance type."""
    waiting: int
    """Jobs that wait, because the limits admit no further node."""
    exact: bool
    """Whether no cheaper nodes hold the jobs."""


def cheapest(
    demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts, prices: Mapping[str, int]
) -> Purchase | None:
    """Return the cheapest nodes that hold all demands at their maximum at the same time, within limits. If no nodes do,
    or the search takes too long, choose the cheapest node for each job in turn, largest jobs first.

    Only types with a price are used. None if, for some demand, none of those holds a job.
    """
    priced = [offer for offer in offers if offer.name in prices]
    wanted = [demand for demand in demands if demand.most]
    if not wanted:
        return Purchase(0, {}, waiting=0, exact=True)
    if not all(any(_held(demand, offer) for offer in priced) for demand in wanted):
        return None
    try:
        found = _searched(wanted, priced, limits, prices, Budget())
    except TooManyCombinations:
        found = None
    return found or _in_turn(wanted, priced, limits, prices)


def _held(demand: Demand, offer: Offer) -> int:
    """Return the number of jobs of a demand that one node of a type holds."""
    return slots(offer.amounts, demand.asks) if offer.name in demand.shapes else 0


# -- every purchase, the cheapest first -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Move:
    """A further node with its jobs."""

    name: str
    jobs: Amounts
    cost: Amounts
    price: int


def _searched(
    demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts, prices: Mapping[str, int], spent: Budget
) -> Purchase | None:
    """Return the cheapest nodes; None if no nodes within the limits hold all jobs. Raises TooManyCombinations."""
    moves = list(_moves(demands, offers, prices, spent))
    start = (tuple(demand.most for demand in demands), tuple(0 for _ in limits))
    # A state: lower bound of the final price, price so far, number of the state, remaining jobs, used limits.
    heap = [(_at_least(start[0], moves), 0, 0, *start)]
    provisioned: dict[int, tuple[int, str]] = {}
    seen = set()
    while heap:
        _, price, number, left, used = heapq.heappop(heap)
        if not any(left):
            return Purchase(price, Counter(_names(number, provisioned)), waiting=0, exact=True)
        if (left, used) in seen:
            continue
        seen.add((left, used))
        for move in moves:
            spent.one_more()
            now = tuple(map(sum, zip(used, move.cost, strict=True)))
            rest = tuple(max(0, jobs - taken) for jobs, taken in zip(left, move.jobs, strict=True))
            if rest == left or any(amount > limit for amount, limit in zip(now, limits, strict=True)):
                continue
            if (rest, now) not in seen:
                following = len(provisioned) + 1
                provisioned[following] = number, move.name
                paid = price + move.price
                heapq.heappush(heap, (paid + _at_least(rest, moves), paid, following, rest, now))
    return None


def _moves(
    demands: Sequence[Demand], offers: Sequence[Offer], prices: Mapping[str, int], spent: Budget
) -> Iterator[_Move]:
    """Yield nodes with jobs, without those that another node dominates: as many jobs at no higher cost and price."""
    found: dict[Amounts, str] = {}
    for offer in offers:
        for way in ways(NodeShape(offer.name, offer.amounts, 1), demands, spent):
            if any(way):
                found.setdefault((*(-jobs for jobs in way), *offer.cost, prices[offer.name]), offer.name)
    many = len(demands)
    for point in unbeaten(found, spent):
        yield _Move(found[point], tuple(-jobs for jobs in point[:many]), point[many:-1], point[-1])


def _at_least(left: Amounts, moves: Sequence[_Move]) -> int:
    """Return a lower bound of the jobs' price: the jobs of one demand alone, at the best rate of all nodes."""
    return max(
        min((-(-jobs * move.price // move.jobs[index]) for move in moves if move.jobs[index]), default=0)
        for index, jobs in enumerate(left)
    )  # fmt: skip


def _names(number: int, provisioned: Mapping[int, tuple[int, str]]) -> Iterator[str]:
    while number:
        number, name = provisioned[number]
        yield name


# -- one job after the other ------------------------------------------------------------------------------------------


def _in_turn(
    demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts, prices: Mapping[str, int]
) -> Purchase:
    """Place each demand on existing nodes first, then on nodes of the type with the lowest price per job."""
    largest = [max(amounts) or 1 for amounts in zip(*(offer.amounts for offer in offers), strict=True)]
    nodes: list[tuple[Offer, Amounts]] = []
    used: Amounts = tuple(0 for _ in limits)
    waiting = 0
    for demand in sorted(demands, key=lambda each: -_size(each, largest)):
        left = demand.most
        for index, (offer, free) in enumerate(nodes):
            placed, free = _placed(demand, offer, free, left)
            nodes[index], left = (offer, free), left - placed
        while left:
            admitted = [
                offer for offer in offers if _held(demand, offer) and _within(limits, used, offer.cost)
            ]  # fmt: skip
            if not admitted:
                break
            offer = min(admitted, key=lambda each: _rate(each, demand, left, prices))
            placed, free = _placed(demand, offer, offer.amounts, left)
            nodes.append((offer, free))
            used, left = tuple(map(sum, zip(used, offer.cost, strict=True))), left - placed
        waiting += left
    names = Counter(offer.name for offer, _ in nodes)
    return Purchase(sum(prices[name] * number for name, number in names.items()), names, waiting, exact=False)


def _size(demand: Demand, largest: Sequence[int]) -> float:
    return max(ask / have for ask, have in zip(demand.asks, largest, strict=True))


def _placed(demand: Demand, offer: Offer, free: Amounts, left: int) -> tuple[int, Amounts]:
    """Return the number of jobs placed on a node, and its remaining free resources."""
    jobs = min(left, slots(free, demand.asks)) if offer.name in demand.shapes else 0
    return jobs, tuple(have - jobs * ask for have, ask in zip(free, demand.asks, strict=True))


def _within(limits: Amounts, used: Amounts, cost: Amounts) -> bool:
    return all(have + more <= limit for have, more, limit in zip(used, cost, limits, strict=True))


def _rate(offer: Offer, demand: Demand, left: int, prices: Mapping[str, int]) -> tuple[float, int]:
    """Return the price per job on a new node, then the price of the node."""
    return prices[offer.name] / min(left, _held(demand, offer)), prices[offer.name]
