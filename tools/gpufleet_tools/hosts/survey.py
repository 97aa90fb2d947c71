"""Parallel survey of hosts with the SSH client of this machine: facts of each, then the paths between them."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import functools
import pathlib
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpufleet.bare_metal.preflight.facts import HostFacts, parse_facts, preflight_script
from gpufleet.bare_metal.preflight.needs import HostNeeds
from gpufleet.bare_metal.preflight.rules import preflight_failures
from gpufleet.bare_metal.ssh import SshHost, SshLogin, root_shell, ssh_problems
from gpufleet.problem import refuse
from gpufleet_tools.hosts import between_hosts
from gpufleet_tools.hosts.clients import (
    AT_ONCE,
    AT_ONCE_BY_JUMP,
    ClientLimit,
    Unreachable,
    Workers,
    client_files,
    clients_with_files,
    limit_message,
    run,
)
from gpufleet_tools.hosts.paths import Paths, Peer, parse_paths, scripts


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
    skew: float | None = None
    """Seconds by which its clock is ahead of this machine's."""
    unmeasured: tuple[str, ...] = ()
    """Measurements without a result."""


@dataclass(frozen=True)
class Survey:
    """Parameters of a survey."""

    login: SshLogin
    """Login. A private key must be text here, not an output."""
    needs: Mapping[str, HostNeeds] = field(default_factory=dict)
    """Requirements of each host, by its name; a host that is not listed has none."""
    verifications: Mapping[str, str] = field(default_factory=dict)
    """Scripts that print deviations of a host to standard error, by what they verify; run as root with the argument
    `verify`."""
    verified: Collection[str] | None = None
    """Names of the hosts that are verified; None for all."""
    peers: Sequence[Peer] = ()
    """Hosts between which paths are measured."""
    heartbeat_milliseconds: float = between_hosts.HEARTBEAT_MILLISECONDS
    """Interval of etcd's heartbeats."""
    seconds: float = 60
    """Time limit of one host: for its facts, and again for its paths."""


def survey(hosts: Sequence[SshHost], parameters: Survey) -> list[HostReport]:
    """Survey all hosts in parallel, and return a report about each, including unreachable ones. If this machine has few
    open files or processes left, fewer hosts are surveyed in parallel; if it has none, each report says so.

    Raises ValueError for invalid hosts or login, FileNotFoundError without an SSH client, and OSError if the
    configuration cannot be written, as on a full disk.
    """
    login = parameters.login
    refuse("ssh", ssh_problems(hosts, login))
    if login.private_key is not None and not isinstance(login.private_key, str):
        raise ValueError("login.private_key: is an output; pass its text")
    if shutil.which("ssh") is None:
        raise FileNotFoundError("ssh: no SSH client on PATH; install openssh-client")
    try:
        parallel = min(AT_ONCE_BY_JUMP if login.jump else AT_ONCE, clients_with_files())
        return asyncio.run(_survey(hosts, parameters, parallel))
    except (ClientLimit, OSError) as reason:
        if isinstance(reason, OSError) and reason.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return [_unsurveyed(host, reason) for host in hosts]


def _unsurveyed(host: SshHost, reason: Exception) -> HostReport:
    return HostReport(host, None, (f"ssh: {limit_message(reason)}",), 0)


async def _survey(hosts: Sequence[SshHost], parameters: Survey, parallel: int) -> list[HostReport]:
    with tempfile.TemporaryDirectory(prefix="gpufleet-ssh-") as folder:
        config = client_files(pathlib.Path(folder), hosts, parameters.login)
        ask = functools.partial(_report, config, parameters)
        reports: dict[str, HostReport] = {}
        by_name = {host.name: host for host in hosts}
        for name, answer in (await Workers(hosts, ask, parallel).finished()).items():
            reports[name] = _unsurveyed(by_name[name], answer) if isinstance(answer, ClientLimit) else answer
        # A host that cannot be reached is one fault, not one for each path that leads to it.
        reached = {peer.name for peer in parameters.peers if reports[peer.name].facts}
        measuring = scripts([peer for peer in parameters.peers if peer.name in reached])
        measure = functools.partial(_paths, config, parameters, reports, measuring)
        paths = await Workers([by_name[name] for name in measuring], measure, parallel).finished()
    measured = {name: each for name, each in paths.items() if isinstance(each, Paths)}
    return _judged([reports[host.name] for host in hosts], measured, parameters)


def _judged(reports: Sequence[HostReport], paths: Mapping[str, Paths], parameters: Survey) -> list[HostReport]:
    """Return the reports with unmet requirements: of each host, and between hosts."""
    facts = {report.host.name: report.facts for report in reports if report.facts}
    right = between_hosts.reference_skew({each.host.name: each.skew for each in reports if each.skew is not None})
    found: dict[str, list[str]] = {
        report.host.name: preflight_failures(
            report.facts,
            parameters.needs.get(report.host.name, HostNeeds()),
            skew_seconds=None if report.skew is None else report.skew - right,
        )
        for report in reports
        if report.facts
    }
    for name, line in between_hosts.faults(facts, paths, parameters.heartbeat_milliseconds):
        found[name].append(line)
    return [
        dataclasses.replace(
            report,
            failures=(*found.get(report.host.name, ()), *report.failures),
            unmeasured=paths[report.host.name].unmeasured if report.host.name in paths else (),
        )
        for report in reports
    ]


async def _report(config: pathlib.Path, parameters: Survey, host: SshHost) -> HostReport:
    """Return the facts of a host, its skew, and what its verifications find."""
    began = time.monotonic()
    facts: HostFacts | None = None
    skew: float | None = None
    failures: list[str] = []
    is_verified = parameters.verified is None or host.name in parameters.verified
    try:
        async with asyncio.timeout(parameters.seconds):
            facts, skew = await _facts(config, host)
            for script in parameters.verifications.values() if facts.root and is_verified else ():
                _, errors, _ = await run(config, host, f"{root_shell(host, parameters.login)} verify", script)
                failures += errors.splitlines()
    except TimeoutError:
        failures.append(f"ssh: not finished within {parameters.seconds:g} s; check its load")
    except Unreachable as reason:
        failures.append(f"ssh: {reason}")
    except ValueError as error:
        failures.append(f"facts: {error}")
    return HostReport(host, facts, tuple(failures), time.monotonic() - began, skew)


async def _facts(config: pathlib.Path, host: SshHost) -> tuple[HostFacts, float]:
    """Return the host's facts, and the seconds by which its clock is ahead of this machine's."""
    before = time.time()
    printed, _, answered = await run(config, host, "sh -s", preflight_script())
    facts = parse_facts(printed)
    # The script reads the clock between these two times; a value between them is not a skew.
    if before <= facts.clock <= answered:
        return facts, 0
    return facts, facts.clock - (answered if facts.clock > answered else before)


async def _paths(
    config: pathlib.Path,
    parameters: Survey,
    reports: Mapping[str, HostReport],
    measuring: Mapping[str, str],
    host: SshHost,
) -> Paths:
    """Return what a host measures, as root where possible."""
    facts = reports[host.name].facts
    shell = root_shell(host, parameters.login) if facts and facts.root else "sh -s"
    try:
        async with asyncio.timeout(parameters.seconds):
            printed, _, _ = await run(config, host, shell, measuring[host.name])
    except (TimeoutError, Unreachable):
        return Paths(unmeasured=("paths to other hosts: the connection ended before",))
    return parse_paths(printed)
