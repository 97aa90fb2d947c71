"""Packing against a packer that tries everything, job by job and node by node."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet_tools.capacity import packing
from gpufleet_tools.capacity.packing import Amounts, Bound, Demand, NodeShape, alone, blocking, fit, guaranteed, slots
from tests.conftest import examples

NODE = NodeShape("n", (8, 64), 1)


def demand(label: str, gpus: int, cpu: int, most: int, *shapes: str) -> Demand:
    return Demand(label, (gpus, cpu), most, frozenset(shapes or ("n",)))


# -- by trying everything ---------------------------------------------------------------------------------------------


def nodes_of(shapes: Sequence[NodeShape]) -> list[tuple[str, Amounts]]:
    return [(shape.name, shape.amounts) for shape in shapes for _ in range(shape.count)]


def placements(jobs: Sequence[Demand], nodes: list[tuple[str, Amounts]]) -> set[tuple[tuple[str, Amounts], ...]]:
    """What can be free once every one of the jobs stands somewhere; empty when that is not possible."""
    states = {tuple(nodes)}
    for job in jobs:
        states = {
            (*state[:i], (name, tuple(h - a for h, a in zip(free, job.asks, strict=True))), *state[i + 1 :])
            for state in states
            for i, (name, free) in enumerate(state)
            if name in job.shapes and all(h >= a for h, a in zip(free, job.asks, strict=True))
        }
    return states


def everything(demands: Sequence[Demand]) -> list[Demand]:
    return [each for each in demands for _ in range(each.most)]


def fewest_left(wanted: Demand, others: Sequence[Demand], shapes: Sequence[NodeShape]) -> int:
    counts = itertools.product(*(range(other.most + 1) for other in others))
    left = [
        sum(slots(free, wanted.asks) for name, free in state if name in wanted.shapes)
        for some in counts
        for state in placements(
            [other for other, count in zip(others, some, strict=True) for _ in range(count)], nodes_of(shapes)
        )
    ]
    return min(wanted.most, *left)


amounts = st.tuples(st.integers(0, 4), st.integers(1, 6))
shape_lists = st.lists(st.tuples(amounts, st.integers(1, 2)), min_size=1, max_size=2).map(
    lambda found: [NodeShape(f"s{i}", have, count) for i, (have, count) in enumerate(found)]
)
demand_lists = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 3), st.integers(1, 4)),
        st.integers(1, 3),
        st.sampled_from([("s0",), ("s1",), ("s0", "s1")]),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: [Demand(f"l{i}", asks, most, frozenset(on)) for i, (asks, most, on) in enumerate(found)])


@settings(max_examples=examples(300), deadline=None)
@given(shape_lists, demand_lists)
def test_a_fit_is_what_trying_everything_finds(shapes: list[NodeShape], demands: list[Demand]) -> None:
    possible = bool(placements(everything(demands), nodes_of(shapes)))
    assert fit(demands, shapes) == ("yes" if possible else "no")


@settings(max_examples=examples(200), deadline=None)
@given(shape_lists, demand_lists)
def test_what_is_guaranteed_is_what_the_worst_neighbours_leave(shapes: list[NodeShape], demands: list[Demand]) -> None:
    wanted, *others = demands
    assert guaranteed(wanted, others, shapes) == Bound(fewest_left(wanted, others, shapes), exact=True)


@settings(max_examples=examples(200), deadline=None)
@given(shape_lists, demand_lists)
def test_a_bound_is_never_above_the_truth(shapes: list[NodeShape], demands: list[Demand]) -> None:
    wanted, *others = demands
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "BUDGET", 0)
        bound, whether = guaranteed(wanted, others, shapes), fit(demands, shapes)
    assert bound.jobs <= fewest_left(wanted, others, shapes)
    if whether != "unknown":
        assert whether == fit(demands, shapes)


@settings(max_examples=examples(200), deadline=None)
@given(shape_lists, demand_lists)
def test_blocking_is_the_fewest_that_keep_a_job_out(shapes: list[NodeShape], demands: list[Demand]) -> None:
    wanted, other = demands[0], demands[-1]
    by_trying = None
    for count in range(other.most + 1):
        states = placements([other] * count, nodes_of(shapes))
        if any(not any(slots(f, wanted.asks) for n, f in state if n in wanted.shapes) for state in states):
            by_trying = count
            break
    assert blocking(wanted, other, shapes) == by_trying


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_seven_single_jobs_keep_an_eight_gpu_job_out() -> None:
    whole, single = demand("whole", 8, 64, 1), demand("single", 1, 8, 7)
    assert alone(whole, [NODE]) == 1
    assert guaranteed(whole, [single], [NODE]) == Bound(0, exact=True)
    assert blocking(whole, single, [NODE]) == 1
    assert fit([whole, single], [NODE]) == "no"


def test_spread_over_three_nodes_three_are_enough() -> None:
    whole, single = demand("whole", 8, 64, 3), demand("single", 1, 8, 8)
    assert blocking(whole, single, [NodeShape("n", (8, 64), 3)]) == 3
    assert blocking(whole, demand("single", 1, 8, 2), [NodeShape("n", (8, 64), 3)]) is None


def test_first_fit_misses_what_a_search_finds() -> None:
    """Largest first puts 4 and 4 on one node, and leaves 1 of it; 4, 3 and 2 fill both."""
    nodes = [NodeShape("n", (9,), 2)]
    jobs = [Demand(f"of {size}", (size,), 2, frozenset({"n"})) for size in (4, 3, 2)]
    assert not packing.first_fit_decreasing(jobs, nodes)
    assert fit(jobs, nodes) == "yes"


def test_a_large_fleet_is_answered() -> None:
    shapes = [NodeShape("n", (8, 190, 2200, 110), 64)]
    jobs = [Demand(f"l{n}", (n % 4 + 1, 10 + n, 100 + 7 * n, 1), 20, frozenset({"n"})) for n in range(16)]
    assert fit(jobs, shapes) in ("yes", "no", "unknown")
    largest = jobs[-1]
    assert guaranteed(largest, jobs[:-1], shapes).jobs <= largest.most
