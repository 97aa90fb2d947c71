"""ARC itself in the sandbox: seconds from queued to running, pauses of runners between jobs, and memory.

It runs where GPUFLEET_ARC has ARC's programs and GPUFLEET_CHARTS its charts.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import lifecycle
from gpufleet_tools.sandbox.arc import programs
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.rehearsal import CHARTS
from tests.bench.fleets import project

JOBS = (1, 10, 100, 400)
LABELS = (1, 10, 50)
TURNOVER = (1, 8, 32)
"""Numbers of runners that work off JOBS_OF_A_RUNNER short jobs each."""

JOBS_OF_A_RUNNER, SECONDS_OF_A_JOB = 5, 2.0
PER_NODE = 4
"""Runners of the fleet that fit a node."""

LIMIT = 300.0


def measure(*, smallest: bool = False) -> None:
    """Prints the tables, or why it cannot."""
    if missing := [name for name in (programs.ARC, CHARTS) if name not in os.environ]:
        print(f"arc: not measured: {', '.join(missing)} not set")
        return
    last = 1 if smallest else None
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(pathlib.Path(folder, "state"))
        Console(highlight=False).print(_starts(pathlib.Path(folder), JOBS[:last]))
        Console(highlight=False).print(_turnover(pathlib.Path(folder), TURNOVER[:last]))
        Console(highlight=False).print(_memory(pathlib.Path(folder), LABELS[:last]))


def _starts(folder: pathlib.Path, counts: Sequence[int]) -> Table:
    """One label without idle runners gets jobs, a number at a time."""
    table = Table("jobs at once", "first, s", "median, s", "last, s", title="from queued to running", box=None)
    most = max(counts)
    root = project(folder / "starts", runners=1, nodes=max(3, -(-most // PER_NODE)), maximum=most)
    try:
        github = _up(root, 1)
        for count in counts:
            before = len(github.call("state")["jobs"])
            github.call("queue", label="linux-mi300-gpu-2-0", count=count, seconds=None)
            waits = sorted(_waits(github, before, count))
            table.add_row(str(count), f"{waits[0]:.1f}", f"{statistics.median(waits):.1f}", f"{waits[-1]:.1f}")
            github.call("end", label=None, count=None, result="succeeded")
            _until(lambda: github.call("state")["runners"] == 0)
    finally:
        lifecycle.down(root, "mi300")
    return table


def _turnover(folder: pathlib.Path, sizes: Sequence[int]) -> Table:
    """A label with a maximum of runners works off more short jobs, each on a new runner."""
    columns = ("runners", "jobs", "in all, s", "pause between two jobs, s")
    table = Table(*columns, title="turnover: another runner after each job", box=None)
    for runners in sizes:
        nodes = max(3, -(-runners // PER_NODE))
        root = project(folder / f"turnover-{runners}", runners=1, nodes=nodes, maximum=runners)
        count = runners * JOBS_OF_A_RUNNER
        try:
            github = _up(root, 1)
            github.call("queue", label="linux-mi300-gpu-2-0", count=count, seconds=SECONDS_OF_A_JOB)
            times = _finished(github, count)
        finally:
            lifecycle.down(root, "mi300")
        took = max(each["finished"] for each in times) - min(each["started"] for each in times)
        worked = sum(each["finished"] - each["started"] for each in times) / runners
        pause = (took - worked) / (JOBS_OF_A_RUNNER - 1)
        table.add_row(str(runners), str(count), f"{took:.1f}", f"{pause:.1f}")
    return table


def _finished(github: Control, count: int) -> list[dict[str, float]]:
    """Wait until so many jobs have finished, and return the times of each."""

    def finished() -> list[dict[str, float]]:
        return [job["times"] for job in github.call("state")["jobs"] if "finished" in job["times"]]

    _until(lambda: len(finished()) == count)
    return finished()


def _memory(folder: pathlib.Path, sizes: Sequence[int]) -> Table:
    """Each label has a listener, which is a process."""
    table = Table("labels", "controller, MiB", "each listener, MiB", title="resident memory", box=None)
    for labels in sizes:
        root = project(folder / f"memory-{labels}", runners=labels)
        try:
            processes = _up(root, labels).call("state")["processes"]
            listeners = [_resident(pid) for name, pid in processes.items() if name.endswith("-listener")]
            (controller,) = (_resident(pid) for name, pid in processes.items() if not name.endswith("-listener"))
            table.add_row(str(labels), f"{controller:.0f}", f"{statistics.mean(listeners):.0f}")
        finally:
            lifecycle.down(root, "mi300")
    return table


def _up(root: pathlib.Path, labels: int) -> Control:
    """Bring the fleet up without jobs, and wait until every listener has a session."""
    read = stack.read(root, "mi300")
    lifecycle.up(read, read.plan(), None, [f"{label}=0" for label in read.settings.runners], runs_arc=True)
    github = Control.of(lifecycle.running(read))
    _until(lambda: sum(bool(each["session"]) for each in github.call("state")["scaleSets"].values()) == labels)
    return github


def _waits(github: Control, before: int, count: int) -> list[float]:
    """Wait until the newest jobs run, and return the seconds that each was queued."""

    def newest() -> list[dict[str, float]]:
        return [job["times"] for job in github.call("state")["jobs"][before:] if "started" in job["times"]]

    _until(lambda: len(newest()) == count)
    return [times["started"] - times["queued"] for times in newest()]


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached in {LIMIT:.0f} s")
        time.sleep(0.2)


def _resident(pid: int) -> float:
    """Resident MiB of a process."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
