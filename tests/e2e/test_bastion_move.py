"""Another machine runs kubespray: the journal of a cluster that lives moves there, through Pulumi's real engine.

Machines of the cluster and both bastions are hosts of their own with real SSH servers; real Ansible runs the stand-in
for kubespray. The procedure is that of docs/bare-metal.md.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
from typing import Any

import pytest

from tests import engine
from tests.components.bare_metal.kubespray.runs import STAND_IN
from tests.hosts.fixtures import host_layer, hosts
from tests.hosts.namespaces import Host, Hosts

__all__ = ["host_layer", "hosts"]

MISSING = engine.missing("command")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing"),
    pytest.mark.slow,
]

PROGRAM = """
import json, pathlib, sys
import pulumi
from pulumi_command import Provider
from gpufleet.bare_metal import Kubespray, KubesprayClusterArgs, KubesprayNode, KubesprayRunner, SshHost, SshLogin
from gpufleet.bare_metal.kubespray.cluster import KubesprayCluster

given = json.loads((pathlib.Path(__file__).parent / "given.json").read_text())
login = SshLogin(user=given["user"], private_key=pulumi.Config().require_secret("key"))
places = {
    name: KubesprayRunner(host=SshHost(**host), login=login) if host else None for name, host in given["places"].items()
}
moved_from = given["moved_from"]
cluster = KubesprayCluster(
    "mi300",
    KubesprayClusterArgs(
        cluster="mi300",
        directory=given["directory"],
        kubespray=Kubespray(folder=given["kubespray"], venv=sys.prefix, python=sys.executable),
        login=login,
        nodes=[KubesprayNode(**node) for node in given["nodes"]],
        runner=places[given["run_on"]],
        moved_from=moved_from and (places[moved_from] or "here"),
        protect=given["protect"],
    ),
    pulumi.ResourceOptions(providers=[Provider("command")]),
)
pulumi.export("kubeconfig", cluster.kubeconfig)
"""


def described(host: Host) -> dict[str, Any]:
    return {"name": host.name, "address": host.address, "host_keys": [host.host_key]}


def machine(host: Host, *roles: str) -> dict[str, Any]:
    interpreter = {"ansible_python_interpreter": "/usr/bin/python3"}
    return described(host) | {"roles": roles or ["worker"], "variables": interpreter}


class Stack:
    """A Pulumi project with a cluster of two machines, and two bastions beside it."""

    def __init__(self, hosts: Hosts, folder: pathlib.Path) -> None:
        self.hosts, self.folder = hosts, folder
        nodes = [machine(hosts.start("cp-1"), "control_plane", "etcd"), machine(hosts.start("w-1"))]
        # The folders have the same names on every machine.
        self.kubespray, self.directory = folder / "kubespray", folder / "runner"
        shutil.copytree(STAND_IN, self.kubespray)
        self.given: dict[str, Any] = {
            "user": hosts.login.user,
            "places": {"here": None} | {name: described(self._bastion(name)) for name in ("one", "two")},
            "nodes": nodes,
            "run_on": "here",
            "moved_from": None,
            "protect": True,
            "directory": str(self.directory),
            "kubespray": str(self.kubespray),
        }
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": "bare-metal", "runtime": runtime}))
        (folder / "__main__.py").write_text(PROGRAM)
        engine.pulumi(folder, "stack", "init", "test")
        engine.pulumi(folder, "config", "set", "--secret", "key", stdin=hosts.private_key)

    def _bastion(self, name: str) -> Host:
        host = self.hosts.start(name)
        # Folders of a temporary file system, which this machine's user of SSH may write in.
        host.run("install", "-d", "-m", "777", str(self.folder), str(self.directory))
        shutil.copytree(STAND_IN, host.path(str(self.kubespray)))
        host.run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
        # Its Python is this machine's, which may be root's alone.
        host.run("chmod", "a+x", *(str(folder) for folder in pathlib.Path(sys.executable).resolve().parents))
        return host

    def up(self, *, well: bool = True, **changes: Any) -> str:
        self.given |= changes
        (self.folder / "given.json").write_text(json.dumps(self.given))
        return engine.pulumi(self.folder, "up", "--yes", "--skip-preview", well=well)

    def state(self, place: str) -> pathlib.Path:
        """Folder of the cluster on one of the machines that run kubespray."""
        path = self.directory / "mi300"
        return path if place == "here" else self.hosts.started[place].path(str(path))

    def ran(self, place: str) -> list[str]:
        """Playbooks that have run there, gathering facts left out."""
        file = self.state(place) / "calls"
        calls = [json.loads(line)["playbook"] for line in file.read_text().splitlines()] if file.exists() else []
        return [playbook for playbook in calls if "facts" not in playbook]

    def kubeconfig(self) -> str:
        printed = engine.pulumi(self.folder, "stack", "output", "--json", "--show-secrets")
        return str(json.loads(printed)["kubeconfig"])

    def lives(self) -> bool:
        """Whether nothing has been reset."""
        nodes = self.hosts.started["cp-1"].path("/etc/kubernetes/nodes")
        return {"cp-1", "w-1"} <= {node.name for node in nodes.iterdir()}


@pytest.fixture
def stack(hosts: Hosts, tmp_path: pathlib.Path) -> Stack:
    folder = tmp_path / "stack"
    folder.mkdir()
    made = Stack(hosts, folder)
    made.up()
    assert made.ran("here") == ["cluster.yml"]
    return made


def test_from_here_to_a_bastion_to_another_and_on(stack: Stack, hosts: Hosts) -> None:
    kubeconfig = stack.kubeconfig()
    # Protected or not: nothing is deleted that could be.
    for before, after, protect in (("here", "one", True), ("one", "two", False), ("two", "here", False)):
        stack.up(run_on=after, moved_from=before, protect=protect)
        assert stack.lives()
        assert (stack.state(after) / "journal.json").exists()
        assert not (stack.state(before) / "journal.json").exists()
        # The new machine has all it needs: not even the administrator's certificate is issued again.
        assert stack.kubeconfig() == kubeconfig
        assert stack.ran("one") == stack.ran("two") == []
        stack.up(moved_from=None)
        assert stack.lives()
        printed = stack.up()
        assert "unchanged" in printed
        assert "updated" not in printed
    assert stack.ran("here") == ["cluster.yml"]
    # And kubespray runs where it is now.
    stack.up(run_on="two", moved_from="here")
    stack.up(moved_from=None, nodes=[*stack.given["nodes"], machine(hosts.start("w-2"))])
    assert stack.ran("two") == ["scale.yml"]


@pytest.mark.parametrize(("before", "after"), [("here", "one"), ("one", "two"), ("one", "here")])
def test_without_a_word_of_the_journal_nothing_is_run_and_nothing_is_reset(
    stack: Stack, before: str, after: str
) -> None:
    """With `protect: false` this once reset the cluster."""
    if before != "here":
        stack.up(run_on=before, moved_from="here")
    stack.up(protect=False, moved_from=None)
    printed = stack.up(run_on=after, well=False)
    assert stack.lives()
    assert stack.ran(after if after != "here" else "one") == []
    # Of two local or two remote commands, the driver itself says why.
    if (before == "here") == (after == "here"):
        assert "has no journal of this cluster" in printed
    # What was forgotten can be said afterwards.
    stack.up(run_on=after, moved_from=before)
    assert stack.lives()
    assert (stack.state(after) / "journal.json").exists()
