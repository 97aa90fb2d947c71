"""Where in a stack file the arguments of components come from, and what is said differently there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

from gpufleet.problem import Path, Problem

Words = Callable[[Mapping[str, Any]], str]
"""Message about settings, from the facts of a component's problem."""


class UnplacedProblem(AssertionError):
    """A component refuses an argument that comes from no setting: a defect of this project, not of a stack file."""


@dataclass(frozen=True)
class Places:
    """Settings that one component's arguments come from."""

    rows: Mapping[Path, Path]
    """Paths in the stack file, by path in the arguments. What is deeper than a row is called the same in both."""
    words: Mapping[str, Words] = field(default_factory=dict)
    """By code, messages that name settings where the component's own names arguments."""

    def setting(self, path: Path) -> Path:
        """Return the setting that an argument comes from, by the longest row that it begins with.

        Raises UnplacedProblem where there is none.
        """
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.rows:
                return (*self.rows[path[:depth]], *path[depth:])
        raise UnplacedProblem(f"no setting is the argument {path}")

    def placed(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Yield a component's problems as those of the stack file."""
        for problem in problems:
            words = self.words.get(problem.code)
            message = words(problem.facts) if words else problem.message
            yield dataclasses.replace(problem, path=self.setting(problem.path), message=message)


def attributes(
    arguments: type, at: Path, settings: Path, names: Mapping[str, str | None] | None = None
) -> dict[Path, Path]:
    """Return rows for the attributes of a component's dataclass, in camel case as settings are written. `names` has
    those that are called otherwise, and None for those that are no settings."""
    names = names or {}
    rows = {}
    for each in dataclasses.fields(arguments):
        name = names.get(each.name, to_camel(each.name))
        if name is not None:
            rows[*at, each.name] = (*settings, name)
    return rows
