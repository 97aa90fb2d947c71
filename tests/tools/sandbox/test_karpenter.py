"""Document 004 on this machine: the real Karpenter decides which nodes are started, and when they go."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.build.binaries import Binaries
from gpufleet_tools.sandbox.control_plane import api_server, daemons
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.state import State
from tests.node_pools import GPU
from tests.tools.sandbox import document_004
from tests.tools.sandbox.document_004 import PODS_OF_A_NODE, workload
from tests.tools.sandbox.karpenter_sandbox import KarpenterSandbox, cost, running

pytestmark = pytest.mark.slow

GPU_RESOURCE = "nvidia.com/gpu"


def made(name: str, built: Binaries, factory: pytest.TempPathFactory) -> KarpenterSandbox:
    control_plane = ControlPlane(name, factory.mktemp("state") / "gpufleet" / name, built)
    return KarpenterSandbox(control_plane, build.find())


@pytest.fixture(scope="module")
def sandbox(built: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KarpenterSandbox]:
    """Shared by the tests below, in their order: starting instances takes its time."""
    shared = made("karpenter", built, tmp_path_factory)
    yield shared
    shared.control_plane.down()


ONE_NODE = dataclasses.replace(GPU, limits={"cpu": "8", GPU_RESOURCE: "100"})
"""A pool that may have one node of the smallest type."""


def test_ten_pods_on_a_shared_gpu_are_one_node(sandbox: KarpenterSandbox) -> None:
    sandbox.up(document_004.plan(gpu=ONE_NODE), workload(PODS_OF_A_NODE))
    now = sandbox.wait(running(PODS_OF_A_NODE))
    (node,) = now.nodes
    assert node.labels["node.kubernetes.io/instance-type"] == "g4dn.2xlarge"
    assert (node.used[GPU_RESOURCE], node.allocatable[GPU_RESOURCE]) == (10, 10)
    assert len(sandbox.provisioned()) == 1


def test_a_node_has_what_karpenter_worked_out_for_its_class(sandbox: KarpenterSandbox) -> None:
    """The component's root volume, not the 20Gi of a node class without settings."""
    (claim,) = sandbox.claims()
    (node,) = api_server.listed(sandbox.kubeconfig, ("v1", "Node"))[0]
    for part in ("capacity", "allocatable"):
        for resource in ("cpu", "memory", "ephemeral-storage", "pods"):
            assert node["status"][part][resource] == claim["status"][part][resource]
    assert claim["status"]["capacity"]["ephemeral-storage"] == "200Gi"


def test_a_second_up_changes_nothing(sandbox: KarpenterSandbox) -> None:
    before = daemons.alive(sandbox.control_plane)
    pids = sandbox.control_plane.pids()
    applied = sandbox.up(document_004.plan(gpu=ONE_NODE), workload(PODS_OF_A_NODE))
    assert (applied.created, applied.changed) == (0, 0)
    assert daemons.alive(sandbox.control_plane) == before == {"aws", "karpenter", "kubelets"}
    assert sandbox.control_plane.pids() == pids


def test_everything_listens_on_loopback_only(sandbox: KarpenterSandbox) -> None:
    directory = sandbox.control_plane.directory / "daemons"
    found: dict[str, set[str]] = {}
    for pid, name in daemons.processes.started_from(directory).items():
        for table in ("tcp", "tcp6"):
            inodes = {
                re.sub(r"\D", "", str(entry.readlink()))
                for entry in Path("/proc", str(pid), "fd").iterdir()
                if "socket:" in str(entry.readlink())
            }
            rows = [row.split() for row in Path("/proc/net", table).read_text().splitlines()[1:]]
            found.setdefault(name, set()).update(
                row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes
            )
    assert found == {"aws": {"0100007F"}, "karpenter": {"0100007F"}, "kubelets": set()}


def test_beyond_the_limits_karpenter_says_so_itself(sandbox: KarpenterSandbox) -> None:
    sandbox.up(document_004.plan(gpu=ONE_NODE), workload(PODS_OF_A_NODE + 1))

    def refused(now: State) -> bool:
        assert now.cloud
        return any("exceed limits for nodepool" in reason for reason in now.cloud.deployments["gpu"].reasons)

    now = sandbox.wait(refused)
    assert len(now.nodes) == 1
    assert now.cloud
    assert now.cloud.deployments["gpu"].pending == 1


