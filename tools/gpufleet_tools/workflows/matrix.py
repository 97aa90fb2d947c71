"""Jobs that GitHub creates from a matrix: docs.github.com, "Running variations of jobs in a workflow"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet_tools.workflows.expressions import OTHERS, UNKNOWN, Unknown, Value

Combination = Mapping[str, Value]
"""Value of `matrix` in one job."""

MOST_COMBINATIONS = 4096
"""Maximum number of combinations before `exclude`; GitHub creates at most 256 jobs from a matrix."""

_LISTS = ("include", "exclude")


def combinations(matrix: Value) -> Iterator[Combination] | None:
    """Return the value of `matrix` in each job; None if unknown."""
    if not isinstance(matrix.content, dict):
        return None
    vectors = {name: _choices(value) for name, value in matrix.content.items() if name not in _LISTS}
    if math.prod(map(len, vectors.values())) > MOST_COMBINATIONS:
        return None
    excluded, _ = _objects(matrix.content.get("exclude"))
    included, all_known = _objects(matrix.content.get("include"))
    own = (
        [dict(zip(vectors, chosen, strict=True)) for chosen in itertools.product(*vectors.values())] if vectors else []
    )
    own = [combination for combination in own if not any(_matches(combination, entry) for entry in excluded)]
    return _with_included(own, included, {} if all_known else {OTHERS: Value(UNKNOWN)})


def _with_included(
    own: list[dict[str, Value]], included: list[dict[str, Value]], others: dict[str, Value]
) -> Iterator[Combination]:
    """Yield the combinations with the entries of `include`. An entry is added to every combination whose own values it
    does not change; if there is none, it is a combination itself."""
    added: list[dict[str, Value]] = [{} for _ in own]
    alone = []
    for entry in included:
        fitting = [
            index
            for index, combination in enumerate(own)
            if all(_same(combination[name], value) for name, value in entry.items() if name in combination)
        ]
        for index in fitting:
            added[index] |= entry
        if not fitting:
            alone.append(entry)
    for combination, extra in zip(own, added, strict=True):
        yield others | extra | combination
    for entry in alone:
        yield others | entry
    if others:
        yield others


def _choices(vector: Value) -> list[Value]:
    return vector.content if isinstance(vector.content, list) else [Value(UNKNOWN)]


def _objects(entries: Value | None) -> tuple[list[dict[str, Value]], bool]:
    """Return the known entries of `include` or `exclude`, and whether all are known."""
    if entries is None:
        return [], True
    if not isinstance(entries.content, list):
        return [], False
    objects = [entry.content for entry in entries.content if isinstance(entry.content, dict)]
    return objects, len(objects) == len(entries.content)


def _matches(combination: Combination, entry: Mapping[str, Value]) -> bool:
    return all(name in combination and _same(combination[name], value) for name, value in entry.items())


def _same(one: Value, other: Value) -> bool:
    """Return whether two values are known and equal."""
    left, right = _plain(one), _plain(other)
    return not _is_partly_unknown(left) and left == right


def _plain(value: Value) -> Any:
    content = value.content
    if isinstance(content, list):
        return [_plain(item) for item in content]
    if isinstance(content, dict):
        return {name: _plain(item) for name, item in content.items()}
    return content


def _is_partly_unknown(content: Any) -> bool:
    items = content.values() if isinstance(content, dict) else content if isinstance(content, list) else []
    return isinstance(content, Unknown) or any(map(_is_partly_unknown, items))
