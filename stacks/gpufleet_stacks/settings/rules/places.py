"""Mapping of components' arguments to settings, for messages with the path and the words of the stack file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

from gpufleet.problem import Path, Problem

Words = Callable[[Mapping[str, Any]], str]
"""Function that returns a message about settings, from the facts of a component's problem."""


class UnplacedProblem(AssertionError):
    """Error raised for a problem of an argument that comes from no setting: a defect of this project."""


@dataclass(frozen=True)
class Places:
    """Settings from which one component's arguments come."""

    rows: Mapping[Path, Path]
    """Paths in the stack file, by path in the arguments. Below a row, names are the same in both."""
    words: Mapping[str, Words] = field(default_factory=dict)
    """Messages with names of settings, by code, instead of the component's own, which have names of arguments."""

    def setting(self, path: Path) -> Path:
        """Return the setting from which an argument comes, by the longest matching row.

        Raise UnplacedProblem if there is none.
        """
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.rows:
                return (*self.rows[path[:depth]], *path[depth:])
        raise UnplacedProblem(f"the argument {path} comes from no setting")

    def placed(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Yield a component's problems as problems of the stack file."""
        for problem in problems:
            words = self.words.get(problem.code)
            message = words(problem.facts) if words else problem.message
            yield dataclasses.replace(problem, path=self.setting(problem.path), message=message)


def attributes(
    arguments: type, at: Path, settings: Path, names: Mapping[str, str | None] | None = None
) -> dict[Path, Path]:
    """Return rows for the attributes of a component's dataclass. Settings have the same names in camel case; `names`
    has the exceptions, and None for attributes that are not settings."""
    names = names or {}
    rows = {}
    for each in dataclasses.fields(arguments):
        name = names.get(each.name, to_camel(each.name))
        if name is not None:
            rows[*at, each.name] = (*settings, name)
    return rows
