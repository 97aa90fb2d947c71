"""Problems of a stack file, one line each, and the formatting of paths and values in messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gpufleet import problem
from gpufleet.problem import Path
from gpufleet_stacks.settings.secrets import redacted

NAMESPACE = "gpu-runners"
"""Namespace of the settings' configuration keys, whatever the name of the Pulumi project."""

SET_SECRET = f"pulumi config set --secret {NAMESPACE}:"
"""Start of the command that sets a secret, without the secret's key."""

_LONGEST = 80
"""Maximum length of a value or a key in a message; valid names and labels are shorter."""


@dataclass(frozen=True)
class StackFileProblem:
    """A problem at one place of the stack file."""

    file: str
    """The stack file's name."""
    line: int | None
    """Line in that file, counted from 1; None if the value is not in the file."""
    path: Path
    """Path of the value: the configuration key without its namespace, then keys and indices. Empty for the file as a
    whole."""
    message: str
    """What is wrong, what is allowed and what to do; secrets in it are replaced."""
    code: str = ""
    """Name of the rule; empty for a value of the wrong type or form. It stays the same when the message is reworded."""

    def __post_init__(self) -> None:
        # Messages name what the user wrote: other keys, too.
        object.__setattr__(self, "message", redacted(self.message))

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {dotted(self.path)}: {self.message}" if self.path else f"{where}: {self.message}"


class InvalidSettings(Exception):
    """Error raised for a stack file with problems."""

    def __init__(self, problems: Iterable[StackFileProblem]) -> None:
        self.problems = sorted(
            set(problems), key=lambda each: (each.file, each.line or 0, dotted(each.path), each.message)
        )
        """Every problem, in the order of the file."""
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    """Return a path of a stack file as text, without secrets: `runners.linux-mi300-gpu-2.volumes[0].name`."""
    return problem.dotted(path, _key)


def _key(part: str) -> str:
    """Return a key unchanged, or quoted if it is empty, long, or has blanks or characters that cannot be printed."""
    plain = part and part.isprintable() and " " not in part and len(part) <= _LONGEST
    return redacted(part) if plain else quoted(part)


def plain_secret(path: Path) -> str:
    """Return the message about a secret in plain text at a path."""
    if is_variable(path):
        reference = f"envFromSecret: {{{path[3]}: {{name: SECRET, key: KEY}}}}"
        return f"is a secret in plain text; revoke it, store a new one in a Kubernetes Secret, and write {reference}"
    return f"is a secret in plain text; revoke it, then set a new one: {SET_SECRET}KEY"


def is_variable(path: Path) -> bool:
    """Return whether a path is that of an environment variable of a profile."""
    return len(path) == 4 and path[0] == "profiles" and path[2] == "env"


def quoted(value: Any) -> str:
    """Return a value as text for a message: short, on one line, and without secrets."""
    text = redacted(json.dumps(_shallow(value), default=str, ensure_ascii=False))
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _shallow(value: Any, depth: int = 2) -> Any:
    """Return the beginning of a value, because aliases can expand it beyond memory."""
    if isinstance(value, dict):
        return {str(key): _shallow(item, depth - 1) for key, item in [*value.items()][:5]} if depth else "..."
    if isinstance(value, list | tuple):
        return [_shallow(item, depth - 1) for item in value[:10]] if depth else "..."
    return value


def listed(words: Iterable[str], last: str = "or") -> str:
    """Return words as a list in a sentence: `1, 2, 4 or 8`."""
    *others, final = words
    return f"{', '.join(others)} {last} {final}" if others else final


def near(word: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word closest to a misspelt one, ignoring case and separators; None if none is close."""
    spellings = {_spelling(option): option for option in allowed}
    found = get_close_matches(_spelling(word), spellings, n=1, cutoff=0.7)
    return spellings[found[0]] if found else None


def _spelling(word: str) -> str:
    # difflib takes quadratic time.
    return re.sub(r"[-_. ]", "", word[:_LONGEST]).casefold()


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `did you mean 'memory'?`, or the allowed words if none is close."""
    options = sorted(allowed)
    if found := near(word, options):
        return f"did you mean '{found}'?"
    return f"allowed: {', '.join(options)}" if options else "nothing is allowed here"
