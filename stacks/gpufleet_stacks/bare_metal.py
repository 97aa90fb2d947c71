"""AMD Conductor and other machines that somebody owns: the cluster on them, and what runs there."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_command
import pulumi_kubernetes

from gpufleet.amd.device_plugin import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from gpufleet.bare_metal.container_toolkit import NvidiaContainerToolkit
from gpufleet.bare_metal.kubespray.cluster import KubesprayCluster
from gpufleet.nvidia.gpu_operator import NvidiaGpuOperator
from gpufleet_stacks import runners
from gpufleet_stacks.fleet import Fleet
from gpufleet_stacks.runners import Place, toleration_object
from gpufleet_stacks.settings.args.machines import cluster_args, operator_args, toolkit_args
from gpufleet_stacks.settings.models.bare_metal import (
    BareMetalCluster,
    BareMetalSettings,
    ContextKubeconfig,
    NodePool,
    needs_ssh_key,
)
from gpufleet_stacks.settings.models.kubespray import SSH_KEY
from gpufleet_stacks.settings.models.taints import TaintSettings
from gpufleet_stacks.settings.problems import NAMESPACE


def build(settings: BareMetalSettings) -> Fleet:
    """Everything that runs on the cluster, the cluster itself where it is to be made, and the stack's outputs."""
    needs, made = on_machines(settings.cluster)
    provider = cluster_provider(settings.cluster, needs, made)
    opts = pulumi.ResourceOptions(providers=[provider])
    if settings.cluster.pools_of("amd"):
        AmdGpuDevicePlugin("amd-gpu-device-plugin", device_plugin_args(settings), opts)
    if settings.cluster.pools_of("nvidia"):
        NvidiaGpuOperator("gpu-operator", operator_args(settings), opts)
    on_cluster = runners.build(
        settings, lambda runner: Place(gpu_resource=settings.gpu_resource(settings.pool_name(runner))), opts
    )
    return Fleet(provider=provider, cluster=made, runners=on_cluster)


def cluster_provider(
    cluster: BareMetalCluster, needs: Sequence[pulumi.Resource], made: KubesprayCluster | None
) -> pulumi_kubernetes.Provider:
    """The one way to the cluster. Its identity is the cluster's name, so that a renewed kubeconfig replaces nothing.
    Whatever is on the cluster waits for it, and so for what is done on the machines."""
    given = cluster.kubeconfig
    context: str | None = None
    kubeconfig: pulumi.Input[str | None]
    if isinstance(given, ContextKubeconfig):
        # An output of None, since the SDK replaces None by this shell's $KUBECONFIG, which would enter the state. With
        # no file registered, the provider looks for one when it runs: $KUBECONFIG, then ~/.kube/config.
        context, kubeconfig = given.context, given.path or pulumi.Output.from_input(None)
    else:
        kubeconfig = made.kubeconfig if made else pulumi.Config(NAMESPACE).require_secret("kubeconfig")
    return pulumi_kubernetes.Provider(
        cluster.name,
        context=context,
        kubeconfig=kubeconfig,
        cluster_identifier=cluster.name,
        # A rotated key is written in place. By default the Secret is deleted first, and runners have no credentials.
        enable_secret_mutable=True,
        opts=pulumi.ResourceOptions(depends_on=[*needs]),
    )


def on_machines(cluster: BareMetalCluster) -> tuple[list[pulumi.Resource], KubesprayCluster | None]:
    """What is done on the machines themselves: NVIDIA's container toolkit, then the cluster. Returns what to wait for,
    and the cluster where kubespray makes it."""
    if not cluster.makes_use_of_ssh:
        return [], None
    opts = pulumi.ResourceOptions(providers=[pulumi_command.Provider("machines")])
    key = pulumi.Config(NAMESPACE).require_secret(SSH_KEY) if needs_ssh_key(cluster) else None
    needs: list[pulumi.Resource] = []
    if toolkit := toolkit_args(cluster, key):
        needs.append(NvidiaContainerToolkit("nvidia-container-toolkit", toolkit, opts).ready)
    args = cluster_args(cluster, key, needs, pulumi.Config(NAMESPACE).require_secret)
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


def tolerating(taint: TaintSettings) -> dict[str, str]:
    """The toleration of one taint."""
    return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
