"""How many jobs of which kinds nodes hold at once: plain arithmetic over whole numbers.

A pool is a list of node shapes, each with the number of nodes that it has, or may at most have. Amounts are tuples of
whole numbers, one for each resource, always in the same order; a pod itself can be one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Amounts = tuple[int, ...]

BUDGET = 20_000
"""Combinations that are tried before an exact answer is given up for a bound: under a tenth of a second."""


@dataclass(frozen=True)
class NodeShape:
    """Nodes that are alike."""

    name: str
    """Name, which demands give."""
    amounts: Amounts
    """What one of them has."""
    count: int
    """How many there are at most."""


@dataclass(frozen=True)
class Demand:
    """Jobs that are alike."""

    label: str
    """Whose they are."""
    asks: Amounts
    """What one of them takes; something of at least one resource."""
    most: int
    """How many there are at most."""
    shapes: frozenset[str]
    """Names of the shapes whose nodes take them."""


@dataclass(frozen=True)
class Bound:
    """A number of jobs."""

    jobs: int
    """That many at least."""
    exact: bool
    """Whether it is that many exactly."""


Fit = Literal["yes", "no", "unknown"]
"""Whether jobs fit at once; `unknown` where first fit decreasing finds no way and a full search would take too long."""


class TooManyCombinations(Exception):
    """The budget is spent."""


def slots(free: Amounts, asks: Amounts) -> int:
    """Jobs that fit in what is free on one node."""
    return min(have // ask for have, ask in zip(free, asks, strict=True) if ask)


def alone(demand: Demand, shapes: Sequence[NodeShape]) -> int:
    """Jobs that the nodes hold when nothing else runs on them, however few may be asked for."""
    return sum(shape.count * slots(shape.amounts, demand.asks) for shape in _open_to(demand, shapes))


def fit(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> Fit:
    """Whether all demands at their most fit at once. `yes` and `no` are certain."""
    if any(alone(demand, shapes) < demand.most for demand in demands) or _too_much_of_something(demands, shapes):
        return "no"
    if first_fit_decreasing(demands, shapes):
        return "yes"
    try:
        return "yes" if _fits_somehow(demands, shapes) else "no"
    except TooManyCombinations:
        return "unknown"


def _open_to(demand: Demand, shapes: Sequence[NodeShape]) -> list[NodeShape]:
    return [shape for shape in shapes if shape.name in demand.shapes]


def _too_much_of_something(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> bool:
    have = [sum(shape.count * amount for shape, amount in each) for each in _by_resource(shapes)]
    asked = [sum(demand.most * demand.asks[index] for demand in demands) for index in range(len(have))]
    return any(ask > amount for ask, amount in zip(asked, have, strict=True))


def _by_resource(shapes: Sequence[NodeShape]) -> Iterator[list[tuple[NodeShape, int]]]:
    for amounts in zip(*(shape.amounts for shape in shapes), strict=True):
        yield list(zip(shapes, amounts, strict=True))


def first_fit_decreasing(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> bool:
    """Whether every job finds a node, largest jobs first, each on the first node that has room."""
    largest = [max(amounts) or 1 for amounts in zip(*(shape.amounts for shape in shapes), strict=True)]
    nodes = [(shape.name, list(shape.amounts)) for shape in shapes for _ in range(shape.count)]
    for demand in sorted(demands, key=lambda each: -max(map(_ratio, each.asks, largest))):
        left = demand.most
        for name, free in nodes:
            placed = min(left, slots(tuple(free), demand.asks)) if name in demand.shapes else 0
            free[:] = [have - placed * ask for have, ask in zip(free, demand.asks, strict=True)]
            left -= placed
        if left:
            return False
    return True


def _ratio(part: int, whole: int) -> float:
    return part / whole


def _fits_somehow(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> bool:
    """Node by node, every way to fill it; of what is left over afterwards only what no other way leaves less of."""
    spent = Budget()
    left = {tuple(demand.most for demand in demands)}
    for shape in shapes:
        kept = unbeaten([_negative(way) for way in ways(shape, demands, spent)], spent)
        for _ in range(shape.count):
            reached = set()
            for before, way in itertools.product(left, kept):
                spent.one_more()
                reached.add(tuple(max(0, jobs + taken) for jobs, taken in zip(before, way, strict=True)))
            left = set(unbeaten(reached, spent))
    return any(not any(jobs) for jobs in left)


def guaranteed(demand: Demand, others: Sequence[Demand], shapes: Sequence[NodeShape]) -> Bound:
    """Jobs that still find room whatever the others do, each up to its most, wherever they happen to stand."""
    there = _open_to(demand, shapes)
    rivals = [other for other in others if other.shapes & demand.shapes]
    try:
        found = Bound(_least_left(demand, rivals, there), exact=True)
    except TooManyCombinations:
        taken = sum(rival.most * slots_taken(rival, demand) for rival in rivals)
        found = Bound(max(0, alone(demand, shapes) - taken), exact=False)
    return found if found.jobs < demand.most else Bound(demand.most, exact=True)


def slots_taken(rival: Demand, demand: Demand) -> int:
    """Places that one job of the rival takes at most: a floor falls by no more than the ceiling of what is taken."""
    return max(-(-taken // ask) for taken, ask in zip(rival.asks, demand.asks, strict=True) if ask)


def _least_left(demand: Demand, rivals: Sequence[Demand], shapes: Sequence[NodeShape]) -> int:
    """The fewest places that rivals leave. A state is what they have used and what is left; it is dropped when another
    leaves no more and has used no more of anything."""
    spent = Budget()
    states: set[Amounts] = {(0,) * (len(rivals) + 1)}
    for shape in shapes:
        kept = unbeaten(
            [(slots(rest(shape, way, rivals), demand.asks), *way) for way in ways(shape, rivals, spent)], spent
        )
        for _ in range(shape.count):
            reached = set()
            for state, way in itertools.product(states, kept):
                spent.one_more()
                total = tuple(map(sum, zip(state, way, strict=True)))
                if all(used <= rival.most for used, rival in zip(total[1:], rivals, strict=True)):
                    reached.add(total)
            states = set(unbeaten(reached, spent))
    return min(state[0] for state in states)


def ways(shape: NodeShape, demands: Sequence[Demand], spent: Budget) -> list[Amounts]:
    """Every combination of jobs that one node holds: a number for each demand. Raises TooManyCombinations."""
    found: list[Amounts] = [()]
    for demand in demands:
        held = found
        found = []
        for way in held:
            room = slots(rest(shape, way, demands), demand.asks) if shape.name in demand.shapes else 0
            for jobs in range(min(room, demand.most) + 1):
                spent.one_more()
                found.append((*way, jobs))
    return found


def rest(shape: NodeShape, way: Amounts, demands: Sequence[Demand]) -> Amounts:
    """What is free on a node beside the jobs of a way, which may be of the first demands only."""
    taken = [[jobs * ask for ask in demand.asks] for jobs, demand in zip(way, demands, strict=False)]
    return tuple(have - sum(each[index] for each in taken) for index, have in enumerate(shape.amounts))


def _negative(way: Amounts) -> Amounts:
    return tuple(-jobs for jobs in way)


def unbeaten(points: Collection[Amounts], spent: Budget) -> list[Amounts]:
    """Those of which no other is at most as large in everything. Raises TooManyCombinations."""
    kept: list[Amounts] = []
    for point in sorted(set(points)):
        spent.one_more(1 + len(kept) // 4)
        if not any(all(a <= b for a, b in zip(other, point, strict=True)) for other in kept):
            kept.append(point)
    return kept


class Budget:
    """Counts what is tried, up to BUDGET."""

    def __init__(self) -> None:
        self._left = BUDGET

    def one_more(self, steps: int = 1) -> None:
        """Raises TooManyCombinations once the budget is spent."""
        self._left -= steps
        if self._left < 0:
            raise TooManyCombinations


def blocking(demand: Demand, other: Demand, shapes: Sequence[NodeShape]) -> int | None:
    """The fewest jobs of another kind that leave no room for a single one, spread as badly as they can be; None where
    any number of them leaves some."""
    total = 0
    for shape in _open_to(demand, shapes):
        if not slots(shape.amounts, demand.asks):
            continue
        needed = _blocking_one(demand, other, shape)
        if needed is None:
            return None
        total += shape.count * needed
    return total if total <= other.most else None


def _blocking_one(demand: Demand, other: Demand, shape: NodeShape) -> int | None:
    if shape.name not in other.shapes:
        return None
    needed = [
        (have - ask) // taken + 1
        for have, ask, taken in zip(shape.amounts, demand.asks, other.asks, strict=True)
        if ask and taken
    ]
    least = min(needed, default=None)
    return least if least is not None and least <= slots(shape.amounts, other.asks) else None
