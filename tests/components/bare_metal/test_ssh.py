"""SSH settings: refused ones, and equal options for both clients. OpenSSH reads its part itself (`ssh -G`)."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_command.remote import Command

from gpufleet.bare_metal import SshHost, SshLogin
from gpufleet.bare_metal.ssh import HOST_NAME, connection, known_hosts, ssh_config, ssh_problems, user_of
from gpufleet_tools.plan.plan import Hidden
from tests.recording import HOST_KEY, on_hosts, recorded, the

HOST = SshHost(name="node-1", address="192.0.2.1", host_keys=[HOST_KEY])
JUMP = SshHost(name="jump", address="jump.example", port=2222, host_keys=[HOST_KEY])
LOGIN = SshLogin(user="ci", private_key="key")
BY_AGENT = SshLogin(user="ci", agent_socket="/run/agent")


def but(value: Any, **changes: Any) -> Any:
    return dataclasses.replace(value, **changes)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_these_are_not_refused() -> None:
    assert not [*ssh_problems([HOST, but(HOST, name="node-2", address="2001:db8::2")], but(LOGIN, jump=JUMP))]


REFUSED: dict[str, tuple[list[SshHost], SshLogin, str]] = {
    "no key": ([HOST], but(LOGIN, private_key=None), "login: requires either private_key or agent_socket"),
    "key and agent": ([HOST], but(LOGIN, agent_socket="/run/a"), "login: requires either private_key or agent_socket"),
    "no host key": (
        [but(HOST, host_keys=[])],
        LOGIN,
        "hosts[0].host_keys: is empty; read a key on the host's own console",
    ),
    "an RSA key": (
        [but(HOST, host_keys=["ssh-rsa AAAA"])],
        LOGIN,
        "hosts[0].host_keys[0]: is an RSA key, which pulumi-command cannot verify",
    ),
    "a private key for a host key": (
        [but(HOST, host_keys=["-----BEGIN OPENSSH PRIVATE KEY-----"])],
        LOGIN,
        "hosts[0].host_keys[0]: is a private key",
    ),
    "half a key": (
        [but(HOST, host_keys=["ssh-ed25519 AAAA"])],
        LOGIN,
        "hosts[0].host_keys[0]: is not a complete ssh-ed25519 key",
    ),
    "a key of another type than it says": (
        [but(HOST, host_keys=[HOST_KEY.replace("ssh-ed25519", "ecdsa-sha2-nistp256")])],
        LOGIN,
        "hosts[0].host_keys[0]: is not a complete ecdsa-sha2-nistp256 key",
    ),
    "two lines": (
        [but(HOST, host_keys=[f"{HOST_KEY}\n* {HOST_KEY}"])],
        LOGIN,
        "hosts[0].host_keys[0]: is not a complete ssh-ed25519 key",
    ),
    "a name with capitals": ([but(HOST, name="Node")], LOGIN, "hosts[0].name: 'Node' is not a host name"),
    "an option for an address": (
        [but(HOST, address="-oProxyCommand=id")],
        LOGIN,
        "hosts[0].address: '-oProxyCommand=id' is neither an IP address nor a DNS name",
    ),
    "a line in a user's name": (
        [HOST],
        but(LOGIN, user="ci\n  ProxyCommand id"),
        "login.user: 'ci\\n  ProxyCommand id' is not a user name",
    ),
    "port 0": ([but(HOST, port=0)], LOGIN, "hosts[0].port: 0 is not a port; use 1 to 65535"),
    "one name twice": (
        [HOST, but(HOST, address="192.0.2.2")],
        LOGIN,
        "hosts[1].name: 'node-1' is the name of two hosts",
    ),
    "one address twice": (
        [HOST, but(HOST, name="node-2")],
        LOGIN,
        "hosts[1].address: '192.0.2.1' is the address of two hosts",
    ),
    "the jump host among them": ([HOST], but(LOGIN, jump=HOST), "login.jump.name: 'node-1' is the name of two hosts"),
    "waiting for ever": ([HOST], but(LOGIN, dial_seconds=0), "login.dial_seconds: 0 is too small; use at least 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_each_fault_is_one_line_that_says_where(what: str) -> None:
    hosts, login, expected = REFUSED[what]
    reasons = [str(problem) for problem in ssh_problems(hosts, login)]
    assert any(reason.startswith(expected) for reason in reasons), reasons
    assert all("\n" not in reason for reason in reasons)
    assert not any("BEGIN" in reason for reason in reasons)


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=70))
def test_no_name_brings_a_line_or_an_option_into_a_file(name: str) -> None:
    if not [*ssh_problems([but(HOST, name=name)], LOGIN)]:
        assert HOST_NAME.fullmatch(name)
        assert not name.startswith("-")
        assert known_hosts([but(HOST, name=name)], LOGIN) == f"{name} {HOST_KEY}\n"


@given(st.text(max_size=40))
def test_no_address_brings_a_line_or_an_option_into_a_file(address: str) -> None:
    if not [*ssh_problems([but(HOST, address=address)], LOGIN)]:
        assert not address.startswith("-")
        assert len(address.split()) == 1
        assert address.isascii()


# -- pulumi-command ---------------------------------------------------------------------------------------------------


def command_inputs(host: SshHost, login: SshLogin) -> dict[str, Any]:
    """What the SDK sends to the engine for a command on that host."""

    def build() -> None:
        group = pulumi.ComponentResource("test:index:Group", "group", None, on_hosts())
        Command("command", connection=connection(host, login), opts=pulumi.ResourceOptions(parent=group))

    return dict(the(recorded(build), "Command").inputs)


def test_the_connection_is_a_secret_as_a_whole() -> None:
    options = command_inputs(HOST, but(LOGIN, jump=JUMP))["connection"]
    assert {"host", "hostKey", "privateKey", "proxy", "user"} <= options.keys()
    plain = [name for name, value in (options | options["proxy"]).items() if not isinstance(value, Hidden)]
    assert plain == ["proxy"]


def test_pulumi_command_holds_the_host_to_its_first_key_and_gives_up_in_time() -> None:
    options = connection(but(HOST, host_keys=[f"{HOST_KEY} root@node-1", "other"]), BY_AGENT)
    assert options.host_key == HOST_KEY
    assert (options.host, options.port, options.user, options.proxy) == ("192.0.2.1", 22, "ci", None)
    # reachedDialingErrorLimit lets as many errors pass, so there is one attempt more.
    assert (options.per_dial_timeout, options.dial_error_limit) == (15, 3)


def test_the_way_through_a_jump_host_is_pinned_too() -> None:
    proxy = connection(HOST, but(BY_AGENT, jump=JUMP)).proxy
    assert proxy
    assert proxy.agent_socket_path == "/run/agent"
    assert (proxy.host, proxy.port, proxy.user, proxy.host_key) == ("jump.example", 2222, "ci", HOST_KEY)
    assert proxy.per_dial_timeout == 15


# -- OpenSSH ----------------------------------------------------------------------------------------------------------


def effective(folder: pathlib.Path, name: str, login: SshLogin, *hosts: SshHost) -> dict[str, str]:
    """What OpenSSH makes of the configuration for a host, as it prints it itself."""
    if shutil.which("ssh") is None:
        pytest.skip("no SSH client on PATH")
    config = folder / "ssh_config"
    identity = str(folder / "identity") if login.private_key else None
    config.write_text(ssh_config(hosts, login, known_hosts_file=str(folder / "known"), identity_file=identity))
    asked = subprocess.run(["ssh", "-G", "-F", config, name], capture_output=True, text=True, timeout=10, check=True)
    return dict(line.split(" ", 1) for line in asked.stdout.splitlines() if " " in line)


@pytest.mark.process
@pytest.mark.parametrize("name", ["node-1", "192.0.2.1"])
def test_a_host_answers_to_name_and_address(tmp_path: pathlib.Path, name: str) -> None:
    options = effective(tmp_path, name, LOGIN, HOST, but(HOST, name="node-2", address="192.0.2.2", port=2200))
    assert (options["hostname"], options["port"], options["user"]) == ("192.0.2.1", "22", "ci")
    assert options["hostkeyalias"] == "node-1"
    assert "proxyjump" not in options


@pytest.mark.process
def test_a_host_may_have_a_user_of_its_own(tmp_path: pathlib.Path) -> None:
    own, other = but(HOST, user="operator"), but(HOST, name="node-2", address="192.0.2.2")
    assert effective(tmp_path, "node-1", LOGIN, own, other)["user"] == "operator"
    assert effective(tmp_path, "node-2", LOGIN, own, other)["user"] == "ci"
    assert (user_of(own, LOGIN), user_of(other, LOGIN)) == ("operator", "ci")


@pytest.mark.process
def test_nothing_is_asked_and_no_other_key_is_taken(tmp_path: pathlib.Path) -> None:
    options = effective(tmp_path, "node-1", LOGIN, HOST)
    assert options["stricthostkeychecking"] == "true"
    assert options["userknownhostsfile"] == str(tmp_path / "known")
    assert options["globalknownhostsfile"] == "none"
    assert options["batchmode"] == "yes"
    assert options["identitiesonly"] == "yes"
    assert options["identityfile"] == str(tmp_path / "identity")
    assert options["identityagent"] == "none"
    assert options["updatehostkeys"] == "false"
    assert options["connecttimeout"] == "15"
    assert int(options["serveraliveinterval"]) * int(options["serveralivecountmax"]) == 30


@pytest.mark.process
def test_an_agent_is_asked_for_all_its_keys(tmp_path: pathlib.Path) -> None:
    options = effective(tmp_path, "node-1", BY_AGENT, HOST)
    assert (options["identityagent"], options["identitiesonly"]) == ("/run/agent", "no")


@pytest.mark.process
def test_the_jump_host_is_held_to_its_key_and_is_not_jumped_to(tmp_path: pathlib.Path) -> None:
    login = but(LOGIN, jump=JUMP)
    assert effective(tmp_path, "node-1", login, HOST)["proxyjump"] == "jump"
    options = effective(tmp_path, "jump", login, HOST)
    assert (options["hostname"], options["port"], options["stricthostkeychecking"]) == ("jump.example", "2222", "true")
    assert "proxyjump" not in options
    assert known_hosts([HOST], login) == f"node-1 {HOST_KEY}\njump {HOST_KEY}\n"
