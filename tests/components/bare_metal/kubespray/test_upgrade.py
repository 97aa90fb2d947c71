"""Upgrades of Kubernetes: one minor at a time, control plane first, and gone on with where they were broken off.

Real Ansible runs the stand-in for kubespray; hosts are folders of this machine.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal

import pytest

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs
from tests.components.bare_metal.kubespray.runs import HERE, Runner, local_node, marker

pytestmark = [pytest.mark.process, pytest.mark.slow]

FIRST, SECOND, THIRD = "1.33.7", "1.34.3", "1.35.4"

NAMES = ("cp-1", "w-1", "w-2")


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Runner:
    """A cluster of the oldest minor, whose workers are upgraded one by one."""
    hosts = tmp_path / "hosts"
    nodes = [local_node(hosts, "cp-1", "control_plane", "etcd"), *(local_node(hosts, name) for name in NAMES[1:])]
    runner = Runner(
        KubesprayClusterArgs(
            cluster="c",
            directory=str(tmp_path / "runner"),
            kubespray=HERE,
            nodes=nodes,
            kubernetes_version=FIRST,
            upgrade_serial="1",
            drain_seconds=7200,
            drain_grace_seconds=600,
        )
    )
    assert runner.install().code == 0
    assert runner.call("enroll").code == 0
    ended = runner.converge()
    assert ended.code == 0, ended.err
    (runner.folder / "calls").unlink()
    return runner


def kubelets(tmp_path: pathlib.Path) -> list[str]:
    """Version on each host, in the order of the list."""
    return [(tmp_path / "hosts" / name / "etc/kubernetes/kubelet").read_text().strip() for name in NAMES]


def upgraded_in_order(cluster: Runner) -> list[list[str]]:
    """Hosts that the newest upgrade came to, those of one batch together."""
    (*_, log) = sorted(cluster.folder.glob("logs/*-upgrade-cluster.log"))
    batches = re.findall(r"TASK \[kubernetes/node : Install kubelet\] \*+\n((?:\w+: \[.+\].*\n)+)", log.read_text())
    return [re.findall(r"^\w+: \[(.+?)\]", batch, re.MULTILINE) for batch in batches]


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: list[str] = []
    with contextlib.suppress(OSError):
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def test_one_minor_at_a_time_and_the_control_plane_first(cluster: Runner, tmp_path: pathlib.Path) -> None:
    ended = cluster.converge(kubernetes_version=THIRD)
    assert (ended.code, cluster.calls()) == (1, [])
    assert ended.err.splitlines() == [
        f"kubernetes: {THIRD} is more than one minor version after {FIRST}, the cluster's version; kubespray upgrades"
        " one minor version at a time; upgrade to 1.34 first"
    ]
    for version in (SECOND, THIRD):
        ended = cluster.converge(kubernetes_version=version)
        assert ended.code == 0, ended.err
        (call,) = cluster.calls()
        assert (call["playbook"], call["limit"], call["kube_version"]) == ("upgrade-cluster.yml", "", version)
        # As long as jobs need, and not kubespray's own 360 s.
        assert (call["serial"], call["drain_timeout"], call["drain_grace_period"]) == ("1", "7200s", 600)
        assert upgraded_in_order(cluster) == [["cp-1"], ["w-1"], ["w-2"]]
        assert kubelets(tmp_path) == [version] * 3
        (cluster.folder / "calls").unlink()
        assert cluster.converge().code == 0
        assert cluster.calls() == []


def test_a_node_that_is_added_with_it_comes_after_the_upgrade(cluster: Runner, tmp_path: pathlib.Path) -> None:
    new = local_node(tmp_path / "hosts", "new-1")
    ended = cluster.converge(kubernetes_version=SECOND, nodes=[*cluster.args.nodes, new])
    assert ended.code == 0, ended.err
    assert cluster.playbooks() == [("upgrade-cluster.yml", ""), ("scale.yml", "new-1")]
    assert cluster.calls()[0]["hosts"] == list(NAMES)


def test_killed_in_the_middle_the_next_run_ends_it(cluster: Runner, tmp_path: pathlib.Path) -> None:
    """As by a power cut: kubespray's own run is killed too, once the control plane is new and the workers are old."""
    waiting = marker(tmp_path / "hosts", "w-1", "waits")
    process = cluster.converge_begun(kubernetes_version=SECOND)
    cluster.come_to("upgrade-cluster", "PLAY [Upgrade workers]")
    for pid in tree(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert kubelets(tmp_path) == [SECOND, FIRST, FIRST]
    waiting.unlink()
    # What was begun has to be ended first: a part of the cluster is still of the oldest minor.
    ended = cluster.converge(kubernetes_version=THIRD)
    assert ended.code == 1
    assert "more than one minor version after 1.33.7" in ended.err
    ended = cluster.converge(kubernetes_version=SECOND)
    assert ended.code == 0, ended.err
    assert cluster.playbooks() == [("upgrade-cluster.yml", ""), ("upgrade-cluster.yml", "")]
    assert kubelets(tmp_path) == [SECOND] * 3
    assert cluster.converge(kubernetes_version=THIRD).code == 0
    assert kubelets(tmp_path) == [THIRD] * 3


def test_a_worker_that_fails_stops_it_and_those_after_it_stay_as_they_are(
    cluster: Runner, tmp_path: pathlib.Path
) -> None:
    failing = marker(tmp_path / "hosts", "w-1", "fails")
    ended = cluster.converge(kubernetes_version=SECOND)
    assert ended.code == 1
    assert "upgrade-cluster.yml failed: 1 of 3 hosts" in ended.err
    assert kubelets(tmp_path) == [SECOND, FIRST, FIRST]
    failing.unlink()
    assert cluster.converge().code == 0
    assert kubelets(tmp_path) == [SECOND] * 3
