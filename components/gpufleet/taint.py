"""Taints, the same for machines and for nodes that Karpenter provisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, kw_only=True)
class Taint:
    """A node taint, which repels pods that do not tolerate it."""

    key: str
    """Key of the taint."""
    effect: TaintEffect = "NoSchedule"
    """Effect on pods that do not tolerate the taint."""
    value: str | None = None
    """Value of the taint, if it has one."""
