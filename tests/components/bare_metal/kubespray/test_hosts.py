"""kubespray's driver over real SSH to hosts of their own, with real Ansible and a stand-in for kubespray."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
import yaml

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs, KubesprayNode
from tests.components.bare_metal.kubespray.runs import HERE, Runner
from tests.hosts.fixtures import host_layer, hosts
from tests.hosts.namespaces import Host, Hosts

__all__ = ["host_layer", "hosts"]

pytestmark = [pytest.mark.process, pytest.mark.slow]


def node(host: Host, *roles: str) -> KubesprayNode:
    return KubesprayNode(
        name=host.name,
        address=host.address,
        internal_address=host.address,
        roles=roles or ("worker",),  # type: ignore[arg-type]
        host_keys=[host.host_key],
        variables={"ansible_python_interpreter": "/usr/bin/python3"},
    )


def runner(hosts: Hosts, folder: pathlib.Path, workers: int) -> Runner:
    """The machine that runs kubespray, and hosts for it, on which there is nothing yet."""
    nodes = [node(hosts.start("cp-1"), "control_plane", "etcd")]
    nodes += [node(hosts.start(f"w-{number}")) for number in range(1, workers + 1)]
    made = Runner(
        KubesprayClusterArgs(
            cluster="c", directory=str(folder / "runner"), kubespray=HERE, nodes=nodes, login=hosts.login
        )
    )
    assert made.install().code == 0
    assert made.call("enroll").code == 0
    assert made.entrust(hosts.private_key).code == 0
    return made


def marked(host: Host, what: str) -> pathlib.Path:
    """A file that makes the stand-in fail, or wait, on the host."""
    folder = host.path("/etc/kubernetes")
    folder.mkdir(exist_ok=True)
    (folder / f"stand-in-{what}").touch()
    return folder / f"stand-in-{what}"


def test_one_of_ten_fails_and_the_next_run_brings_all_in(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    made = runner(hosts, tmp_path, 9)
    failing = marked(hosts.started["w-7"], "fails")
    ended = made.converge()
    assert ended.code == 1
    lines = ended.err.splitlines()[-4:]
    assert lines[0] == "cluster.yml failed: 1 of 10 hosts, exit status 2"
    assert lines[1].startswith("host w-7: task 'kubernetes/node : Install what takes time': ")
    failing.unlink()
    ended = made.converge()
    assert ended.code == 0, ended.err
    assert len(made.members()) == 10
    assert hosts.started["w-7"].run("cat", "/etc/kubernetes/kubelet").out == "1.35.4\n"
    joined = hosts.started["cp-1"].run("ls", "/etc/kubernetes/nodes").out.split()
    assert joined == sorted(made.members())
    assert made.converge().code == 0
    assert made.playbooks() == [("cluster.yml", ""), ("cluster.yml", "")]
    # All at once, until somebody has too little memory for that.
    assert [call["forks"] for call in made.calls()] == [10, 10]
    assert made.converge(variables={"all": {"kubelet_max_pods": 120}}, forks=3).code == 0
    assert made.calls()[-1]["forks"] == 3


def test_hosts_that_go_down(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    made = runner(hosts, tmp_path, 2)
    assert made.converge().code == 0
    # A worker is lost in the middle of its own run.
    new = hosts.start("new-1")
    waiting = marked(new, "waits")
    process = made.converge_begun(nodes=[*made.args.nodes, node(new)])
    made.come_to("scale", "Install what takes time")
    new.unplug()
    ended = made.ended(process)
    assert ended.code == 1
    assert "host new-1: task 'kubernetes/node : Install what takes time': " in ended.err
    assert "new-1" not in made.members()
    new.plug()
    waiting.unlink()
    # Another is down meanwhile: that holds nobody up.
    hosts.started["w-1"].stop()
    ended = made.converge()
    assert ended.code == 0, ended.err
    assert "w-1 is unreachable; continuing without it" in ended.err
    assert "new-1" in made.members()
    # One that is down cannot be drained; one that is given up can be removed.
    first, refused = made.remove("w-1")
    assert (first.code, refused.code) == (0, 1)
    assert "host w-1: " in refused.err
    assert made.converge(lost=["w-1"]).code == 0
    again = made.call("remove", json.dumps({"node": "w-1"}))
    assert again.code == 0, again.err
    assert "w-1" not in made.members()


def test_a_kubeconfig_is_issued_while_a_worker_is_down(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    made = runner(hosts, tmp_path, 1)
    assert made.converge().code == 0
    first = made.kubeconfig()
    hosts.started["w-1"].stop()
    made.args = dataclasses.replace(made.args, kubeconfig_generation=2)
    second = made.kubeconfig()
    assert (first.code, second.code) == (0, 0), second.err
    assert "w-1 is unreachable; continuing without it" in second.err
    assert yaml.safe_load(first.out)["users"] != yaml.safe_load(second.out)["users"]


def test_a_host_that_shows_another_key_is_not_touched(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    made = runner(hosts, tmp_path, 1)
    control, worker = made.args.nodes
    other = hosts.started["cp-1"].host_key
    ended = made.converge(nodes=[control, dataclasses.replace(worker, host_keys=[other])])
    assert ended.code == 1
    assert "host w-1: " in ended.err
    assert "Host key verification failed" in ended.err
    assert not hosts.started["w-1"].path("/etc/kubernetes").exists()


def test_a_user_who_may_not_use_sudo_is_told_of_by_host(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    """One host has a user of its own there, whom sudo asks for a password."""
    made = runner(hosts, tmp_path, 1)
    control, worker = made.args.nodes
    ended = made.converge(nodes=[control, dataclasses.replace(worker, user=hosts.guest.user)])
    assert ended.code == 1
    assert "host w-1: " in ended.err
    assert "sudo password" in ended.err.lower() or "a password is required" in ended.err
    assert "host cp-1: " not in ended.err
    assert not hosts.started["w-1"].path("/etc/kubernetes").exists()
    # The same list with the login's own user goes on.
    ended = made.converge(nodes=[control, worker])
    assert ended.code == 0, ended.err
