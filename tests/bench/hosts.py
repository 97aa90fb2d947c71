"""What many hosts cost: to ask them all what they are like, and to find that nothing about them has changed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from gpufleet.bare_metal import HostNeeds, SshHost, SshLogin
from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs
from gpufleet.bare_metal.kubespray.cluster import KubesprayCluster, folder_of
from gpufleet.bare_metal.kubespray.driver.folder import NO_CLUSTER, Cluster
from gpufleet.bare_metal.kubespray.driver.steps import committed, whole
from gpufleet.bare_metal.kubespray.inventory import desired
from gpufleet.bare_metal.preflight.facts import preflight_script
from gpufleet_tools.hosts.clients import AT_ONCE
from gpufleet_tools.hosts.survey import Survey, survey
from tests.bare_metal import DOCUMENT_000, HOST_KEY, node
from tests.components.bare_metal.kubespray.runs import HERE, Runner
from tests.hosts import base_layer, namespaces
from tests.hosts.latency import far_away
from tests.hosts.namespaces import Hosts
from tests.recording import on_hosts, recorded

ROUND_TRIP = 0.1
"""Seconds from here to a host and back."""

ROUND_TRIPS = 10
"""Of one question, from `ssh -vvv` (OpenSSH 9.2): TCP, versions and KEXINIT, key exchange, user authentication asked
for, `none` refused, key offered, key proven, session opened, command begun, script sent and answered. The relay of
tests/hosts/latency.py in front of a real server agrees: 2.3 s at 200 ms, 5.3 s at 500 ms."""

CLIENT = """\
#!/bin/sh
cat > /dev/null
sleep {seconds}
date +clock=%s.%N
exec cat {facts}
"""
"""Stands for the SSH client, and costs little: what waits for 100 hosts is measured, not what a client computes."""

ANYTHING = HostNeeds(kubernetes=False, memory_mib=0, disk_gib=0)

Measured = Mapping[int, Sequence[float]]
"""Seconds of each round, by the number of hosts."""


def measure(*, smallest: bool = False) -> None:
    """Prints the simulated preflight, the real one where this machine can make hosts, and runs without changes."""
    console = Console(highlight=False)
    counts = (1, 10) if smallest else (1, 10, 30, 100)
    with tempfile.TemporaryDirectory() as folder, _simulated_client(pathlib.Path(folder)):
        hosts = [SshHost(name=f"node-{n}", address=f"10.0.0.{n}", host_keys=[HOST_KEY]) for n in range(100)]
        login = SshLogin(user="root", private_key="none")
        seconds = _surveys({count: _asking(hosts[:count], login) for count in counts}, rounds=1 if smallest else 3)
    console.print(f"simulated client: {ROUND_TRIPS} round trips of {ROUND_TRIP * 1000:g} ms; {AT_ONCE} hosts at once")
    table = Table("hosts", "seconds", "x 1 host (at most 3)", title="preflight, simulated", box=None)
    for count in seconds:
        table.add_row(str(count), f"{statistics.median(seconds[count]):.2f}", f"{_ratio(seconds, count):.2f}")
    console.print(table)
    if lacks := namespaces.missing() + base_layer.missing():
        console.print(f"no real SSH servers: this machine lacks {', '.join(lacks)}")
    else:
        console.print(_real_servers((1, 5) if smallest else (1, 5, 10, 20, 50), rounds=1 if smallest else 2))
    console.print(_no_change((1, 10) if smallest else (1, 10, 100, 300)))


@contextlib.contextmanager
def _simulated_client(folder: pathlib.Path) -> Iterator[None]:
    """An `ssh` that comes first on PATH. Its hosts have the facts of this machine."""
    printed = subprocess.run(["sh", "-s"], input=preflight_script(), capture_output=True, text=True, check=True).stdout
    facts, client = folder / "facts", folder / "ssh"
    facts.write_text("".join(f"{line}\n" for line in printed.splitlines() if not line.startswith("clock=")))
    client.write_text(CLIENT.format(seconds=ROUND_TRIPS * ROUND_TRIP, facts=facts))
    client.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _asking(hosts: Sequence[SshHost], login: SshLogin) -> Callable[[], None]:
    def ask() -> None:
        reports = survey(hosts, Survey(login, {host.name: ANYTHING for host in hosts}))
        # Whether this machine would do for a cluster is not asked here.
        if failed := [f"{report.host.name}: {report.failures[0]}" for report in reports if report.facts is None]:
            raise RuntimeError("; ".join(failed))

    return ask


def _surveys(asking: Mapping[int, Callable[[], None]], rounds: int) -> Measured:
    """Every number of hosts once a round, after one round that does not count."""
    seconds: dict[int, list[float]] = {count: [] for count in asking}
    for number in range(rounds + 1):
        for count, ask in asking.items():
            began = time.perf_counter()
            ask()
            if number:
                seconds[count].append(time.perf_counter() - began)
    return seconds


def _ratio(seconds: Measured, count: int) -> float:
    """Median of the ratios to one host, round by round."""
    return statistics.median(many / one for many, one in zip(seconds[count], seconds[1], strict=True))


def _real_servers(counts: Sequence[int], rounds: int) -> Table:
    """Real clients and real servers, all on this machine, which computes for both ends of every connection."""
    title = f"preflight, real SSH, servers and clients on {os.cpu_count()} cores"
    near, far = "at once, s", f"{ROUND_TRIP * 1000:g} ms away, s"
    table = Table("hosts", near, "x 1 host", "CPU s of clients a host", far, "x 1 host", title=title, box=None)
    with tempfile.TemporaryDirectory() as folder:
        base = base_layer.make(pathlib.Path(folder, "base"))
        with Hosts(pathlib.Path(folder, "hosts"), base) as made:
            hosts = [made.start(f"node-{n}").ssh for n in range(max(counts))]
            login = dataclasses.replace(made.login, dial_seconds=15)
            with far_away(hosts, ROUND_TRIP) as afar:
                here = _surveys({count: _asking(hosts[:count], login) for count in counts}, rounds=rounds)
                there = _surveys({count: _asking(afar[:count], login) for count in counts}, rounds=rounds)
            computed = {count: _client_seconds(_asking(hosts[:count], login)) / count for count in counts}
    for count in counts:
        table.add_row(
            str(count),
            f"{statistics.median(here[count]):.2f}",
            f"{_ratio(here, count):.1f}",
            f"{computed[count]:.3f}",
            f"{statistics.median(there[count]):.2f}",
            f"{_ratio(there, count):.1f}",
        )
    return table


def _client_seconds(ask: Callable[[], None]) -> float:
    """CPU seconds of the processes that a survey starts."""
    before = os.times()
    ask()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _no_change(sizes: Sequence[int]) -> Table:
    """A cluster whose machines are all there, recorded twice, and what kubespray's driver makes of it."""
    table = Table(
        *("workers", "program, s", "resources that differ", "driver, s", "playbooks run"),
        title="runs without changes",
        box=None,
    )
    for workers in sizes:
        with tempfile.TemporaryDirectory() as folder:
            args = _cluster(workers, folder)
            seconds, differing = _recorded_twice(args)
            decided, playbooks = _decided(args)
        table.add_row(str(workers), f"{seconds:.2f}", str(differing), f"{decided:.2f}", str(playbooks))
    return table


