"""Sharing of NVIDIA GPUs: what several pods on one GPU mean for its resource name, its number and its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

GPU = "nvidia.com/gpu"
"""The resource that a whole, unshared GPU is offered as."""

FEWEST_REPLICAS = 2
"""Fewest replicas that the plugin takes; with fewer it does not start (api/config/v1/replicas.go of
NVIDIA/k8s-device-plugin at v0.20.0)."""

MigStrategy = Literal["none", "single", "mixed"]


@dataclass(frozen=True, kw_only=True)
class TimeSlicing:
    """Several pods take turns on one GPU. Its memory is not divided between them, and a fault of one is a fault of
    all ("Shared Access to GPUs" in the README of NVIDIA/k8s-device-plugin)."""

    replicas: int
    """Pods that may be on one GPU; every GPU of a node is offered this many times."""
    rename_by_default: bool = False
    """Offer `nvidia.com/gpu.shared` instead of `nvidia.com/gpu`. An autoscaler knows that name only if told."""
    fail_requests_greater_than_one: bool = True
    """Refuse a pod that asks for more than one: two replicas can be of the same GPU, and are no more time of it. The
    plugin's own default is not to refuse."""


def sharing_refusals(sharing: object, mig_strategy: str = "none") -> list[str]:
    """Why GPUs cannot be shared like this; empty where they can."""
    reasons = []
    if isinstance(sharing, TimeSlicing):
        if sharing.replicas < FEWEST_REPLICAS:
            reasons.append(
                f"timeSlicing.replicas: {sharing.replicas} is too few; at least {FEWEST_REPLICAS};"
                " leave sharing out for whole GPUs"
            )
    elif sharing is not None:
        reasons.append(f"sharing: {sharing!r} is not time slicing; MPS is not supported, nor MIG")
    if mig_strategy != "none":
        reasons.append(f"migStrategy: MIG ({mig_strategy}) is not supported; use none")
    return reasons


def resource_name(sharing: TimeSlicing | None) -> str:
    """What pods ask for (`DefaultSharedRename` in api/config/v1/resources.go of NVIDIA/k8s-device-plugin)."""
    return f"{GPU}.shared" if sharing and sharing.rename_by_default else GPU


def allocatable(physical: int, sharing: TimeSlicing | None) -> int:
    """How many of it a node with this many GPUs offers."""
    return physical * (sharing.replicas if sharing else 1)


def largest_request(physical: int, sharing: TimeSlicing | None) -> int:
    """The most of it that one pod is given on such a node."""
    offered = allocatable(physical, sharing)
    return min(offered, 1) if sharing and sharing.fail_requests_greater_than_one else offered


def device_plugin_config(flags: Mapping[str, Any], sharing: TimeSlicing | None) -> str:
    """The plugin's configuration file (api/config/v1/config.go of NVIDIA/k8s-device-plugin). Another version than v1
    is an error."""
    config: dict[str, Any] = {"version": "v1", "flags": dict(flags)}
    if sharing:
        config["sharing"] = {
            "timeSlicing": {
                "renameByDefault": sharing.rename_by_default,
                "failRequestsGreaterThanOne": sharing.fail_requests_greater_than_one,
                "resources": [{"name": GPU, "replicas": sharing.replicas}],
            }
        }
    return str(yaml.safe_dump(config, sort_keys=False))
