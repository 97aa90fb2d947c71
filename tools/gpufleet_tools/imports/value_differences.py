"""Where the values of two scale sets differ to Kubernetes: order of names and ways of writing count for nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpufleet import quantity
from gpufleet.problem import Path
from gpufleet_stacks.settings.problems import dotted, quoted

ABSENT = object()
"""What is not there."""

UNLIMITED = 2**31 - 1
"""Runners of a scale set without `maxRunners` (resourcebuilder.go of ARC at 0.14.2)."""


@dataclass(frozen=True)
class Difference:
    """One place at which two scale sets differ."""

    path: str
    """Where: `template.spec.containers.runner.ports`."""
    before: Any
    """Existing value; ABSENT if there is none."""
    after: Any
    """Value after the import; ABSENT if there is none."""

    def __str__(self) -> str:
        if isinstance(self.before, str) and isinstance(self.after, str) and "\n" in self.before + self.after:
            lines = difflib.ndiff(self.before.splitlines(), self.after.splitlines())
            return f"{self.path}: " + ", ".join(f"{line[0]} {quoted(line[2:])}" for line in lines if line[0] in "-+")
        return f"{self.path}: {_shown(self.before)} -> {_shown(self.after)}"


def _shown(value: Any) -> str:
    return "nothing" if value is ABSENT else quoted(value)


_DEFAULTS: dict[str, Any] = {"minRunners": 0, "maxRunners": UNLIMITED}
"""What ARC takes where the chart's values say nothing."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The differences between the values of two scale sets."""
    return list(_compared(_DEFAULTS | _pruned(before), _DEFAULTS | _pruned(after), ()))


def differences_at(before: Any, after: Any, path: Path) -> list[Difference]:
    """The differences between two parts of the values of scale sets, at a path."""
    return list(_compared(_pruned(before), _pruned(after), path))


def _pruned(value: Any) -> Any:
    """Without what is empty, which says the same as nothing; but not an emptyDir volume, nor a metric's labels."""
    if isinstance(value, dict):
        kept = {key: item if key in _TELLING_EMPTY else _pruned(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if key in _TELLING_EMPTY or item not in ({}, [], None, "")}
    return [_pruned(item) for item in value] if isinstance(value, list) else value


_TELLING_EMPTY = ("emptyDir", "listenerMetrics")


def _compared(before: Any, after: Any, path: Path) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = defaulted(before, path), defaulted(after, path)
        for key in {**before, **after}:
            yield from _compared(before.get(key, ABSENT), after.get(key, ABSENT), (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, path)
    elif not _same(before, after, path):
        yield Difference(dotted(path), before, after)


def _lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    """Lists by the key that tells their items apart, where Kubernetes has one; init containers also by their order."""
    key = _MERGED_BY.get(str(path[-1]) if path else "")
    if key and all(isinstance(item, dict) and key in item for item in (*before, *after)):
        one, other = ({str(item[key]): item for item in items} for items in (before, after))
        if len(one) == len(before) and len(other) == len(after):
            yield from _compared(one, other, path)
            common = [[name for name in names if name in one and name in other] for names in (one, other)]
            if path[-1] == "initContainers" and common[0] != common[1]:
                yield Difference(dotted((*path, "order")), *common)
            return
    if len(before) == len(after):
        for index, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from _compared(left, right, (*path, index))
    elif before != after:
        yield Difference(dotted(path), before, after)


_MERGED_BY = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}
"""Keys that tell the items of a list apart (patchMergeKey in k8s.io/api/core/v1/types.go)."""


def defaulted(value: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a part of a pod with what the API server adds (pkg/apis/core/v1/defaults.go of Kubernetes), where two
    sides may differ in saying so."""
    parent = path[-2] if len(path) > 1 else None
    if parent in ("containers", "initContainers") and isinstance(value.get("image"), str):
        tag = value["image"].rpartition("/")[2]
        moves = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
        return {"imagePullPolicy": "Always" if moves else "IfNotPresent"} | value
    if parent == "volumeMounts":
        return {"readOnly": False} | value
    if parent == "tolerations":
        return {"operator": "Equal"} | value
    if parent == "volumes" and isinstance(value.get("hostPath"), dict):
        return value | {"hostPath": {"type": ""} | value["hostPath"]}
    return value


def _same(before: Any, after: Any, path: Path) -> bool:
    if before is ABSENT or after is ABSENT:
        return before is after
    if any(part in ("requests", "limits") for part in path[-2:]):
        amounts = (_amount(before), _amount(after))
        if None not in amounts:
            return amounts[0] == amounts[1]
    # Helm hands whole numbers over as floats.
    alike = type(before) is type(after) or {type(before), type(after)} == {int, float}
    return alike and bool(before == after)


def _amount(value: Any) -> Decimal | None:
    try:
        return quantity.parsed(str(value))
    except ValueError:
        return None