def _cluster(workers: int, folder: str) -> KubesprayClusterArgs:
    """Document 000's control plane, and so many workers."""
    first = [each for each in DOCUMENT_000.nodes if "control_plane" in each.roles]
    further = [node(f"mi300x-{n}", f"10.0.{n >> 8}.{n & 255}") for n in range(workers)]
    return dataclasses.replace(DOCUMENT_000, nodes=[*first, *further], directory=folder, kubespray=HERE)


def _recorded_twice(args: KubesprayClusterArgs) -> tuple[float, int]:
    """Seconds of the faster recording, and how many resources are not the same in both."""
    plans, seconds = [], []
    for _ in range(2):
        began = time.perf_counter()
        plans.append(recorded(lambda: KubesprayCluster("mi300", args, on_hosts()), unknown_outputs=False))
        seconds.append(time.perf_counter() - began)
    before, after = ({each.urn: each for each in plan.resources} for plan in plans)
    return min(seconds), sum(before.get(urn) != after.get(urn) for urn in before.keys() | after.keys())


def _decided(args: KubesprayClusterArgs) -> tuple[float, int]:
    """Seconds of a `converge` with nothing to do, as a process of its own, and how many playbooks it ran."""
    runner = Runner(args)
    if (ended := runner.install()).code:
        raise RuntimeError(ended.err)
    wanted, cluster = desired(args), Cluster(pathlib.Path(folder_of(args)))
    # The journal of a first run that has ended well.
    run = whole("cluster.yml", wanted["nodes"], list(wanted["nodes"]))
    cluster.keep(committed(NO_CLUSTER, wanted, run))
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        ended = runner.converge()
        seconds.append(time.perf_counter() - began)
        if ended.code:
            raise RuntimeError(ended.err)
    return statistics.median(seconds), len(runner.calls())
