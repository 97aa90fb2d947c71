"""`gpufleet_tools.hosts.survey.survey` over real SSH servers: facts, and what each kind of trouble is called."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from gpufleet.bare_metal import GpuNeeds, HostNeeds, SshHost, SshLogin
from gpufleet_tools.hosts.survey import HostReport, Survey, survey
from gpufleet_tools.hosts.table import table
from tests.conftest import PYTHONPATH
from tests.hosts.latency import far_away
from tests.hosts.namespaces import PATIENCE, Host, Hosts, until
from tests.hosts.sound import add_mi300x, write

ANYTHING = HostNeeds(kubernetes=False, memory_mib=0, disk_gib=0)
"""Needs that a host of namespaces meets, whatever machine it is on."""


def but(host: SshHost, **changes: object) -> SshHost:
    return dataclasses.replace(host, **changes)  # type: ignore[arg-type]


def asked(host: Host, login: SshLogin, needs: HostNeeds = ANYTHING, **options: object) -> HostReport:
    (report,) = survey([host.ssh], Survey(login, {host.name: needs}, **options))  # type: ignore[arg-type]
    return report


@pytest.fixture
def host(hosts: Hosts) -> Host:
    return hosts.start("node-1")


def runs(host: Host, command: str) -> bool:
    """Whether a command runs on the host."""
    return command in host.run("ps", "-eo", "args=").out.splitlines()


def once_asked(host: Host, then: Callable[[], None]) -> threading.Thread:
    """Does something as soon as the slow verification below runs on the host."""

    def wait() -> None:
        until(lambda: runs(host, "sleep 1000"), f"a verification on {host.name}")
        then()

    waiting = threading.Thread(target=wait)
    waiting.start()
    return waiting


SLOW = {"slow": "sleep 1000\n"}


def test_facts_are_the_hosts_own(hosts: Hosts, host: Host) -> None:
    report = asked(host, hosts.login, dataclasses.replace(ANYTHING, address=host.address))
    assert report.failures == ()
    facts = report.facts
    assert facts
    assert (facts.hostname, facts.root) == ("node-1", True)
    assert host.address in facts.addresses
    assert hosts.machine_address not in facts.addresses
    assert facts.nameserver == hosts.machine_address
    assert facts.kernel == os.uname().release
    assert facts.memory_kib == int(pathlib.Path("/proc/meminfo").read_text().split()[1])
    assert (facts.gpus_amd, facts.gpus_nvidia, facts.render_gid) == (0, 0, None)


def test_swap_that_is_on_is_seen(hosts: Hosts, host: Host) -> None:
    write(host, "/srv/meminfo", "MemTotal: 8388608 kB\nSwapTotal: 4194304 kB\n")
    host.run("mount", "--bind", "/srv/meminfo", "/proc/meminfo")
    failures = asked(host, hosts.login, dataclasses.replace(ANYTHING, kubernetes=True)).failures
    assert [line for line in failures if line.startswith("swap: 4096 MiB is enabled, so the kubelet would not start")]


def test_gpus_are_found_without_lspci(hosts: Hosts, host: Host) -> None:
    add_mi300x(host)
    report = asked(host, hosts.login, dataclasses.replace(ANYTHING, gpu=GpuNeeds(vendor="amd", count=8)))
    assert report.failures == ()
    assert report.facts
    assert (report.facts.gpus_amd, report.facts.module_amdgpu, report.facts.render_gid) == (8, True, 110)
    (failure,) = asked(host, hosts.login, dataclasses.replace(ANYTHING, gpu=GpuNeeds(vendor="nvidia"))).failures
    assert failure.startswith("gpus: 0 NVIDIA GPUs on the PCI bus")


@pytest.mark.parametrize(
    ("pci_class", "counts"), [("0x030000", 1), ("0x030200", 1), ("0x120000", 1), ("0x040300", 0), ("0x068000", 0)]
)
def test_what_counts_as_a_gpu(hosts: Hosts, host: Host, pci_class: str, counts: int) -> None:
    host.add_gpus(vendor="0x10de", pci_class=pci_class, count=1, module=None, render_gid=None)
    report = asked(host, hosts.login)
    assert report.facts
    assert (report.facts.gpus_nvidia, report.facts.module_nvidia) == (counts, False)


def test_sudo_that_asks_is_said(hosts: Hosts, host: Host) -> None:
    report = asked(host, hosts.guest)
    assert report.failures == ("sudo: requires a password; set NOPASSWD for the user in /etc/sudoers.d",)


def test_a_host_with_another_key_is_not_talked_to(hosts: Hosts, host: Host) -> None:
    other = hosts.start("node-2")
    (report,) = survey([but(host.ssh, host_keys=[other.host_key])], Survey(hosts.login))
    assert report.facts is None
    assert report.failures[0].startswith("ssh: the host key differs from the pinned one")
    assert "Accepted publickey" not in (host.folder / "console.log").read_text()


def test_one_of_two_pinned_keys_is_enough(hosts: Hosts, host: Host) -> None:
    other = hosts.start("node-2")
    (report,) = survey([but(host.ssh, host_keys=[other.host_key, host.host_key])], Survey(hosts.login))
    assert report.facts


def test_a_key_that_is_not_let_in_is_said(hosts: Hosts, host: Host) -> None:
    host.path("/home/ci/.ssh/authorized_keys").write_text("")
    assert asked(host, hosts.login).failures[0].startswith("ssh: none of the offered keys is accepted")


def test_hosts_that_are_down_have_reports_beside_the_others(hosts: Hosts) -> None:
    started = [hosts.start(f"node-{number}") for number in (1, 2, 3)]
    unplugged, stopped = started[0], started[1]
    unplugged.unplug()
    refused = dataclasses.replace(started[2].ssh, name="wrong-port", port=2222)
    stopped.stop()
    login = dataclasses.replace(hosts.login, dial_seconds=2)
    began = time.monotonic()
    parameters = Survey(login, {"node-3": ANYTHING})
    reports = {report.host.name: report for report in survey([each.ssh for each in started], parameters)}
    assert time.monotonic() - began < PATIENCE
    assert reports["node-1"].facts is reports["node-2"].facts is None
    for name in ("node-1", "node-2"):
        assert reports[name].failures[0].startswith(("ssh: no response;", "ssh: unreachable"))
    assert reports["node-3"].failures == ()
    (report,) = survey([refused], Survey(login))
    assert report.failures == ("ssh: connection refused on that port; start the SSH server",)


def test_a_connection_that_breaks_off_is_no_wait_for_ever(hosts: Hosts, host: Host) -> None:
    cut = once_asked(host, host.unplug)
    began = time.monotonic()
    report = asked(host, hosts.login, verifications=SLOW, seconds=10)
    cut.join()
    assert time.monotonic() - began < PATIENCE
    assert report.facts
    assert report.failures == ("ssh: not finished within 10 s; check its load",)


def test_a_server_that_dies_is_said(hosts: Hosts, host: Host) -> None:
    ended = once_asked(host, host.stop)
    report = asked(host, hosts.login, verifications=SLOW, seconds=2 * PATIENCE)
    ended.join()
    assert report.failures[0].startswith(("ssh: the host closed the connection", "ssh: no response any more"))


def test_hosts_are_asked_at_once(hosts: Hosts) -> None:
    started = [hosts.start(f"node-{number}") for number in range(6)]
    gates = [each.path("/srv/open") for each in started]

    def open_once_all_wait() -> None:
        for each in started:
            until(each.path("/srv/waits").exists, f"{each.name} to be asked while others are")
        for gate in gates:
            gate.touch()

    opening = threading.Thread(target=open_once_all_wait)
    opening.start()
    gate_script = "touch /srv/waits; while [ ! -e /srv/open ]; do sleep 0.1; done\n"
    needs = dict.fromkeys(hosts.started, ANYTHING)
    parameters = Survey(hosts.login, needs, {"gate": gate_script}, seconds=2 * PATIENCE)
    reports = survey([each.ssh for each in started], parameters)
    opening.join()
    assert [report.host.name for report in reports] == list(hosts.started)
    assert all(report.failures == () for report in reports)


def test_a_clock_that_is_wrong_is_said(hosts: Hosts, host: Host) -> None:
    date = host.path("/usr/local/bin/date")
    date.write_text('#!/bin/sh\nif [ "$*" = +%s.%N ]; then /usr/bin/date -d "1 hour ago" "$@"; fi\n')
    date.chmod(0o755)
    (failure,) = asked(host, hosts.login).failures
    said = re.fullmatch(r"clock: is ([0-9.]+) s behind; .*", failure)
    # The login is no skew, and takes a minute at most.
    assert said
    assert 3540 < float(said[1]) <= 3600


def test_a_long_way_is_no_skew(hosts: Hosts, host: Host) -> None:
    with far_away([host.ssh], round_trip=0.3) as (afar,):
        (report,) = survey([afar], Survey(hosts.login, {host.name: ANYTHING}))
    # Ten round trips: from the handshake of TCP to the answer.
    assert report.seconds > 2.7
    assert report.failures == ()


def test_deviations_of_a_verification_are_failures(hosts: Hosts, host: Host) -> None:
    script = 'echo "$1 as $(id -un)" >&2; echo fine; exit 1\n'
    assert asked(host, hosts.login, verifications={"toolkit": script}).failures == ("verify as root",)


def test_through_a_jump_host_that_alone_can_reach_it(hosts: Hosts, host: Host) -> None:
    jump = hosts.start("jump")
    # The host answers to the jump host's address only.
    host.run("ip", "route", "add", "unreachable", hosts.machine_address)
    direct = dataclasses.replace(hosts.login, dial_seconds=2)
    assert asked(host, direct).facts is None
    assert asked(host, dataclasses.replace(direct, jump=jump.ssh)).facts
    wrong = but(jump.ssh, host_keys=[host.host_key])
    report = asked(host, dataclasses.replace(direct, jump=wrong))
    assert report.facts is None
    assert report.failures[0].startswith("ssh: the host key differs")


def test_by_an_agent(hosts: Hosts, host: Host, tmp_path: pathlib.Path) -> None:
    socket = tmp_path / "agent"
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text(hosts.private_key)
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as agent:
        until(socket.exists, "an agent")
        add = ["ssh-add", "-q", key]
        subprocess.run(add, env=os.environ | {"SSH_AUTH_SOCK": str(socket)}, timeout=PATIENCE, check=True)
        login = dataclasses.replace(hosts.login, private_key=None, agent_socket=str(socket))
        assert asked(host, login).facts
        agent.terminate()


def test_the_key_is_in_no_command_line_and_no_file_stays(
    hosts: Hosts, host: Host, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at while a slow host is being asked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[str] = []

    def look() -> None:
        for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(process.read_bytes().decode(errors="replace"))
            except OSError:
                continue
        for folder in tmp_path.glob("gpufleet-ssh-*"):
            seen.append(f"mode {folder.stat().st_mode & 0o077:o} {(folder / 'identity').stat().st_mode & 0o077:o}")

        host.run("pkill", "-x", "sleep")

    watching = once_asked(host, look)
    asked(host, hosts.login, verifications=SLOW, seconds=2 * PATIENCE)
    watching.join()
    secret = hosts.private_key.splitlines()[2]
    assert any(line.startswith("ssh\0") and "node-1" in line for line in seen)
    assert not any(secret in line for line in seen)
    assert "mode 0 0" in seen
    assert list(tmp_path.glob("gpufleet-ssh-*")) == []


def test_what_cannot_be_right_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ValueError, match="login: requires either private_key or agent_socket"):
        survey([], Survey(SshLogin(user="ci")))


def test_without_a_client_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="no SSH client on PATH; install openssh-client"):
        survey([], Survey(SshLogin(user="ci", private_key="key")))


def test_the_table_has_a_row_per_host_and_a_line_per_failure(hosts: Hosts, host: Host) -> None:
    down = SshHost(name="down", address="198.18.255.255", host_keys=[host.host_key])
    login = dataclasses.replace(hosts.guest, dial_seconds=1)
    reports = survey([host.ssh, down], Survey(login, {"node-1": ANYTHING}))
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        console.print(table(reports))
    header, first, second, *rest = captured.get().splitlines()
    assert header.split() == ["host", "os", "kernel", "memory", "GPUs", "driver", "render", "validated", "to", "fix"]
    assert first.startswith("node-1  ")
    assert "sudo: requires a password" in first
    assert second.startswith("down  ")
    assert "ssh: " in second
    assert rest == []


def test_the_table_shows_failures_as_they_are() -> None:
    host = SshHost(name="node-1", address="192.0.2.1", host_keys=["key"])
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        console.print(table([HostReport(host, None, ("host_keys[0] of [bold]node-1[/]",), 1.0)]))
    assert "host_keys[0] of [bold]node-1[/]" in captured.get()


def test_an_interrupt_ends_every_client(hosts: Hosts, host: Host, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(
        textwrap.dedent(f"""
            import signal
            # Whoever runs the tests in the background has them ignore it, and what they start too.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            from gpufleet.bare_metal import SshHost, SshLogin
            from gpufleet_tools.hosts.survey import Survey, survey
            host = SshHost(name="node-1", address={host.address!r}, host_keys=[{host.host_key!r}])
            login = SshLogin(user="ci", private_key={hosts.private_key!r})
            survey([host], Survey(login, verifications={{"slow": "sleep 1000"}}, seconds=1000))
        """)
    )
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    with subprocess.Popen([sys.executable, program], env=environment, stderr=subprocess.DEVNULL) as run:
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
        until(lambda: runs(host, "sleep 1000"), "a verification")
        clients = children.read_text().split()
        assert clients
        run.send_signal(2)
        run.wait(PATIENCE)
    assert [client for client in clients if pathlib.Path(f"/proc/{client}").exists()] == []
