"""NvidiaContainerToolkit through Pulumi's real engine and pulumi-command, on hosts with real SSH servers."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gpufleet.bare_metal.container_toolkit import TOOLKIT_PACKAGES
from tests import engine
from tests.hosts.namespaces import Host, Hosts
from tests.hosts.package_repository import PackageRepository

MISSING = engine.missing("command")

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing")

PROGRAM = """\
import json, pathlib
import pulumi
from pulumi_command import Provider
from gpufleet.bare_metal import NvidiaContainerToolkit, NvidiaContainerToolkitArgs, SshHost, SshLogin

given = json.loads(pathlib.Path("given.json").read_text())
key = pulumi.Config().require_secret("key")
jump = SshHost(**given.pop("jump")) if given["jump"] else given.pop("jump")
toolkit = NvidiaContainerToolkit(
    "toolkit",
    NvidiaContainerToolkitArgs(
        hosts=[SshHost(**host) for host in given.pop("hosts")],
        login=SshLogin(user=given.pop("user"), private_key=key, jump=jump, dial_seconds=2, dial_attempts=1),
        **given,
    ),
    pulumi.ResourceOptions(providers=[Provider("hosts")]),
)
"""


@dataclass
class Stack:
    """A stack of one toolkit, in a folder and a state of its own."""

    folder: pathlib.Path
    given: dict[str, Any]

    def pulumi(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        return engine.pulumi(self.folder, *arguments, stdin=stdin, well=check)

    def up(self, *, check: bool = True, **changes: Any) -> str:
        self.given |= changes
        (self.folder / "given.json").write_text(json.dumps(self.given))
        return self.pulumi("up", "--yes", "--skip-preview", check=check)


def described(host: Host) -> dict[str, Any]:
    return {"name": host.name, "address": host.address, "host_keys": [host.host_key]}


@pytest.fixture
def stack(hosts: Hosts, repository: PackageRepository, tmp_path: pathlib.Path) -> Callable[..., Stack]:
    """Makes a stack with these hosts."""

    def make(*started: Host) -> Stack:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text("name: hosts\nruntime: python\n")
        (folder / "__main__.py").write_text(PROGRAM)
        given = {
            "hosts": [described(host) for host in started],
            "jump": None,
            "user": "ci",
            "nvkind": True,
            "repository": repository.url,
            "key_url": repository.key_url,
            "key_sha256": repository.key_sha256,
        }
        made = Stack(folder, given)
        made.pulumi("stack", "init", "test")
        made.pulumi("config", "set", "--secret", "key", stdin=hosts.private_key)
        return made

    return make


def gpu_host(hosts: Hosts, name: str) -> Host:
    host = hosts.start(name)
    host.add_unit("docker")
    return host


def states(host: Host) -> set[str]:
    asked = host.run("dpkg-query", "-W", "-f", "${Version} ${db:Status-Abbrev}\n", *TOOLKIT_PACKAGES)
    return {line.strip() for line in asked.out.splitlines()}


def changes(printed: str) -> dict[str, int]:
    """What the engine counted: `created`, `updated`, `replaced`, `deleted`."""
    return {what: int(count) for count, what in re.findall(r"(\d+) (created|updated|replaced|deleted)", printed)}


@pytest.mark.slow
def test_a_life_of_two_hosts(hosts: Hosts, stack: Callable[..., Stack]) -> None:
    one, two = gpu_host(hosts, "gpu-1"), gpu_host(hosts, "gpu-2")
    running = stack(one, two)
    printed = running.up()
    # The stack, its provider, the component and a command for each host.
    assert changes(printed) == {"created": 5}
    assert states(one) == states(two) == {"1.17.8-1 hi"}

    assert changes(running.up()) == {}

    one.run("apt-mark", "unhold", *TOOLKIT_PACKAGES)
    assert changes(running.up()) == {}
    printed = running.up(checked="2026-11-21")
    assert changes(printed) == {"updated": 2}
    # What a stock server says to variables that are sent to it.
    assert "Unable to set" not in printed
    assert states(one) == {"1.17.8-1 hi"}
    assert two.calls("systemctl").count("restart docker") == 1

    assert changes(running.up(hosts=[described(one)])) == {"deleted": 1}
    assert states(two) == {"1.17.8-1 ii"}
    assert states(one) == {"1.17.8-1 hi"}

    running.pulumi("destroy", "--yes", "--skip-preview")
    assert states(one) == {"1.17.8-1 ii"}
    assert not one.path("/etc/apt/preferences.d/nvidia-container-toolkit").exists()


@pytest.mark.slow
def test_what_fails_is_said_in_lines_and_the_rest_is_done(hosts: Hosts, stack: Callable[..., Stack]) -> None:
    good, wrong, down, old = (gpu_host(hosts, f"gpu-{number}") for number in range(1, 5))
    daemon = old.path("/etc/docker/daemon.json")
    daemon.parent.mkdir()
    daemon.write_text('{"features": {"cdi": true}}')
    running = stack(good, wrong, down, old)
    running.given["hosts"][1]["host_keys"] = [good.host_key]
    down.stop()
    printed = running.up(check=False)
    assert states(good) == {"1.17.8-1 hi"}
    assert "ssh: handshake failed: ssh: host key mismatch" in printed
    assert "Accepted publickey" not in (wrong.folder / "console.log").read_text()
    assert "nvidia-container-toolkit: /etc/docker/daemon.json: features.cdi is true; nvkind needs it off" in printed
    assert "quietly" not in printed
    state = running.pulumi("stack", "export")
    assert "toolkit-gpu-1" in state
    assert [name for name in ("toolkit-gpu-2", "toolkit-gpu-3", "toolkit-gpu-4") if name in state] == []


@pytest.mark.slow
def test_through_a_jump_host_and_with_nothing_secret_in_the_state(hosts: Hosts, stack: Callable[..., Stack]) -> None:
    jump, host = hosts.start("jump"), gpu_host(hosts, "gpu-1")
    running = stack(host)
    printed = running.up(jump=described(jump))
    assert "ci from" in (jump.folder / "console.log").read_text()
    assert f"Accepted publickey for ci from {jump.address}" in (host.folder / "console.log").read_text()
    assert states(host) == {"1.17.8-1 hi"}
    everything = printed + running.pulumi("stack", "export")
    for file in running.folder.rglob("*"):
        if file.is_file():
            everything += file.read_text(errors="replace")
    key = hosts.private_key.splitlines()
    assert [line for line in key[1:-1] if line in everything] == []


@pytest.mark.slow
def test_an_rsa_host_key_cannot_be_checked_by_pulumi_command(hosts: Hosts, stack: Callable[..., Stack]) -> None:
    """Why gpufleet.bare_metal.ssh refuses one: the server shows the key, and pulumi-command does not take it."""
    host = gpu_host(hosts, "gpu-1")
    host.run("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", "/etc/ssh/ssh_host_rsa_key")
    host.run("sh", "-c", "echo 'HostKey /etc/ssh/ssh_host_rsa_key' >> /etc/ssh/sshd_config")
    rsa = host.path("/etc/ssh/ssh_host_rsa_key.pub").read_text().strip()
    host.stop()
    hosts.start("gpu-1")
    running = stack(host)
    program = running.folder / "__main__.py"
    unchecked = "from gpufleet.bare_metal import ssh\nassert ssh._key_problems\nssh._key_problems = lambda key: ()\n"
    program.write_text(unchecked + PROGRAM)
    running.given["hosts"][0]["host_keys"] = [rsa]
    assert "no common algorithm for host key" in running.up(check=False)
