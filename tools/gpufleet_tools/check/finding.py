"""One thing to say about a stack that is possible, but unwise or unfinished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet.problem import Path

Severity = Literal["error", "warning", "note"]
"""`error`: `pulumi up` refuses, or jobs will not run. `warning`: it works, and is unwise. `note`: housekeeping."""


@dataclass(frozen=True)
class Finding:
    """One thing to say about a stack."""

    name: str
    """What kind of finding it is; acknowledgements name it."""
    severity: Severity
    """How bad it is."""
    path: Path
    """The setting it arises from."""
    message: str
    """What is so, why it matters, what to do."""
