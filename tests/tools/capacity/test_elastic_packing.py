"""Capacity of provisioned nodes, compared with all possible purchases, and with jobs that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet_tools.capacity import packing
from gpufleet_tools.capacity.elastic_packing import Offer, blocking, burst, fit, guaranteed
from gpufleet_tools.capacity.packing import Amounts, Bound, Demand
from tests.conftest import examples


def plus(a: Amounts, b: Amounts) -> Amounts:
    return tuple(map(sum, zip(a, b, strict=True)))


def within(a: Amounts, b: Amounts) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


# -- by trying everything ---------------------------------------------------------------------------------------------

Node = tuple[Offer, Amounts]
"""A node, and how many jobs of each demand stand on it."""


def room(node: Node, demands: Sequence[Demand], index: int) -> bool:
    """Whether one job more of that demand fits, asked resource by resource."""
    offer, jobs = node
    more = tuple(n + (i == index) for i, n in enumerate(jobs))
    used = [sum(n * demand.asks[r] for n, demand in zip(more, demands, strict=True)) for r in range(len(offer.amounts))]
    return offer.name in demands[index].shapes and within(tuple(used), offer.amounts)


def loads(offer: Offer, demands: Sequence[Demand]) -> list[Node]:
    """Every load of one node on which something runs."""
    found: set[Amounts] = {(0,) * len(demands)}
    while True:
        more = found | {
            tuple(n + (i == index) for i, n in enumerate(jobs))
            for jobs in found
            for index in range(len(demands))
            if room((offer, jobs), demands, index)
        }
        if more == found:
            return [(offer, jobs) for jobs in sorted(found) if any(jobs)]
        found = more


def states(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> Iterator[tuple[Node, ...]]:
    """Every set of nodes with something on each, within the limits and each demand's most."""
    kinds = [node for offer in offers for node in loads(offer, demands)]

    def grown(
        nodes: tuple[Node, ...], start: int, used: Amounts, jobs: Amounts
    ) -> Iterator[tuple[Node, ...]]:  # fmt: skip
        yield nodes
        for index in range(start, len(kinds)):
            cost, total = plus(used, kinds[index][0].cost), plus(jobs, kinds[index][1])
            if within(cost, limits) and within(total, tuple(demand.most for demand in demands)):
                yield from grown((*nodes, kinds[index]), index, cost, total)

    yield from grown((), 0, (0,) * len(limits), (0,) * len(demands))


def buyable(
    nodes: Sequence[Node], demands: Sequence[Demand], index: int, offers: Sequence[Offer], limits: Amounts
) -> bool:
    used = (0,) * len(limits)
    for offer, _ in nodes:
        used = plus(used, offer.cost)
    empty = (0,) * len(demands)
    return any(within(plus(used, each.cost), limits) and room((each, empty), demands, index) for each in offers)


def stuck(nodes: Sequence[Node], demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> bool:
    """Whether one more job of the first demand would wait."""
    return not any(room(node, demands, 0) for node in nodes) and not buyable(nodes, demands, 0, offers, limits)


def fewest(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> int:
    ends = [
        sum(jobs[0] for _, jobs in nodes)
        for nodes in states(demands, offers, limits)
        if stuck(nodes, demands, offers, limits)
    ]
    return min([demands[0].most, *ends])


def lived(demands: Sequence[Demand], offers: Sequence[Offer], limits: Amounts) -> int:
    """The fewest jobs of the first demand that run while one waits, over all that can happen: a job comes and stands on
    any node that has room; where none has, a node of any type is provisioned; a job ends; an empty node is removed."""
    start: tuple[Node, ...] = ()
    seen, todo, least = {start}, [start], demands[0].most
    while todo:
        nodes = todo.pop()
        following = []
        running = tuple(sum(jobs[i] for _, jobs in nodes) for i in range(len(demands)))
        if stuck(nodes, demands, offers, limits):
            least = min(least, running[0])
        for index, demand in enumerate(demands):
            if running[index] < demand.most:
                following += list(arrivals(nodes, demands, index, offers, limits))
        for at, (offer, jobs) in enumerate(nodes):
            for index in range(len(demands)):
                if jobs[index]:
                    left = tuple(n - (i == index) for i, n in enumerate(jobs))
                    following.append((*nodes[:at], *([(offer, left)] if any(left) else []), *nodes[at + 1 :]))
        for one in following:
            state = tuple(sorted(one, key=lambda node: (node[0].name, node[1])))
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return least


def arrivals(
    nodes: tuple[Node, ...], demands: Sequence[Demand], index: int, offers: Sequence[Offer], limits: Amounts
) -> Iterator[tuple[Node, ...]]:
    def one_more(jobs: Amounts) -> Amounts:
        return tuple(n + (i == index) for i, n in enumerate(jobs))

    roomy = [at for at, node in enumerate(nodes) if room(node, demands, index)]
    for at in roomy:
        yield (*nodes[:at], (nodes[at][0], one_more(nodes[at][1])), *nodes[at + 1 :])
    if not roomy:
        for offer in offers:
            empty: Node = (offer, (0,) * len(demands))
            if buyable(nodes, demands, index, [offer], limits):
                yield (*nodes, (offer, one_more(empty[1])))


amounts = st.tuples(st.integers(0, 3), st.integers(1, 5))
offer_lists = st.lists(st.tuples(st.tuples(st.integers(1, 4), st.integers(0, 2)), amounts), min_size=1, max_size=3).map(
    lambda found: [Offer(f"t{i}", cost, has) for i, (cost, has) in enumerate(found)]
)
limit_pairs = st.tuples(st.integers(1, 8), st.integers(1, 4))
demand_lists = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 2), st.integers(1, 4)),
        st.integers(1, 3),
        st.sampled_from([("t0",), ("t0", "t1"), ("t0", "t1", "t2")]),
    ),
    min_size=1,
    max_size=2,
).map(lambda found: [Demand(f"l{i}", asks, most, frozenset(on)) for i, (asks, most, on) in enumerate(found)])


