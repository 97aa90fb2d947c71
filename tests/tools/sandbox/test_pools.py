"""Pools of a stack file on this machine: what `check` and `capacity` say, and what the real Karpenter does."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.capacity import stack_capacity
from gpufleet_tools.capacity.pool_capacity import ElasticPoolCapacity
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import job_driver, lifecycle
from gpufleet_tools.sandbox.aws.account import reservations_of
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import api_server
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.state import NodeState, ScaleSetState, State
from tests.conftest import MakeProject
from tests.tools.sandbox.karpenter_sandbox import KarpenterSandbox

pytestmark = pytest.mark.slow

GPU = "nvidia.com/gpu"

STACK = """\
config:
  gpu-runners:cluster:
    kind: eks
    name: lab
    region: us-east-1
    account: "111122223333"
    kubernetesVersion: "1.34"
    network: {kind: own, zones: [us-east-1a, us-east-1b]}
    addons:
      vpc-cni: v1.22.4-eksbuild.3
      coredns: v1.13.2-eksbuild.21
      kube-proxy: v1.34.6-eksbuild.11
      eks-pod-identity-agent: v1.3.10-eksbuild.3
    nodePools:
POOLS
  gpu-runners:projects:
    ml:
      configUrl: https://github.com/example
      namespace: ml
      credentials: {kind: existingSecret, secretName: ml-github}
  gpu-runners:profiles:
PROFILES
  gpu-runners:runners:
RUNNERS
"""


@dataclass(frozen=True)
class Pool:
    """A pool of a stack file with one label, and jobs for it."""

    name: str
    fields: str
    """Its settings, in one line of YAML."""
    jobs: int
    """Jobs at once, which are the label's `max` too."""
    gpus: int = 1
    cpu: str = "1"
    memory: str = "2Gi"


USUAL = (
    'amis: [{alias: al2023@v20260512}], labels: {nvidia.com/gpu.present: "true"}, terminationGracePeriod: 6h,'
    " taints: [{key: nvidia.com/gpu, effect: NoSchedule}]"
)


def text_of(*pools: Pool) -> str:
    """The stack with these pools, each with a label of the same name."""
    runners = [
        f"    {each.name}: {{project: ml, profile: {each.name}, gpus: {each.gpus}, cpu: {each.cpu}, memory:"
        f" {each.memory}, max: {each.jobs}}}"
        for each in pools
    ]
    tolerated = "tolerations: [{key: nvidia.com/gpu, operator: Exists}], ephemeralStorage: 10Gi"
    return (
        STACK.replace("POOLS", "\n".join(f"      {each.name}: {{{each.fields}}}" for each in pools))
        .replace("PROFILES", "\n".join(f"    {each.name}: {{pool: {each.name}, {tolerated}}}" for each in pools))
        .replace("RUNNERS", "\n".join(runners))
    )


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


Rehearse = Callable[..., Rehearsed]


@pytest.fixture(scope="module")
def sandbox(built: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KarpenterSandbox]:
    control_plane = ControlPlane("pools", tmp_path_factory.mktemp("state") / "gpufleet" / "pools", built)
    shared = KarpenterSandbox(control_plane, build.find())
    yield shared
    control_plane.down()


@pytest.fixture
def rehearse(sandbox: KarpenterSandbox, project: MakeProject) -> Rehearse:
    """Bring the pools up with as many jobs as each label has at most, and wait until nothing is to come."""

    folder = project({})

    def rehearse(*pools: Pool) -> Rehearsed:
        (folder / "Pulumi.lab.yaml").write_text(text_of(*pools))
        read = stack.read(folder, "lab")
        assert isinstance(read.settings, EksSettings)
        plan = read.plan()
        mix = {each.name: each.jobs for each in pools}
        jobs = [
            *lifecycle.prerequisites(read, plan),
            *job_driver.service_accounts(plan.releases()),
            *job_driver.runner_jobs(plan.releases(), mix),
        ]
        apart = dataclasses.replace(sandbox, reservations=reservations_of(read.settings))
        apart.up(plan, *jobs)
        wanted = sum(mix.values())
        settled = _Settled(wanted)
        return Rehearsed(read.settings, apart, apart.wait(settled))

    return rehearse


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


# -- pools that share differently -------------------------------------------------------------------------------------

EVERY_WAY = (
    Pool("exclusive", f"instances: {{families: [g5], sizes: [2xlarge]}}, limits: {{gpus: 2}}, {USUAL}", 2),
    Pool(
        "sliced",
        "instances: {families: [g4dn], sizes: [2xlarge]}, limits: {gpus: 1}, sharing: {timeSlicing: {replicas: 4}}, "
        + USUAL,
        4,
    ),
    Pool(
        "together",
        "instances: {families: [g6], sizes: [2xlarge]}, limits: {gpus: 1}, sharing: {mps: {replicas: 3}}, " + USUAL,
        3,
    ),
    Pool(
        "parts",
        "instances: {families: [p5], sizes: [48xlarge]}, limits: {gpus: 8}, sharing: {mig: {profile: 1g.10gb}},"
        f' userData: "#!/bin/sh", {USUAL}',
        14,
    ),
)


def test_pools_share_gpus_in_every_way_at_once(rehearse: Rehearse) -> None:
    """One node for each that shares, and a node for each job that does not."""
    found = rehearse(*EVERY_WAY)
    for pool, nodes, devices in (("exclusive", 2, 1), ("sliced", 1, 4), ("together", 1, 3), ("parts", 1, 56)):
        assert [node.allocatable[GPU] for node in found.nodes(pool)] == [devices] * nodes, pool
        capacity = found.capacity(pool)
        (label,) = capacity.labels
        assert (capacity.fits, label.guaranteed) == ("yes", found.label(pool).running), pool
        assert found.label(pool).pending == 0


