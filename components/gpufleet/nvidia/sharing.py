"""Sharing of NVIDIA GPUs: resource names, GPU counts and configuration of shared GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, kw_only=True)
class Mps:
    """CUDA MPS: several pods run on one GPU at once, each with an equal part of its memory and compute units.

    A fault of one pod can end the others. The README of NVIDIA/k8s-device-plugin ("Shared Access to GPUs") calls it
    experimental.
    """

    replicas: int
    """Number of pods that share one GPU; the node advertises each GPU this many times. A pod gets one of them."""


@dataclass(frozen=True, kw_only=True)
class Mig:
    """Multi-Instance GPU: each GPU is divided in hardware into instances of one profile, isolated from each other.

    The plugin advertises instances as GPUs (MIG strategy `single`). It does not create them: the node must do so before
    its kubelet starts.
    """

    profile: str
    """Profile of every instance, such as `1g.10gb`."""
    instances: int
    """Number of instances of one GPU; see `mig_instances`."""


Sharing = TimeSlicing | Mps | Mig
"""Ways to share the GPUs of a node."""

MIG_PROFILES: Mapping[tuple[str, int], Sequence[str]] = {
    ("A100", 40): ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    ("A100", 80): ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    ("H100", 80): ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    ("H200", 141): ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    ("B200", 180): ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
}
"""Profiles by GPU model and memory in GB ("Supported MIG Profiles" in NVIDIA's MIG user guide)."""

MIG_COMPUTE_SLICES = 7
"""Compute slices of each of these models (MIG user guide)."""

MOST_MPS_REPLICAS = 48
"""Maximum number of clients of one GPU under MPS, from Volta on (NVIDIA's MPS documentation, "Limitations")."""


def mig_instances(model: str, memory: int, profile: str) -> int | None:
    """Return the number of instances of a profile that one GPU holds; None if it does not have the profile. `memory` is
    in MiB, as EC2 reports it."""
    for (name, size), profiles in MIG_PROFILES.items():
        # EC2 reports 40960 MiB for 40 GB, 144384 for 141 and 183359 for 180.
        if name == model and abs(memory / 1024 - size) < size / 50 and profile in profiles:
            slices, _, part = profile.removesuffix("gb").partition("g.")
            return min(size // int(part), MIG_COMPUTE_SLICES // int(slices))
    return None


def mig_profiles(model: str, memory: int) -> Sequence[str]:
    """Return the profiles that a GPU has; empty if it has no MIG. `memory` is in MiB."""
    found = {profile for profiles in MIG_PROFILES.values() for profile in profiles}
    return sorted(profile for profile in found if mig_instances(model, memory, profile))


def sharing_problems(sharing: object) -> list[Problem]:
    """Return the problems of a sharing configuration; empty if it is valid."""
    if isinstance(sharing, Mig):
        return (
            [] if sharing.instances >= 1 else [Problem(("sharing", "instances"), "no-instances", "must be 1 or more")]
        )
    if isinstance(sharing, TimeSlicing | Mps):
        if sharing.replicas < FEWEST_REPLICAS:
            message = f"{sharing.replicas} is too few; at least {FEWEST_REPLICAS}, or remove sharing for whole GPUs"
            return [Problem(("sharing", "replicas"), "too-few-replicas", message)]
        if isinstance(sharing, Mps) and sharing.replicas > MOST_MPS_REPLICAS:
            message = f"{sharing.replicas} is too many; MPS supports {MOST_MPS_REPLICAS} on one GPU; lower it"
            return [Problem(("sharing", "replicas"), "too-many-replicas", message)]
        return []
    if sharing is None:
        return []
    return [Problem(("sharing",), "no-sharing", f"{sharing!r} is not TimeSlicing, Mps or Mig")]


def mig_problems(path: Path, strategy: str) -> list[Problem]:
    """Return the problem of a MIG strategy, with the given path; empty if it is supported."""
    return [] if strategy == "none" else [Problem(path, "mig", f"MIG ({strategy}) is not supported; use none")]


def resource_name(sharing: Sharing | None) -> str:
    """Return the resource name that pods request (`DefaultSharedRename` in api/config/v1/resources.go of
    NVIDIA/k8s-device-plugin)."""
    return f"{GPU}.shared" if isinstance(sharing, TimeSlicing) and sharing.rename_by_default else GPU


def devices_of_a_gpu(sharing: Sharing | None) -> int:
    """Return the number of that resource that one physical GPU is advertised as."""
    if sharing is None:
        return 1
    return sharing.instances if isinstance(sharing, Mig) else sharing.replicas


def allocatable(physical: int, sharing: Sharing | None) -> int:
    """Return the number of that resource on a node with this many physical GPUs."""
    return physical * devices_of_a_gpu(sharing)


def only_one_each(sharing: Sharing | None) -> bool:
    """Return whether a pod can use no more than one of that resource. Under MPS the plugin rejects more by default
    (api/config/v1/config.go); of several MIG instances CUDA sees the first (MIG user guide, "CUDA Device
    Enumeration")."""
    return isinstance(sharing, Mps | Mig) or (
        isinstance(sharing, TimeSlicing) and sharing.fail_requests_greater_than_one
    )


def largest_request(physical: int, sharing: Sharing | None) -> int:
    """Return the largest number of that resource that one pod can get on such a node."""
    offered = allocatable(physical, sharing)
    return min(offered, 1) if only_one_each(sharing) else offered


def config_name(sharing: Sharing | None) -> str:
    """Return a name for the plugin's configuration with this sharing, to be a label's value."""
    match sharing:
        case None:
            return "exclusive"
        case Mig():
            return f"mig-{sharing.profile}"
        case Mps():
            return f"mps-{sharing.replicas}"
    several = "" if sharing.fail_requests_greater_than_one else "-several"
    return f"time-slicing-{sharing.replicas}{several}"


def device_plugin_config(flags: Mapping[str, Any], sharing: Sharing | None) -> str:
    """Return the plugin's configuration file (api/config/v1/config.go of NVIDIA/k8s-device-plugin). The plugin rejects
    versions other than v1."""
    config: dict[str, Any] = {"version": "v1", "flags": dict(flags)}
    if isinstance(sharing, Mig):
        config["flags"]["migStrategy"] = "single"
    elif isinstance(sharing, Mps):
        config["sharing"] = {"mps": {"resources": [{"name": GPU, "replicas": sharing.replicas}]}}
    elif sharing:
        config["sharing"] = {
            "timeSlicing": {
                "renameByDefault": sharing.rename_by_default,
                "failRequestsGreaterThanOne": sharing.fail_requests_greater_than_one,
                "resources": [{"name": GPU, "replicas": sharing.replicas}],
            }
        }
    return str(yaml.safe_dump(config, sort_keys=False))
