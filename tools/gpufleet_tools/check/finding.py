"""Finding: a fact about settings that work but are inadvisable or incomplete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet.problem import Path

Severity = Literal["error", "warning", "note"]
"""`error`: `pulumi up` fails, or jobs do not run. `warning`: works, but inadvisable. `note`: for information."""


@dataclass(frozen=True)
class Finding:
    """A fact about settings that work but are inadvisable or incomplete."""

    name: str
    """Kind of the finding; acknowledgements refer to it."""
    severity: Severity
    """Severity of the finding."""
    path: Path
    """Setting that causes the finding."""
    message: str
    """Fact, consequence and remedy."""
