"""How many hosts a survey asks at once, counted by a client that stands in for SSH and waits until it is let go."""

from __future__ import annotations

import os
import pathlib
import resource
import threading
import time
from collections.abc import Iterator

import pytest

from components import SshHost, SshLogin
from fleet.hosts import HostReport, survey
from tests.bare_metal import HOST_KEY

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
def few_files() -> Iterator[None]:
    """As many more open files as a process on macOS may have, but for the thirty that a command has of its own."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in pathlib.Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 256 - 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def asked_at_once(client: pathlib.Path, login: SshLogin) -> tuple[int, list[HostReport]]:
    """How many of the hosts were being asked when no more came, and all reports once they were let go."""
    reports: list[HostReport] = []
    asking = threading.Thread(target=lambda: reports.extend(survey(HOSTS, login)))
    asking.start()
    count, since = 0, time.monotonic()
    while asking.is_alive() and (not count or time.monotonic() < since + 1.5):
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


@pytest.mark.skipif(not pathlib.Path("/proc/self/fd").exists(), reason="no /proc on this machine")
def test_a_hundred_hosts_take_two_goes_with_the_files_that_macos_lets_open(
    client: pathlib.Path, few_files: None
) -> None:
    count, reports = asked_at_once(client, SshLogin(user="ci", private_key="none"))
    assert 50 <= count < 80
    assert [report.failures for report in reports] == [(f"ssh: {host.name}: nobody is there",) for host in HOSTS]


def test_a_jump_host_has_no_more_than_ten_at_once(client: pathlib.Path) -> None:
    count, reports = asked_at_once(client, SshLogin(user="ci", private_key="none", jump=JUMP))
    assert count == 10
    assert len(reports) == len(HOSTS)
