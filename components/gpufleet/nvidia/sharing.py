"""Sharing of NVIDIA GPUs: resource names, GPU counts and configuration of shared GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from gpufleet.problem import Path, Problem

GPU = "nvidia.com/gpu"
"""Resource name of a whole, unshared GPU."""

FEWEST_REPLICAS = 2
"""Minimum number of replicas; the plugin does not start with fewer (api/config/v1/replicas.go of
NVIDIA/k8s-device-plugin at v0.20.0)."""

MigStrategy = Literal["none", "single", "mixed"]


@dataclass(frozen=True, kw_only=True)
class TimeSlicing:
    """Time-slicing: several pods take turns on one GPU. They are not isolated: memory is not divided, and a fault of
    one pod affects all ("Shared Access to GPUs" in the README of NVIDIA/k8s-device-plugin)."""

    replicas: int
    """Number of pods that may share one GPU; the node advertises each GPU this many times."""
    rename_by_default: bool = False
    """Whether to advertise `nvidia.com/gpu.shared` instead of `nvidia.com/gpu`. An autoscaler must be configured for
    that name."""
    fail_requests_greater_than_one: bool = True
    """Whether to reject pods that request more than one replica. Two replicas may be of the same GPU, and give no more
    GPU time than one. The plugin's own default is to accept them."""


def sharing_problems(sharing: object) -> list[Problem]:
    """Return the problems of a sharing configuration; empty if it is valid."""
    if isinstance(sharing, TimeSlicing):
        if sharing.replicas >= FEWEST_REPLICAS:
            return []
        message = f"{sharing.replicas} is too few; at least {FEWEST_REPLICAS}; leave sharing out for whole GPUs"
        return [Problem(("sharing", "replicas"), "too-few-replicas", message)]
    if sharing is None:
        return []
    return [Problem(("sharing",), "no-time-slicing", f"{sharing!r} is not time slicing; MPS is not supported, nor MIG")]


def mig_problems(path: Path, strategy: str) -> list[Problem]:
    """Return the problem of a MIG strategy, with the given path; empty if it is supported."""
    return [] if strategy == "none" else [Problem(path, "mig", f"MIG ({strategy}) is not supported; use none")]


def resource_name(sharing: TimeSlicing | None) -> str:
    """Return the resource name that pods request (`DefaultSharedRename` in api/config/v1/resources.go of
    NVIDIA/k8s-device-plugin)."""
    return f"{GPU}.shared" if sharing and sharing.rename_by_default else GPU


def allocatable(physical: int, sharing: TimeSlicing | None) -> int:
    """Return the number of that resource on a node with this many physical GPUs."""
    return physical * (sharing.replicas if sharing else 1)


def largest_request(physical: int, sharing: TimeSlicing | None) -> int:
    """Return the largest number of that resource that one pod can get on such a node."""
    offered = allocatable(physical, sharing)
    return min(offered, 1) if sharing and sharing.fail_requests_greater_than_one else offered


def device_plugin_config(flags: Mapping[str, Any], sharing: TimeSlicing | None) -> str:
    """Return the plugin's configuration file (api/config/v1/config.go of NVIDIA/k8s-device-plugin). The plugin rejects
    versions other than v1."""
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
