"""Device plugins with a validation of GPUs: a real API server is asked about each object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest

from gpufleet import ExpectedGpus, GpuValidation
from gpufleet.amd import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from gpufleet.nvidia import NvidiaGpuOperator, NvidiaGpuOperatorArgs
from tests.recording import on_cluster, recorded
from tests.tools.sandbox.dry_run import dry_run


def amd(validation: GpuValidation) -> pulumi.ComponentResource:
    return AmdGpuDevicePlugin("amd", AmdGpuDevicePluginArgs(validation=validation), on_cluster())


def nvidia(validation: GpuValidation) -> pulumi.ComponentResource:
    args = NvidiaGpuOperatorArgs(host_toolkit_pinned=True, validation=validation)
    return NvidiaGpuOperator("nvidia", args, on_cluster())


@pytest.mark.parametrize("component", [amd, nvidia])
@pytest.mark.parametrize("level", ["quick", "long"])
def test_the_api_server_takes_every_object(
    kubeconfig: Path, component: Callable[[GpuValidation], pulumi.ComponentResource], level: str
) -> None:
    expected = ExpectedGpus(count=8, devices=64, compute_partition="CPX", memory_partition="NPS4")
    validation = GpuValidation(nodes={"gpu-1.example.com": expected}, default=expected, level=level)  # type: ignore[arg-type]
    objects = recorded(lambda: component(validation)).objects()
    assert {"DaemonSet", "ConfigMap"} <= {each["kind"] for each in objects}
    dry_run(kubeconfig, objects)
