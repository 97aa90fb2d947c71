"""Members of etcd and the control plane that die, over real SSH, with real Ansible and a stand-in for kubespray."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs
from tests.components.bare_metal.kubespray.runs import HERE, Runner
from tests.components.bare_metal.kubespray.test_hosts import node
from tests.hosts.fixtures import host_layer, hosts
from tests.hosts.namespaces import Hosts

__all__ = ["host_layer", "hosts"]

pytestmark = [pytest.mark.process, pytest.mark.slow]

MEMBER = ("control_plane", "etcd")


@pytest.fixture
def cluster(hosts: Hosts, tmp_path: pathlib.Path) -> Runner:
    """Three members and a worker."""
    nodes = [node(hosts.start(f"cp-{number}"), *MEMBER) for number in (1, 2, 3)] + [node(hosts.start("w-1"))]
    made = Runner(
        KubesprayClusterArgs(
            cluster="c", directory=str(tmp_path / "runner"), kubespray=HERE, nodes=nodes, login=hosts.login
        )
    )
    assert made.install().code == 0
    assert made.call("enroll").code == 0
    assert made.entrust(hosts.private_key).code == 0
    ended = made.converge()
    assert ended.code == 0, ended.err
    (made.folder / "calls").unlink()
    return made


def said(hosts: Hosts, name: str, file: str) -> str:
    return hosts.started[name].path(f"/etc/kubernetes/{file}").read_text().strip()


def test_a_dead_member_is_done_without_then_replaced_by_a_spare(cluster: Runner, hosts: Hosts) -> None:
    hosts.started["cp-3"].stop()
    ended = cluster.converge(nodes=[*cluster.args.nodes, node(hosts.start("w-2"))])
    assert ended.code == 0, ended.err
    assert "cp-3 is unreachable; continuing without it" in ended.err
    assert cluster.playbooks() == [("scale.yml", "w-2")]
    # The procedure of docs/operations.md: one pull request that takes the dead one out and brings a spare in.
    (cluster.folder / "calls").unlink()
    one, two, _, *workers = cluster.args.nodes
    spare = node(hosts.start("cp-4"), *MEMBER)
    ended = cluster.converge(nodes=[one, two, spare, *workers], lost=["cp-3"])
    assert ended.code == 0, ended.err
    assert cluster.playbooks() == [("remove-node.yml", "cp-3"), ("cluster.yml", "")]
    assert [call["upgrade_cluster_setup"] for call in cluster.calls()] == [False, True]
    for member in ("cp-1", "cp-2", "cp-4"):
        assert said(hosts, member, "etcd-servers") == "cp-1 cp-2 cp-4"
    assert cluster.members() == ["cp-1", "cp-2", "cp-4", "w-1", "w-2"]
    # Pulumi deletes its resource after that.
    (cluster.folder / "calls").unlink()
    removal = cluster.call("remove", json.dumps({"node": "cp-3"}))
    assert (removal.code, cluster.calls()) == (0, [])
    assert "cp-3 is not in the cluster" in removal.err


def test_the_first_member_dies_and_another_is_reinstalled(cluster: Runner, hosts: Hosts) -> None:
    hosts.started["cp-1"].stop()
    _, two, three, worker = cluster.args.nodes
    ended = cluster.converge(nodes=[two, three, node(hosts.start("cp-4"), *MEMBER), worker], lost=["cp-1"])
    assert ended.code == 0, ended.err
    assert cluster.playbooks() == [
        ("recover-control-plane.yml", "cp-2:cp-3"),
        ("cluster.yml", "cp-2:cp-3"),
        ("cluster.yml", ""),
    ]
    assert [call["broken"] for call in cluster.calls() if call["playbook"] == "recover-control-plane.yml"] == [["cp-1"]]
    # Whatever joins from now on asks the first that lives.
    assert said(hosts, "cp-2", "cluster-info") == f"server: https://{two.address}:6443"
    assert said(hosts, "cp-2", "etcd-servers") == "cp-2 cp-3 cp-4"
    # Without a spare: the same machine, reinstalled.
    (cluster.folder / "calls").unlink()
    again = dataclasses.replace(cluster.args.nodes[2], generation=2)
    hosts.started["cp-4"].run("rm", "-rf", "/etc/kubernetes")
    ended = cluster.converge(nodes=[two, three, again, worker], lost=["cp-1"])
    assert ended.code == 0, ended.err
    assert cluster.playbooks() == [("remove-node.yml", "cp-4"), ("cluster.yml", "")]
    assert said(hosts, "cp-4", "kubelet") == "1.35.4"
    assert cluster.converge().code == 0
    assert len(cluster.playbooks()) == 2


def test_one_dead_and_one_living_of_five_go_together(cluster: Runner, hosts: Hosts) -> None:
    *members, worker = cluster.args.nodes
    more = [node(hosts.start(f"cp-{number}"), *MEMBER) for number in (4, 5)]
    assert cluster.converge(nodes=[*members, *more, worker]).code == 0
    (cluster.folder / "calls").unlink()
    hosts.started["cp-5"].stop()
    first, removal, nothing = cluster.remove("cp-4", "cp-5", lost=["cp-5"])
    assert (first.code, removal.code, nothing.code) == (0, 0, 0), first.err + removal.err
    assert cluster.playbooks() == [("remove-node.yml", "cp-5"), ("remove-node.yml", "cp-4"), ("cluster.yml", "")]
    assert said(hosts, "cp-1", "etcd-servers") == "cp-1 cp-2 cp-3"