def test_gpus_of_bottlerocket_are_offered_by_its_own_plugin(rehearse: Rehearse) -> None:
    """Without the DaemonSet on its nodes, and shared as its user data says."""
    plain = USUAL.replace("al2023@v20260512", "bottlerocket@v1.53.0").replace(
        'labels: {nvidia.com/gpu.present: "true"}, ', ""
    )
    found = rehearse(
        Pool("whole", f"instances: {{families: [g5], sizes: [2xlarge]}}, limits: {{gpus: 2}}, {plain}", 2),
        Pool(
            "turns",
            "instances: {families: [g4dn], sizes: [2xlarge]}, limits: {gpus: 1}, sharing: {timeSlicing: {replicas: 4}},"
            f" {plain}",
            4,
        ),
    )
    for pool, nodes, devices in (("whole", 2, 1), ("turns", 1, 4)):
        assert [node.allocatable[GPU] for node in found.nodes(pool)] == [devices] * nodes, pool
        (label,) = found.capacity(pool).labels
        assert (label.guaranteed, found.label(pool).pending) == (found.label(pool).running, 0), pool
    assert not found.state.daemon_sets.keys() & {"nvdp-nvidia-device-plugin"}


# -- reserved capacity ------------------------------------------------------------------------------------------------


def reserved(instances: int | None, block: str = "false", jobs: int = 3, name: str = "reserved") -> Pool:
    """A pool of nothing but reserved instances; None where the stack file does not say how many, so that the sandbox
    has no such reservation."""
    inside = f", holds: {{instanceType: g5.2xlarge, zone: us-east-1a, instances: {instances}, block: {block}}}"
    return Pool(
        name,
        "instances: {families: [g5], sizes: [2xlarge]}, capacity: [reserved], limits: {gpus: 4}, overcommit: allowed,"
        f" reservations: [{{id: cr-0123456789abcdef0{inside if instances else ''}}}], {USUAL}",
        jobs,
    )


@pytest.mark.parametrize("block", ["false", "true"], ids=["reservation", "capacity block"])
def test_no_more_is_had_than_is_reserved(rehearse: Rehearse, block: str) -> None:
    found = rehearse(reserved(2, block))
    assert (found.label("reserved").running, found.label("reserved").pending) == (2, 1)
    assert found.capacity("reserved").labels[0].guaranteed == 2
    assert {node.labels["karpenter.sh/capacity-type"] for node in found.nodes("reserved")} == {"reserved"}
    assert {node.labels["topology.kubernetes.io/zone"] for node in found.nodes("reserved")} == {"us-east-1a"}
    (reason,) = found.label("reserved").reasons
    assert reason.startswith("NoCompatibleInstanceTypes: ")


def test_reserved_nodes_stay_reserved(rehearse: Rehearse) -> None:
    """Karpenter asks once a minute what instances are of, and replaces those that are no longer what their pool
    allows."""
    before = {node.name for node in rehearse(reserved(2)).nodes("reserved")}
    time.sleep(75)
    after = rehearse(reserved(2))
    assert {node.name for node in after.nodes("reserved")} == before
    for claim in api_server.listed(after.sandbox.kubeconfig, ("karpenter.sh/v1", "NodeClaim"))[0]:
        assert claim["metadata"]["labels"]["karpenter.sh/capacity-type"] == "reserved"


def test_what_cannot_be_had_is_said_in_karpenters_own_words(rehearse: Rehearse) -> None:
    """And not with the reasons of other pools."""
    other = Pool("other", "instances: {families: [m6i]}, limits: {cpu: 8}, amis: [{alias: al2023@v20260512}]", 1, 0)
    # A pool of its own: nodes of the tests before may still be there.
    found = rehearse(reserved(None, jobs=1, name="absent"), other)
    assert found.label("absent").running == 0
    (reason,) = found.label("absent").reasons
    assert reason == (
        "NoCompatibleInstanceTypes: NodePool requirements filtered out all compatible available instance types"
    )
    assert found.label("other").running == 1


# -- what is refused --------------------------------------------------------------------------------------------------

FOUR = "instances: {families: [g5], sizes: [2xlarge]}, limits: {gpus: 8}, "

REFUSED = {
    "4 GPUs on types with one": (Pool("four", FOUR + USUAL, 1, gpus=4), "4 is more than the largest node"),
    "two shares": (
        Pool("two", FOUR + "sharing: {timeSlicing: {replicas: 4}}, " + USUAL, 1, gpus=2),
        "2 exceeds 1",
    ),
    "limits below one node": (
        Pool("small", "instances: {families: [g5], sizes: [2xlarge]}, limits: {gpus: 1, cpu: 4}, " + USUAL, 1),
        "so no node could start",
    ),
    "MIG on a GPU without": (
        Pool("mig", FOUR + "sharing: {mig: {profile: 1g.10gb}}, userData: x, " + USUAL, 1),
        "do not support MIG",
    ),
    "more memory than a node has": (Pool("large", FOUR + USUAL, 1, memory="64Gi"), "does not fit a node of the pool"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_check_refuses_is_refused(project: MakeProject, case: str) -> None:
    pool, reason = REFUSED[case]
    with pytest.raises(InvalidSettings, match=reason):
        stack.read(project({"lab": text_of(pool)}), "lab")
