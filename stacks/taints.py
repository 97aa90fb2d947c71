"""Taints of nodes and tolerations of pods, as a stack file writes them."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from stacks.value_types import LabelKey, LabelValue, Model


class Taint(Model):
    """A taint of a node."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What it does to pods that do not tolerate it."""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Model):
    """A toleration of a pod."""

    key: LabelKey | None = None
    """Key of the taint; left out with `Exists`, every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value counts."""
    value: LabelValue | None = None
    """Value of the taint, with `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; left out, every effect."""

    @model_validator(mode="after")
    def key_and_value_go_with_the_operator(self) -> Toleration:
        """What the API server refuses otherwise."""
        if self.operator == "Exists" and self.value:
            raise PydanticCustomError("toleration", "operator Exists takes no value; remove 'value', or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise PydanticCustomError(
                "toleration", "operator Equal needs a key; add 'key', or use Exists for every taint"
            )
        return self

    def tolerates(self, taint: Taint) -> bool:
        """Whether a pod with this toleration may run on a node with that taint."""
        key = (self.key is None and self.operator == "Exists") or self.key == taint.key
        value = self.operator == "Exists" or (self.value or "") == taint.value
        return key and value and self.effect in (None, taint.effect)
