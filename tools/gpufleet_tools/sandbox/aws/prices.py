"""What EC2 instances cost, as far as a machine without AWS can know."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

REGION = "us-east-1"
"""Whose list prices they are, whatever the region of the stack: the only region whose prices Karpenter is delivered
with. Elsewhere most types cost more."""

_FILE = "zz_generated.pricing_aws.go"
_PRICE = re.compile(r'"([a-z0-9-]+\.[a-z0-9-]+)": ([0-9.]+)')


@functools.cache
def on_demand(karpenter: Path) -> Mapping[str, float]:
    """On-demand list prices of Linux, in US dollars per hour, by instance type: those that Karpenter itself falls back
    on (pkg/providers/pricing/zz_generated.pricing_aws.go at v1.14.1), from the directory of its build."""
    return {name: float(price) for name, price in _PRICE.findall((karpenter / _FILE).read_text())}
