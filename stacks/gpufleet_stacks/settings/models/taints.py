"""Taints of nodes and tolerations of pods in a stack file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from gpufleet_stacks.settings.models.value_types import LabelKey, LabelValue, Model


class TaintSettings(Model):
    """A taint of a node."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect on pods that do not tolerate the taint."""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Model):
    """A toleration of a pod."""

    key: LabelKey | None = None
    """Key of the taint; if omitted with `Exists`, every taint is tolerated."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Comparison: `Equal` compares the value, `Exists` ignores it."""
    value: LabelValue | None = None
    """Value of the taint; only with `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; if omitted, every effect."""

    @model_validator(mode="after")
    def key_and_value_go_with_the_operator(self) -> Toleration:
        """Raise an error for combinations that the API server rejects."""
        if self.operator == "Exists" and self.value:
            raise PydanticCustomError("toleration", "operator Exists takes no value; remove 'value', or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise PydanticCustomError(
                "toleration", "operator Equal requires a key; add 'key', or use Exists for every taint"
            )
        return self

    def tolerates(self, taint: TaintSettings) -> bool:
        """Return whether pods with this toleration may run on nodes with the taint."""
        key = (self.key is None and self.operator == "Exists") or self.key == taint.key
        value = self.operator == "Exists" or (self.value or "") == taint.value
        return key and value and self.effect in (None, taint.effect)


def repelling(taints: Iterable[TaintSettings], tolerations: Sequence[Toleration]) -> list[TaintSettings]:
    """Return the taints that keep pods with these tolerations off a node."""
    return [
        taint
        for taint in taints
        if taint.effect != "PreferNoSchedule" and not any(each.tolerates(taint) for each in tolerations)
    ]


def tolerations(taints: Iterable[TaintSettings]) -> list[dict[str, str]]:
    """Return tolerations of taints, whatever their values, each once."""
    kinds = dict.fromkeys((taint.key, taint.effect) for taint in taints)
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in kinds]
