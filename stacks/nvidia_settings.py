"""The part of a stack file that is about NVIDIA's GPUs on machines that somebody owns."""

from __future__ import annotations

from typing import Annotated, Literal

from components.nvidia_container_toolkit import (
    NVIDIA_CONTAINER_TOOLKIT_KEY,
    NVIDIA_CONTAINER_TOOLKIT_REPOSITORY,
    NVIDIA_CONTAINER_TOOLKIT_VERSION,
)
from components.nvidia_gpu_operator import NVIDIA_GPU_OPERATOR_VERSION
from stacks.kubespray_settings import Url
from stacks.value_types import Model, Name, Switch, Text

PackageVersion = Annotated[
    str,
    Text(
        r"[0-9]+\.[0-9]+\.[0-9]+-[0-9]+",
        32,
        f"a package's version with its revision: {NVIDIA_CONTAINER_TOOLKIT_VERSION}",
    ),
]
ChartVersion = Annotated[
    str, Text(r"v[0-9]+\.[0-9]+\.[0-9]+", 32, f"an exact version such as {NVIDIA_GPU_OPERATOR_VERSION}")
]


class ContainerToolkit(Model):
    """NVIDIA's container toolkit on every machine with NVIDIA's GPUs, pinned and held at one version."""

    nvkind: Switch
    """Whether nvkind makes clusters on these machines: it needs a version below 1.18, and Docker."""
    version: PackageVersion = NVIDIA_CONTAINER_TOOLKIT_VERSION
    """Version of all four packages, with the package's revision."""
    runtime: Literal["docker", "containerd"] = "docker"
    """Container engine whose default runtime the toolkit becomes. The containerd of a cluster that kubespray makes is
    configured by kubespray."""
    cdi: Switch = False
    """Have the engine take devices by CDI as well."""
    repository: Url = NVIDIA_CONTAINER_TOOLKIT_REPOSITORY
    """URL of the package repository or its mirror, without the architecture."""
    key_url: Url = NVIDIA_CONTAINER_TOOLKIT_KEY
    """URL of the public key that it is signed with."""
    key_sha256: Annotated[str, Text(r"([0-9a-f]{64})?", 64, "a SHA-256: 64 hexadecimal digits")] = ""
    """SHA-256 of that file; empty trusts whatever the URL gives at first."""
    checked: Annotated[str, Text(r"[^\n]*", 256, "one line of text")] = ""
    """Any text, such as a date: a new one has every machine verified, and repaired where it has drifted."""


class GpuOperator(Model):
    """NVIDIA's GPU operator. The driver is the machines' own, and so is the container toolkit where it is pinned."""

    namespace: Name = "gpu-operator"
    """Namespace of the operator; owned by this stack."""
    release: Name = "gpu-operator"
    """Helm release name."""
    version: ChartVersion = NVIDIA_GPU_OPERATOR_VERSION
    """Version of its chart."""
    feature_discovery: Switch = True
    """Bring node feature discovery. Once per cluster; the operator finds no GPU node without one."""
