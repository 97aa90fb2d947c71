"""Settings for NVIDIA GPUs on your own machines."""

from __future__ import annotations

from typing import Annotated, Literal

from gpufleet.bare_metal.container_toolkit import (
    NVIDIA_CONTAINER_TOOLKIT_KEY,
    NVIDIA_CONTAINER_TOOLKIT_REPOSITORY,
    NVIDIA_CONTAINER_TOOLKIT_VERSION,
    PACKAGE_VERSION,
    SHA256,
)
from gpufleet.nvidia.gpu_operator import NVIDIA_GPU_OPERATOR_VERSION
from gpufleet_stacks.settings.models.kubespray import Url
from gpufleet_stacks.settings.models.value_types import Model, Name, Switch, Text

PackageVersion = Annotated[
    str,
    Text(
        PACKAGE_VERSION,
        32,
        f"a package version with its revision, such as {NVIDIA_CONTAINER_TOOLKIT_VERSION}",
    ),
]
ChartVersion = Annotated[
    str, Text(r"v[0-9]+\.[0-9]+\.[0-9]+", 32, f"an exact version such as {NVIDIA_GPU_OPERATOR_VERSION}")
]


class ContainerToolkit(Model):
    """NVIDIA container toolkit on every machine with NVIDIA GPUs, pinned and held at one version."""

    nvkind: Switch
    """Whether nvkind creates clusters on these machines. It requires Docker, and a toolkit version below 1.18."""
    version: PackageVersion = NVIDIA_CONTAINER_TOOLKIT_VERSION
    """Version of all four packages, including the package revision."""
    runtime: Literal["docker", "containerd"] = "docker"
    """Container engine that gets the toolkit as its default runtime. In a cluster created by kubespray, kubespray
    itself configures containerd."""
    cdi: Switch = False
    """Whether to enable CDI devices in the engine as well."""
    repository: Url = NVIDIA_CONTAINER_TOOLKIT_REPOSITORY
    """URL of the package repository or its mirror, without the architecture."""
    key_url: Url = NVIDIA_CONTAINER_TOOLKIT_KEY
    """URL of the repository's public signing key."""
    key_sha256: Annotated[str, Text(f"({SHA256})?", 64, "a SHA-256: 64 hexadecimal digits")] = ""
    """SHA-256 of the key file; if empty, the key that is downloaded first is trusted."""
    checked: Annotated[str, Text(r"[^\n]*", 256, "one line of text")] = ""
    """Any text, such as a date. When it changes, every machine is verified, and repaired if it has drifted."""


class GpuOperator(Model):
    """The NVIDIA GPU operator. It does not install the driver, nor the container toolkit if that is pinned."""

    namespace: Name = "gpu-operator"
    """Namespace of the operator; this stack creates and owns it."""
    release: Name = "gpu-operator"
    """Helm release name."""
    version: ChartVersion = NVIDIA_GPU_OPERATOR_VERSION
    """Chart version."""
    feature_discovery: Switch = True
    """Whether to install node feature discovery. The operator requires exactly one per cluster to find GPU nodes."""
