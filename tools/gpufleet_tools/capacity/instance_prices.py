"""Prices of EC2 instances: the list that Karpenter ships, for the types in our table of instance types.

`instance_prices.json` is generated from pkg/providers/pricing/zz_generated.pricing_aws.go of
aws/karpenter-provider-aws at the version that gpufleet/aws/karpenter/versions.py pins. A test compares the two where
that Go module is installed. The table has on-demand Linux prices of one region. Most types cost more in other regions,
and spot instances usually cost less.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

TABLE = pathlib.Path(__file__).with_suffix(".json")
"""The table: region, version of Karpenter, date of the prices, and a line for each family."""

MICRO = 1_000_000
"""Prices are whole numbers of millionths of a US dollar, because the list has six decimals."""


@functools.cache
def _table() -> Any:
    return json.loads(TABLE.read_text())


def basis() -> str:
    """Return the type and date of the prices, as text."""
    return f"{_table()['region']} on-demand list price of {_table()['date']}"


@functools.cache
def prices() -> Mapping[str, int]:
    """Return the price per hour by instance type, in millionths of a US dollar. The table is read once."""
    families = _table()["prices"]
    return {
        f"{family}.{size}": round(price * MICRO)
        for family, sizes in families.items()
        for size, price in sizes.items()
    }  # fmt: skip


def money(dollars: float | None) -> str:
    """Format an amount to the cent; None is an unknown amount."""
    return "unknown" if dollars is None else f"{dollars:,.2f} USD"
