"""`check` and `capacity` agree with each other, and with nodes filled at random, over random pools and job mixes.

The simulation below knows no packing: it places one job after another on a node that has room, or on a new node of any
type that the limits admit, as Karpenter may. What a node has is the arithmetic that both commands share; Karpenter's
own decisions are compared with it in tests/tools/sandbox.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import InstanceType
from gpufleet.aws.karpenter.node_pool_fit import allocatable, instance_types_of, within_limits
from gpufleet.aws.karpenter.node_pool_fit import capacity as whole
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.rules.eks import requests_of
from gpufleet_tools.capacity import stack_capacity
from gpufleet_tools.capacity.pool_capacity import ElasticPoolCapacity
from tests.random_stacks import Mix, mixes, refused

pytestmark = pytest.mark.slow

Amounts = dict[str, Decimal]


class Cloud:
    """Nodes that are provisioned when a job has no room, of a type at random."""

    def __init__(self, read: EksSettings, seed: random.Random) -> None:
        self._read, self._random = read, seed
        self._args = node_pool_args("pool", read.cluster)
        self._types = [each for each in instance_types_of(self._args) if within_limits(each, self._args)]
        self._taken = daemon_requests(read, "pool")
        self._left = {name: quantity.parsed(limit) for name, limit in self._args.limits.items()}
        self._nodes: list[Amounts] = []

    def runs(self, label: str) -> bool:
        """Place a job of the label; return whether it found room."""
        requests = requests_of(self._read, self._read.runners[label])
        asked = {"pods": Decimal(1), **{name: quantity.parsed(text) for name, text in requests.items()}}
        room = [node for node in self._nodes if _holds(node, asked)]
        if not room:
            possible = [each for each in self._types if self._admits(each) and _holds(self._empty(each), asked)]
            if not possible:
                return False
            room = [self._provisioned(self._random.choice(possible))]
        chosen = self._random.choice(room)
        for name, amount in asked.items():
            chosen[name] -= amount
        return True

    def _empty(self, kind: InstanceType) -> Amounts:
        has = allocatable(kind, self._args.node_class, self._args.sharing)
        return {name: amount - self._taken.get(name, Decimal(0)) for name, amount in has.items()}

    def _cost(self, kind: InstanceType) -> Amounts:
        return {**whole(kind, self._args.node_class, self._args.sharing), "nodes": Decimal(1)}

    def _admits(self, kind: InstanceType) -> bool:
        cost = self._cost(kind)
        return all(cost.get(name, Decimal(0)) <= left for name, left in self._left.items())

    def _provisioned(self, kind: InstanceType) -> Amounts:
        cost = self._cost(kind)
        for name in self._left:
            self._left[name] -= cost.get(name, Decimal(0))
        self._nodes.append(self._empty(kind))
        return self._nodes[-1]


def _holds(node: Amounts, asked: Amounts) -> bool:
    return all(amount <= node.get(name, Decimal(0)) for name, amount in asked.items())


def running(read: EksSettings, mix: Mapping[str, int], seed: random.Random) -> dict[str, int]:
    """Jobs of each label that run, placed in random order."""
    jobs = [label for label, count in mix.items() for _ in range(count)]
    seed.shuffle(jobs)
    cloud, found = Cloud(read, seed), dict.fromkeys(mix, 0)
    for label in jobs:
        found[label] += cloud.runs(label)
    return found


ROUNDS = 8
"""Random orders and types for each stack."""


@settings(max_examples=250, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mix=mixes(), number=st.integers(0, 2**32))
def test_check_capacity_and_nodes_filled_at_random_agree(mix: Mix, number: int) -> None:
    assume(mix.has_limits_for_nothing() is not None)
    read = mix.settings()
    (pool,) = stack_capacity.capacity("lab", read).pools
    assert isinstance(pool, ElasticPoolCapacity)
    seed, problems = random.Random(number), refused(read)
    labels = {each.label: each for each in pool.labels}
    for label, codes in problems.items():
        if not pool.types:
            # The limits admit no node: another rule refuses the pool.
            assert labels[label].burst == 0
        elif "no-room" in codes:
            assert labels[label].burst == 0, f"{label}: check refuses it, and capacity has {labels[label].burst}"
        elif not codes:
            assert labels[label].burst >= 1, f"{label}: check accepts it, and capacity has no room"
    if any("no-room for the disk" in codes for codes in problems.values()):
        assert any(each.burst == 0 for each in pool.labels)
    most = {label: runner.max for label, runner in read.runners.items()}
    for _ in range(ROUNDS):
        for label, capacity in labels.items():
            (alone,) = running(read, {label: most[label]}, seed).values()
            assert alone <= capacity.burst or not capacity.burst_exactly, f"{label}: {alone} run alone"
            assert (alone > 0) == (capacity.burst > 0), f"{label}: {alone} run alone"
        together = running(read, most, seed)
        for label, capacity in labels.items():
            assert together[label] >= capacity.guaranteed, f"{label}: {together[label]} run"
        if pool.fits == "no":
            assert together != most, "check reports overcommitted, and all jobs run"
        if pool.whichever:
            assert together == most
    assert bool(stack_capacity.excesses(read)) == (pool.fits == "no")


def test_the_random_stacks_are_of_every_kind() -> None:
    """Otherwise the test above would hold for too little: refused and accepted, guaranteed and not, shared and not."""
    kinds: set[str] = set()

    @settings(max_examples=250, derandomize=True, deadline=None, database=None)
    @given(mix=mixes())
    def collect(mix: Mix) -> None:
        assume(mix.has_limits_for_nothing() is not None)
        read = mix.settings()
        (pool,) = stack_capacity.capacity("lab", read).pools
        assert isinstance(pool, ElasticPoolCapacity)
        kinds.add(f"fits: {pool.fits}")
        kinds.add("limits admit nothing" if not pool.types else "whichever" if pool.whichever else "some types only")
        kinds.update(code for codes in refused(read).values() for code in codes)
        kinds.add(type(node_pool_args("pool", read.cluster).sharing).__name__)
        kinds.update("guaranteed" if each.guaranteed else "not guaranteed" for each in pool.labels if each.burst)

    collect()
    assert kinds >= {
        *("fits: yes", "fits: no", "limits admit nothing", "whichever", "some types only"),
        *("no-room", "too-many-gpus", "no-room for the disk", "NoneType", "TimeSlicing", "Mps"),
        *("guaranteed", "not guaranteed"),
    }
