"""Reusable components of a GPU CI cluster. What is named here is public.

Each is imported when it is asked for: a stack on bare metal does not wait for AWS's SDK.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from components.amd_gpu_device_plugin import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
    from components.arc_controller import ArcController, ArcControllerArgs, ControllerReference
    from components.eks_cluster import EksCluster
    from components.eks_cluster_args import (
        ApiEndpoint,
        ClusterCredentials,
        EksClusterArgs,
        EksClusterReference,
        SystemNodes,
    )
    from components.eks_network import EksNetwork
    from components.eks_network_args import EksNetworkArgs, NetworkReference
    from components.gpu_sharing import TimeSlicing
    from components.host_preflight import HostFacts, HostNeeds
    from components.karpenter import FeatureGates, Irsa, Karpenter, KarpenterArgs, KarpenterReference, PodIdentity
    from components.karpenter_node_pool import KarpenterNodePool
    from components.kubespray_args import (
        Calico,
        Kubespray,
        KubesprayClusterArgs,
        KubesprayNode,
        KubesprayRunner,
        Mirrors,
        NvidiaRuntime,
    )
    from components.kubespray_cluster import KubesprayCluster
    from components.node_pool_args import (
        AmiTerm,
        CapacityReservationTerm,
        Disruption,
        DisruptionBudget,
        KarpenterNodePoolArgs,
        Kubelet,
        NodeClass,
        Requirement,
        SecurityGroupTerm,
        SubnetTerm,
    )
    from components.nvidia_container_toolkit import Advisory, NvidiaContainerToolkit, NvidiaContainerToolkitArgs
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
    from components.ssh import SshHost, SshLogin
    from components.taint import Taint

__all__ = [
    "Advisory",
    "AmdGpuDevicePlugin",
    "AmdGpuDevicePluginArgs",
    "AmiTerm",
    "ApiEndpoint",
    "ArcController",
    "ArcControllerArgs",
    "Calico",
    "CapacityReservationTerm",
    "ClusterCredentials",
    "ControllerReference",
    "Disruption",
    "DisruptionBudget",
    "Docker",
    "EksCluster",
    "EksClusterArgs",
    "EksClusterReference",
    "EksNetwork",
    "EksNetworkArgs",
    "ExistingSecret",
    "FeatureGates",
    "GithubApp",
    "GithubToken",
    "HostFacts",
    "HostNeeds",
    "Irsa",
    "Karpenter",
    "KarpenterArgs",
    "KarpenterNodePool",
    "KarpenterNodePoolArgs",
    "KarpenterReference",
    "Kubelet",
    "Kubespray",
    "KubesprayCluster",
    "KubesprayClusterArgs",
    "KubesprayNode",
    "KubesprayRunner",
    "Mirrors",
    "NetworkReference",
    "NodeClass",
    "NvidiaContainerToolkit",
    "NvidiaContainerToolkitArgs",
    "NvidiaDevicePlugin",
    "NvidiaDevicePluginArgs",
    "NvidiaGpuOperator",
    "NvidiaGpuOperatorArgs",
    "NvidiaRuntime",
    "PodIdentity",
    "ProjectReference",
    "Requirement",
    "RunnerProject",
    "RunnerProjectArgs",
    "RunnerResources",
    "RunnerScaleSet",
    "RunnerScaleSetArgs",
    "SecurityGroupTerm",
    "SshHost",
    "SshLogin",
    "SubnetTerm",
    "SystemNodes",
    "Taint",
    "TimeSlicing",
    "Volume",
]

_MODULES = {
    "components.amd_gpu_device_plugin": ("AmdGpuDevicePlugin", "AmdGpuDevicePluginArgs"),
    "components.arc_controller": ("ArcController", "ArcControllerArgs", "ControllerReference"),
    "components.eks_cluster": ("EksCluster",),
    "components.eks_cluster_args": (
        "ApiEndpoint",
        "ClusterCredentials",
        "EksClusterArgs",
        "EksClusterReference",
        "SystemNodes",
    ),
    "components.eks_network": ("EksNetwork",),
    "components.eks_network_args": ("EksNetworkArgs", "NetworkReference"),
    "components.gpu_sharing": ("TimeSlicing",),
    "components.host_preflight": ("HostFacts", "HostNeeds"),
    "components.karpenter": ("FeatureGates", "Irsa", "Karpenter", "KarpenterArgs", "KarpenterReference", "PodIdentity"),
    "components.karpenter_node_pool": ("KarpenterNodePool",),
    "components.kubespray_args": (
        "Calico",
        "Kubespray",
        "KubesprayClusterArgs",
        "KubesprayNode",
        "KubesprayRunner",
        "Mirrors",
        "NvidiaRuntime",
    ),
    "components.kubespray_cluster": ("KubesprayCluster",),
    "components.node_pool_args": (
        "AmiTerm",
        "CapacityReservationTerm",
        "Disruption",
        "DisruptionBudget",
        "KarpenterNodePoolArgs",
        "Kubelet",
        "NodeClass",
        "Requirement",
        "SecurityGroupTerm",
        "SubnetTerm",
    ),
    "components.nvidia_container_toolkit": ("Advisory", "NvidiaContainerToolkit", "NvidiaContainerToolkitArgs"),
    "components.nvidia_device_plugin": ("NvidiaDevicePlugin", "NvidiaDevicePluginArgs"),
    "components.nvidia_gpu_operator": ("NvidiaGpuOperator", "NvidiaGpuOperatorArgs"),
    "components.runner_project": (
        "ExistingSecret",
        "GithubApp",
        "GithubToken",
        "ProjectReference",
        "RunnerProject",
        "RunnerProjectArgs",
    ),
    "components.runner_scale_set": ("Docker", "RunnerResources", "RunnerScaleSet", "RunnerScaleSetArgs", "Volume"),
    "components.ssh": ("SshHost", "SshLogin"),
    "components.taint": ("Taint",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
