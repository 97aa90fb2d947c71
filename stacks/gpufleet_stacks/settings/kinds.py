"""Which model a stack file's settings have: that of its cluster's kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet_stacks.settings.models.settings import Settings


def model_of(values: Mapping[str, Any]) -> type[Settings]:
    """The model of that kind of cluster; where the kind is missing or unknown, the one that tells of every kind.

    Only that one is imported: pydantic takes a tenth of a second for the models of a kind.
    """
    cluster = values.get("cluster")
    match cluster.get("kind") if isinstance(cluster, Mapping) else None:
        case "bareMetal":
            from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings

            return BareMetalSettings
        case "eks":
            from gpufleet_stacks.settings.models.eks import EksSettings

            return EksSettings
        case _:
            from gpufleet_stacks.settings.models.any_kind import AnySettings

            return AnySettings
