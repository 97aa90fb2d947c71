"""AMD Conductor: machines that exist, and the cluster on them."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes

from components import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from stacks import runners
from stacks.bare_metal_settings import BareMetalCluster, BareMetalSettings, ContextKubeconfig, NodePool
from stacks.runners import Place, toleration_object
from stacks.taints import Taint


def build(settings: BareMetalSettings) -> None:
    """Everything that runs on the cluster, and the stack's outputs."""
    opts = pulumi.ResourceOptions(providers=[cluster_provider(settings.cluster)])
    AmdGpuDevicePlugin("amd-gpu-device-plugin", device_plugin_args(settings), opts)
    runners.build(settings, lambda runner: Place(gpu_resource=settings.gpu_resource(settings.pool_name(runner))), opts)


def cluster_provider(cluster: BareMetalCluster) -> pulumi_kubernetes.Provider:
    """The one way to the cluster. Its identity is the cluster's name, so that a renewed kubeconfig replaces nothing."""
    kubeconfig = cluster.kubeconfig
    if isinstance(kubeconfig, ContextKubeconfig):
        return pulumi_kubernetes.Provider(
            cluster.name, context=kubeconfig.context, kubeconfig=kubeconfig.path, cluster_identifier=cluster.name
        )
    secret = pulumi.Config().require_secret("kubeconfig")
    return pulumi_kubernetes.Provider(cluster.name, kubeconfig=secret, cluster_identifier=cluster.name)


def device_plugin_args(settings: BareMetalSettings) -> AmdGpuDevicePluginArgs:
    """The plugin runs on the nodes of every pool, unless the settings say where."""
    plugin, pools = settings.device_plugin, list(settings.cluster.node_pools.values())
    selector = common_labels(pools) if plugin.node_selector is None else plugin.node_selector
    taints = {taint: None for pool in pools for taint in pool.taints}
    tolerations = (
        [tolerating(taint) for taint in taints]
        if plugin.tolerations is None
        else [toleration_object(toleration) for toleration in plugin.tolerations]
    )
    return AmdGpuDevicePluginArgs(
        namespace=plugin.namespace,
        resource_naming=plugin.resource_naming,
        health_check_seconds=plugin.health_check_seconds,
        node_selector={"kubernetes.io/arch": "amd64"} | selector,
        tolerations=tolerations,
    )


def common_labels(pools: list[NodePool]) -> dict[str, str]:
    """Labels that every pool has."""
    first, *others = pools
    return {key: value for key, value in first.labels.items() if all(p.labels.get(key) == value for p in others)}


def tolerating(taint: Taint) -> dict[str, str]:
    """The toleration of one taint."""
    return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
