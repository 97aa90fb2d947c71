"""Stacks on your own machines, such as AMD Conductor: the cluster, and the components that run on it."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_command
import pulumi_kubernetes
from pulumi_kubernetes.core.v1 import NodePatch, NodeSpecPatchArgs
from pulumi_kubernetes.meta.v1 import ObjectMetaPatchArgs

from gpufleet.amd.device_plugin import AmdGpuDevicePlugin, AmdGpuDevicePluginArgs
from gpufleet.bare_metal.container_toolkit import NvidiaContainerToolkit
from gpufleet.bare_metal.etcd_snapshots import EtcdSnapshots
from gpufleet.bare_metal.kubespray.cluster import KubesprayCluster
from gpufleet.nvidia.gpu_operator import NvidiaGpuOperator
from gpufleet_stacks import runners
from gpufleet_stacks.fleet import Fleet
from gpufleet_stacks.runners import Place, toleration_object
from gpufleet_stacks.settings.args.machines import (
    cluster_args,
    gpu_validation,
    operator_args,
    snapshots_args,
    toolkit_args,
)
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

MAINTENANCE = "gpufleet.dev/maintenance"
"""Annotation with the end and the reason of a node's maintenance."""


def build(settings: BareMetalSettings) -> Fleet:
    """Create the components of the stack, and with kubespray the cluster itself; export the stack's outputs."""
    needs, created = on_machines(settings.cluster)
    provider = cluster_provider(settings.cluster, needs, created)
    opts = pulumi.ResourceOptions(providers=[provider])
    if settings.cluster.pools_of("amd"):
        AmdGpuDevicePlugin("amd-gpu-device-plugin", device_plugin_args(settings), opts)
    if settings.cluster.pools_of("nvidia"):
        NvidiaGpuOperator("gpu-operator", operator_args(settings), opts)
    cordon(settings.cluster, provider)
    on_cluster = runners.build(
        settings, lambda runner: Place(gpu_resource=settings.gpu_resource(settings.pool_name(runner))), opts
    )
    return Fleet(provider=provider, cluster=created, runners=on_cluster)


def cordon(cluster: BareMetalCluster, provider: pulumi_kubernetes.Provider) -> None:
    """Cordon the nodes in maintenance: no new pod is scheduled on them, and running jobs finish. Kubernetes taints them
    with `node.kubernetes.io/unschedulable`. Deleting the resource gives the field up, which uncordons the node."""
    for pool in cluster.node_pools.values():
        for name, entry in pool.in_maintenance().items():
            NodePatch(
                f"maintenance-{name}",
                metadata=ObjectMetaPatchArgs(name=name, annotations={MAINTENANCE: f"until {entry.until}: {entry.why}"}),
                spec=NodeSpecPatchArgs(unschedulable=True),
                opts=pulumi.ResourceOptions(provider=provider),
            )


def cluster_provider(
    cluster: BareMetalCluster, needs: Sequence[pulumi.Resource], created: KubesprayCluster | None
) -> pulumi_kubernetes.Provider:
    """Return the Kubernetes provider of the cluster. Its identity is the cluster's name, so that a renewed kubeconfig
    replaces no resources. It depends on the work on the machines, and so does everything on the cluster."""
    source = cluster.kubeconfig
    context: str | None = None
    kubeconfig: pulumi.Input[str | None]
    if isinstance(source, ContextKubeconfig):
        # An output of None: the SDK would replace None by this shell's $KUBECONFIG and store that in the state. Without
        # a registered file, the provider finds one when it runs: $KUBECONFIG, then ~/.kube/config.
        context, kubeconfig = source.context, source.path or pulumi.Output.from_input(None)
    else:
        kubeconfig = created.kubeconfig if created else pulumi.Config(NAMESPACE).require_secret("kubeconfig")
    return pulumi_kubernetes.Provider(
        cluster.name,
        context=context,
        kubeconfig=kubeconfig,
        cluster_identifier=cluster.name,
        # Update Secrets in place. By default, a rotated key first deletes the Secret that runners need.
        enable_secret_mutable=True,
        opts=pulumi.ResourceOptions(depends_on=[*needs]),
    )


def on_machines(cluster: BareMetalCluster) -> tuple[list[pulumi.Resource], KubesprayCluster | None]:
    """Install the NVIDIA container toolkit on the machines, then create the cluster with kubespray, as far as the
    settings ask for either. Return the resources to wait for, and the cluster if kubespray creates it."""
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
    created = KubesprayCluster(cluster.name, args, opts)
    if snapshots := snapshots_args(cluster, key, [created.ready], pulumi.Config(NAMESPACE).require_secret):
        EtcdSnapshots("etcd-snapshots", snapshots, opts)
    return [created.ready], created


def device_plugin_args(settings: BareMetalSettings) -> AmdGpuDevicePluginArgs:
    """Return the device plugin's arguments. By default it runs on the nodes of all AMD pools."""
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
        validation=gpu_validation(settings.cluster, "amd", plugin.validation),
    )


def common_labels(pools: list[NodePool]) -> dict[str, str]:
    """Return the labels that all pools share."""
    first, *others = pools
    return {key: value for key, value in first.labels.items() if all(p.labels.get(key) == value for p in others)}


def tolerating(taint: TaintSettings) -> dict[str, str]:
    """Return a toleration of one taint."""
    return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
