"""Width of the output; text and tables that fit into it."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# rich is imported in functions only: its import takes a fifth of the time of a whole preview.

UNBOUNDED = 1000
"""Columns of a pipe or a file: no line is folded, so that grep finds whole lines."""


_GAP = "  "
"""Space between two columns of a table."""

_SENTENCE, _WORD = 16, 10
"""Minimum widths of a column of several words and of a column of single words, while other columns can shrink."""


def width() -> int:
    """Return the columns of the terminal; UNBOUNDED without one."""
    # $COLUMNS means nothing without a terminal: readline exports 80 to the children of each process that imports it.
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def console() -> Console:
    """Return a console of that width for standard output. Its text is plain without a terminal."""
    from rich.console import Console

    return Console(highlight=False, width=width())


def table(*columns: str, left: Collection[str]) -> Table:
    """Return an empty table. `left` names the left-aligned columns; cells that are too wide are folded."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return result


def aligned(rows: Sequence[Sequence[str]], left: Collection[str], columns: int = UNBOUNDED) -> list[str]:
    """Return the lines of a plain table whose first row has the headings. `left` names the left-aligned columns. Cells
    are folded if the table is wider than `columns`."""
    widths = _widths(rows, columns)
    return [line for row in rows for line in _row(row, widths, [heading in left for heading in rows[0]])]


def _row(row: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> Iterator[str]:
    cells = [
        textwrap.wrap(cell, size, break_on_hyphens=False) if len(cell) > size else [cell]
        for cell, size in zip(row, widths, strict=True)
    ]
    for parts in itertools.zip_longest(*cells, fillvalue=""):
        columns = zip(parts, widths, left, strict=True)
        yield _GAP.join(part.ljust(size) if words else part.rjust(size) for part, size, words in columns).rstrip()


def _widths(rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    """Return the widths of a table's columns. In a table that is too wide, columns of sentences shrink first, and the
    first column, which has the names, shrinks last."""
    cells = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in cells]
    whole = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    too_much = sum(widths) + len(_GAP) * (len(widths) - 1) - columns
    for _ in range(too_much):
        sentences = [number for number, size in enumerate(widths) if size > max(whole[number], _SENTENCE)]
        others = [number for number, size in enumerate(widths) if number and size > _WORD]
        widest = max(sentences or others or range(len(widths)), key=widths.__getitem__)
        widths[widest] = max(widths[widest] - 1, 1)
    return widths


def folded(text: str, columns: int) -> str:
    """Return the text with long lines folded between words. Continuation lines are indented."""
    return "".join(f"{part}\n" for line in text.splitlines() for part in folded_line(line, columns))


def folded_line(line: str, columns: int, indent: str | None = None) -> Iterator[str]:
    """Yield the parts of a line. `indent` precedes all but the first; default: the line's own indent and two spaces."""
    if len(line) <= columns:
        yield line
        return
    if indent is None:
        indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    yield from textwrap.wrap(
        line,
        columns,
        subsequent_indent=indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_on_hyphens=False,
    )


def share(
    used: Mapping[str, Decimal], total: Mapping[str, Decimal], resource: str, show: Callable[[Decimal], str]
) -> str:
    """Return the used part of a resource: `2 of 8`."""
    return f"{show(used.get(resource, Decimal()))} of {show(total.get(resource, Decimal()))}"
