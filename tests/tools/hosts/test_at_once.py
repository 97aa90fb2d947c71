"""How many hosts a survey asks at once, counted by a client that stands in for SSH and waits until it is let go."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gpufleet.bare_metal import SshHost, SshLogin
from gpufleet_tools.hosts.survey import HostReport, Survey, survey
from tests.bare_metal import HOST_KEY
from tests.conftest import ROOT

pytestmark = pytest.mark.process

CLIENT = """\
#!/bin/sh
: > {folder}/there/$3
read -r _ < {folder}/gate
echo "$3: nobody is there" >&2
exit 255
"""
"""Called as `ssh -F FILE HOST COMMAND`. Opening the gate, a FIFO, waits for whoever opens its other end."""

HOSTS = [SshHost(name=f"node-{number}", address=f"192.0.2.{number}", host_keys=[HOST_KEY]) for number in range(100)]
JUMP = SshHost(name="jump", address="198.51.100.1", host_keys=[HOST_KEY])


@pytest.fixture
def client(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of a client that comes first on PATH."""
    (tmp_path / "there").mkdir()
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "ssh").write_text(CLIENT.format(folder=tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def few_files() -> Iterator[Callable[[int], None]]:
    """Lets this process open so many more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allow(more: int) -> None:
        numbers = {int(each.name) for each in pathlib.Path("/proc/self/fd").iterdir()}
        free = (number for number in itertools.count() if number not in numbers)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), before[1]))

    yield allow
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def asked_at_once(client: pathlib.Path, login: SshLogin, least: int) -> tuple[int, list[HostReport]]:
    """How many of the hosts were being asked when no more came after so many, and all reports once they were let go."""
    reports: list[HostReport] = []
    asking = threading.Thread(target=lambda: reports.extend(survey(HOSTS, Survey(login))))
    asking.start()
    count, began, since = 0, time.monotonic(), time.monotonic()
    while asking.is_alive() and time.monotonic() < (since + 1.5 if count >= least else began + 60):
        if (now := len(list((client / "there").iterdir()))) != count:
            count, since = now, time.monotonic()
        time.sleep(0.02)
    # Whoever comes later finds an ordinary file there. Opened for both ways, a FIFO waits for nobody.
    gate = os.open(client / "gate", os.O_RDWR)
    (client / "open").touch()
    (client / "open").rename(client / "gate")
    time.sleep(0.2)
    os.close(gate)
    asking.join(30)
    return count, reports


NOBODY = [(f"ssh: {host.name}: nobody is there",) for host in HOSTS]
"""What comes of asking each host, once the client has been let go."""

WITH_PROC = pytest.mark.skipif(not pathlib.Path("/proc/self/fd").exists(), reason="no /proc on this machine")


@WITH_PROC
def test_a_hundred_hosts_take_two_goes_with_the_files_that_macos_lets_open(
    client: pathlib.Path, few_files: Callable[[int], None]
) -> None:
    # Thirty are a command's own.
    few_files(256 - 30)
    count, reports = asked_at_once(client, SshLogin(user="ci", private_key="none"), 50)
    assert 50 <= count < 80
    assert [report.failures for report in reports] == NOBODY


@WITH_PROC
@pytest.mark.parametrize(("more", "least", "most"), [(40, 1, 8), (100, 10, 24), (200, 30, 48)])
def test_with_fewer_files_fewer_are_asked_at_once(
    client: pathlib.Path, few_files: Callable[[int], None], more: int, least: int, most: int
) -> None:
    few_files(more)
    count, reports = asked_at_once(client, SshLogin(user="ci", private_key="none"), least)
    assert least <= count <= most
    assert [report.failures for report in reports] == NOBODY


@WITH_PROC
@pytest.mark.parametrize("more", [1, 2, 5, 10, 20])
def test_without_files_each_report_says_so_in_a_line(
    client: pathlib.Path, few_files: Callable[[int], None], more: int
) -> None:
    few_files(more)
    reports = survey(HOSTS, Survey(SshLogin(user="ci", private_key="none")))
    assert {report.failures for report in reports} == {
        (
            "ssh: not surveyed: Too many open files on this machine; allow more open files (ulimit -n) or"
            " processes (ulimit -u)",
        )
    }


FEW_PROCESSES = """\
import json, os, resource, sys
sys.path.insert(0, {root!r})
from gpufleet.bare_metal import SshLogin
from gpufleet_tools.hosts.survey import Survey, survey
from tests.tools.hosts.test_at_once import HOSTS
os.environ["PATH"] = {path!r}
os.environ["TMPDIR"] = "/tmp"
os.setgid(54321)
os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, ({processes}, {processes}))
reports = survey(HOSTS, Survey(SshLogin(user="ci", private_key="none")))
json.dump([report.failures for report in reports], sys.stdout)
"""
"""As a user of whom nothing else runs: root's own processes are not counted."""


@pytest.mark.skipif(os.geteuid() != 0, reason="a user with few processes is made by root")
@pytest.mark.parametrize(("processes", "said"), [(24, NOBODY), (1, [("ssh: not surveyed: ",)] * len(HOSTS))])
def test_with_few_processes_fewer_are_asked_at_once_or_none(processes: int, said: list[tuple[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        client, gate = pathlib.Path(folder, "ssh"), pathlib.Path(folder, "gate")
        # Long enough for all that are started at once to be there together, and without a process for a sleep.
        client.write_text(f'#!/usr/bin/env bash\nread -r -t 0.4 <> {gate}\necho "$3: nobody is there" >&2\nexit 255\n')
        os.mkfifo(gate)
        gate.chmod(0o666)
        client.chmod(0o755)
        pathlib.Path(folder).chmod(0o755)
        program = FEW_PROCESSES.format(root=str(ROOT), path=f"{folder}:{os.environ['PATH']}", processes=processes)
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert [line[: len(start)] for (line,), (start,) in zip(found, said, strict=True)] == [start for (start,) in said]


def test_a_jump_host_has_no_more_than_ten_at_once(client: pathlib.Path) -> None:
    count, reports = asked_at_once(client, SshLogin(user="ci", private_key="none", jump=JUMP), 10)
    assert count == 10
    assert len(reports) == len(HOSTS)
