"""One defect in AWS inputs, and the ways to inject it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpufleet_tools.plan.plan import Plan
from tests.aws.references import kind_of

Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Defect:
    """One thing that is wrong, and nothing else."""

    what: str
    """What is wrong."""
    kind: str
    """Kind of the resource: `NodeGroup`."""
    name: str
    """Its logical name."""
    change: Change | None
    """What is done to its inputs; None where the resource is missing."""
    found_by: tuple[str, ...]
    """Names of the checks that find it, and no others; empty for what nobody finds."""

    def injected(self, plan: Plan) -> Plan:
        """The plan with the defect in it."""
        (resource,) = [each for each in plan.resources if (kind_of(each), each.name) == (self.kind, self.name)]
        others = [each for each in plan.resources if each is not resource]
        if self.change is None:
            return dataclasses.replace(plan, resources=tuple(others))
        inputs = copy.deepcopy(dict(resource.inputs))
        self.change(inputs)
        assert inputs != resource.inputs, "the change changes nothing"
        return dataclasses.replace(plan, resources=(*others, dataclasses.replace(resource, inputs=inputs)))


def given(path: str, value: Any) -> Change:
    """The value at a path of keys and numbers: `scalingConfig.minSize`, `taints.0.effect`."""

    def change(inputs: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            inputs = inputs[int(step)] if isinstance(inputs, list) else inputs[step]
        inputs[int(last) if isinstance(inputs, list) else last] = value

    return change


def lacking(key: str) -> Change:
    def change(inputs: dict[str, Any]) -> None:
        del inputs[key]

    return change


def written(key: str, old: str, new: str) -> Change:
    """Another word in a text, such as a policy; `old` has to be in it."""

    def change(inputs: dict[str, Any]) -> None:
        assert old in inputs[key], f"{old} is not in {key}"
        inputs[key] = inputs[key].replace(old, new)

    return change
