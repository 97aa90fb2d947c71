"""Variables that Flux or Terraform fill in before Helm reads the values: `${CLUSTER}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpufleet_tools.imports.arc_values import ScaleSet

_VARIABLE = re.compile(r"\$\{ *([A-Za-z_][A-Za-z0-9_]*) *\}")


def variables(text: str) -> Iterator[str]:
    """Yield the names of variables in a text."""
    return (found[1] for found in _VARIABLE.finditer(text))


def filled_in(scale_set: ScaleSet, substitutes: Mapping[str, str]) -> ScaleSet:
    """Return a scale set with the values of variables in place. Variables without a value stay: most are a shell's."""
    if not substitutes:
        return scale_set
    label, namespace, values = (
        _filled_in(part, substitutes) for part in (scale_set.label, scale_set.namespace, scale_set.values)
    )
    return replace(scale_set, label=label, namespace=namespace, values=values)


def _filled_in(value: Any, substitutes: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled_in(item, substitutes) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled_in(item, substitutes) for item in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: substitutes.get(found[1], found[0]), value)
