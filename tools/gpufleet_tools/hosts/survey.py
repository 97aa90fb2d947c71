"""Asks hosts by SSH what they are like, all at once, with the SSH client of this machine."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import pathlib
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from gpufleet.bare_metal.preflight import HostFacts, HostNeeds, parse_facts, preflight_failures, preflight_script
from gpufleet.bare_metal.ssh import SshHost, SshLogin, known_hosts, ssh_config, ssh_problems, user_of
from gpufleet.problem import refuse
from gpufleet_tools import terminal

if TYPE_CHECKING:
    from rich.table import Table

AT_ONCE = 64
"""Hosts that are asked at the same time, so a hundred take two goes. Fewer where open files or processes are scarce:
macOS lets a process have 256 files (launchctl(1), `limit maxfiles`)."""

AT_ONCE_BY_JUMP = 10
"""The same through a jump host: its server drops some of those above ten that have not logged in yet (`MaxStartups` in
sshd_config(5), 10:30:100 by default)."""

FILES_PER_CLIENT = 4
"""Open files that lead to a client: its standard input, output and error, and from Python 3.12 on Linux the process."""

FILES_BESIDE = 24
"""Open files that are needed beside them: for the event loop, the configuration, and a client that is being started."""

REASONS: Mapping[str, str] = {
    "Host key verification failed": (
        "shows another host key than the one that is pinned; compare them on its console, and correct host_keys if it"
        " was installed anew"
    ),
    "Permission denied": "lets the user in by no key that was offered; add the key to its authorized_keys",
    "Connection refused": "refuses connections on that port; start its SSH server",
    "No route to host": "cannot be reached; is it on, and in this network?",
    "Network is unreachable": "cannot be reached; is it on, and in this network?",
    "Could not resolve hostname": "has a name that no nameserver knows",
    "Connection timed out": "does not answer; is it on, and does a firewall let this machine in?",
    "not responding": "no longer answers: the connection broke off",
    "Broken pipe": "has ended the connection",
    "Connection reset": "has ended the connection",
    "Connection closed by": "has ended the connection",
    "closed by remote host": "has ended the connection",
}
"""What the client says, and what that means."""


class Unreachable(Exception):
    """A host cannot be asked: one line that says why."""


class NoRoom(Exception):
    """This machine starts no further client: one line that says why."""


@dataclass(frozen=True)
class HostReport:
    """What came of asking one host."""

    host: SshHost
    """The host."""
    facts: HostFacts | None
    """What it is like; None where it could not be asked."""
    failures: tuple[str, ...]
    """Why it is not what is needed, one line each."""
    seconds: float
    """How long it took to ask."""


@dataclass(frozen=True)
class Survey:
    """What every host is asked for."""

    login: SshLogin
    """Who logs in. A private key has to be text here, not an output."""
    needs: Mapping[str, HostNeeds]
    """What each host is needed for, by its name; one that is not named is needed for nothing in particular."""
    verifications: Mapping[str, str]
    """Scripts that say by lines on standard error where a host deviates, by what they are of; run as root with the
    argument `verify`."""
    seconds: float
    """What one host may take, for all of it."""


def survey(
    hosts: Sequence[SshHost],
    login: SshLogin,
    needs: Mapping[str, HostNeeds] | None = None,
    *,
    verifications: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> list[HostReport]:
    """Asks all hosts at once, and never fails for one of them: a host that is down has a report too. Where this machine
    has few open files or processes left it asks fewer at once, and where it has none, each report says so.

    `needs` is by host name; `verifications` by what is verified, such as `NvidiaContainerToolkit.verification`.

    Raises ValueError where hosts or login cannot be right, FileNotFoundError without an SSH client, and OSError where
    its configuration cannot be written, as on a full disk.
    """
    refuse("ssh", ssh_problems(hosts, login))
    if login.private_key is not None and not isinstance(login.private_key, str):
        raise ValueError("login.private_key: is not known here; give its text")
    if shutil.which("ssh") is None:
        raise FileNotFoundError("ssh: no SSH client on PATH; install openssh-client")
    asked = Survey(login, needs or {}, verifications or {}, seconds)
    try:
        most = min(AT_ONCE_BY_JUMP if login.jump else AT_ONCE, clients_with_files())
        return asyncio.run(_survey(hosts, asked, most))
    except (NoRoom, OSError) as reason:
        if isinstance(reason, OSError) and reason.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return [HostReport(host, None, (f"ssh: {no_room(reason)}",), 0) for host in hosts]


def clients_with_files() -> int:
    """Clients that this process may have open files for at the same time; at least one.

    Raises NoRoom where there are none, and OSError where not even that can be found out.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return AT_ONCE
    # The limit is one of their numbers, and some may have been opened above it before it was set.
    left = limit - sum(int(file.name) < limit for file in pathlib.Path("/dev/fd").iterdir()) - FILES_BESIDE
    if left < FILES_PER_CLIENT:
        raise NoRoom("Too many open files")
    return left // FILES_PER_CLIENT


def no_room(reason: Exception) -> str:
    """Why this machine asks nobody, in one line."""
    said = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return f"cannot be asked from this machine: {said}; allow more open files (ulimit -n) or processes (ulimit -u)"


async def _survey(hosts: Sequence[SshHost], asked: Survey, most: int) -> list[HostReport]:
    with tempfile.TemporaryDirectory(prefix="gpufleet-ssh-") as folder:
        config = _client_files(pathlib.Path(folder), hosts, asked.login)
        reports = await _Asking(config, hosts, asked, min(most, len(hosts))).finished()
    return [reports[host.name] for host in hosts]


