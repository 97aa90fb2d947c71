"""Arguments of the EKS cluster and its network, from the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpufleet.aws.ebs.storage_class_args import EbsStorageClassArgs
from gpufleet.aws.ecr.image_cache_args import CachedRegistry, EcrImageCacheArgs
from gpufleet.aws.ecr.references import cached, registry_host
from gpufleet.aws.eks.access import AccessPolicy, ClusterAccess
from gpufleet.aws.eks.cluster_args import NODE_MONITORING_AGENT, ApiEndpoint, EksClusterArgs, SystemNodes
from gpufleet.aws.eks.network_args import EksNetworkArgs, Nat, NetworkReference
from gpufleet.aws.karpenter.policies import Scope
from gpufleet.chart import laid_over
from gpufleet_stacks.settings.args.node_pools import efa_pools, pools_with_gpus
from gpufleet_stacks.settings.models.eks_cluster import AccessSettings, EksClusterSettings, StorageClassSettings
from gpufleet_stacks.settings.models.eks_network import OwnNetwork
from gpufleet_stacks.settings.models.taints import tolerations

NAT: Mapping[str, Nat] = {"single": "single", "perZone": "per-zone", "none": "none"}
"""Values of the component's argument `nat`, by the value of the setting."""


def network_args(cluster: EksClusterSettings, network: OwnNetwork) -> EksNetworkArgs:
    """Return the arguments of a network that the stack creates."""
    return EksNetworkArgs(
        cluster_name=cluster.name,
        region=cluster.region,
        zones=network.zones,
        control_plane_zones=network.control_plane_zones,
        cidr=network.cidr,
        nat=NAT[network.nat_gateways],
        interface_endpoints=network.interface_endpoints,
        protect=cluster.deletion_protection,
        tags=cluster.tags,
    )


def cluster_args(cluster: EksClusterSettings, network: NetworkReference) -> EksClusterArgs:
    """Return the arguments of the cluster."""
    nodes, endpoint = cluster.system_nodes, cluster.endpoint
    return EksClusterArgs(
        cluster_name=cluster.name,
        region=cluster.region,
        account_id=cluster.account,
        partition=cluster.partition,
        kubernetes_version=cluster.kubernetes_version,
        network=network,
        addons=cluster.addons,
        addon_configuration=addon_configuration(cluster),
        endpoint=ApiEndpoint(
            public=bool(endpoint.public_access_from),
            cidrs=endpoint.public_access_from,
            open_to_the_world=endpoint.open_to_the_world,
            private_cidrs=endpoint.private_access_from,
        ),
        system_nodes=SystemNodes(
            instance_types=[nodes.instance_type],
            min_size=nodes.count,
            desired_size=nodes.count,
            max_size=nodes.count + 1,
        ),
        admins=cluster.administrators,
        access={name: cluster_access(access) for name, access in cluster.access.items()},
        log_types=cluster.logs.types,
        log_retention_days=cluster.logs.retention_days,
        efa=bool(efa_pools(cluster)),
        deletion_protection=cluster.deletion_protection,
        tags=cluster.tags,
    )


def addon_configuration(cluster: EksClusterSettings) -> Mapping[str, Mapping[str, Any]]:
    """Return the configuration values of add-ons. With node repair, the agent's DCGM must tolerate the taints of GPU
    nodes: by default it tolerates none, and would not detect GPU faults there (`dcgmAgent.tolerations` in
    charts/eks-node-monitoring-agent/values.yaml of aws/eks-node-monitoring-agent at v1.7.0)."""
    given = cluster.addon_configuration
    if not cluster.karpenter.node_repair or NODE_MONITORING_AGENT not in cluster.addons:
        return given
    pools = [cluster.node_pools[name] for name in pools_with_gpus(cluster)]
    tolerated = tolerations(taint for pool in pools for taint in pool.taints)
    own = {"dcgmAgent": {"tolerations": tolerated}} if tolerated else {}
    values = laid_over(own, given.get(NODE_MONITORING_AGENT, {}))
    return {**given, NODE_MONITORING_AGENT: values} if values else given


def image_cache_args(cluster: EksClusterSettings, needs: Sequence[pulumi.Resource] = ()) -> EcrImageCacheArgs:
    """Return the arguments of the pull-through cache."""
    scope = Scope(cluster=cluster.name, region=cluster.region, account=cluster.account, partition=cluster.partition)
    return EcrImageCacheArgs(
        region=cluster.region,
        account_id=cluster.account,
        partition=cluster.partition,
        policy_name=f"{cluster.name}-image-cache",
        registries={
            prefix: CachedRegistry(registry=each.registry, credentials_arn=each.credentials)
            for prefix, each in cluster.image_cache.items()
        },
        node_roles=[f"{cluster.name}-system-nodes", scope.node_role],
        tags=cluster.tags,
        needs=needs,
    )


def image_reference(image: str, cluster: EksClusterSettings) -> str:
    """Return the reference by which nodes pull an image: that of the cache, if its registry is cached."""
    host = registry_host(cluster.account, cluster.region, cluster.partition)
    return cached(image, {each.registry: prefix for prefix, each in cluster.image_cache.items()}, host)


def storage_class_args(
    name: str, storage_class: StorageClassSettings, needs: Sequence[pulumi.Resource] = ()
) -> EbsStorageClassArgs:
    """Return the arguments of a StorageClass."""
    return EbsStorageClassArgs(
        storage_class=name,
        default=storage_class.default,
        iops=storage_class.iops,
        throughput=storage_class.throughput,
        key_arn=storage_class.key,
        reclaim_policy=storage_class.reclaim_policy,
        needs=needs,
    )


def cluster_access(access: AccessSettings) -> ClusterAccess:
    """Return the component's form of one principal's access."""
    return ClusterAccess(
        principal=access.principal,
        policies=[AccessPolicy(policy=each.policy, namespaces=each.namespaces) for each in access.policies],
        groups=access.groups,
    )
