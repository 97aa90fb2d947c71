"""Validation of GPUs on a node before its device plugin offers them to pods.

The validation is an init container of the plugin's DaemonSet. After a boot, the kubelet has no GPUs to allocate until
the plugin registers (`readCheckpoint` in pkg/kubelet/cm/devicemanager/manager.go of Kubernetes 1.36.1). The kubelet
creates the pod's sandbox again, and then runs init containers again (`computePodActions` in pkg/kubelet/kuberuntime).
So the scheduler never sees unproven GPUs. A taint that a pod sets would come too late: the Node object outlives the
boot without it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpufleet.problem import Problem

Level = Literal["quick", "medium", "long"]

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")

STATE = "/run/gpufleet"
"""Folder of the host with the results. It is in memory, so each boot starts without any."""

CONTAINER = "gpu-validation"
"""Name of the init container."""

SECONDS: Mapping[Level, int] = {"quick": 60, "medium": 900, "long": 3600}
"""Default time limit of each level."""

_DECLARED = "/etc/gpufleet/declared"

_OTHERS = "_others"
"""Key for nodes that are not listed. No node can have this name."""

Manifest = Any
"""Part of a manifest in Kubernetes syntax."""


@dataclass(frozen=True, kw_only=True)
class ExpectedGpus:
    """GPUs that a node must have."""

    count: int
    """Number of physical GPUs."""
    devices: int | None = None
    """Number of devices that the driver offers, partitions included; None for one per GPU."""
    compute_partition: str | None = None
    """Compute partition of AMD GPUs; None for any."""
    memory_partition: str | None = None
    """Memory partition of AMD GPUs; None for any."""


@dataclass(frozen=True, kw_only=True)
class GpuValidation:
    """Validation of the GPUs of each node after a boot, before pods can request them."""

    nodes: Mapping[str, ExpectedGpus] = field(default_factory=dict)
    """Expected GPUs, by node name."""
    default: ExpectedGpus | None = None
    """Expected GPUs of nodes that are not listed; None fails there."""
    level: Level = "quick"
    """Extent of the validation. `quick` reads counters and states of the driver in about a second, and disturbs no
    job. `medium` also tests memory, bandwidth and arithmetic for minutes, `long` memory and power for up to an hour.
    The test runs once after each boot, unless the GPUs are in use."""
    image: str | None = None
    """Container image; None for the default of the vendor and level."""
    timeout_seconds: int | None = None
    """Time limit of the checks, and again of the test, in seconds; None for the level's default."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a validation, as the host keeps it."""

    passed: bool
    """Whether it found no fault."""
    at: int
    """Time in seconds since 1970."""
    level: str
    """Level of the test that the GPUs passed or failed since the boot; `quick` if none ran."""
    gpus: int | None
    """Number of GPUs that the node must have; None if it is not declared."""
    faults: tuple[str, ...]
    """Faults, one line each."""


def parse_result(text: str) -> Result:
    """Return the result in a host's file. Raises ValueError for a text that is none."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key, []).append(value)
    try:
        ((result,), (at,), (level,), (gpus,)) = (found[key] for key in ("result", "at", "level", "gpus"))
    except (KeyError, ValueError):
        raise ValueError("the result of the GPU validation is incomplete") from None
    return Result(
        passed=result == "passed",
        at=int(at),
        level=level,
        gpus=int(gpus) if gpus else None,
        faults=tuple(found.get("fault", ())),
    )


def validation_problems(validation: GpuValidation | None) -> Iterator[Problem]:
    """Yield every problem of the argument `validation`."""
    if validation is None:
        return
    if not validation.nodes and validation.default is None:
        message = "is empty, so the validation would fail on every node; list the nodes, or set default"
        yield Problem(("validation", "nodes"), "no-nodes", message)
    if validation.timeout_seconds is not None and validation.timeout_seconds < 1:
        message = f"{validation.timeout_seconds} is no time limit; use at least 1 second"
        yield Problem(("validation", "timeout_seconds"), "no-time-limit", message)


def expectations(validation: GpuValidation) -> dict[str, str]:
    """Return the data of the ConfigMap with the expected GPUs of each node, in shell syntax. It is no part of the pod's
    template, so that another machine restarts no plugin."""
    others = {_OTHERS: validation.default} if validation.default else {}
    return {name: " ".join(_words(expected)) for name, expected in {**validation.nodes, **others}.items()}


def _words(expected: ExpectedGpus) -> Iterator[str]:
    yield f"GPUS={expected.count}"
    yield f"DEVICES={expected.devices or expected.count}"
    if expected.compute_partition:
        yield f"COMPUTE={expected.compute_partition}"
    if expected.memory_partition:
        yield f"MEMORY={expected.memory_partition}"


def init_container(
    validation: GpuValidation, script: pathlib.Path, image: str, mounts: Sequence[Mapping[str, Any]] = ()
) -> Manifest:
    """Return the init container that validates the GPUs of its node with a vendor's script."""
    environment = {
        "LEVEL": validation.level,
        "TIMEOUT_SECONDS": str(validation.timeout_seconds or SECONDS[validation.level]),
        "STATE": STATE,
        "DECLARED": _DECLARED,
        "TERMINATION_MESSAGE": "/dev/termination-log",
        "SYSFS": "/sys",
        "DEV": "/dev",
    }
    return {
        "name": CONTAINER,
        "image": validation.image or image,
        "command": ["sh", "-c", SCRIPT.read_text(), CONTAINER, script.read_text()],
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        # It opens the GPUs themselves.
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "validation-state", "mountPath": STATE},
            {"name": "declared-gpus", "mountPath": _DECLARED, "readOnly": True},
            *mounts,
        ],
    }


def volumes(config_map: str) -> list[Manifest]:
    """Return the volumes of the init container. `config_map` has the data of `expectations`."""
    return [
        {"name": "validation-state", "hostPath": {"path": STATE, "type": "DirectoryOrCreate"}},
        {"name": "declared-gpus", "configMap": {"name": config_map}},
    ]


UPDATE_STRATEGY: Manifest = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}
"""Update of a plugin with validation. With the default, one pod at a time, a single node whose GPUs fail would stop the
update of all others."""

SKIP_AWAIT: Mapping[str, str] = {"pulumi.com/skipAwait": "true"}
"""Annotation of a plugin with validation. Otherwise `pulumi up` would wait for the tests of all nodes, and fail for as
long as the GPUs of one node fail."""
