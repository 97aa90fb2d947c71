"""Parallel survey of hosts with the SSH client of this machine."""

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
"""Hosts that are surveyed in parallel; fewer if open files or processes are scarce: on macOS a process may open 256
files (launchctl(1), `limit maxfiles`)."""

AT_ONCE_BY_JUMP = 10
"""The same through a jump host: above ten connections without login, its server drops some (`MaxStartups` in
sshd_config(5), 10:30:100 by default)."""

FILES_PER_CLIENT = 4
"""Open files of a client: its standard input, output and error, and from Python 3.12 on Linux the process."""

FILES_BESIDE = 24
"""Other open files: those of the event loop, of the configuration, and of a client that is being started."""

REASONS: Mapping[str, str] = {
    "Host key verification failed": (
        "the host key differs from the pinned one; compare them on the machine's console, and correct host_keys if it"
        " was reinstalled"
    ),
    "Permission denied": "none of the offered keys is accepted; add the key to the user's authorized_keys",
    "Connection refused": "connection refused on that port; start the SSH server",
    "No route to host": "unreachable; check that it runs and is in this network",
    "Network is unreachable": "unreachable; check that it runs and is in this network",
    "Could not resolve hostname": "the host name cannot be resolved",
    "Connection timed out": "no response; check that it runs and that its firewall admits this machine",
    "not responding": "no response any more; the connection was lost",
    "Broken pipe": "the host closed the connection",
    "Connection reset": "the host closed the connection",
    "Connection closed by": "the host closed the connection",
    "closed by remote host": "the host closed the connection",
}
"""Messages of the SSH client, and their explanations."""


class Unreachable(Exception):
    """A host cannot be surveyed. `str()` is one line."""


class ClientLimit(Exception):
    """This machine cannot start another client. `str()` is one line."""


@dataclass(frozen=True)
class HostReport:
    """Report about one host."""

    host: SshHost
    """The host."""
    facts: HostFacts | None
    """Facts about the host; None if it could not be surveyed."""
    failures: tuple[str, ...]
    """Requirements that it does not meet, one line each."""
    seconds: float
    """Duration of its survey."""


@dataclass(frozen=True)
class Survey:
    """Parameters of a survey."""

    login: SshLogin
    """Login. A private key must be text here, not an output."""
    needs: Mapping[str, HostNeeds]
    """Requirements of each host, by its name; a host that is not listed has none."""
    verifications: Mapping[str, str]
    """Scripts that print deviations of a host to standard error, by what they verify; run as root with the argument
    `verify`."""
    seconds: float
    """Time limit of one host."""