def test_after_a_crash_the_node_stays(sandbox: KarpenterSandbox) -> None:
    for pid in daemons.processes.started_from(sandbox.control_plane.directory / "daemons"):
        os.kill(pid, signal.SIGKILL)
    (before,) = sandbox.claims()
    sandbox.up(document_004.plan(gpu=ONE_NODE), workload(PODS_OF_A_NODE))
    sandbox.wait(running(PODS_OF_A_NODE))
    # Longer than Karpenter takes to look for drift.
    time.sleep(20)
    (after,) = sandbox.claims()
    assert after["metadata"]["name"] == before["metadata"]["name"]
    drifted = [each for each in after["status"]["conditions"] if each["type"] == "Drifted"]
    assert [each["status"] for each in drifted] in ([], ["False"])


def test_a_spot_interruption_replaces_the_node(sandbox: KarpenterSandbox) -> None:
    """The queue is the one that the program makes, and Karpenter reads it."""
    (claim,) = sandbox.claims()
    assert claim["metadata"]["labels"]["karpenter.sh/capacity-type"] == "spot"
    port = json.loads((sandbox.control_plane.directory / "daemon-ports.json").read_text())["aws"]
    sqs = boto3.client(
        "sqs",
        region_name=document_004.REGION,
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    warning = {
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "account": "123456789012",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "region": document_004.REGION,
        "resources": [],
        "detail": {"instance-id": claim["status"]["providerID"].rpartition("/")[2], "instance-action": "terminate"},
    }
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName="cluster")["QueueUrl"], MessageBody=json.dumps(warning))
    sandbox.wait(lambda _: claim["metadata"]["name"] not in {each["metadata"]["name"] for each in sandbox.claims()})
    sandbox.wait(running(PODS_OF_A_NODE))
    assert len(sandbox.claims()) == 1


def test_with_the_last_pod_the_last_node_goes(sandbox: KarpenterSandbox) -> None:
    sandbox.up(document_004.plan(gpu=ONE_NODE))
    sandbox.wait(lambda now: not now.nodes and not sandbox.claims())


def test_without_the_plugin_a_node_never_has_gpus(sandbox: KarpenterSandbox) -> None:
    sandbox.up(document_004.plan(gpu=ONE_NODE, plugin=False), workload(1))
    now = sandbox.wait(lambda now: now.nodes and now.nodes[0].ready)
    time.sleep(10)
    now = sandbox.state()
    assert now.cloud
    assert now.cloud.deployments["gpu"].running == 0
    assert GPU_RESOURCE not in now.nodes[0].allocatable
    (claim,) = sandbox.claims()
    (initialized,) = (each for each in claim["status"]["conditions"] if each["type"] == "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("Unknown", "ResourceNotRegistered")
    sandbox.up(document_004.plan(gpu=ONE_NODE), workload(1))
    sandbox.wait(running(1))


def test_down_leaves_no_process(sandbox: KarpenterSandbox) -> None:
    assert daemons.alive(sandbox.control_plane)
    sandbox.control_plane.down()
    assert daemons.processes.started_from(sandbox.control_plane.directory) == {}
    assert not sandbox.control_plane.directory.exists()


def test_without_the_overlay_every_pod_is_a_node(built: Binaries, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Document 004 as it is written. A NodeOverlay is there all the same: the gate decides."""
    unlimited = dataclasses.replace(GPU, limits={GPU_RESOURCE: "100"})
    apart = made("no-overlay", built, tmp_path_factory)
    try:
        apart.up(document_004.plan(overlay=False, gpu=unlimited), workload(PODS_OF_A_NODE))
        # Once the first is up, all pods are on it: what was started for the others is superfluous.
        now = apart.wait(running(PODS_OF_A_NODE))
        assert len(apart.provisioned()) == PODS_OF_A_NODE
        assert cost(apart, now.nodes) > 5
    finally:
        apart.control_plane.down()
