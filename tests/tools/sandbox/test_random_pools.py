"""Random pools and job mixes: what `check` and `capacity` say, and what the real Karpenter does.

Starting instances takes half a minute, so that many pools are brought up at once, each with jobs of its own that no
other pool takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import Phase, assume, given, settings

from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.karpenter.node_pool_fit import allocatable
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests.conftest import MakeProject
from tests.random_stacks import Mix, mixes, refused, stack
from tests.tools.sandbox.karpenter_sandbox import KarpenterSandbox
from tests.tools.sandbox.karpenter_sandbox import cost as dollars
from tests.tools.sandbox.rehearsed_pools import Rehearsed, rehearsed

RUN = "GPUFLEET_RANDOM_POOLS"
"""Environment variable that runs these tests."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(RUN not in os.environ, reason=f"{RUN} not set: 210 pools of Karpenter take half an hour"),
]

TOGETHER = 42
"""Pools that are brought up at once."""

ROUNDS = 5
"""How often, which makes 210 mixes."""

PATIENCE = 1200.0
"""Seconds until nothing is to come: a minute or two, and ten times as long on a machine that is busy."""


def random_mixes(number: int) -> list[Mix]:
    """So many different mixes, the same in each run."""
    found: dict[str, Mix] = {}

    @settings(max_examples=number, derandomize=True, deadline=None, database=None, phases=[Phase.generate])
    @given(mix=mixes())
    def collect(mix: Mix) -> None:
        assume(mix.has_limits_for_nothing() is not None)
        found[repr(mix)] = mix

    collect()
    return list(found.values())


@pytest.fixture(scope="module")
def drawn() -> list[Mix]:
    return random_mixes(TOGETHER * ROUNDS + 20)


@pytest.fixture
def sandbox(built: Binaries, tmp_path: Path) -> Iterator[KarpenterSandbox]:
    """A new one for each round: that is ready long before Karpenter has terminated dozens of instances."""
    control_plane = ControlPlane("random", tmp_path / "gpufleet" / "random", built)
    yield KarpenterSandbox(control_plane, build.find())
    control_plane.down()


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the rules that refuse pools and jobs, so that Karpenter gets to see them."""
    monkeypatch.setattr("gpufleet_stacks.settings.rules.eks.RULES", ())
    monkeypatch.setattr("gpufleet_stacks.settings.rules.eks.RUNNER_RULES", ())
    monkeypatch.setattr("gpufleet.aws.karpenter.node_pool.refuse", lambda *_: None)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.usefixtures("unchecked")
def test_karpenter_does_what_check_and_capacity_say(
    sandbox: KarpenterSandbox, drawn: Sequence[Mix], project: MakeProject, number: int
) -> None:
    chosen = drawn[number * TOGETHER : (number + 1) * TOGETHER]
    pools = {f"p{number}x{index}": mix for index, mix in enumerate(chosen)}
    assert len(pools) == TOGETHER
    found = brought_up(sandbox, project({}), pools)
    wrong = [f"{name}: {line}\n  {mix}" for name, mix in pools.items() for line in disagreements(found, name, mix)]
    assert not wrong, "\n".join(wrong)


def brought_up(sandbox: KarpenterSandbox, folder: Path, pools: dict[str, Mix]) -> Rehearsed:
    """The pools with as many jobs as each label has at most."""
    sections = stack(pools)
    text = yaml.safe_dump({"config": {f"gpu-runners:{key}": value for key, value in sections.items()}})
    return rehearsed(
        sandbox, folder, text, {label: runner["max"] for label, runner in sections["runners"].items()}, PATIENCE
    )


def disagreements(found: Rehearsed, name: str, mix: Mix) -> Iterator[str]:
    """Yield what Karpenter did otherwise than `check` and `capacity` say."""
    capacity, most = found.capacity(name), {each.label: each.max for each in found.capacity(name).labels}
    running = {label: found.label(label).running for label in most}
    codes = refused(mix.settings())
    # Karpenter does not count the nodes of one round: `subtractMax` subtracts what instance types have, and none has
    # `nodes` (pkg/controllers/provisioning/scheduling/scheduler.go of kubernetes-sigs/karpenter at v1.14.1, 1049). So
    # jobs that arrive together exceed such a limit.
    strict = "nodes" not in mix.pool["limits"]
    for each in capacity.labels:
        number = running[each.label]
        if number + found.label(each.label).pending != each.max:
            yield f"{each.label}: {found.label(each.label)} of {each.max} jobs"
        if number < each.guaranteed:
            yield f"{each.label}: {number} run, {each.guaranteed} are guaranteed; {found.label(each.label).reasons}"
        if strict and each.burst_exactly and number > each.burst:
            yield f"{each.label}: {number} run, at most {each.burst} should"
        own = codes[each.label.replace(name, "pool", 1)]
        if number and (mix.has_limits_for_nothing() or own - {"no-room for the disk"}):
            yield f"{each.label}: {number} run, although check refuses it: {own or 'the limits'}"
    if strict and capacity.fits == "no" and running == most:
        yield "all jobs run, although check reports the pool as overcommitted"
    yield from _nodes(found, name)
    if running == most:
        yield from _price(found, name)


def _nodes(found: Rehearsed, name: str) -> Iterator[str]:
    """Yield nodes that are not those of which `capacity` calculates."""
    args = node_pool_args(name, found.settings.cluster)
    for node in found.nodes(name):
        kind = node.labels["node.kubernetes.io/instance-type"]
        if kind not in found.capacity(name).types:
            yield f"a node is a {kind}, capacity has {found.capacity(name).types}"
        for resource, amount in allocatable(instance_types()[kind], args.node_class, args.sharing).items():
            # Without its device plugin, a node offers no EFA interfaces.
            if resource != EFA and node.allocatable.get(resource) != amount:
                yield f"a {kind} has {node.allocatable.get(resource)} {resource}, not {amount}"


def _price(found: Rehearsed, name: str) -> Iterator[str]:
    named, paid = found.cost(name), dollars(found.sandbox, tuple(found.nodes(name)))
    if named.cost_per_hour is None or not named.cheapest:
        return
    if float(paid) < named.cost_per_hour - 1e-6:
        yield f"its nodes cost {paid}, capacity names {named.cost_per_hour} as the cheapest"
    capacity = found.capacity(name)
    nodes = sum(named.nodes.values())
    # Where there is nothing to choose, Karpenter has no other way.
    if len(capacity.types) == len(capacity.labels) == 1 and len(found.nodes(name)) != nodes:
        yield f"it has {len(found.nodes(name))} nodes, capacity names {nodes}"
