"""Finding of the doctor: a fact about a live cluster, its consequence, and the commands that cure it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
"""`error`: jobs wait or are lost. `warning`: works now, but not as declared, or not for long. `note`: for
information."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fact about a live cluster."""

    name: str
    """Kind of the finding; stable, for programs."""
    severity: Severity
    """Severity of the finding."""
    subject: str
    """Object concerned: a label, a node, `controller` or `kind namespace/name`."""
    fact: str
    """The fact."""
    consequence: str
    """Consequence of the fact, and advice."""
    commands: tuple[str, ...]
    """Commands that cure it, in order, or that show its cause."""


class DoctorError(Exception):
    """The cluster cannot be examined. `str()` is one line: what is wrong, and what to do."""
