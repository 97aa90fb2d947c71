"""Stacks on AWS: an EKS cluster, Karpenter, which provisions its nodes, and the NVIDIA device plugin.

`pulumi destroy` also removes resources that Karpenter created: instances, their volumes, launch templates and instance
profiles. Karpenter's controller deletes them before it removes the finalizer of a pool or EC2NodeClass (`finalize` in
pkg/controllers/nodeclass/controller.go of aws/karpenter-provider-aws at v1.14.1), and Pulumi deletes the controller
last. If the controller fails earlier, those resources remain, and so do NodePools with a finalizer.

`pulumi destroy` does not remove load balancers and EBS volumes of Services and volume claims that users created on the
cluster. Delete those first: AWS refuses to delete a VPC with a load balancer's interfaces, and bills the volumes. EKS
may recreate the log group for late logs of the control plane. AWS keeps the key of the cluster's secrets for 30 days.

With `deletionProtection`, control plane and VPC are also protected in Pulumi's state: `pulumi destroy` refuses before
it deletes anything.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_aws import Provider
from pulumi_aws.ec2 import Vpc
from pulumi_kubernetes.apps.v1 import Deployment

from gpufleet.aws.eks.cluster import EksCluster
from gpufleet.aws.eks.cluster_args import SYSTEM_NODE_LABELS
from gpufleet.aws.eks.network import EksNetwork
from gpufleet.aws.eks.network_args import NetworkReference
from gpufleet.aws.karpenter.controller import FeatureGates, Karpenter, KarpenterArgs, ServiceMonitor
from gpufleet.aws.karpenter.node_pool import KarpenterNodePool
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet.nvidia.device_plugin import NvidiaDevicePlugin, NvidiaDevicePluginArgs
from gpufleet.nvidia.sharing import GPU
from gpufleet_stacks import runners
from gpufleet_stacks.fleet import Fleet
from gpufleet_stacks.runners import Place, SystemPlace
from gpufleet_stacks.settings.args.eks import (
    cluster_args,
    image_cache_args,
    image_reference,
    network_args,
    storage_class_args,
)
from gpufleet_stacks.settings.args.node_pools import efa_pools, labelled, node_pool_args, plugin_pools, plugin_sharings
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.eks_cluster import EksClusterSettings, SmokeWorkload
from gpufleet_stacks.settings.models.taints import tolerations
from gpufleet_stacks.settings.system_requests import ARC_CONTROLLER, KARPENTER, LISTENER


def build(settings: EksSettings) -> Fleet:
    """Create the cluster and the components that run on it; export the stack's outputs."""
    cluster, mirror = settings.cluster, settings.charts.mirror if settings.charts else None
    account = Provider("aws", region=cluster.region, allowed_account_ids=[cluster.account])
    in_account = pulumi.ResourceOptions(providers=[account])
    eks = EksCluster(cluster.name, cluster_args(cluster, network_of(cluster, in_account)), in_account)
    opts = pulumi.ResourceOptions(providers=[account, eks.provider])
    if cluster.storage_classes:
        storage_classes(cluster, eks, opts)
    karpenter = Karpenter("karpenter", karpenter_args(cluster, eks, mirror), opts)
    node_needs = [*karpenter.reference.needs, *(image_cache(cluster, karpenter, opts) if cluster.image_cache else [])]
    pools = {
        name: KarpenterNodePool(name, labelled(node_pool_args(name, cluster, node_needs), cluster), opts)
        for name in cluster.node_pools
    }
    plugins = []
    if plugin_pools(cluster):
        plugins.append(NvidiaDevicePlugin("nvidia-device-plugin", device_plugin_args(settings, mirror), opts).ready)
    if efa_pools(cluster):
        efa_plugin(settings, mirror, eks, opts)
    on_cluster = runners.build(
        settings,
        lambda runner: Place(
            gpu_resource=GPU,
            node_selector={NODE_POOL_LABEL: settings.pool_name(runner)},
            do_not_disrupt=True,
            needs=[pools[settings.pool_name(runner)].ready],
            image_reference=lambda image: image_reference(image, cluster),
        ),
        opts,
        SystemPlace(
            node_selector=SYSTEM_NODE_LABELS,
            requests=ARC_CONTROLLER.requests,
            listener_requests=LISTENER.requests,
        ),
    )
    if smoke := cluster.smoke_workload:
        needs = [pools[smoke.pool].ready, *plugins]
        smoke_workload(smoke, cluster, needs, [eks.provider])
    pulumi.export("endpoint", eks.reference.endpoint)
    return Fleet(provider=eks.provider, cluster=eks, runners=on_cluster, node_pools=pools)


def network_of(cluster: EksClusterSettings, opts: pulumi.ResourceOptions) -> NetworkReference:
    """Create the cluster's network, or look up an existing one."""
    network = cluster.network
    if network.kind == "own":
        return EksNetwork(f"{cluster.name}-network", network_args(cluster, network), opts).reference
    vpc = Vpc.get(f"{cluster.name}-network", network.vpc_id, opts=opts)
    return NetworkReference(
        vpc_id=network.vpc_id,
        private_subnets=network.private_subnets,
        control_plane_zones=network.control_plane_zones,
        cidr=vpc.cidr_block,
    )


