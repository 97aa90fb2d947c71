"""The cheapest nodes, against purchases that are all tried."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet_tools.capacity import cheapest_purchase
from gpufleet_tools.capacity.cheapest_purchase import Purchase, cheapest
from gpufleet_tools.capacity.elastic_packing import Offer
from gpufleet_tools.capacity.packing import Amounts, Demand
from tests.conftest import examples
from tests.tools.capacity.test_elastic_packing import demand_lists, limit_pairs, offer_lists, states

price_lists = st.lists(st.integers(1, 9), min_size=3, max_size=3).map(
    lambda found: {f"t{i}": price for i, price in enumerate(found)}
)


@settings(max_examples=examples(300), deadline=None)
@given(offer_lists, demand_lists, limit_pairs, price_lists)
def test_nothing_cheaper_holds_the_jobs(
    offers: list[Offer], demands: list[Demand], limits: Amounts, prices: dict[str, int]
) -> None:
    most = tuple(demand.most for demand in demands)
    totals = {
        sum(prices[offer.name] for offer, _ in nodes)
        for nodes in states(demands, offers, limits)
        if tuple(sum(jobs[i] for _, jobs in nodes) for i in range(len(demands))) == most
    }
    found = cheapest(demands, offers, limits, prices)
    if found is None:
        assert not totals
    elif totals:
        assert (found.price, found.waiting, found.exact) == (min(totals), 0, True)
    else:
        assert found.waiting
        assert not found.exact


@settings(max_examples=examples(300), deadline=None)
@given(offer_lists, demand_lists, limit_pairs, price_lists)
def test_what_is_bought_is_within_limits_and_costs_what_is_said(
    offers: list[Offer], demands: list[Demand], limits: Amounts, prices: dict[str, int]
) -> None:
    found = cheapest(demands, offers, limits, prices)
    if found is not None:
        costs = {offer.name: offer.cost for offer in offers}
        for index, limit in enumerate(limits):
            assert sum(costs[name][index] * number for name, number in found.nodes.items()) <= limit
        assert found.price == sum(prices[name] * number for name, number in found.nodes.items())
        assert found.waiting <= sum(demand.most for demand in demands)


@settings(max_examples=examples(200), deadline=None)
@given(offer_lists, demand_lists, limit_pairs, price_lists)
def test_one_job_after_the_other_is_never_cheaper(
    offers: list[Offer], demands: list[Demand], limits: Amounts, prices: dict[str, int]
) -> None:
    exact = cheapest(demands, offers, limits, prices)
    if exact is not None and exact.exact:
        in_turn = cheapest_purchase._in_turn(demands, offers, limits, prices)
        assert in_turn.waiting or in_turn.price >= exact.price


SMALL, LARGE = Offer("small", (2,), (2, 10)), Offer("large", (8,), (8, 10))
PRICES = {"small": 100, "large": 380}


def job(most: int, *shapes: str, asks: Amounts = (1, 1)) -> Demand:
    return Demand("a", asks, most, frozenset(shapes or ("small", "large")))


def test_the_cheaper_size_is_bought_for_what_is_left() -> None:
    """Nine jobs: a large node holds eight, and the ninth needs no second one."""
    assert cheapest([job(9)], [SMALL, LARGE], (100,), PRICES) == Purchase(480, {"large": 1, "small": 1}, 0, True)


def test_a_limit_makes_it_dearer() -> None:
    """A large node that uses less of the limit is chosen although small ones cost less."""
    frugal = Offer("large", (4,), (8, 10))
    cheap = {"small": 90, "large": 380}
    assert cheapest([job(8)], [SMALL, frugal], (8,), cheap) == Purchase(360, {"small": 4}, 0, True)
    assert cheapest([job(8)], [SMALL, frugal], (7,), cheap) == Purchase(380, {"large": 1}, 0, True)


def test_jobs_beyond_the_limits_wait() -> None:
    assert cheapest([job(9)], [SMALL], (6,), PRICES) == Purchase(300, {"small": 3}, 3, False)


def test_a_type_without_a_price_is_not_provisioned() -> None:
    assert cheapest([job(4)], [SMALL, LARGE], (100,), {"large": 380}) == Purchase(380, {"large": 1}, 0, True)
    assert cheapest([job(4, "small")], [SMALL, LARGE], (100,), {"large": 380}) is None


def test_nobody_asks_for_anything() -> None:
    assert cheapest([], [SMALL], (6,), PRICES) == Purchase(0, {}, 0, True)
    assert cheapest([job(0)], [], (6,), PRICES) == Purchase(0, {}, 0, True)


def test_many_labels_and_types() -> None:
    """Too many to try all: no cheapest is claimed, all have room, and it is no dearer than a node for each job."""
    offers = [Offer(f"t{n}", (n, 3 * n), (n, n * 4, n * 7)) for n in range(1, 60)]
    demands = [
        Demand(f"l{n}", (1 + n % 3, 1 + n % 5, 2), 50, frozenset(offer.name for offer in offers)) for n in range(12)
    ]
    prices = {offer.name: 100 * n + 7 for n, offer in enumerate(offers, 1)}
    found = cheapest(demands, offers, (10_000, 30_000), prices)
    assert found
    assert (found.exact, found.waiting) == (False, 0)
    assert found.price < 600 * 307
    assert Counter(found.nodes).total() < 600
