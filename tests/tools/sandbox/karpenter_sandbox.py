"""A cluster whose nodes the real Karpenter provisions: a plan, workloads, and the result. For tests and benches."""

from __future__ import annotations

import functools
import json
import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpufleet_tools.plan.plan import Plan
from gpufleet_tools.sandbox import state
from gpufleet_tools.sandbox.aws import observation, prices
from gpufleet_tools.sandbox.aws.account import CapacityReservation
from gpufleet_tools.sandbox.aws.cloud import Cloud, cloud_of
from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.lifecycle import own_objects
from gpufleet_tools.sandbox.state import NodeState, State

OWNER = "document-004"
# Half a minute for an instance, as long as Karpenter needs to make up its mind, and a machine that is busy.
PATIENCE = 240.0


@dataclass(frozen=True)
class KarpenterSandbox:
    """A cluster with a cloud of its own."""

    control_plane: ControlPlane
    build: Path
    reservations: Sequence[CapacityReservation] = ()

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig

    def up(self, plan: Plan, *workloads: dict[str, Any]) -> objects.Applied:
        """The plan and nothing but these workloads."""
        self.control_plane.up()
        cloud: Cloud = cloud_of(plan, self.control_plane, self.build, self.reservations)
        objects.apply(self.kubeconfig, cloud.definitions(), OWNER)
        cloud.start()
        wanted = [*cloud.definitions(), *cloud.simulated_objects(), *own_objects(plan), *workloads]
        objects.prune(self.kubeconfig, {objects.identity(each) for each in wanted}, OWNER)
        return objects.apply(self.kubeconfig, wanted, OWNER)

    def state(self) -> State:
        look = functools.partial(observation.with_karpenter, prices=prices.on_demand(self.build))
        return state.observe(self.kubeconfig, look)

    def wait(self, until: Callable[[State], object], patience: float = PATIENCE) -> State:
        """The first state of which it is true."""
        deadline = time.monotonic() + patience
        while True:
            began = time.monotonic()
            if until(now := self.state()):
                return now
            assert time.monotonic() < deadline, now
            # To look at hundreds of pods takes a while, in which Karpenter does not have the machine.
            time.sleep(max(0.5, 3 * (time.monotonic() - began)))

    def claims(self) -> list[dict[str, Any]]:
        return api_server.listed(self.kubeconfig, ("karpenter.sh/v1", "NodeClaim"))[0]

    def rounds(self) -> int:
        """How often Karpenter has looked for nodes for the pods that have none, by its own metrics
        (pkg/controllers/provisioning/scheduling/metrics.go of kubernetes-sigs/karpenter at v1.14.1)."""
        port = json.loads((self.control_plane.directory / "daemon-ports.json").read_text())["metrics"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
            text = response.read().decode()
        pattern = r'^karpenter_scheduler_scheduling_duration_seconds_count\{controller="provisioner"\} (\d+)'
        found = re.search(pattern, text, re.MULTILINE)
        return int(found[1]) if found else 0

    def provisioned(self) -> set[str]:
        """Names of all instances that were ever started, by Karpenter's own log."""
        return {*self.provisioned_types()}

    def provisioned_types(self) -> dict[str, str]:
        """The instance type of each of them."""
        lines = (self.control_plane.directory / "karpenter.log").read_text().splitlines()
        entries = [json.loads(line) for line in lines if '"launched nodeclaim"' in line]
        return {entry["NodeClaim"]["name"]: entry["instance-type"] for entry in entries}


def running(count: int) -> Callable[[State], bool]:
    """Whether so many pods of the workload run, none waits and nothing is about to come."""

    def reached(now: State) -> bool:
        assert now.cloud
        pods = now.cloud.deployments.get("gpu")
        return pods is not None and (pods.running, pods.pending, now.cloud.starting) == (count, 0, 0)

    return reached


def cost(sandbox: KarpenterSandbox, nodes: tuple[NodeState, ...]) -> Decimal:
    """US dollars per hour."""
    known = prices.on_demand(sandbox.build)
    return sum((Decimal(str(known[node.labels["node.kubernetes.io/instance-type"]])) for node in nodes), Decimal())
