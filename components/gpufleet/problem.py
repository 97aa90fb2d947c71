"""Problems of a component's arguments: the place, the rule, what is wrong, and what to do.

Standard library only: the driver of kubespray, which is sent to another machine, reports problems too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Path = tuple[str | int, ...]
"""Place in the arguments: attribute names, mapping keys and list indices, from the outside in."""


@dataclass(frozen=True)
class Problem:
    """A rule that the arguments break. A finding (advice) has the same form."""

    path: Path
    """Place of the problem; empty for the arguments as a whole."""
    code: str
    """Name of the rule. It stays the same when the message is reworded."""
    message: str
    """What is wrong, what is allowed and what to do, on one line and with the arguments' own names. Contains no
    secrets."""
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Values in the message, by name. Callers with other names for the arguments use them to word their own message."""

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


class InvalidArguments(ValueError):
    """Error raised when a component's arguments are invalid."""

    def __init__(self, component: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        """All problems of the arguments."""
        super().__init__("\n".join(f"{component}: {problem}" for problem in self.problems))


def refuse(component: str, problems: Iterable[Problem]) -> None:
    """Raise InvalidArguments with one line per problem, if there are any."""
    found = tuple(problems)
    if found:
        raise InvalidArguments(component, found)


def under(path: Path, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield problems of one part of the arguments, with paths that start at the whole."""
    for problem in problems:
        yield replace(problem, path=(*path, *problem.path))


def _key(part: str) -> str:
    """Return a key unchanged, or quoted if it is empty or has blanks."""
    return part if part and " " not in part else repr(part)


def dotted(path: Path, key: Callable[[str], str] = _key) -> str:
    """Return a path as text: `node_class.ami_terms[0].alias`, `addons.kube-proxy`. `key` formats names and keys."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{key(part)}" for part in path)
    return text.removeprefix(".")
