"""Pools of a stack file on this machine: what `check` and `capacity` say, and what the real Karpenter does."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from kubernetes import client

from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import api_server
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.state import State
from tests.conftest import MakeProject
from tests.tools.sandbox.karpenter_sandbox import KarpenterSandbox
from tests.tools.sandbox.rehearsed_pools import Rehearsed, rehearsed

pytestmark = pytest.mark.slow

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"

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
    efas: int = 0


USUAL = (
    'amis: [{alias: al2023@v20260512}], labels: {nvidia.com/gpu.present: "true"}, terminationGracePeriod: 6h,'
    " taints: [{key: nvidia.com/gpu, effect: NoSchedule}]"
)


def text_of(*pools: Pool, repair: bool = False) -> str:
    """The stack with these pools, each with a label of the same name."""
    runners = [
        f"    {each.name}: {{project: ml, profile: {each.name}, gpus: {each.gpus}, cpu: {each.cpu}, memory:"
        f" {each.memory}, max: {each.jobs}}}"
        for each in pools
    ]
    profiles = [
        f"    {each.name}: {{pool: {each.name}, tolerations: [{{key: nvidia.com/gpu, operator: Exists}}],"
        f" ephemeralStorage: 10Gi{f', extendedResources: {{{EFA}: {each.efas}}}' if each.efas else ''}}}"
        for each in pools
    ]
    addon = "    addons:\n      eks-node-monitoring-agent: v1.7.0-eksbuild.1\n"
    text = STACK.replace("    addons:\n", f"    karpenter: {{nodeRepair: true}}\n{addon}") if repair else STACK
    return (
        text.replace("POOLS", "\n".join(f"      {each.name}: {{{each.fields}}}" for each in pools))
        .replace("PROFILES", "\n".join(profiles))
        .replace("RUNNERS", "\n".join(runners))
    )


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

    def rehearse(*pools: Pool, repair: bool = False) -> Rehearsed:
        return rehearsed(sandbox, folder, text_of(*pools, repair=repair), {each.name: each.jobs for each in pools})

    return rehearse


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


def test_an_overlay_replaces_the_number_of_gpus(rehearse: Rehearse) -> None:
    """Against the words of its CRD: neither the physical GPU alone is counted, nor GPU and shares together. See
    tests/components/aws/karpenter/test_overlay_semantics.py."""
    shared = "instances: {families: [g4dn], sizes: [2xlarge]}, limits: {gpus: 1}, sharing: {timeSlicing: {replicas: 4}}"
    found = rehearse(Pool("overlaid", f"{shared}, {USUAL}", 4))
    claims = [
        each["status"]["capacity"][GPU]
        for each in found.sandbox.claims()
        if each["metadata"]["labels"]["karpenter.sh/nodepool"] == "overlaid"
    ]
    assert claims == ["4"]
    assert (found.label("overlaid").running, found.label("overlaid").pending) == (4, 0)


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


# -- faulty nodes -----------------------------------------------------------------------------------------------------


def report_fault(sandbox: KarpenterSandbox, node: str, since: datetime.timedelta) -> None:
    """Report a fault of the node's GPUs, as EKS's node monitoring agent does."""
    moment = (datetime.datetime.now(datetime.UTC) - since).isoformat()
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
        "message": "GPU has fallen off the bus",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }
    with client.ApiClient(api_server.configuration(sandbox.kubeconfig)) as api:
        client.CoreV1Api(api).patch_node_status(node, {"status": {"conditions": [condition]}})


def test_a_node_with_a_faulty_gpu_is_replaced_after_ten_minutes(rehearse: Rehearse) -> None:
    """By the controller's own policy: not after nine, and although its job must not be disrupted."""
    pool = Pool("faulty", f"instances: {{families: [g5], sizes: [2xlarge]}}, limits: {{gpus: 2}}, {USUAL}", 1)
    found = rehearse(pool, repair=True)
    (node,) = found.nodes("faulty")
    report_fault(found.sandbox, node.name, datetime.timedelta(minutes=9))
    time.sleep(15)
    assert [each.name for each in found.sandbox.state().nodes if each.pool == "faulty"] == [node.name]
    report_fault(found.sandbox, node.name, datetime.timedelta(minutes=11))

    def replaced(now: State) -> bool:
        label = now.scale_sets.get("faulty")
        names = {each.name for each in now.nodes if each.pool == "faulty"}
        return bool(label and label.running == 1 and names and node.name not in names)

    assert found.sandbox.wait(replaced)


# -- many GPUs --------------------------------------------------------------------------------------------------------

