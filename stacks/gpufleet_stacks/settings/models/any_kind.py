"""Settings of all kinds of stack in one model: for editors, for docs/settings.md, and for the message about an unknown
`kind` of cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster
from gpufleet_stacks.settings.models.eks import EfaPlugin, NvidiaPlugin
from gpufleet_stacks.settings.models.eks_cluster import EksClusterSettings
from gpufleet_stacks.settings.models.gpus import DevicePlugin, GpuOperator
from gpufleet_stacks.settings.models.settings import Settings


class AnySettings(Settings):
    """A stack file's settings."""

    cluster: Annotated[BareMetalCluster | EksClusterSettings, Field(discriminator="kind")]
    """The cluster."""
    device_plugin: DevicePlugin = DevicePlugin()
    """AMD device plugin, which makes AMD GPUs schedulable; bare metal only."""
    gpu_operator: GpuOperator = GpuOperator()
    """NVIDIA GPU operator, which makes NVIDIA GPUs schedulable; bare metal only."""
    nvidia_plugin: NvidiaPlugin = NvidiaPlugin()
    """NVIDIA device plugin, which makes NVIDIA GPUs schedulable; EKS only."""
    efa_plugin: EfaPlugin = EfaPlugin()
    """EFA device plugin, which makes EFA interfaces schedulable; EKS only."""
