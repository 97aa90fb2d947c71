"""`check` and `capacity` agree with each other, and with nodes filled at random, over random pools and job mixes.

The simulation below knows no packing: it places one job after another on a node that has room, or on a new node of any
type that the limits admit, as Karpenter may. What a node has is the arithmetic that both commands share; Karpenter's
own decisions are compared with it in tests/tools/sandbox.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import InstanceType
from gpufleet.aws.karpenter.node_pool_fit import allocatable, instance_types_of, within_limits
from gpufleet.aws.karpenter.node_pool_fit import capacity as whole
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.rules.eks import gpus_are_of_a_pool_with_gpus, requests_of, runners_fit_a_node
from gpufleet_tools.capacity import stack_capacity
from gpufleet_tools.capacity.pool_capacity import ElasticPoolCapacity

pytestmark = pytest.mark.slow

STACK: Mapping[str, Any] = {
    "cluster": {
        "kind": "eks",
        "name": "lab",
        "region": "us-east-1",
        "account": "111122223333",
        "kubernetesVersion": "1.34",
        "network": {"kind": "own", "zones": ["us-east-1a", "us-east-1b"]},
        "addons": {
            "vpc-cni": "v1.22.4-eksbuild.3",
            "coredns": "v1.13.2-eksbuild.21",
            "kube-proxy": "v1.34.6-eksbuild.11",
            "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
        },
    },
    "projects": {
        "ml": {
            "configUrl": "https://github.com/example",
            "namespace": "ml",
            "credentials": {"kind": "existingSecret", "secretName": "ml-github"},
        }
    },
    "profiles": {"plain": {}, "disk": {"ephemeralStorage": "60Gi"}, "large-disk": {"ephemeralStorage": "120Gi"}},
}


def a_pool(families: list[str], sizes: list[str], with_gpus: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Pools of some of these instance types, with limits of which some admit little or nothing."""
    one_to_two = st.lists(st.sampled_from(sizes), min_size=1, max_size=2, unique=True)
    some_families = st.lists(st.sampled_from(families), min_size=1, max_size=2, unique=True)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "cpu": st.integers(4, 64),
        "memory": st.integers(16, 256).map("{}Gi".format),
        "nodes": st.integers(1, 4),
    }
    limits = st.fixed_dictionaries({"gpus": st.integers(1, 4)} if with_gpus else {}, optional=optional)
    shared = st.one_of(
        st.none(),
        st.integers(2, 4).map(lambda replicas: {"timeSlicing": {"replicas": replicas}}),
        st.integers(2, 4).map(lambda replicas: {"mps": {"replicas": replicas}}),
    )
    return st.fixed_dictionaries(
        {
            "instances": st.fixed_dictionaries({"families": some_families, "sizes": one_to_two}),
            "amis": st.sampled_from([[{"alias": "al2023@v20260512"}], [{"alias": "bottlerocket@v1.53.0"}]]),
            "rootVolume": st.sampled_from(["100Gi", "200Gi"]),
            "limits": limits,
            "terminationGracePeriod": st.just("6h"),
            **({"sharing": shared} if with_gpus else {}),
        },
        optional={"kubelet": st.integers(8, 20).map(lambda pods: {"maxPods": pods})},
    )


POOLS = st.one_of(
    a_pool(["g4dn", "g5", "g6"], ["xlarge", "2xlarge", "12xlarge"], True),
    a_pool(["m6i", "c6i", "r6i"], ["large", "xlarge", "2xlarge"], False),
)

RUNNERS = st.fixed_dictionaries(
    {
        "project": st.just("ml"),
        "profile": st.sampled_from(["plain", "disk", "large-disk"]),
        "gpus": st.sampled_from([0, 1, 1, 1, 2, 4]),
        "cpu": st.sampled_from(["500m", "1", "2", "3900m", "7", "16"]),
        "memory": st.sampled_from(["1Gi", "4Gi", "12Gi", "28Gi", "100Gi"]),
        "max": st.integers(1, 6),
    }
)


@st.composite
def stacks(draw: st.DrawFn) -> EksSettings:
    """A stack with one pool and up to three labels, valid but for what the rules about room refuse."""
    pool = draw(POOLS)
    if "sharing" in pool and pool["sharing"] is None:
        del pool["sharing"]
    runners = draw(st.lists(RUNNERS, min_size=1, max_size=3))
    if "gpus" not in pool["limits"]:
        runners = [{**runner, "gpus": 0} for runner in runners]
    document = {
        **STACK,
        "cluster": {**STACK["cluster"], "nodePools": {"pool": pool}},
        "runners": {f"label-{number}": runner for number, runner in enumerate(runners)},
    }
    return EksSettings.model_validate(document)


def refused(read: EksSettings) -> dict[str, set[str]]:
    """Codes of the problems that `check` has with each label."""
    found: dict[str, set[str]] = {label: set() for label in read.runners}
    for rule in (gpus_are_of_a_pool_with_gpus, runners_fit_a_node):
        for problem in rule(read):
            if problem.path[0] == "runners":
                found[str(problem.path[1])].add(problem.code)
            else:
                # The disk is the profile's, and too large for one of its labels at least.
                for label, runner in read.runners.items():
                    if runner.profile == problem.path[1]:
                        found[label].add("no-room for the disk")
    return found


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
@given(read=stacks(), number=st.integers(0, 2**32))
def test_check_capacity_and_nodes_filled_at_random_agree(read: EksSettings, number: int) -> None:
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
    @given(read=stacks())
    def collect(read: EksSettings) -> None:
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