def storage_classes(cluster: EksClusterSettings, eks: EksCluster, opts: pulumi.ResourceOptions) -> None:
    """Create the StorageClasses for volume claims."""
    # Imported on demand: few stacks have StorageClasses, and the SDK's module takes 25 ms to import.
    from gpufleet.aws.ebs.storage_class import EbsStorageClass

    for name, storage_class in cluster.storage_classes.items():
        args = storage_class_args(name, storage_class, eks.reference.needs)
        EbsStorageClass(f"storage-class-{name}", args, opts)


def image_cache(
    cluster: EksClusterSettings, karpenter: Karpenter, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Create the pull-through cache, which node pools wait for."""
    # Imported on demand: few stacks have a cache.
    from gpufleet.aws.ecr.image_cache import EcrImageCache

    return [EcrImageCache("image-cache", image_cache_args(cluster, karpenter.reference.needs), opts).ready]


def karpenter_args(cluster: EksClusterSettings, eks: EksCluster, mirror: str | None) -> KarpenterArgs:
    """Return the arguments of Karpenter's component."""
    shared = any(pool.sharing for pool in cluster.node_pools.values())
    monitor = cluster.karpenter.service_monitor
    return KarpenterArgs(
        cluster_name=cluster.name,
        region=cluster.region,
        account_id=cluster.account,
        partition=cluster.partition,
        cluster_endpoint=eks.reference.endpoint,
        version=cluster.karpenter.version,
        replicas=KARPENTER.replicas,
        cpu=KARPENTER.requests["cpu"],
        memory=KARPENTER.requests["memory"],
        isolated=cluster.network.kind == "own" and cluster.network.nat_gateways == "none",
        chart_mirror=mirror,
        # Without this gate, Karpenter ignores the overlays and provisions one GPU for each pod.
        feature_gates=FeatureGates(node_overlay=shared, node_repair=cluster.karpenter.node_repair),
        service_monitor=ServiceMonitor(labels=monitor.labels) if monitor else None,
        spot_service_linked_role=cluster.karpenter.spot_service_linked_role,
        needs=eks.reference.needs,
    )


def device_plugin_args(settings: EksSettings, mirror: str | None) -> NvidiaDevicePluginArgs:
    """Return the arguments of the device plugin, which runs on the nodes of its pools."""
    plugin, cluster = settings.nvidia_plugin, settings.cluster
    pools = [cluster.node_pools[name] for name in plugin_pools(cluster)]
    sharing, configs = plugin_sharings(cluster)
    return NvidiaDevicePluginArgs(
        namespace=plugin.namespace,
        version=plugin.version,
        chart_mirror=mirror,
        sharing=sharing,
        configs=configs,
        device_list_strategy=plugin.device_list_strategy,
        device_id_strategy=plugin.device_id_strategy,
        driver_root=plugin.driver_root,
        pass_device_specs=plugin.pass_device_specs,
        fail_on_init_error=plugin.fail_on_init_error,
        gfd=plugin.feature_discovery,
        nfd=plugin.feature_discovery,
        runtime_class=plugin.runtime_class,
        tolerations=tolerations(
            taint for pool in pools for taint in pool.taints if (taint.key, taint.effect) != (GPU, "NoSchedule")
        ),
    )


def efa_plugin(settings: EksSettings, mirror: str | None, eks: EksCluster, opts: pulumi.ResourceOptions) -> None:
    """Create the EFA device plugin, which runs on the nodes of pools with EFA interfaces."""
    # Imported on demand: few stacks have EFA.
    from gpufleet.aws.efa.device_plugin import EfaDevicePlugin, EfaDevicePluginArgs

    args = EfaDevicePluginArgs(
        version=settings.efa_plugin.version,
        chart_mirror=mirror,
        tolerations=tolerations(taint for pool in efa_pools(settings.cluster) for taint in pool.taints),
        needs=eks.reference.needs,
    )
    EfaDevicePlugin("efa-device-plugin", args, opts)


def smoke_workload(
    smoke: SmokeWorkload,
    cluster: EksClusterSettings,
    needs: list[pulumi.Resource],
    providers: list[pulumi.ProviderResource],
) -> Deployment:
    """Create the Deployment of sleeping pods that request GPUs."""
    labels, pool = {"app": "gpu"}, cluster.node_pools[smoke.pool]
    container: dict[str, Any] = {
        "name": "gpu-container",
        "image": image_reference(smoke.image, cluster),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {GPU: str(smoke.gpus)}},
    }
    pod: dict[str, Any] = {
        "nodeSelector": {NODE_POOL_LABEL: smoke.pool},
        "tolerations": [{"key": taint.key, "operator": "Exists", "effect": taint.effect} for taint in pool.taints],
        "containers": [container],
    }
    spec: Any = {
        "replicas": smoke.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return Deployment(
        "smoke",
        metadata={"name": "gpu", "namespace": "default", "labels": labels},
        spec=spec,
        opts=pulumi.ResourceOptions(providers=providers, depends_on=needs),
    )
