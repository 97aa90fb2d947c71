"""Settings of what makes GPUs of your own machines schedulable, and validates them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpufleet.amd.device_plugin import ResourceNaming
from gpufleet.bare_metal.container_toolkit import (
    NVIDIA_CONTAINER_TOOLKIT_KEY,
    NVIDIA_CONTAINER_TOOLKIT_REPOSITORY,
    NVIDIA_CONTAINER_TOOLKIT_VERSION,
    PACKAGE_VERSION,
    SHA256,
)
from gpufleet.nvidia.gpu_operator import NVIDIA_GPU_OPERATOR_VERSION
from gpufleet_stacks.settings.models.kubespray import Url
from gpufleet_stacks.settings.models.taints import Toleration
from gpufleet_stacks.settings.models.value_types import Count, Filled, Labels, Model, Name, Switch, Text

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


class Validation(Model):
    """Validation of GPUs after a boot. Until it passes, the machine offers no GPUs."""

    level: Literal["none", "quick", "medium", "long"] = "quick"
    """Extent. `quick` takes about a second and needs no further image: number of GPUs and devices, partitions,
    uncorrectable memory errors, and whether each GPU can be opened. `medium` also tests memory, bandwidth and
    arithmetic for some minutes (level 3 of the ROCm Validation Suite), `long` memory and power for about 20 minutes
    (level 4)."""
    image: Filled | None = None
    """Image of the test; if omitted, that of the device plugin for `quick`, and `docker.io/rocm/test-runner` for the
    other levels."""
    timeout_seconds: Annotated[int, Field(strict=True, ge=10, le=86400)] | None = None
    """Time limit of the checks, and again of the test, in seconds; if omitted, 60, 900 or 3600, depending on the
    level."""


class NvidiaValidation(Model):
    """Validation of NVIDIA GPUs after a boot. Until it passes, the machine offers no GPUs."""

    level: Literal["none", "quick", "medium", "long"] = "none"
    """Extent. `quick` takes about a second: number of GPUs and uncorrectable ECC errors. `medium` (about two minutes)
    and `long` (about 15) also run the diagnostics of DCGM with these names."""
    image: Filled | None = None
    """Image of the test; if omitted, that of the device plugin for `quick`, and `nvcr.io/nvidia/cloud-native/dcgm` for
    the other levels."""
    timeout_seconds: Annotated[int, Field(strict=True, ge=10, le=86400)] | None = None
    """Time limit of the checks, and again of the test, in seconds; if omitted, 60, 900 or 3600, depending on the
    level."""


class DevicePlugin(Model):
    """The AMD device plugin and node labeller."""

    resource_naming: ResourceNaming = "single"
    """Resource names of GPUs. `single`: every device is `amd.com/gpu`. `mixed`: devices are named after their
    partition, such as `amd.com/cpx_nps4`."""
    namespace: Name = "kube-system"
    """Namespace of both; it must exist already."""
    health_check_seconds: Count = 30
    """Interval of GPU health checks in seconds; 0 disables them."""
    node_selector: Labels | None = None
    """Labels of the nodes that run them; if omitted, the labels that all AMD node pools share."""
    tolerations: tuple[Toleration, ...] | None = None
    """Tolerations of their pods; if omitted, the taints of the AMD node pools are tolerated."""
    validation: Validation = Validation()
    """Validation of each machine's GPUs after a boot, before pods can request them."""


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
    validation: NvidiaValidation = NvidiaValidation()
    """Validation of each machine's GPUs after a boot, before pods can request them. It requires
    `cluster.nvidiaContainerToolkit`. This stack then installs the device plugin instead of the operator."""
