"""Hosts are what they are taken for, and nothing of them stays."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.hosts.base_layer import BaseLayer
from tests.hosts.namespaces import Hosts, interfaces, until


def left_over(folder: pathlib.Path) -> list[str]:
    """Mounts, interfaces and processes that belong to hosts in that folder."""
    found = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            inside = str((process / "root").readlink())
        except OSError:
            continue
        if str(folder) in inside or ("python" not in arguments[0] and any(str(folder) in each for each in arguments)):
            found.append(f"process {process.name}: {arguments}")
    return found


def test_a_host_has_its_own_network_processes_and_files(hosts: Hosts) -> None:
    first, second = hosts.start("node-1"), hosts.start("node-2")
    first.run("sh", "-c", "echo mine > /etc/only-here; rm /etc/debian_version")
    assert first.run("hostname").out == "node-1\n"
    assert not second.path("/etc/only-here").exists()
    assert not pathlib.Path("/etc/only-here").exists()
    assert second.path("/etc/debian_version").exists() == pathlib.Path("/etc/debian_version").exists()
    assert first.address in first.run("ip", "-brief", "address").out
    assert second.address not in first.run("ip", "-brief", "address").out
    processes = [line for line in first.run("ps", "-eo", "pid=,comm=").out.splitlines() if "ps" not in line]
    assert [line.split() for line in processes] == [["1", "sshd"]]
    assert first.host_key != second.host_key


def test_a_host_starts_well_below_a_second(hosts: Hosts) -> None:
    # One of many: the machine may be busy.
    assert any(hosts.start(f"node-{number}").boot_seconds < 0.8 for number in range(20))


def test_a_stopped_host_comes_back_with_its_files_and_address(hosts: Hosts) -> None:
    host = hosts.start("node-1")
    before = host.address
    host.run("sh", "-c", "echo kept > /etc/kept")
    host.stop()
    assert hosts.start("node-1") is host
    assert (host.address, host.path("/etc/kept").read_text()) == (before, "kept\n")


def test_nothing_stays(host_layer: BaseLayer, tmp_path: pathlib.Path) -> None:
    hosts = Hosts(tmp_path / "hosts", host_layer)

    def fail() -> None:
        with hosts:
            hosts.start("node-1").run("sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &")
            assert hosts.interface in interfaces()
            assert left_over(tmp_path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert hosts.interface not in interfaces()
    until(lambda: left_over(tmp_path) == [], "all of it to go")


def test_nothing_stays_of_a_test_run_that_is_killed(host_layer: BaseLayer, tmp_path: pathlib.Path) -> None:
    program = f"""
        import pathlib, time
        from tests.hosts.base_layer import BaseLayer
        from tests.hosts.namespaces import Hosts
        base = BaseLayer(pathlib.Path({str(host_layer.folder)!r}))
        with Hosts(pathlib.Path({str(tmp_path / "hosts")!r}), base) as hosts:
            hosts.start("node-1")
            print(*hosts.interface, flush=True)
            time.sleep(1000)
    """
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        name, number = run.stdout.readline().split()
        assert (name, number) in interfaces()
        assert left_over(tmp_path)
        os.kill(run.pid, signal.SIGKILL)
    until(lambda: (name, number) not in interfaces(), "the network to go")
    until(lambda: left_over(tmp_path) == [], "all of it to go")


def test_two_test_processes_have_networks_of_their_own(host_layer: BaseLayer, tmp_path: pathlib.Path) -> None:
    with Hosts(tmp_path / "one", host_layer) as one, Hosts(tmp_path / "two", host_layer) as two:
        first, second = one.start("node-1"), two.start("node-1")
        assert first.address != second.address
        assert one.machine_address != two.machine_address