APART = "zones: [us-east-1a], placementGroup: {strategy: cluster}, "


def test_nodes_have_the_efa_interfaces_that_capacity_counts(rehearse: Rehearse) -> None:
    """On request, those of a node; always, those of every node, which two jobs then share."""
    found = rehearse(
        Pool(
            "training",
            f"instances: {{families: [p5], sizes: [48xlarge]}}, efa: onRequest, limits: {{gpus: 16}}, {APART}{USUAL}",
            2,
            gpus=8,
            efas=32,
        ),
        Pool("halves", f"instances: {{families: [p4d]}}, efa: always, limits: {{gpus: 8}}, {USUAL}", 2, 4, efas=2),
    )
    for pool, nodes, interfaces in (("training", 2, 32), ("halves", 1, 4)):
        assert [node.allocatable[EFA] for node in found.nodes(pool)] == [interfaces] * nodes, pool
        (label,) = found.capacity(pool).labels
        assert (label.guaranteed, found.label(pool).pending) == (2, 0), pool
        assert found.label(pool).running == 2
    assert {node.labels["karpenter.k8s.aws/placement-group-id"][:3] for node in found.nodes("training")} == {"pg-"}


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


EDITS = {
    "arm64 of a family without": (
        Pool("arm", f"instances: {{families: [g5], architecture: arm64}}, limits: {{gpus: 4}}, {USUAL}", 1),
        "no instance type meets all requirements",
    ),
    "spot in a zone without": (
        Pool(
            "spot",
            f"instances: {{families: [p4de]}}, capacity: [spot], zones: [us-east-1a], limits: {{gpus: 8}}, {USUAL}",
            1,
        ),
        "is not offered in us-east-1a",
    ),
    "a taint that nobody tolerates": (
        Pool("taint", FOUR + USUAL.replace("key: nvidia.com/gpu,", "key: team-a,"), 1),
        "is not tolerated",
    ),
}
"""Further edits of a user that are refused, and pend."""

PENDS = {name: case for name, case in (REFUSED | EDITS).items() if name not in ("two shares", "MIG on a GPU without")}
"""Two shares of a GPU and MIG instances are refused by the device plugin, not by Karpenter."""


@pytest.mark.parametrize("case", PENDS)
def test_what_check_refuses_pends(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """With the rules switched off, no job of the pool runs."""
    monkeypatch.setattr("gpufleet_stacks.settings.rules.eks.RULES", ())
    monkeypatch.setattr("gpufleet_stacks.settings.rules.eks.RUNNER_RULES", ())
    monkeypatch.setattr("gpufleet_stacks.settings.rules.runners.taints_are_tolerated", lambda _: ())
    monkeypatch.setattr("gpufleet.aws.karpenter.node_pool.refuse", lambda *_: None)
    pool, _ = PENDS[case]
    found = rehearse(pool)
    assert (found.label(pool.name).running, found.label(pool.name).pending) == (0, 1)
    assert found.label(pool.name).reasons


def test_edits_of_a_user_that_fit(rehearse: Rehearse) -> None:
    """A reserved p5 beside a sliced pool, arm64 with GPUs, spot where it is offered: as many run as are guaranteed."""
    held = "{instanceType: p5.48xlarge, zone: us-east-1a, instances: 1}"
    pools = (
        EVERY_WAY[1],
        Pool(
            "block",
            "instances: {families: [p5], sizes: [48xlarge]}, capacity: [reserved], limits: {gpus: 8},"
            f" reservations: [{{id: cr-0123456789abcdef1, holds: {held}}}], {USUAL}",
            2,
            gpus=4,
        ),
        Pool("graviton", f"instances: {{families: [g5g], architecture: arm64}}, limits: {{gpus: 2}}, {USUAL}", 2),
        Pool(
            "cheap",
            f"instances: {{families: [g5], sizes: [xlarge]}}, capacity: [spot], limits: {{gpus: 2}}, {USUAL}",
            2,
        ),
    )
    found = rehearse(*pools)
    for pool in pools:
        (label,) = found.capacity(pool.name).labels
        assert (found.label(pool.name).running, found.label(pool.name).pending) == (pool.jobs, 0), pool.name
        assert label.guaranteed == pool.jobs, pool.name


REFUSED_BY_CHECK = REFUSED | EDITS


@pytest.mark.parametrize("case", REFUSED_BY_CHECK)
def test_what_check_refuses_is_refused(project: MakeProject, case: str) -> None:
    pool, reason = REFUSED_BY_CHECK[case]
    with pytest.raises(InvalidSettings, match=reason):
        stack.read(project({"lab": text_of(pool)}), "lab")
