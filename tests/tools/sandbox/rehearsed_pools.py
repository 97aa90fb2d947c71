"""Pools of a stack file with their jobs, in a sandbox with the real Karpenter."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.capacity import cost, stack_capacity
from gpufleet_tools.capacity.cost import PoolCost
from gpufleet_tools.capacity.pool_capacity import ElasticPoolCapacity
from gpufleet_tools.capacity.stack_capacity import Pool
from gpufleet_tools.plan import arc_releases, stack
from gpufleet_tools.sandbox import job_driver, lifecycle
from gpufleet_tools.sandbox.aws.account import reservations_of
from gpufleet_tools.sandbox.state import NodeState, ScaleSetState, State
from tests.tools.sandbox.karpenter_sandbox import PATIENCE, KarpenterSandbox


@dataclass
class Rehearsed:
    """A stack's pools with their jobs, in a sandbox."""

    settings: EksSettings
    sandbox: KarpenterSandbox
    state: State

    def label(self, name: str) -> ScaleSetState:
        return self.state.scale_sets.get(name, ScaleSetState(0, 0, ()))

    def nodes(self, pool: str) -> list[NodeState]:
        return [each for each in self.state.nodes if each.pool == pool]

    def capacity(self, pool: str) -> ElasticPoolCapacity:
        found = self._capacities[pool]
        assert isinstance(found, ElasticPoolCapacity)
        return found

    def cost(self, pool: str) -> PoolCost:
        return self._costs[pool]

    @functools.cached_property
    def _capacities(self) -> dict[str, Pool]:
        return {each.pool: each for each in stack_capacity.capacity("lab", self.settings).pools}

    @functools.cached_property
    def _costs(self) -> dict[str, PoolCost]:
        found = cost.stack_cost(self.settings)
        assert found
        return {each.pool: each for each in found.pools}


def rehearsed(
    sandbox: KarpenterSandbox, folder: Path, text: str, mix: Mapping[str, int], patience: float = PATIENCE
) -> Rehearsed:
    """Bring the stack up with these jobs, and wait until nothing is to come."""
    (folder / "Pulumi.lab.yaml").write_text(text)
    read = stack.read(folder, "lab")
    assert isinstance(read.settings, EksSettings)
    plan = read.plan()
    jobs = [
        *lifecycle.prerequisites(read, plan),
        *job_driver.service_accounts(arc_releases.scale_sets(plan)),
        *job_driver.runner_jobs(arc_releases.scale_sets(plan), mix),
    ]
    apart = dataclasses.replace(sandbox, reservations=reservations_of(read.settings))
    apart.up(plan, *jobs)
    return Rehearsed(read.settings, apart, apart.wait(_Settled(sum(mix.values()), apart), patience))


class _Settled:
    """Whether every job runs, or has been refused for as long as Karpenter takes to change its mind: some seconds, and
    some rounds, which take longer the more pools there are."""

    STANDS = 25.0
    ROUNDS = 3

    def __init__(self, jobs: int, sandbox: KarpenterSandbox) -> None:
        self._jobs, self._sandbox = jobs, sandbox
        self._seen: tuple[object, ...] = ()
        self._since, self._round = time.monotonic(), 0

    def __call__(self, now: State) -> bool:
        assert now.cloud
        seen = (now.running, now.pending, now.cloud.starting, now.cloud.undecided)
        if seen != self._seen:
            self._seen, self._since, self._round = seen, time.monotonic(), self._sandbox.rounds()
        if now.cloud.starting or now.running + now.pending != self._jobs:
            return False
        if not now.pending:
            return True
        stands = time.monotonic() - self._since > self.STANDS
        return not now.cloud.undecided and stands and self._sandbox.rounds() - self._round >= self.ROUNDS