@settings(max_examples=examples(200), deadline=None)
@given(offer_lists, demand_lists, limit_pairs)
def test_what_is_guaranteed_is_the_worst_of_all_ends(
    offers: list[Offer], demands: list[Demand], limits: Amounts
) -> None:
    wanted, *others = demands
    assert guaranteed(wanted, others, offers, limits) == Bound(fewest(demands, offers, limits), exact=True)


@settings(max_examples=examples(150), deadline=None)
@given(offer_lists, demand_lists, limit_pairs)
def test_never_fewer_jobs_run_than_are_guaranteed(offers: list[Offer], demands: list[Demand], limits: Amounts) -> None:
    wanted, *others = demands
    promised = guaranteed(wanted, others, offers, limits).jobs
    assert promised <= lived(demands, offers, limits)
    if not others:
        assert promised == lived(demands, offers, limits)


@settings(max_examples=examples(150), deadline=None)
@given(offer_lists, demand_lists, limit_pairs)
def test_burst_and_fit_are_what_the_best_purchase_holds(
    offers: list[Offer], demands: list[Demand], limits: Amounts
) -> None:
    wanted = demands[0]
    alone = max(sum(jobs[0] for _, jobs in nodes) for nodes in states([wanted], offers, limits))
    assert burst(wanted, offers, limits) == Bound(alone, exact=True)
    most = tuple(demand.most for demand in demands)
    held = {
        tuple(sum(jobs[i] for _, jobs in nodes) for i in range(len(demands)))
        for nodes in states(demands, offers, limits)
    }
    assert fit(demands, offers, limits) == ("yes" if most in held else "no")


@settings(max_examples=examples(150), deadline=None)
@given(offer_lists, demand_lists, limit_pairs)
def test_a_blocker_is_as_many_jobs_as_it_takes(offers: list[Offer], demands: list[Demand], limits: Amounts) -> None:
    wanted, other = demands[0], demands[-1]
    if len(demands) == 1 or not fewest([wanted], offers, limits):
        return
    ends = [
        sum(jobs[1] for _, jobs in nodes)
        for nodes in states(demands, offers, limits)
        if stuck(nodes, demands, offers, limits) and not any(jobs[0] for _, jobs in nodes)
    ]
    assert blocking(wanted, other, offers, limits) == min(ends, default=None)


@settings(max_examples=examples(200), deadline=None)
@given(offer_lists, demand_lists, limit_pairs, st.integers(0, 60))
def test_what_is_given_up_is_a_bound(offers: list[Offer], demands: list[Demand], limits: Amounts, budget: int) -> None:
    wanted, *others = demands
    whole = guaranteed(wanted, others, offers, limits), burst(wanted, offers, limits), fit(demands, offers, limits)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "BUDGET", budget)
        least, most = guaranteed(wanted, others, offers, limits), burst(wanted, offers, limits)
        fitting = fit(demands, offers, limits)
    for bound, truth in ((least, whole[0]), (most, whole[1])):
        assert bound.jobs <= truth.jobs
        assert not bound.exact or bound == truth
    assert fitting in (whole[2], "unknown")


# -- cases to read ----------------------------------------------------------------------------------------------------

# Cores and GPUs that count against limits; cores and GPUs that jobs have.
SMALL, LARGE = Offer("small", (8, 1), (7, 10)), Offer("large", (32, 1), (31, 10))
BOTH = frozenset({"small", "large"})


def test_a_large_node_uses_the_limit_up() -> None:
    job = Demand("job", (1, 1), 40, BOTH)
    assert burst(job, [SMALL, LARGE], (40, 4)) == Bound(28, exact=True)
    # Two large ones are 64 cores: one, and the limit has room for a small one more.
    assert guaranteed(job, [], [SMALL, LARGE], (40, 4)) == Bound(17, exact=True)
    assert guaranteed(job, [], [SMALL, LARGE], (39, 4)) == Bound(10, exact=True)


def test_no_limit_is_never_reached() -> None:
    job = Demand("job", (1, 1), 9, BOTH)
    free = [Offer("small", (), (7, 10))]
    assert guaranteed(job, [Demand("other", (1, 1), 9, BOTH)], free, ()) == Bound(9, exact=True)
    assert (burst(job, free, ()), fit([job], free, ())) == (Bound(9, exact=True), "yes")


def test_one_small_job_keeps_a_node_that_a_large_one_needs() -> None:
    whole, tiny = Demand("whole", (31, 10), 2, frozenset({"large"})), Demand("tiny", (1, 0), 3, BOTH)
    assert guaranteed(whole, [], [SMALL, LARGE], (64, 2)) == Bound(2, exact=True)
    assert guaranteed(whole, [tiny], [SMALL, LARGE], (64, 2)) == Bound(0, exact=True)
    assert blocking(whole, tiny, [SMALL, LARGE], (64, 2)) == 2


def test_a_pool_that_nothing_fits() -> None:
    job = Demand("job", (99, 1), 2, BOTH)
    assert guaranteed(job, [], [SMALL, LARGE], (40, 4)) == Bound(0, exact=True)
    assert (burst(job, [SMALL, LARGE], (40, 4)), fit([job], [SMALL, LARGE], (40, 4))) == (Bound(0, exact=True), "no")
    assert blocking(job, job, [SMALL, LARGE], (40, 4)) is None
