"""Where tables are printed, and what they have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from rich.console import Console
from rich.table import Table

_UNBOUNDED = 1000


def console() -> Console:
    """Standard output: as wide as the terminal, or, in a pipe or a file, wide enough that nothing is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED)


def table(*columns: str, left: Sequence[str]) -> Table:
    """An empty table, its numbers to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return made


def share(
    used: Mapping[str, Decimal], there: Mapping[str, Decimal], resource: str, show: Callable[[Decimal], str]
) -> str:
    """How much of a resource is taken: `2 of 8`."""
    return f"{show(used.get(resource, Decimal()))} of {show(there.get(resource, Decimal()))}"
