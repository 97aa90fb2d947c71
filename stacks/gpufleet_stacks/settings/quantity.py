"""Kubernetes quantities: `40000m`, `450000Mi`, `100G`."""

from __future__ import annotations

import re
from decimal import Decimal

from gpufleet.quantity import parsed

PATTERN = r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?"
"""Pattern of quantities in a stack file, restricted to syntax that editors support too."""


def parse(text: str) -> Decimal:
    """Return a quantity in its base unit: cores, or bytes.

    Raise ValueError for other text. Kubernetes also accepts exponents (`1e3`) and negative numbers, but a stack file
    never needs them.
    """
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return parsed(text)


def gibibytes(size: Decimal) -> str:
    """Return bytes as text in GiB, rounded down: `439.5Gi`."""
    return _rounded_down(size / 1024**3, places=1) + "Gi"


def cores(number: Decimal) -> str:
    """Return cores as text, rounded down to thousandths: `47.5`."""
    return _rounded_down(number, places=3)


def _rounded_down(number: Decimal, places: int) -> str:
    """Return a number as text without trailing zeros. Rounded down, so that an amount shown as free can be
    requested."""
    whole, rest = divmod(int(number * 10**places), 10**places)
    return f"{whole}.{rest:0{places}}".rstrip("0").removesuffix(".")
