"""Values of a scale set that have no effect: the chart does not read them, or Kubernetes has no such field."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Mapping
from typing import Any

from gpufleet.problem import Path
from gpufleet_stacks.settings.models.profiles.kubernetes_types import unknown_fields
from gpufleet_stacks.settings.problems import dotted, quoted

READ = frozenset(
    {
        *("annotations", "containerMode", "controllerServiceAccount", "githubConfigSecret", "githubConfigUrl"),
        *("githubServerTLS", "keyVault", "labels", "listenerMetrics", "listenerTemplate", "maxRunners", "minRunners"),
        *("nameOverride", "namespaceOverride", "proxy", "resourceMeta", "runnerGroup", "runnerScaleSetName"),
        *("scaleSetLabels", "template"),
    }
)
"""Values that the templates of the chart gha-runner-scale-set read at 0.14.2."""

TEMPLATES = {"template": "PodTemplateSpec", "listenerTemplate": "PodTemplateSpec"}
"""Values that are objects of Kubernetes' API, with their types."""


def without(values: Mapping[str, Any], *, rendered: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the values without those that have no effect, and a line for each of these. Of a rendered scale set, every
    field is ARC's own."""
    kept: Any = copy.deepcopy({key: value for key, value in values.items() if rendered or key in READ})
    notes = [f"{key}: has no effect: the chart does not read it" for key in values if key not in kept]
    for key, wanted in TEMPLATES.items():
        for path, lacking in list(unknown_fields(kept.get(key), wanted, (key,))):
            *parents, last = path
            holder = functools.reduce(operator.getitem, parents, kept)
            shown = dotted(_named(kept, path))
            notes.append(f"{shown}: {quoted(holder.pop(last))} has no effect: Kubernetes' {lacking} has no such field")
    return kept, notes


def _named(values: Mapping[str, Any], path: Path) -> Path:
    """Return the path with the names of lists' items in place of indices."""
    named: list[str | int] = []
    place: Any = values
    for part in path[:-1]:
        place = place[part]
        name = place.get("name") if isinstance(part, int) and isinstance(place, Mapping) else None
        named.append(name if isinstance(name, str) else part)
    return (*named, path[-1])
