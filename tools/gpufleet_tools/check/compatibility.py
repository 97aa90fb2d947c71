"""What does not go together: versions of drivers, toolkits, plugins, operators and clusters, as data with reasons."""

from __future__ import annotations

import datetime
import functools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, model_validator

from gpufleet_stacks.settings.documented import Documented

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
    finding: str = "incompatible"
    """What `gpufleet check` calls it; acknowledgements name it."""
    severity: Literal["error", "warning"] = "error"
    """How bad it is: an error does not work, a warning is borne for a while."""

    @property
    def names(self) -> tuple[str, ...]:
        """What it is about, in its own order."""
        return (*self.when, *(self.same_minor or ()))

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
        return _all_met(self.when, versions)


class Known(Documented):
    """Versions of one thing of which it has been looked up what they go with."""

    name: str
    """What they are of."""
    versions: str
    """Their range."""
    look: str
    """Where to look it up for others."""


class Brought(Documented):
    """What comes with something else, without being named."""

    when: dict[str, str]
    """What it comes with: conditions that hold together."""
    versions: dict[str, str]
    """What comes."""
    source: str
    """Where that is written."""


class Matrix(Documented):
    """All of the file."""

    known: list[Known]
    """What has been looked up."""
    brings: list[Brought]
    """What comes with what."""
    incompatible: list[Incompatibility]
    """What does not go together."""


_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def whole() -> Matrix:
    """The file."""
    return Matrix.model_validate(yaml.load(FILE.read_text(), Loader=_Loader))


def matrix() -> Sequence[Incompatibility]:
    """Everything that is known not to go together."""
    return whole().incompatible


def unknown(name: str, version: str) -> Known | None:
    """What has been looked up of it, where this version is none of those; None where it is, and of other things.

    Raises ValueError for a version that cannot be compared.
    """
    looked_up = next((each for each in whole().known if each.name == name), None)
    return None if looked_up is None or _meets(version, looked_up.versions) else looked_up


def brought(versions: Mapping[str, str]) -> dict[str, str]:
    """What comes with the versions, those left out that are given themselves."""
    found = {
        name: value for each in whole().brings if _all_met(each.when, versions) for name, value in each.versions.items()
    }
    return {name: value for name, value in found.items() if name not in versions}


def _all_met(conditions: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    return all(name in versions and _meets(versions[name], condition) for name, condition in conditions.items())


def incompatible(versions: Mapping[str, str], among: Sequence[Incompatibility] | None = None) -> list[Incompatibility]:
    """What of the matrix the versions run into: `{"karpenter": "1.4.0", "kubernetes": "1.33.1"}`. Names that the
    matrix does not know play no part.

    Raises ValueError for a version that cannot be compared.
    """
    return [entry for entry in (matrix() if among is None else among) if entry.holds(versions)]


def due(today: datetime.date) -> list[str]:
    """What has not been looked at since the day it should have been, one line each."""
    return [
        f"{' with '.join(entry.names)}: {entry.why}: look again since {entry.review} ({entry.source})"
        for entry in matrix()
        if entry.review < today
    ]


def names() -> frozenset[str]:
    """Everything that the matrix speaks of."""
    return frozenset(name for entry in matrix() for name in entry.names)


@functools.cache
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
