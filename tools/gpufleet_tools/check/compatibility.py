"""Compatibility matrix: versions of drivers, toolkits, plugins, operators and clusters that do not work together."""

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
    """A combination of versions that does not work or is deprecated."""

    when: dict[str, str] = {}
    """Conditions by component, all of which hold: a range of versions (`>=1.5,<1.6`) or a word."""
    same_minor: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    """Two components whose minor versions must be equal."""
    why: str
    """Consequence of the combination."""
    instead: str
    """Remedy."""
    source: str
    """Source of the fact."""
    review: datetime.date
    """Date on which to verify the entry again."""
    finding: str = "incompatible"
    """Name of the finding in `gpufleet check`; acknowledgements refer to it."""
    severity: Literal["error", "warning"] = "error"
    """`error`: the combination does not work. `warning`: it works for a limited time."""

    @property
    def names(self) -> tuple[str, ...]:
        """Components of the combination, in the order of the file."""
        return (*self.when, *(self.same_minor or ()))

    @model_validator(mode="after")
    def has_one_condition(self) -> Incompatibility:
        """Raise ValueError unless exactly one of `when` and `sameMinor` is set."""
        if bool(self.when) == bool(self.same_minor):
            raise ValueError("exactly one of 'when' and 'sameMinor' is required")
        return self

    def holds(self, versions: Mapping[str, str]) -> bool:
        """Return whether the versions are such a combination. A component that is not in `versions` never matches.

        Raises ValueError for a version that cannot be compared.
        """
        if self.same_minor:
            one, other = (versions.get(name) for name in self.same_minor)
            return bool(one and other) and _minor(str(one)) != _minor(str(other))
        return _all_met(self.when, versions)


class Reviewed(Documented):
    """Versions of a component whose compatibility has been reviewed."""

    name: str
    """Name of the component."""
    versions: str
    """Range of versions."""
    documentation: str
    """Documents that state the compatibility of other versions."""


class Bundle(Documented):
    """Versions that come with another component."""

    when: dict[str, str]
    """Conditions, all of which hold."""
    versions: dict[str, str]
    """Versions by component."""
    source: str
    """Source of the fact."""


class Matrix(Documented):
    """Content of the file."""

    reviewed: list[Reviewed]
    """Versions whose compatibility has been reviewed."""
    bundles: list[Bundle]
    """Versions that come with other components."""
    incompatible: list[Incompatibility]
    """Combinations that do not work or are deprecated."""


_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def whole() -> Matrix:
    """Return the content of the file."""
    return Matrix.model_validate(yaml.load(FILE.read_text(), Loader=_Loader))


def matrix() -> Sequence[Incompatibility]:
    """Return the combinations that do not work or are deprecated."""
    return whole().incompatible


def outside_review(name: str, version: str) -> Reviewed | None:
    """Return the reviewed versions of a component if `version` is not one of them, else None.

    Raises ValueError for a version that cannot be compared.
    """
    reviewed = next((each for each in whole().reviewed if each.name == name), None)
    return None if reviewed is None or _meets(version, reviewed.versions) else reviewed


def bundled(versions: Mapping[str, str]) -> dict[str, str]:
    """Return the versions that come with the given ones, except for components that are given themselves."""
    found = {
        name: value
        for each in whole().bundles
        if _all_met(each.when, versions)
        for name, value in each.versions.items()
    }
    return {name: value for name, value in found.items() if name not in versions}


def _all_met(conditions: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    return all(name in versions and _meets(versions[name], condition) for name, condition in conditions.items())


def incompatible(versions: Mapping[str, str], among: Sequence[Incompatibility] | None = None) -> list[Incompatibility]:
    """Return the combinations that the versions match, for example `{"karpenter": "1.4.0", "kubernetes": "1.33.1"}`.
    Names that the matrix does not have are ignored.

    Raises ValueError for a version that cannot be compared.
    """
    return [entry for entry in (matrix() if among is None else among) if entry.holds(versions)]


def due(today: datetime.date) -> list[str]:
    """Return the entries whose review is due, one line each."""
    return [
        f"{' with '.join(entry.names)}: {entry.why}: review due since {entry.review} ({entry.source})"
        for entry in matrix()
        if entry.review < today
    ]


def names() -> frozenset[str]:
    """Return the names of all components in the matrix."""
    return frozenset(name for entry in matrix() for name in entry.names)


@functools.cache
def _meets(value: str, condition: str) -> bool:
    if not condition.startswith(("<", ">", "=", "!", "~")):
        return condition == "any" or value.casefold() == condition.casefold()
    if not re.match(r"v?\d", value):
        # A word in place of a version: `docker: sidecar`.
        return False
    return SpecifierSet(condition).contains(_version(value), prereleases=True)


def _minor(value: str) -> tuple[int, ...]:
    return _version(value).release[:2]


def _version(value: str) -> Version:
    """Parse a version in its vendor's notation: `v26.7.0`, `1.17.8-1`, `v1.33.1-eks-1a2b3c4`, `1.33+`."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", value)
    try:
        return Version(match[1] if match else value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is not a version") from None