class _Asking:
    """Hosts that wait to be asked, and so many askers who each ask one after another."""

    def __init__(self, config: pathlib.Path, hosts: Sequence[SshHost], asked: Survey, askers: int) -> None:
        self._config, self._asked = config, asked
        self._waiting = collections.deque(hosts)
        self._askers = askers
        self._tries = 10
        self._reports: dict[str, HostReport] = {}

    async def finished(self) -> Mapping[str, HostReport]:
        """Every host's report, by its name."""
        await asyncio.gather(*(self._one_after_another() for _ in range(self._askers)))
        return self._reports

    async def _one_after_another(self) -> None:
        """Asks until nobody waits. An asker who finds no room for a client leaves the host to the others and is gone,
        so fewer are asked at once from then on; the last one does not give up so easily."""
        while self._waiting:
            host = self._waiting.popleft()
            alone = self._askers == 1
            try:
                self._reports[host.name] = await _ask(self._config, host, self._asked)
            except NoRoom as reason:
                if alone and self._tries == 0:
                    self._reports[host.name] = HostReport(host, None, (f"ssh: {no_room(reason)}",), 0)
                    continue
                self._waiting.appendleft(host)
                if self._askers > 1:
                    break
                if alone:
                    self._tries -= 1
                # What has just ended takes a moment to make room.
                await asyncio.sleep(0.1)
        self._askers -= 1


def _client_files(folder: pathlib.Path, hosts: Sequence[SshHost], login: SshLogin) -> pathlib.Path:
    """Configuration, pinned keys and private key in a folder that only this user can read."""
    known, config, identity = folder / "known_hosts", folder / "ssh_config", folder / "identity"
    known.write_text(known_hosts(hosts, login))
    if isinstance(login.private_key, str):
        identity.touch(mode=0o600)
        identity.write_text(login.private_key.rstrip("\n") + "\n")
    identity_file = str(identity) if identity.exists() else None
    config.write_text(ssh_config(hosts, login, known_hosts_file=str(known), identity_file=identity_file))
    return config


async def _ask(config: pathlib.Path, host: SshHost, asked: Survey) -> HostReport:
    began = time.monotonic()
    facts: HostFacts | None = None
    failures: list[str] = []
    try:
        async with asyncio.timeout(asked.seconds):
            facts, skew = await _facts(config, host)
            failures += preflight_failures(facts, asked.needs.get(host.name, HostNeeds()), skew_seconds=skew)
            shell = "sh -s" if user_of(host, asked.login) == "root" else "sudo -n sh -s"
            for script in asked.verifications.values() if facts.root else ():
                _, errors, _ = await _run(config, host, f"{shell} verify", script)
                failures += errors.splitlines()
    except TimeoutError:
        failures.append(f"ssh: has not answered all of it within {asked.seconds:g} s; is it overloaded?")
    except Unreachable as reason:
        failures.append(f"ssh: {reason}")
    except ValueError as error:
        failures.append(f"facts: {error}")
    return HostReport(host, facts, tuple(failures), time.monotonic() - began)


async def _facts(config: pathlib.Path, host: SshHost) -> tuple[HostFacts, float]:
    """The host's facts, and how many seconds its clock is ahead of this machine's."""
    before = time.time()
    printed, _, answered = await _run(config, host, "sh -s", preflight_script())
    facts = parse_facts(printed)
    # The script reads the clock between these two; whatever lies between them is no skew.
    if before <= facts.clock <= answered:
        return facts, 0
    return facts, facts.clock - (answered if facts.clock > answered else before)


async def _run(config: pathlib.Path, host: SshHost, command: str, script: str) -> tuple[str, str, float]:
    """What a script printed on a host, what it complained of, and when it was done, in seconds since 1970.

    Raises Unreachable, and NoRoom.
    """
    try:
        client = await asyncio.create_subprocess_exec(
            *("ssh", "-F", str(config), host.name, command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, RuntimeError) as error:
        # Python 3.11 waits for each process in a thread of its own, and says by RuntimeError that it gets none.
        raise NoRoom(getattr(error, "strerror", None) or str(error)) from None
    try:
        out, err = await client.communicate(script.encode())
    finally:
        # Left over where time ran out or somebody pressed Ctrl-C.
        if client.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                client.kill()
            await client.wait()
    errors = err.decode(errors="replace")
    if client.returncode == 255:
        raise Unreachable(_reason(errors))
    return out.decode(errors="replace"), errors, time.time()


def _reason(errors: str) -> str:
    """What the client's complaints mean, in one line."""
    for phrase, meaning in REASONS.items():
        if phrase in errors:
            return meaning
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else "the client gave no reason"


def table(reports: Sequence[HostReport]) -> Table:
    """The reports for people: one row per host, one line per failure."""
    columns = ("host", "os", "kernel", "memory", "GPUs", "driver", "render", "to be done")
    made = terminal.table(*columns, left=columns)
    for report in reports:
        cells = (report.host.name, *_cells(report.facts), "\n".join(report.failures) or "nothing")
        # As text: in a string, rich takes what is in brackets for a style.
        made.add_row(*(Text(cell) for cell in cells))
    return made


def _cells(facts: HostFacts | None) -> tuple[str, ...]:
    if facts is None:
        return ("",) * 6
    gpus = [f"{count} {vendor}" for count, vendor in ((facts.gpus_amd, "AMD"), (facts.gpus_nvidia, "NVIDIA")) if count]
    drivers = [name for name, there in (("amdgpu", facts.module_amdgpu), ("nvidia", facts.module_nvidia)) if there]
    return (
        f"{facts.os} {facts.os_version}",
        facts.kernel,
        f"{facts.memory_kib / 1024**2:.0f} GiB",
        ", ".join(gpus) or "none",
        ", ".join(drivers) or "none",
        "" if facts.render_gid is None else str(facts.render_gid),
    )
