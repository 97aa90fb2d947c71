"""Kubernetes quantities, converted to their base unit."""

from __future__ import annotations

import re
from decimal import Decimal

PATTERN = re.compile(r"([0-9]+(?:\.[0-9]*)?)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?")
"""Pattern of a non-negative quantity (apimachinery/pkg/api/resource/quantity.go of Kubernetes). Three-digit exponents
are excluded: no real amount needs them, and they break arithmetic."""

_DECIMAL = {suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)}
_DECIMAL |= {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)}
_BINARY = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}
_SUFFIXES = _DECIMAL | _BINARY


def parsed(text: str) -> Decimal:
    """Return a quantity in cores, bytes or as a number: `2500m` is 2.5, `1Ki` is 1024.

    Raise ValueError for text that is not a quantity.
    """
    match = PATTERN.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no quantity; write 80 or 128Gi")
    number, suffix = match.groups()
    if not suffix:
        return Decimal(number)
    return Decimal(number) * (_SUFFIXES.get(suffix) or Decimal(f"1{suffix}"))


def canonical(amount: Decimal) -> str:
    """Return an amount in the API server's notation for whole numbers, Mi, and thousandths: `2`, `120Mi`, `150m`."""
    if amount % 1:
        return f"{int(amount * 1000)}m"
    return f"{int(amount) // 1024**2}Mi" if amount and not amount % 1024**2 else str(int(amount))


def cores(number: Decimal) -> str:
    """Return cores as text, rounded down to thousandths: `47.5`."""
    return _rounded_down(number, places=3)


def gibibytes(size: Decimal) -> str:
    """Return bytes as text in GiB, rounded down: `439.5Gi`."""
    return _rounded_down(size / 1024**3, places=1) + "Gi"


def mebibytes(amount: Decimal) -> str:
    """Return bytes as readable text, rounded down: `29317Mi`."""
    return f"{int(amount // 1024**2)}Mi"


def _rounded_down(number: Decimal, places: int) -> str:
    """Return a number as text without trailing zeros. Rounded down, so that an amount shown as free can be
    requested."""
    whole, rest = divmod(int(number * 10**places), 10**places)
    return f"{whole}.{rest:0{places}}".rstrip("0").removesuffix(".")
