"""Pools of a stack file with their jobs, in a sandbox with the real Karpenter."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.capacity import stack_capacity
from gpufleet_tools.capacity.pool_capacity import ElasticPoolCapacity
from gpufleet_tools.plan import arc_releases, stack
from gpufleet_tools.sandbox import job_driver, lifecycle
from gpufleet_tools.sandbox.aws.account import reservations_of
from gpufleet_tools.sandbox.state import NodeState, ScaleSetState, State
from tests.tools.sandbox.karpenter_sandbox import KarpenterSandbox


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
        found = {each.pool: each for each in stack_capacity.capacity("lab", self.settings, []).pools}[pool]
        assert isinstance(found, ElasticPoolCapacity)
        return found


def rehearsed(sandbox: KarpenterSandbox, folder: Path, text: str, mix: Mapping[str, int]) -> Rehearsed:
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
    return Rehearsed(read.settings, apart, apart.wait(_Settled(sum(mix.values()))))


class _Settled:
    """Whether every job runs, or has been refused for as long as Karpenter takes to change its mind."""

    STANDS = 25.0

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._seen: tuple[object, ...] = ()
        self._since = time.monotonic()

    def __call__(self, now: State) -> bool:
        assert now.cloud
        seen = (now.running, now.pending, now.cloud.starting, now.cloud.undecided)
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        if now.cloud.starting or now.running + now.pending != self._jobs:
            return False
        return not now.pending or (not now.cloud.undecided and time.monotonic() - self._since > self.STANDS)
