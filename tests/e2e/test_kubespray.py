"""A bare-metal cluster through Pulumi's real engine: kubespray is a stand-in that real Ansible runs, hosts are folders.

They run where `pulumi` and its command plugin are on PATH.
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
from tests.hosts.namespaces import Hosts

__all__ = ["host_layer", "hosts"]

MISSING = engine.missing("command")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing"),
    pytest.mark.slow,
]

SECRET = "correct-horse-battery"
SECRET_OF_A_HOST = "staple-of-w-2"

PROGRAM = """
import dataclasses, json, pathlib
import pulumi
from pulumi_command import Provider
from gpufleet.bare_metal import KubesprayClusterArgs, KubesprayRunner, SshHost, SshLogin
from gpufleet.bare_metal.kubespray.cluster import KubesprayCluster
from tests.components.bare_metal.kubespray.runs import HERE, local_node

here = pathlib.Path(__file__).parent
arguments = json.loads((here / "arguments.json").read_text())
own = {"w-2": {"become_secret": pulumi.Output.secret(arguments.pop("own_password"))}}
nodes = [
    local_node(here / "hosts", name, *roles, secret_variables=own.get(name, {}))
    for name, roles in arguments.pop("nodes").items()
]
runner = arguments.pop("runner", None)
if runner:
    login = SshLogin(user=runner["user"], private_key=runner["key"])
    host = SshHost(name="bastion", address=runner["address"], host_keys=[runner["host_key"]])
    arguments["runner"] = KubesprayRunner(host=host, login=login)
cluster = KubesprayCluster(
    "mi300",
    KubesprayClusterArgs(
        cluster="mi300",
        directory="~/.kubespray" if runner else str(here / "runner"),
        kubespray=dataclasses.replace(HERE, folder="/opt/kubespray") if runner else HERE,
        nodes=nodes,
        secret_variables={"registry_password": pulumi.Output.secret(arguments.pop("password"))},
        **arguments,
    ),
    pulumi.ResourceOptions(providers=[Provider("command")]),
)
pulumi.export("kubeconfig", cluster.kubeconfig)
"""

NODES = {"cp-1": ["control_plane", "etcd"], "w-1": ["worker"], "w-2": ["worker"]}


class Stack:
    """A Pulumi project with a cluster, in a folder and a home of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.arguments: dict[str, Any] = {"nodes": NODES, "password": SECRET, "own_password": SECRET_OF_A_HOST}
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": "bare-metal", "runtime": runtime}))
        (folder / "__main__.py").write_text(PROGRAM)
        self.pulumi("stack", "init", "test")

    def pulumi(self, *arguments: str, well: bool = True) -> str:
        (self.folder / "arguments.json").write_text(json.dumps(self.arguments))
        return engine.pulumi(self.folder, *arguments, well=well)

    def up(self, **changes: Any) -> str:
        self.arguments |= changes
        return self.pulumi("up", "--yes", "--skip-preview")

    def previewed(self, **changes: Any) -> dict[str, str]:
        """What a preview would do to each resource, by name, sameness left out."""
        before = dict(self.arguments)
        self.arguments |= changes
        (self.folder / "arguments.json").write_text(json.dumps(self.arguments))
        found = engine.previewed(self.folder)
        self.arguments = before
        return {urn.rpartition("::")[2]: done for urn, done in found.items()}

    def ran(self) -> list[tuple[str, str]]:
        """Which playbooks have run since the last time this was asked."""
        file = self.folder / "runner" / "mi300" / "calls"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return [(call["playbook"], call["node"] or call["limit"]) for call in calls if "facts" not in call["playbook"]]

    def kubeconfig(self) -> str:
        found: str = json.loads(self.pulumi("stack", "output", "--json", "--show-secrets"))["kubeconfig"]
        return found


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return Stack(tmp_path_factory.mktemp("stack"))


def test_the_first_up_makes_the_cluster_in_one_run(stack: Stack) -> None:
    stack.up()
    assert stack.ran() == [("cluster.yml", "")]
    kept = sorted(file.name for file in (stack.folder / "hosts/cp-1/etc/kubernetes/nodes").iterdir())
    assert kept == ["cp-1", "w-1", "w-2"]


def test_the_second_up_runs_nothing(stack: Stack) -> None:
    before = stack.kubeconfig()
    assert stack.previewed() == {}
    assert "unchanged" in stack.up()
    assert stack.ran() == []
    assert stack.kubeconfig() == before


def test_two_more_workers_are_one_run(stack: Stack) -> None:
    more = {**NODES, "w-3": ["worker"], "w-4": ["worker"]}
    assert stack.previewed(nodes=more) == {
        "mi300-node-w-3": "create",
        "mi300-node-w-4": "create",
        "mi300-converge": "update",
    }
    before = stack.kubeconfig()
    stack.up(nodes=more)
    assert stack.ran() == [("scale.yml", "w-3:w-4")]
    assert stack.kubeconfig() == before


