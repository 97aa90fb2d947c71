"""AMD Conductor and other machines that somebody owns: the cluster on them, and what runs there."""

from __future__ import annotations

import pulumi
import pulumi_command
import pulumi_kubernetes

from components import (
    AmdGpuDevicePlugin,
    AmdGpuDevicePluginArgs,
    KubesprayCluster,
    NvidiaContainerToolkit,
    NvidiaGpuOperator,
)
from stacks import runners
from stacks.bare_metal_settings import BareMetalCluster, BareMetalSettings, ContextKubeconfig, NodePool, needs_ssh_key
from stacks.kubespray_cluster import cluster_args, operator_args, toolkit_args
from stacks.kubespray_settings import SSH_KEY
from stacks.runners import Place, toleration_object
from stacks.taints import Taint


def build(settings: BareMetalSettings) -> None:
    """Everything that runs on the cluster, the cluster itself where it is to be made, and the stack's outputs."""
    opts = pulumi.ResourceOptions(providers=[cluster_provider(settings.cluster)])
    if settings.cluster.pools_of("amd"):
        AmdGpuDevicePlugin("amd-gpu-device-plugin", device_plugin_args(settings), opts)
    if settings.cluster.pools_of("nvidia"):
        NvidiaGpuOperator("gpu-operator", operator_args(settings), opts)
    runners.build(settings, lambda runner: Place(gpu_resource=settings.gpu_resource(settings.pool_name(runner))), opts)


def cluster_provider(cluster: BareMetalCluster) -> pulumi_kubernetes.Provider:
    """The one way to the cluster. Its identity is the cluster's name, so that a renewed kubeconfig replaces nothing.
    Whatever is on the cluster waits for it, and so for what is done on the machines."""
    kubeconfig = cluster.kubeconfig
    needs, made = on_machines(cluster)
    opts = pulumi.ResourceOptions(depends_on=needs)
    if isinstance(kubeconfig, ContextKubeconfig):
        return pulumi_kubernetes.Provider(
            cluster.name,
            context=kubeconfig.context,
            kubeconfig=kubeconfig.path,
            cluster_identifier=cluster.name,
            opts=opts,
        )
    secret = made.kubeconfig if made else pulumi.Config().require_secret("kubeconfig")
    return pulumi_kubernetes.Provider(cluster.name, kubeconfig=secret, cluster_identifier=cluster.name, opts=opts)


def on_machines(cluster: BareMetalCluster) -> tuple[list[pulumi.Resource], KubesprayCluster | None]:
    """What is done on the machines themselves: NVIDIA's container toolkit, then the cluster. Returns what to wait for,
    and the cluster where kubespray makes it."""
    if not cluster.makes_use_of_ssh:
        return [], None
    opts = pulumi.ResourceOptions(providers=[pulumi_command.Provider("machines")])
    key = pulumi.Config().require_secret(SSH_KEY) if needs_ssh_key(cluster) else None
    needs: list[pulumi.Resource] = []
    if toolkit := toolkit_args(cluster, key):
        needs += NvidiaContainerToolkit("nvidia-container-toolkit", toolkit, opts).ready
    args = cluster_args(cluster, key, needs, pulumi.Config().require_secret)
    if args is None:
        return needs, None
    made = KubesprayCluster(cluster.name, args, opts)
    return [made.ready], made


def device_plugin_args(settings: BareMetalSettings) -> AmdGpuDevicePluginArgs:
    """The plugin runs on the nodes of every pool, unless the settings say where."""
    plugin, pools = settings.device_plugin, list(settings.cluster.pools_of("amd").values())
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
