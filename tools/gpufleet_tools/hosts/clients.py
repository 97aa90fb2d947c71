"""SSH clients of this machine: as many at the same time as its limits and a jump host's allow."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import pathlib
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from gpufleet.bare_metal.ssh import SshHost, SshLogin, known_hosts, ssh_config

T = TypeVar("T")

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


class Workers(Generic[T]):
    """Queue of hosts, and workers that do the same for one host after another."""

    def __init__(self, hosts: Sequence[SshHost], work: Callable[[SshHost], Awaitable[T]], parallel: int) -> None:
        self._work_on = work
        self._waiting = collections.deque(hosts)
        self._workers = min(parallel, len(hosts))
        self._tries = 10
        self._results: dict[str, T | ClientLimit] = {}

    async def finished(self) -> Mapping[str, T | ClientLimit]:
        """Return the results of all hosts, by name; for a host without a client, the reason."""
        await asyncio.gather(*(self._work() for _ in range(self._workers)))
        return self._results

    async def _work(self) -> None:
        """Work until the queue is empty. A worker that cannot start a client returns its host to the queue and ends, so
        that fewer run in parallel; the last worker tries again ten times."""
        while self._waiting:
            host = self._waiting.popleft()
            is_last = self._workers == 1
            try:
                self._results[host.name] = await self._work_on(host)
            except ClientLimit as reason:
                if is_last and self._tries == 0:
                    self._results[host.name] = reason
                    continue
                self._waiting.appendleft(host)
                if self._workers > 1:
                    break
                if is_last:
                    self._tries -= 1
                # Resources of ended processes take a moment to be released.
                await asyncio.sleep(0.1)
        self._workers -= 1


def client_files(folder: pathlib.Path, hosts: Sequence[SshHost], login: SshLogin) -> pathlib.Path:
    """Write configuration, pinned keys and private key into a folder that only this user can read."""
    known, config, identity = folder / "known_hosts", folder / "ssh_config", folder / "identity"
    known.write_text(known_hosts(hosts, login))
    if isinstance(login.private_key, str):
        identity.touch(mode=0o600)
        identity.write_text(login.private_key.rstrip("\n") + "\n")
    identity_file = str(identity) if identity.exists() else None
    config.write_text(ssh_config(hosts, login, known_hosts_file=str(known), identity_file=identity_file))
    return config


async def run(config: pathlib.Path, host: SshHost, command: str, script: str) -> tuple[str, str, float]:
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
