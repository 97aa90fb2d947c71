"""ARC's CRDs: the fields by which versions differ. Helm installs CRDs but never upgrades them.

`crds.json` has the fields of each minor version, generated from its chart. A CRD has no version of its own.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

TABLE = pathlib.Path(__file__).with_suffix(".json")
"""Fields by minor version and plural name."""

PLURALS = ("autoscalinglisteners", "autoscalingrunnersets", "ephemeralrunners", "ephemeralrunnersets")
"""Plural names of ARC's kinds."""

Fields = Mapping[str, Sequence[str]]
"""Fields by plural name."""


def fields(definition: Mapping[str, Any]) -> list[str]:
    """Return the fields of spec and status of a CustomResourceDefinition: `spec.minRunners`."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return sorted(f"{part}.{name}" for part in ("spec", "status") for name in schema[part].get("properties", {}))


@functools.cache
def known() -> Mapping[str, Fields]:
    """Return the fields of all known minor versions of ARC."""
    table: Mapping[str, Fields] = json.loads(TABLE.read_text())
    return table


def minor(version: str) -> str:
    """Return the minor version: 0.14 for 0.14.2."""
    return ".".join(version.split(".")[:2])


def version_of(live: Fields) -> str | None:
    """Return the minor version whose fields the CRDs have; None if there is none."""
    return next((version for version, own in known().items() if own == {k: [*v] for k, v in live.items()}), None)


def missing(live: Fields, version: str) -> list[str]:
    """Return the fields that the CRDs of a version have and live ones lack: `ephemeralrunners: spec.proxy`. Nothing for
    an unknown version."""
    wanted = known().get(minor(version), {})
    return [f"{plural}: {name}" for plural, own in wanted.items() for name in own if name not in live.get(plural, ())]
