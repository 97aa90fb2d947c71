"""Packing of jobs on nodes, in whole numbers.

A pool is a list of node shapes, each with its number of nodes. Amounts are tuples of whole numbers, one for each
resource, always in the same order. The number of pods is one of the resources.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Amounts = tuple[int, ...]

BUDGET = 20_000
"""Number of combinations to try before a bound replaces the exact answer: under a tenth of a second."""


@dataclass(frozen=True)
class NodeShape:
    """Identical nodes."""

    name: str
    """Name that demands refer to."""
    amounts: Amounts
    """Resources of one node."""
    count: int
    """Maximum number of nodes."""


@dataclass(frozen=True)
class Demand:
    """Identical jobs."""

    label: str
    """Label of the jobs."""
    asks: Amounts
    """Resources of one job; at least one is not zero."""
    most: int
    """Maximum number of jobs."""
    shapes: frozenset[str]
    """Names of the node shapes that admit the jobs."""


@dataclass(frozen=True)
class Bound:
    """A number of jobs, exact or a lower bound."""

    jobs: int
    """The number."""
    exact: bool
    """Whether the number is exact; otherwise it is a lower bound."""


Fit = Literal["yes", "no", "unknown"]
"""Whether jobs fit at the same time; `unknown` if first fit decreasing fails and a full search takes too long."""


class TooManyCombinations(Exception):
    """The search has exceeded its budget."""


def slots(free: Amounts, asks: Amounts) -> int:
    """Return the number of jobs that fit into the free resources of one node."""
    return min(have // ask for have, ask in zip(free, asks, strict=True) if ask)


def alone(demand: Demand, shapes: Sequence[NodeShape]) -> int:
    """Return the number of jobs that the nodes hold when nothing else runs on them; it may exceed `demand.most`."""
    return sum(shape.count * slots(shape.amounts, demand.asks) for shape in _open_to(demand, shapes))


def fit(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> Fit:
    """Return whether all demands at their maximum fit at the same time. `yes` and `no` are certain."""
    if any(alone(demand, shapes) < demand.most for demand in demands) or _too_much_of_something(demands, shapes):
        return "no"
    # Without nodes, as while all are in maintenance, nothing is demanded here.
    if not shapes or first_fit_decreasing(demands, shapes):
        return "yes"
    try:
        return "yes" if _fits_somehow(demands, shapes) else "no"
    except TooManyCombinations:
        return "unknown"


def _open_to(demand: Demand, shapes: Sequence[NodeShape]) -> list[NodeShape]:
    return [shape for shape in shapes if shape.name in demand.shapes]


def _too_much_of_something(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> bool:
    have = [sum(shape.count * amount for shape, amount in each) for each in _by_resource(shapes)]
    requested = [sum(demand.most * demand.asks[index] for demand in demands) for index in range(len(have))]
    return any(ask > amount for ask, amount in zip(requested, have, strict=True))


def _by_resource(shapes: Sequence[NodeShape]) -> Iterator[list[tuple[NodeShape, int]]]:
    for amounts in zip(*(shape.amounts for shape in shapes), strict=True):
        yield list(zip(shapes, amounts, strict=True))


def first_fit_decreasing(demands: Sequence[Demand], shapes: Sequence[NodeShape]) -> bool:
    """Return whether every job finds a node, largest jobs first, each on the first node that has room."""
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
    """Return whether some placement holds all jobs. Try every filling of each node, and keep the sets of remaining jobs
    that no other set is contained in."""
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
    """Return the number of jobs that always find room, with every other demand at its maximum, in any placement."""
    there = _open_to(demand, shapes)
    rivals = [other for other in others if other.shapes & demand.shapes]
    try:
        found = Bound(_least_left(demand, rivals, there), exact=True)
    except TooManyCombinations:
        taken = sum(rival.most * slots_taken(rival, demand) for rival in rivals)
        found = Bound(max(0, alone(demand, shapes) - taken), exact=False)
    return found if found.jobs < demand.most else Bound(demand.most, exact=True)


def slots_taken(rival: Demand, demand: Demand) -> int:
    """Return the maximum number of slots that one job of the rival takes: a floor falls by at most the ceiling of what
    is taken."""
    return max(-(-taken // ask) for taken, ask in zip(rival.asks, demand.asks, strict=True) if ask)


def _least_left(demand: Demand, rivals: Sequence[Demand], shapes: Sequence[NodeShape]) -> int:
    """Return the minimum number of slots that rivals leave. A state is the number of remaining slots and of placed jobs
    of each rival. A state is dropped if another one has no more of any of them."""
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
    """Return every combination of jobs that one node holds: a number for each demand. Raises TooManyCombinations."""
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
    """Return the free resources of a node that runs the jobs of a way, which may cover only the first demands."""
    taken = [[jobs * ask for ask in demand.asks] for jobs, demand in zip(way, demands, strict=False)]
    return tuple(have - sum(each[index] for each in taken) for index, have in enumerate(shape.amounts))


def _negative(way: Amounts) -> Amounts:
    return tuple(-jobs for jobs in way)


def unbeaten(points: Collection[Amounts], spent: Budget) -> list[Amounts]:
    """Return the minimal points: no other point is as small or smaller in every coordinate. Raises
    TooManyCombinations."""
    kept: list[Amounts] = []
    for point in sorted(set(points)):
        spent.one_more(1 + len(kept) // 4)
        if not any(all(a <= b for a, b in zip(other, point, strict=True)) for other in kept):
            kept.append(point)
    return kept


class Budget:
    """Count of tried combinations, up to BUDGET."""

    def __init__(self) -> None:
        self._left = BUDGET

    def one_more(self, steps: int = 1) -> None:
        """Count steps. Raises TooManyCombinations once the budget is spent."""
        self._left -= steps
        if self._left < 0:
            raise TooManyCombinations


def blocking(demand: Demand, other: Demand, shapes: Sequence[NodeShape]) -> int | None:
    """Return the minimum number of jobs of another demand that leave no room for a single job, in the worst placement;
    None if any number of them leaves room."""
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
