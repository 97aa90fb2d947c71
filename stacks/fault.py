"""What is wrong with a stack file, one line each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

PROJECT = "gpu-runners"
"""Name of the Pulumi project, and so the namespace of its configuration keys."""

Path = tuple[str | int, ...]
"""Where in the stack file: the configuration key without its namespace, then keys and indices."""


@dataclass(frozen=True)
class Fault:
    """One mistake, at one place of the stack file."""

    file: str
    """The stack file's name."""
    line: int | None
    """Line in that file, counted from 1; None where the value did not come from the file."""
    path: Path
    """Path of the value at fault; empty for the file as a whole."""
    message: str
    """What was got, what is allowed, what to do. Holds no secret."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {dotted(self.path)}: {self.message}" if self.path else f"{where}: {self.message}"


class InvalidSettings(Exception):
    """A stack file cannot be used. `faults` has every mistake, in the order of the file."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(set(faults), key=lambda fault: (fault.file, fault.line or 0, dotted(fault.path)))
        super().__init__("\n".join(map(str, self.faults)))


def dotted(path: Sequence[str | int]) -> str:
    """`runners.linux-mi300-gpu-2.volumes[0].name`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def quoted(value: Any) -> str:
    """A value as it may stand in a message: short, and on one line."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(word: str, allowed: Iterable[str]) -> str:
    """`did you mean 'memory'?`, or what is allowed when nothing is near."""
    options = sorted(allowed)
    near = get_close_matches(word, options, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"allowed: {', '.join(options)}" if options else "nothing is allowed here"
