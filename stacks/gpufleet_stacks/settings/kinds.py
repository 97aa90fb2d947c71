"""Choice of the settings' model by the kind of cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufleet_stacks.settings.models.settings import Settings


def model_of(values: Mapping[str, Any]) -> type[Settings]:
    """Return the model for the kind of cluster, or the model of all kinds if the kind is missing or unknown.

    Other models are not imported, because pydantic takes a tenth of a second for those of one kind.
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
