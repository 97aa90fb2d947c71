"""Taint: what is the same on machines and on nodes that Karpenter buys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, kw_only=True)
class Taint:
    """What keeps pods off a node that do not tolerate it."""

    key: str
    """Key of the taint."""
    effect: TaintEffect = "NoSchedule"
    """What happens to pods that do not tolerate it."""
    value: str | None = None
    """Value of the taint, if it has one."""
