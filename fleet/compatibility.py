"""What does not go together: versions of drivers, toolkits, plugins, operators and clusters, as data with reasons."""

from __future__ import annotations

import datetime
import functools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, TypeAdapter, model_validator

from stacks.documented import Documented

FILE = pathlib.Path(__file__).with_suffix(".yaml")


class Incompatibility(Documented):
    """One combination that does not work, or that nobody should run."""

    when: dict[str, str] = {}
    """Conditions that hold together, by what they are about: a range of versions (`>=1.5,<1.6`), or a word."""
    same_minor: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    """Two things whose minor versions have to be equal."""
    why: str
    """What happens otherwise."""
    instead: str
    """What to do."""
    source: str
    """Where that is written."""
    review: datetime.date
    """Day on which to look whether it is still so."""

    @model_validator(mode="after")
    def says_either(self) -> Incompatibility:
        """Either conditions, or two names."""
        if bool(self.when) == bool(self.same_minor):
            raise ValueError("'when' or 'sameMinor' is needed, and not both")
        return self

    def holds(self, versions: Mapping[str, str]) -> bool:
        """Whether the versions are such a combination. What is not known is none.

        Raises ValueError for a version that cannot be compared.
        """
        if self.same_minor:
            one, other = (versions.get(name) for name in self.same_minor)
            return bool(one and other) and _minor(str(one)) != _minor(str(other))
        return all(name in versions and _meets(versions[name], condition) for name, condition in self.when.items())


@functools.cache
def matrix() -> Sequence[Incompatibility]:
    """Everything that is known not to go together."""
    return TypeAdapter(list[Incompatibility]).validate_python(yaml.safe_load(FILE.read_text()))


def incompatible(versions: Mapping[str, str], among: Sequence[Incompatibility] | None = None) -> list[Incompatibility]:
    """What of the matrix the versions run into: `{"karpenter": "1.4.0", "kubernetes": "1.33.1"}`. Names that the
    matrix does not know play no part.

    Raises ValueError for a version that cannot be compared.
    """
    return [entry for entry in (matrix() if among is None else among) if entry.holds(versions)]


def names() -> frozenset[str]:
    """Everything that the matrix speaks of."""
    return frozenset(name for entry in matrix() for name in (*entry.when, *(entry.same_minor or ())))


def _meets(value: str, condition: str) -> bool:
    if not condition.startswith(("<", ">", "=", "!", "~")):
        return condition == "any" or value.casefold() == condition.casefold()
    if not re.match(r"v?\d", value):
        # A word, where others have a version: `docker: sidecar`.
        return False
    return SpecifierSet(condition).contains(_version(value), prereleases=True)


def _minor(value: str) -> tuple[int, ...]:
    return _version(value).release[:2]


def _version(value: str) -> Version:
    """A version as its vendor writes it: `v26.7.0`, `1.17.8-1`, `v1.33.1-eks-1a2b3c4`, `1.33+`."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", value)
    try:
        return Version(match[1] if match else value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is not a version") from None
