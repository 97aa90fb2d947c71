"""Reusable components of a GPU CI cluster. What is named here is public."""

from components.amd_gpu_device_plugin import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from components.arc_controller import ArcController, ArcControllerArgs, ControllerReference
from components.runner_project import (
    ExistingSecret,
    GithubApp,
    GithubToken,
    ProjectReference,
    RunnerProject,
    RunnerProjectArgs,
)
from components.runner_scale_set import Docker, RunnerResources, RunnerScaleSet, RunnerScaleSetArgs, Volume

__all__ = [
    "AmdGpuDevicePlugin",
    "AmdGpuDevicePluginArgs",
    "ArcController",
    "ArcControllerArgs",
    "ControllerReference",
    "Docker",
    "ExistingSecret",
    "GithubApp",
    "GithubToken",
    "ProjectReference",
    "RunnerProject",
    "RunnerProjectArgs",
    "RunnerResources",
    "RunnerScaleSet",
    "RunnerScaleSetArgs",
    "Volume",
]
