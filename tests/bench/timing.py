"""Wall time and memory of whole processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One process, from start to end."""

    seconds: float
    mebibytes: float
    """Largest resident set of the process."""
    cpu: float
    """Seconds of CPU, of the process and of those that it started and waited for."""


def run(command: Sequence[str], cwd: str | None = None) -> Run:
    """Run a command without its output. Exit code 1 counts too: findings are not a failure here.

    Raises RuntimeError with what a command that failed has written to standard error.
    """
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            errors.seek(0)
            why = errors.read().decode(errors="replace").strip()
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {why}")
    return Run(seconds, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def in_turn(commands: Mapping[str, Sequence[str]], rounds: int, cwd: str | None = None) -> dict[str, list[Run]]:
    """Every command once a round, after one round that does not count: a drift of the machine meets all alike."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            one = run(command, cwd)
            if number:
                runs[name].append(one)
    return runs


def median(runs: Sequence[Run]) -> float:
    """Median wall time in seconds."""
    return statistics.median(one.seconds for one in runs)


def median_cpu(runs: Sequence[Run]) -> float:
    """Median CPU time in seconds: it says the same on a busy machine."""
    return statistics.median(one.cpu for one in runs)


def ratio(runs: Sequence[Run], base: Sequence[Run]) -> float:
    """Median of the ratios, round by round."""
    return statistics.median(one.seconds / other.seconds for one, other in zip(runs, base, strict=True))
