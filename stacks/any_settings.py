"""The settings of every kind of stack in one model, for whoever has to know them all: editors, the README, and the
message about a cluster of no kind."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stacks.bare_metal_settings import BareMetalCluster, DevicePlugin
from stacks.eks_settings import EksCluster, NvidiaPlugin
from stacks.nvidia_settings import GpuOperator
from stacks.settings import Settings


class AnySettings(Settings):
    """A stack file's settings."""

    cluster: Annotated[BareMetalCluster | EksCluster, Field(discriminator="kind")]
    """The cluster."""
    device_plugin: DevicePlugin = DevicePlugin()
    """What makes AMD's GPUs schedulable; on bare metal."""
    gpu_operator: GpuOperator = GpuOperator()
    """What makes NVIDIA's GPUs schedulable; on bare metal."""
    nvidia_plugin: NvidiaPlugin = NvidiaPlugin()
    """What makes NVIDIA's GPUs schedulable; on EKS."""