def test_one_worker_less_is_one_removal(stack: Stack) -> None:
    fewer = {name: roles for name, roles in stack.arguments["nodes"].items() if name != "w-1"}
    # The list of nodes is one node shorter: that much of the run for all has to change.
    assert stack.previewed(nodes=fewer) == {"mi300-node-w-1": "delete", "mi300-converge": "update"}
    stack.up(nodes=fewer)
    assert stack.ran() == [("remove-node.yml", "w-1")]
    assert not (stack.folder / "hosts/w-1/etc/kubernetes").exists()


def test_a_run_that_fails_is_told_and_goes_on_with_the_next_up(stack: Stack) -> None:
    marker = stack.folder / "hosts/w-5/etc/kubernetes/stand-in-fails"
    marker.parent.mkdir(parents=True)
    marker.touch()
    stack.arguments["nodes"] = {**stack.arguments["nodes"], "w-5": ["worker"]}
    printed = stack.pulumi("up", "--yes", "--skip-preview", well=False)
    assert "host w-5: task 'kubernetes/node : Install what takes time'" in printed
    assert "logs/" in printed
    stack.ran()
    marker.unlink()
    stack.up()
    assert stack.ran() == [("scale.yml", "w-5")]
    assert stack.previewed() == {}


def test_state_and_logs_hold_no_secret_in_plain_text(stack: Stack) -> None:
    certificate = next(line for line in stack.kubeconfig().splitlines() if "client-certificate" in line).split()[-1]
    files = [*(stack.folder / "home").rglob("*.json*"), *(stack.folder / "runner").rglob("*.log")]
    text = "".join(file.read_text(errors="replace") for file in files)
    assert "mi300-node-w-2" in text
    assert SECRET not in text
    assert SECRET_OF_A_HOST not in text
    held = stack.folder / "runner/mi300/inventory/host_vars/w-2/secrets.yml"
    assert SECRET_OF_A_HOST in held.read_text()
    assert held.stat().st_mode & 0o777 == 0o600
    assert certificate not in text


def test_a_preview_can_show_what_changes(stack: Stack) -> None:
    """Secrets travel apart, so that the list of nodes is no secret."""
    resources = json.loads(stack.pulumi("stack", "export"))["deployment"]["resources"]
    (converge,) = (each for each in resources if each["urn"].endswith("::mi300-converge"))
    assert "w-2" in json.loads(converge["inputs"]["stdin"])["desired"]["nodes"]


def test_a_changed_secret_variable_is_one_run_for_all(stack: Stack) -> None:
    stack.up(password="another")
    assert stack.ran() == [("cluster.yml", "")]


def test_a_changed_secret_variable_of_one_host_is_a_run_on_that_host(stack: Stack) -> None:
    assert stack.previewed(own_password="other") == {"mi300-credentials": "update", "mi300-converge": "update"}
    stack.up(own_password="other")
    assert stack.ran() == [("scale.yml", "w-2")]


def test_what_is_protected_stays_whole(stack: Stack) -> None:
    """A destroy that leaves protected resources out deletes every machine's resource, and removes none."""
    stack.pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    assert stack.ran() == []
    stack.up()
    assert stack.ran() == []


def test_destroy_is_refused_and_then_resets_once(stack: Stack) -> None:
    assert "protected" in stack.pulumi("destroy", "--yes", "--skip-preview", well=False)
    assert stack.ran() == []
    stack.up(protect=False)
    assert stack.ran() == []
    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert stack.ran() == [("reset.yml", "")]
    assert not (stack.folder / "hosts/cp-1/etc/kubernetes").exists()
    assert not (stack.folder / "runner/mi300/journal.json").exists()


def test_a_bastion_runs_kubespray(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    """By SSH, in the home of the user there; nothing of it is on the machine that runs Pulumi."""
    bastion = hosts.start("bastion")
    folder = tmp_path / "stack"
    folder.mkdir()
    stack = Stack(folder)
    stack.arguments["runner"] = {
        "user": hosts.login.user,
        "key": hosts.private_key,
        "address": bastion.address,
        "host_key": bastion.host_key,
    }
    shutil.copytree(STAND_IN, bastion.path("/opt/kubespray"))
    # The cluster's hosts are folders on it, and its Python is this machine's, which may be root's alone.
    bastion.run("install", "-d", "-m", "777", str(folder))
    bastion.run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    bastion.run("chmod", "a+x", *(str(folder) for folder in pathlib.Path(sys.executable).resolve().parents))
    stack.up()
    home = bastion.path(f"/home/{hosts.login.user}/.kubespray/mi300")
    assert json.loads((home / "journal.json").read_text())["members"].keys() == NODES.keys()
    assert home.stat().st_mode & 0o077 == 0
    assert stack.previewed() == {}
    assert "server: https://127.0.0.1:6443" in stack.kubeconfig()
    assert not (folder / "hosts").exists()
    exported = stack.pulumi("stack", "export")
    assert hosts.private_key.splitlines()[1] not in exported
    stack.up(protect=False)
    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert not (home / "journal.json").exists()
