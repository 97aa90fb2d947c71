"""Kubernetes quantities: `40000m`, `450000Mi`, `100G`."""

from __future__ import annotations

import re
from decimal import Decimal

from gpufleet.quantity import parsed

PATTERN = r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?"
"""Quantities as a stack file writes them, in the regular expressions that editors know as well."""


def parse(text: str) -> Decimal:
    """A quantity's value in its base unit: cores, or bytes.

    Raises ValueError for text that is no quantity. Exponents (`1e3`) and negative numbers are quantities to
    Kubernetes, but never meant in a stack file.
    """
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return parsed(text)


def gibibytes(size: Decimal) -> str:
    """Bytes in the unit that people compare memory in, rounded down: `439.5Gi`."""
    return _rounded_down(size / 1024**3, places=1) + "Gi"


def cores(number: Decimal) -> str:
    """Cores, rounded down to thousandths: `47.5`."""
    return _rounded_down(number, places=3)


def _rounded_down(number: Decimal, places: int) -> str:
    """Without trailing zeros. Down, because what is shown as free has to be so when it is asked for."""
    whole, rest = divmod(int(number * 10**places), 10**places)
    return f"{whole}.{rest:0{places}}".rstrip("0").removesuffix(".")