def survey(
    hosts: Sequence[SshHost],
    login: SshLogin,
    needs: Mapping[str, HostNeeds] | None = None,
    *,
    verifications: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> list[HostReport]:
    """Survey all hosts in parallel, and return a report about each, including unreachable ones. If this machine has few
    open files or processes left, fewer hosts are surveyed in parallel; if it has none, each report says so.

    `needs` is by host name; `verifications` by what is verified, such as `NvidiaContainerToolkit.verification`.

    Raises ValueError for invalid hosts or login, FileNotFoundError without an SSH client, and OSError if the
    configuration cannot be written, as on a full disk.
    """
    refuse("ssh", ssh_problems(hosts, login))
    if login.private_key is not None and not isinstance(login.private_key, str):
        raise ValueError("login.private_key: is an output; pass its text")
    if shutil.which("ssh") is None:
        raise FileNotFoundError("ssh: no SSH client on PATH; install openssh-client")
    parameters = Survey(login, needs or {}, verifications or {}, seconds)
    try:
        parallel = min(AT_ONCE_BY_JUMP if login.jump else AT_ONCE, clients_with_files())
        return asyncio.run(_survey(hosts, parameters, parallel))
    except (ClientLimit, OSError) as reason:
        if isinstance(reason, OSError) and reason.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return [HostReport(host, None, (f"ssh: {limit_message(reason)}",), 0) for host in hosts]


def clients_with_files() -> int:
    """Return the number of clients that can have open files at the same time; at least one.

    Raises ClientLimit if there is none, and OSError if even that cannot be determined.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return AT_ONCE
    # The limit applies to descriptor numbers; some may have been opened above it before it was set.
    left = limit - sum(int(file.name) < limit for file in pathlib.Path("/dev/fd").iterdir()) - FILES_BESIDE
    if left < FILES_PER_CLIENT:
        raise ClientLimit("Too many open files")
    return left // FILES_PER_CLIENT


def limit_message(reason: Exception) -> str:
    """Return one line about this machine's limit."""
    message = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return f"not surveyed: {message} on this machine; allow more open files (ulimit -n) or processes (ulimit -u)"


async def _survey(hosts: Sequence[SshHost], parameters: Survey, parallel: int) -> list[HostReport]:
    with tempfile.TemporaryDirectory(prefix="gpufleet-ssh-") as folder:
        config = _client_files(pathlib.Path(folder), hosts, parameters.login)
        reports = await _Workers(config, hosts, parameters, min(parallel, len(hosts))).finished()
    return [reports[host.name] for host in hosts]


class _Workers:
    """Queue of hosts, and workers that survey one host after another."""

    def __init__(self, config: pathlib.Path, hosts: Sequence[SshHost], parameters: Survey, workers: int) -> None:
        self._config, self._parameters = config, parameters
        self._waiting = collections.deque(hosts)
        self._workers = workers
        self._tries = 10
        self._reports: dict[str, HostReport] = {}

    async def finished(self) -> Mapping[str, HostReport]:
        """Return the reports of all hosts, by name."""
        await asyncio.gather(*(self._work() for _ in range(self._workers)))
        return self._reports

    async def _work(self) -> None:
        """Survey hosts until the queue is empty. A worker that cannot start a client returns its host to the queue and
        ends, so that fewer run in parallel; the last worker tries again ten times."""
        while self._waiting:
            host = self._waiting.popleft()
            is_last = self._workers == 1
            try:
                self._reports[host.name] = await _report(self._config, host, self._parameters)
            except ClientLimit as reason:
                if is_last and self._tries == 0:
                    self._reports[host.name] = HostReport(host, None, (f"ssh: {limit_message(reason)}",), 0)
                    continue
                self._waiting.appendleft(host)
                if self._workers > 1:
                    break
                if is_last:
                    self._tries -= 1
                # Resources of ended processes take a moment to be released.
                await asyncio.sleep(0.1)
        self._workers -= 1


def _client_files(folder: pathlib.Path, hosts: Sequence[SshHost], login: SshLogin) -> pathlib.Path:
    """Write configuration, pinned keys and private key into a folder that only this user can read."""
    known, config, identity = folder / "known_hosts", folder / "ssh_config", folder / "identity"
    known.write_text(known_hosts(hosts, login))
    if isinstance(login.private_key, str):
        identity.touch(mode=0o600)
        identity.write_text(login.private_key.rstrip("\n") + "\n")
    identity_file = str(identity) if identity.exists() else None
    config.write_text(ssh_config(hosts, login, known_hosts_file=str(known), identity_file=identity_file))
    return config


async def _report(config: pathlib.Path, host: SshHost, parameters: Survey) -> HostReport:
    began = time.monotonic()
    facts: HostFacts | None = None
    failures: list[str] = []
    try:
        async with asyncio.timeout(parameters.seconds):
            facts, skew = await _facts(config, host)
            failures += preflight_failures(facts, parameters.needs.get(host.name, HostNeeds()), skew_seconds=skew)
            shell = "sh -s" if user_of(host, parameters.login) == "root" else "sudo -n sh -s"
            for script in parameters.verifications.values() if facts.root else ():
                _, errors, _ = await _run(config, host, f"{shell} verify", script)
                failures += errors.splitlines()
    except TimeoutError:
        failures.append(f"ssh: not finished within {parameters.seconds:g} s; check its load")
    except Unreachable as reason:
        failures.append(f"ssh: {reason}")
    except ValueError as error:
        failures.append(f"facts: {error}")
    return HostReport(host, facts, tuple(failures), time.monotonic() - began)


async def _facts(config: pathlib.Path, host: SshHost) -> tuple[HostFacts, float]:
    """Return the host's facts, and the seconds by which its clock is ahead of this machine's."""
    before = time.time()
    printed, _, answered = await _run(config, host, "sh -s", preflight_script())
    facts = parse_facts(printed)
    # The script reads the clock between these two times; a value between them is not a skew.
    if before <= facts.clock <= answered:
        return facts, 0
    return facts, facts.clock - (answered if facts.clock > answered else before)


async def _run(config: pathlib.Path, host: SshHost, command: str, script: str) -> tuple[str, str, float]:
    """Run a script on a host. Return its standard output, its standard error and its end in seconds since 1970.

    Raises Unreachable and ClientLimit.
    """
    try:
        client = await asyncio.create_subprocess_exec(
            *("ssh", "-F", str(config), host.name, command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, RuntimeError) as error:
        # Python 3.11 waits for each process in a thread, and raises RuntimeError if it cannot start one.
        raise ClientLimit(getattr(error, "strerror", None) or str(error)) from None
    try:
        out, err = await client.communicate(script.encode())
    finally:
        # The client still runs after a timeout or Ctrl-C.
        if client.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                client.kill()
            await client.wait()
    errors = err.decode(errors="replace")
    if client.returncode == 255:
        raise Unreachable(_reason(errors))
    return out.decode(errors="replace"), errors, time.time()


def _reason(errors: str) -> str:
    """Return one line that explains the client's errors."""
    for phrase, meaning in REASONS.items():
        if phrase in errors:
            return meaning
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else "the SSH client failed without a message"


def table(reports: Sequence[HostReport]) -> Table:
    """Return a table with a row for each host and a line for each failure."""
    columns = ("host", "os", "kernel", "memory", "GPUs", "driver", "render", "to fix")
    result = terminal.table(*columns, left=columns)
    for report in reports:
        cells = (report.host.name, *_cells(report.facts), "\n".join(report.failures) or "nothing")
        # Text objects: rich interprets brackets in strings as styles.
        result.add_row(*(Text(cell) for cell in cells))
    return result


def _cells(facts: HostFacts | None) -> tuple[str, ...]:
    if facts is None:
        return ("",) * 6
    gpus = [f"{count} {vendor}" for count, vendor in ((facts.gpus_amd, "AMD"), (facts.gpus_nvidia, "NVIDIA")) if count]
    drivers = [name for name, loaded in (("amdgpu", facts.module_amdgpu), ("nvidia", facts.module_nvidia)) if loaded]
    return (
        f"{facts.os} {facts.os_version}",
        facts.kernel,
        f"{facts.memory_kib / 1024**2:.0f} GiB",
        ", ".join(gpus) or "none",
        ", ".join(drivers) or "none",
        "" if facts.render_gid is None else str(facts.render_gid),
    )
