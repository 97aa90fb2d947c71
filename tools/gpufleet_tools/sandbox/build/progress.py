"""Progress of builds and downloads: a bar in a terminal, lines otherwise."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Display:
    """Progress of a build in a terminal: one bar for all binaries, with the remaining time."""

    def __init__(self, missing: Mapping[str, float], progress: Progress) -> None:
        self._left = dict(missing)
        self._total = sum(self._left.values())
        self._progress = progress
        self._task = progress.add_task("", total=self._total, left="")
        self._started = self._current_started = time.monotonic()
        self._current = 0.0
        self._pace = 1.0

    def now(self, name: str, seconds: float) -> None:
        """Show that `name` is being built. `seconds` is the expected time on the machine of the table."""
        self._current, self._current_started = seconds, time.monotonic()
        if seconds == 0:
            self._started = time.monotonic()
        self._progress.update(self._task, description=name)
        self.tick()

    def tick(self) -> Literal[True]:
        """Update the bar. The progress of one binary is estimated from the time, up to 95% of its share."""
        spent = (time.monotonic() - self._current_started) / self._pace
        finished = self._total - sum(self._left.values())
        share = min(spent, 0.95 * self._current)
        minutes, seconds = divmod(round((self._total - finished - share) * self._pace), 60)
        self._progress.update(self._task, completed=finished + share, left=f"about {minutes}:{seconds:02d} left")
        return True

    def done(self, name: str) -> None:
        """Show that `name` is complete. The elapsed time, compared with the table, gives the speed of this machine."""
        del self._left[name]
        self._pace = max(0.05, (time.monotonic() - self._started) / (self._total - sum(self._left.values())))


class Lines(Display):
    """Progress of a build without a terminal, such as in CI: one line at the start of each binary."""

    def __init__(self, missing: Mapping[str, float], console: Console) -> None:
        super().__init__(missing, Progress(disable=True))
        self._console = console

    def now(self, name: str, seconds: float) -> None:
        super().now(name, seconds)
        left = round(sum(self._left.values()) * self._pace)
        self._console.print(f"building {name}, about {left} s left" if seconds else "loading Go modules")


@contextlib.contextmanager
def displayed(missing: Mapping[str, float], console: Console) -> Iterator[Display]:
    """Show the progress of a build. `missing` has the expected seconds of each binary."""
    if not console.is_terminal:
        yield Lines(missing, console)
        return
    columns = (
        TextColumn("building {task.description:<24}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Display(missing, progress)


class Transfer:
    """Progress of sequential downloads."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def begin(self, name: str, length: int) -> None:
        """Show that `name` is being downloaded: `length` bytes, 0 if unknown."""
        self._progress.reset(self._task, description=name, total=length or None)
        if not self._console.is_terminal:
            self._console.print(f"downloading {name}" + (f", {length / 1e6:.0f} MB" if length else ""))

    def received(self, count: int) -> None:
        """Add `count` bytes to the bar."""
        self._progress.advance(self._task, count)


@contextlib.contextmanager
def transfers(console: Console) -> Iterator[Transfer]:
    """Show the progress of downloads."""
    columns = (
        TextColumn("downloading {task.description:<24}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Transfer(console, progress)
