"""One run of a kubespray playbook: its environment, its progress, and its outcome.

Sent unchanged to the machine that runs kubespray: standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LINE_LIMIT = 1000
"""Maximum length of a line of progress. pulumi-command hangs after a line of more than 64 KiB (LogOutput in
provider/pkg/provider/util/util.go at v1.2.1)."""

SPACE_NEEDED = 64 * 2**20
"""Minimum free disk space in bytes before a run: its log, the facts of the hosts, the journal."""

SOCKET_LIMIT = 107
"""Maximum length of a socket's path in bytes (sun_path in unix(7), without its terminator)."""

SOCKET_NAME = len("/0123456789.") + 16
"""Length in bytes of Ansible's name for a connection and ssh's suffix."""

FORKS = (5, 50)
"""Smallest and largest number of hosts that Ansible works on at once, unless another is set."""

_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(?:(?P<role>[^\]]*?) : )?(?P<task>.*)\] \*+$")
_PLAY = re.compile(r"^PLAY \[(?P<play>.*)\] \*+$")
_FATAL = re.compile(
    r"^(?:fatal|failed): \[(?P<host>[^\]\s]+)(?: -> [^\]]+)?\](?:: \w+!)?(?: \(item=.*?\))? => (?P<result>.*)$"
)
_RECAP = re.compile(r"^(?P<host>\S+)\s+: ok=\d+\s+changed=\d+\s+unreachable=(?P<lost>\d+)\s+failed=(?P<failed>\d+)")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a run."""

    code: int
    """Exit status; negative for a signal."""
    recap: bool
    """Whether Ansible reached its end."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Hosts on which a task failed, each with the task and its message."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Unreachable hosts, each with the task and its message."""

    @property
    def well(self) -> bool:
        return self.code == 0 and self.recap


class Reader:
    """Parser of the output of Ansible's default callback, line by line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._play = self._task = self._role = ""
        self._tasks = 0
        self._last: dict[str, str] = {}
        self._pending: tuple[str, str] | None = None
        self._recap = False
        self._failed: dict[str, str] = {}
        self._unreachable: dict[str, str] = {}

    def read(self, line: str) -> None:
        """Parse the next line."""
        if self._pending:
            host, error = self._pending
            self._pending = None
            if line.strip() != "...ignoring":
                self._last[host] = error
        if found := _TASK.match(line):
            self._tasks += 1
            self._task = f"{found['role']} : {found['task']}" if found["role"] else found["task"]
            if found["role"] and found["role"] != self._role:
                self._role = found["role"]
                self._say(f"{self._play}: {self._role} (task {self._tasks})")
        elif found := _PLAY.match(line):
            self._play, self._role = found["play"], ""
        elif found := _FATAL.match(line):
            self._pending = (found["host"], f"task {self._task!r}: {message(found['result'])}")
        elif line.startswith("PLAY RECAP"):
            self._recap = True
        elif self._recap and (found := _RECAP.match(line)):
            host = found["host"]
            if int(found["lost"]):
                self._unreachable[host] = self._last.get(host, "unreachable")
            elif int(found["failed"]):
                self._failed[host] = self._last.get(host, "a task failed")

    def outcome(self, code: int) -> Outcome:
        """Return the outcome of the run, after the last line."""
        return Outcome(code=code, recap=self._recap, failed=self._failed, unreachable=self._unreachable)


def message(result: str) -> str:
    """Return the message in the result of a failed task: at most 400 characters on one line."""
    with contextlib.suppress(ValueError):
        task = json.loads(result)
        parts = [str(task[key]) for key in ("msg", "stderr", "reason") if isinstance(task, dict) and task.get(key)]
        result = "; ".join(parts) or result
    line = " ".join(result.split())
    # The message of ssh comes last.
    return line if len(line) <= 400 else f"{line[:190]} … {line[-200:]}"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Places that a run of kubespray uses."""

    checkout: pathlib.Path
    """Folder of kubespray's source."""
    venv: pathlib.Path
    """Python environment with kubespray's Ansible."""
    folder: pathlib.Path
    """Folder of the cluster."""

    def environment(self, caller: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of Ansible. They override kubespray's ansible.cfg, which caches facts of all
        clusters in /tmp by host name only, and does not verify host keys."""
        kept = {key: value for key, value in caller.items() if not key.startswith(("ANSIBLE_", "PYTHON", "PULUMI_"))}
        ssh_config = self.folder / "ssh_config"
        sockets = self.folder / "cp"
        options = "-o StrictHostKeyChecking=yes"
        if len(str(sockets)) + SOCKET_NAME <= SOCKET_LIMIT:
            options = f"-o ControlMaster=auto -o ControlPersist=60s {options}"
        return kept | {
            "PATH": f"{self.venv / 'bin'}{os.pathsep}{caller.get('PATH', os.defpath)}",
            "VIRTUAL_ENV": str(self.venv),
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CONFIG": str(self.checkout / "ansible.cfg"),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_SSH_ARGS": f"-F {ssh_config} {options}" if ssh_config.exists() else options,
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
            "ANSIBLE_CACHE_PLUGIN": "jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(self.folder / "facts"),
            # Facts never expire: runs that need them gather them first, and hosts that are down have no newer ones.
            "ANSIBLE_CACHE_PLUGIN_TIMEOUT": "0",
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_DISPLAY_FAILED_STDERR": "False",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
            "ANSIBLE_TIMEOUT": "30",
        }


def forks(hosts: int, wanted: int | None) -> int:
    """Return the number of hosts that Ansible works on at once. Its own default of 5 makes large clusters slow."""
    return wanted or min(max(FORKS[0], hosts), FORKS[1])


def run(
    place: Surroundings,
    playbook: str,
    *,
    inventory: pathlib.Path,
    log: pathlib.Path,
    say: Callable[[str], None],
    lock: int,
    limit: Sequence[str] = (),
    options: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
    forks: int = FORKS[0],
) -> Outcome:
    """Run a playbook to its end. It writes to the log directly and holds the lock, so that it continues if this process
    is killed. Extra variables are JSON, because booleans in `key=value` would become text."""
    command = [str(place.venv / "bin" / "ansible-playbook"), "--become", "--inventory", str(inventory)]
    command += ["--forks", str(forks)]
    command += ["--limit", ":".join(limit)] if limit else []
    command += ["--extra-vars", json.dumps(dict(extra), sort_keys=True)] if extra else []
    reader = Reader(say)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, *options, playbook],
            cwd=place.checkout,
            env=place.environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock,),
        )
    with _ended_with_us(process), log.open(errors="replace") as lines:
        for line in _followed(lines, process):
            reader.read(line)
    return reader.outcome(process.wait())


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the run if this process receives a signal to end."""

    def end(signum: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        sys.exit(f"ended by signal {signum}")

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _followed(lines: Any, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield complete lines of a growing file, until its writer has ended."""
    part = ""
    while True:
        ended = process.poll() is not None
        while text := lines.readline():
            part += text
            if part.endswith("\n"):
                yield part[:-1]
                part = ""
        if ended:
            if part:
                yield part
            return
        time.sleep(0.2)
