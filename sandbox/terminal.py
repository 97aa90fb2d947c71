"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console

_UNBOUNDED = 1000


def console() -> Console:
    """Standard output: as wide as the terminal, or, in a pipe or a file, wide enough that nothing is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED)
