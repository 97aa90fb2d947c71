"""Reusable components of a GPU CI cluster. What is named here is public.

Components of AWS are imported when they are asked for: a stack on bare metal does not wait for AWS's SDK.
"""

import importlib
import typing

from components.amd_gpu_device_plugin import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from components.arc_controller import ArcController, ArcControllerArgs, ControllerReference
from components.gpu_sharing import TimeSlicing
from components.nvidia_device_plugin import NvidiaDevicePlugin, NvidiaDevicePluginArgs
from components.nvidia_gpu_operator import NvidiaGpuOperator, NvidiaGpuOperatorArgs
from components.runner_project import (
    ExistingSecret,
    GithubApp,
    GithubToken,
    ProjectReference,
    RunnerProject,
    RunnerProjectArgs,
)
from components.runner_scale_set import Docker, RunnerResources, RunnerScaleSet, RunnerScaleSetArgs, Volume

if typing.TYPE_CHECKING:
    from components.karpenter import FeatureGates, Irsa, Karpenter, KarpenterArgs, KarpenterReference, PodIdentity

__all__ = [
    "AmdGpuDevicePlugin",
    "AmdGpuDevicePluginArgs",
    "ArcController",
    "ArcControllerArgs",
    "ControllerReference",
    "Docker",
    "ExistingSecret",
    "FeatureGates",
    "GithubApp",
    "GithubToken",
    "Irsa",
    "Karpenter",
    "KarpenterArgs",
    "KarpenterReference",
    "NvidiaDevicePlugin",
    "NvidiaDevicePluginArgs",
    "NvidiaGpuOperator",
    "NvidiaGpuOperatorArgs",
    "PodIdentity",
    "ProjectReference",
    "RunnerProject",
    "RunnerProjectArgs",
    "RunnerResources",
    "RunnerScaleSet",
    "RunnerScaleSetArgs",
    "TimeSlicing",
    "Volume",
]

_AWS = dict.fromkeys(
    ("FeatureGates", "Irsa", "Karpenter", "KarpenterArgs", "KarpenterReference", "PodIdentity"), "components.karpenter"
)
"""Modules of what is imported when it is asked for."""


def __getattr__(name: str) -> typing.Any:
    if name not in _AWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_AWS[name]), name)
