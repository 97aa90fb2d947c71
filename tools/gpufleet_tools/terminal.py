"""Width of the output, and what fits text and tables into it."""

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

# rich is imported where it is used: importing it takes a fifth of the time of a whole preview.

UNBOUNDED = 1000
"""Columns of a pipe or a file: so many that nothing is folded, and a line can be found with grep."""


_GAP = "  "
"""Space between two columns of a table."""

_SENTENCE, _WORD = 16, 10
"""Widths that a column of several words, and one of a single word, keeps as long as another can become narrower."""


def width() -> int:
    """Return the columns of the terminal; UNBOUNDED without one."""
    # Without a terminal, $COLUMNS means nothing: readline exports 80 to the children of each process that imports it.
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED


def console() -> Console:
    """Return standard output as a console of that width. Without a terminal, its text is plain."""
    from rich.console import Console

    return Console(highlight=False, width=width())


def table(*columns: str, left: Collection[str]) -> Table:
    """Return an empty table, its numbers to the right. Cells that have no room are folded."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return made


def aligned(rows: Sequence[Sequence[str]], left: Collection[str], columns: int = UNBOUNDED) -> list[str]:
    """Return the lines of a plain table: a row of headings, then the others. `left` names the columns of words. Cells
    are folded where the table is wider than `columns`."""
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
    """Return the widths of a table's columns. Where it is too wide, sentences become narrower first, and the first
    column, which has the names, last."""
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
    """Return the text with its long lines folded between words. What goes on is indented below its line."""
    return "".join(f"{part}\n" for line in text.splitlines() for part in folded_line(line, columns))


def folded_line(line: str, columns: int, indent: str | None = None) -> Iterator[str]:
    """Yield the parts of a line. `indent` precedes all but the first; without, two more spaces than the line has."""
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
    used: Mapping[str, Decimal], there: Mapping[str, Decimal], resource: str, show: Callable[[Decimal], str]
) -> str:
    """How much of a resource is taken: `2 of 8`."""
    return f"{show(used.get(resource, Decimal()))} of {show(there.get(resource, Decimal()))}"
