"""Versions of ARC, and the distance between them."""

from __future__ import annotations

import re

INSTALLED_VERSION = "gpufleet.dev/upgrade-from"
"""Annotation with the version from which ARC is upgraded."""


def numbers(version: str) -> tuple[int, int, int]:
    """Return major, minor and patch of a version, without a suffix such as `-rc1`; 0 for a missing part."""
    parts = [int(part) for part in re.findall(r"\d+", re.split(r"[-+]", version)[0])]
    major, minor, patch, *_ = [*parts, 0, 0, 0]
    return major, minor, patch


def minor_steps(one: str, other: str) -> int:
    """Return the number of minor versions between two versions; that between two major versions is unknown, so 2."""
    (major, minor, _), (other_major, other_minor, _) = numbers(one), numbers(other)
    return abs(minor - other_minor) if major == other_major else 2
