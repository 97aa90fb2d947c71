"""What EC2 asks for an instance: the price list that Karpenter is delivered with, for types that we know.

The table `instance_prices.json` is made from pkg/providers/pricing/zz_generated.pricing_aws.go of
aws/karpenter-provider-aws at the version that gpufleet/aws/karpenter/versions.py pins, and is compared with it wherever
that Go module is there. It has one region, Linux and on-demand instances. Elsewhere most types cost more, and spot
instances mostly cost less.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

TABLE = pathlib.Path(__file__).with_suffix(".json")
"""The table: region, version of Karpenter, the day that it got the prices from AWS, and a line for each family."""

MICRO = 1_000_000
"""Prices are whole numbers of millionths of a US dollar: the list has six decimals."""


@functools.cache
def _table() -> Any:
    return json.loads(TABLE.read_text())


def basis() -> str:
    """What kind of price it is, for people."""
    return f"{_table()['region']} on-demand list price of {_table()['date']}"


@functools.cache
def prices() -> Mapping[str, int]:
    """Millionths of a US dollar per hour by instance type. Read once, when it is first asked for."""
    families = _table()["prices"]
    return {
        f"{family}.{size}": round(price * MICRO)
        for family, sizes in families.items()
        for size, price in sizes.items()
    }  # fmt: skip


def money(dollars: float | None) -> str:
    """An amount an hour, to the cent; None is one that is not known."""
    return "unknown" if dollars is None else f"{dollars:,.2f} USD"
