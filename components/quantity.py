"""Quantities as Kubernetes writes them, in their base unit."""

from __future__ import annotations

import re
from decimal import Decimal

PATTERN = re.compile(r"([0-9]+(?:\.[0-9]*)?)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?")
"""A quantity that is not negative (apimachinery/pkg/api/resource/quantity.go of Kubernetes). Exponents of three digits
are left out: no such amount can be, and they are no numbers that can be reckoned with."""

_DECIMAL = {suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)}
_DECIMAL |= {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)}
_BINARY = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}
_SUFFIXES = _DECIMAL | _BINARY


def parsed(text: str) -> Decimal:
    """Cores, bytes or a number: `2500m` is 2.5, `1Ki` is 1024.

    Raises ValueError for text that is no quantity.
    """
    match = PATTERN.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no quantity; write 80 or 128Gi")
    number, suffix = match.groups()
    if not suffix:
        return Decimal(number)
    return Decimal(number) * (_SUFFIXES.get(suffix) or Decimal(f"1{suffix}"))


def cores(amount: Decimal) -> str:
    """Cores for people: `7910m`, or `8` for whole ones."""
    milli = int(amount * 1000)
    return f"{milli // 1000}" if milli % 1000 == 0 else f"{milli}m"


def mebibytes(amount: Decimal) -> str:
    """Bytes for people, rounded down: `29317Mi`."""
    return f"{int(amount // 1024**2)}Mi"
