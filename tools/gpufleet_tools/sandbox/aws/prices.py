"""Prices of EC2 instances from Karpenter's module."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

REGION = "us-east-1"
"""Region of the prices, whatever the region of the stack: Karpenter's module has list prices of this region only.
Most types cost more in other regions."""

_FILE = "zz_generated.pricing_aws.go"
_PRICE = re.compile(r'"([a-z0-9-]+\.[a-z0-9-]+)": ([0-9.]+)')


@functools.cache
def on_demand(karpenter: Path) -> Mapping[str, float]:
    """Return the on-demand list prices of Linux instances in US dollars per hour, by instance type, from the directory
    of Karpenter's build. They are Karpenter's own fallback (pkg/providers/pricing/zz_generated.pricing_aws.go at
    v1.14.1)."""
    return {name: float(price) for name, price in _PRICE.findall((karpenter / _FILE).read_text())}
