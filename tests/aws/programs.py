"""Programs that AWS inputs are recorded from."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, ec2, eks, iam, kms, vpc

from gpufleet.aws import (
    AccessPolicy,
    CachedRegistry,
    ClusterAccess,
    EcrImageCache,
    EcrImageCacheArgs,
    EksCluster,
    EksClusterArgs,
    EksNetwork,
    EksNetworkArgs,
    Karpenter,
    KarpenterArgs,
    KarpenterNodePool,
    KarpenterNodePoolArgs,
    SecurityGroupTerm,
    SubnetTerm,
)
from tests.aws.resource_type import ACCOUNT, REGION
from tests.components.aws.eks.test_cluster import ADDONS
from tests.node_pools import DOCUMENT_004, VALID
from tests.recording import on_aws

with warnings.catch_warnings():
    # Said by the SDK of modules of its own, as soon as anything of S3 is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pulumi_aws.s3 import (
        Bucket,
        BucketPolicy,
        BucketPublicAccessBlock,
        BucketServerSideEncryptionConfiguration,
        BucketVersioning,
    )

ZONES = {"eu-west-1a": 0, "eu-west-1b": 1}


def cluster_of_components(**changed: Any) -> None:
    """A cluster as this project makes one: network, control plane, system nodes, Karpenter, document 004's pools."""
    opts = on_aws()
    made = EksNetwork(
        "network",
        EksNetworkArgs(
            cluster_name="ci",
            region=REGION,
            zones=[*ZONES],
            nat=changed.get("nat", "single"),
            interface_endpoints=changed.get("interface_endpoints", ()),
        ),
        opts,
    )
    eks_cluster = EksCluster(
        "ci",
        EksClusterArgs(
            cluster_name="ci",
            region=REGION,
            account_id=ACCOUNT,
            kubernetes_version="1.33",
            network=made.reference,
            addons=ADDONS | changed.get("addons", {}),
            admins=changed.get("admins", {}),
            access=changed.get("access", {}),
            addon_configuration=changed.get("addon_configuration", {}),
            efa=changed.get("efa", False),
        ),
        opts,
    )
    on_it = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(providers=[eks_cluster.provider]))
    pools = DOCUMENT_004 | changed.get("pools", {})
    with_karpenter(eks_cluster.reference.endpoint, eks_cluster.reference.needs, on_it, pools)
    if changed.get("registries"):
        image_cache(changed["registries"], opts)


REGISTRIES = {
    "quay": CachedRegistry(registry="quay.io"),
    "ghcr": CachedRegistry(
        registry="ghcr.io",
        credentials_arn=f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:ecr-pullthroughcache/ghcr-AbCdEf",
    ),
}
TRAINING = {"training": VALID["EFA-only interfaces in a placement group"]}

EVERYTHING: dict[str, Any] = {
    "nat": "per-zone",
    "interface_endpoints": ["ecr.api", "ecr.dkr", "sts"],
    "addons": {"aws-ebs-csi-driver": "v1.48.0-eksbuild.1"},
    "admins": {"operations": f"arn:aws:iam::{ACCOUNT}:role/operations"},
    "access": {
        "ml": ClusterAccess(
            principal=f"arn:aws:iam::{ACCOUNT}:role/ml",
            policies=[AccessPolicy(policy="AmazonEKSEditPolicy", namespaces=["ml-*"])],
            groups=["ml"],
        )
    },
    "addon_configuration": {"vpc-cni": {"enableNetworkPolicy": "true"}},
    "efa": True,
    "pools": TRAINING,
    "registries": REGISTRIES,
}
"""What a cluster of components has by choice."""


def cluster_of_resources() -> None:
    """A cluster with every type of resource in it that the table knows, and Karpenter with document 004's pools.

    The network and the cluster are written out here, of resources of the SDK and not of components of ours: defects are
    injected into them, and each type is there to take one.
    """
    opts = on_aws()
    subnets = network(opts)
    nodes = cluster(opts, subnets)
    storage(opts)
    with_karpenter("https://ci.example", [nodes], opts, DOCUMENT_004 | TRAINING)
    image_cache(REGISTRIES, opts)


def with_karpenter(
    endpoint: pulumi.Input[str],
    needs: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
    pools: Mapping[str, KarpenterNodePoolArgs],
) -> None:
    """Karpenter in the cluster `ci`, and node pools whose machines find what the cluster has."""
    karpenter = Karpenter(
        "karpenter",
        KarpenterArgs(
            cluster_name="ci",
            region=REGION,
            account_id=ACCOUNT,
            cluster_endpoint=endpoint,
            spot_service_linked_role=True,
            needs=needs,
        ),
        opts,
    )
    for name, pool in pools.items():
        found = {"karpenter.sh/discovery": karpenter.reference.cluster_name}
        machines = dataclasses.replace(
            pool.node_class,
            name=name,
            role=karpenter.reference.node_role,
            subnet_terms=[SubnetTerm(tags=found)],
            security_group_terms=[SecurityGroupTerm(tags=found)],
        )
        KarpenterNodePool(name, dataclasses.replace(pool, node_class=machines), opts)


def image_cache(registries: Mapping[str, CachedRegistry], opts: pulumi.ResourceOptions) -> None:
    """A cache of other registries' images, for Karpenter's nodes."""
    args = EcrImageCacheArgs(
        region=REGION,
        account_id=ACCOUNT,
        policy_name="ci-image-cache",
        registries=registries,
        node_roles=["KarpenterNodeRole-ci"],
    )
    EcrImageCache("image-cache", args, opts)


def network(opts: pulumi.ResourceOptions) -> list[ec2.Subnet]:
    """A VPC with a public and a private subnet in each of two zones; the private ones are answered."""
    the_vpc = ec2.Vpc(
        "vpc",
        cidr_block="10.0.0.0/16",
        enable_dns_hostnames=True,
        enable_dns_support=True,
        tags={"Name": "ci"},
        opts=opts,
    )
    internet = ec2.InternetGateway("internet", vpc_id=the_vpc.id, opts=opts)
    outward = ec2.RouteTable(
        "public", vpc_id=the_vpc.id, routes=[{"cidr_block": "0.0.0.0/0", "gateway_id": internet.id}], opts=opts
    )
    private = []
    for zone, index in ZONES.items():
        public = ec2.Subnet(
            f"public-{zone}",
            vpc_id=the_vpc.id,
            cidr_block=f"10.0.{index}.0/24",
            availability_zone=zone,
            map_public_ip_on_launch=True,
            tags={"kubernetes.io/role/elb": "1"},
            opts=opts,
        )
        ec2.RouteTableAssociation(f"public-{zone}", subnet_id=public.id, route_table_id=outward.id, opts=opts)
        address = ec2.Eip(f"nat-{zone}", domain="vpc", opts=opts)
        gateway = ec2.NatGateway(f"nat-{zone}", subnet_id=public.id, allocation_id=address.allocation_id, opts=opts)
        subnet = ec2.Subnet(
            f"private-{zone}",
            vpc_id=the_vpc.id,
            cidr_block=f"10.0.{128 + 32 * index}.0/19",
            availability_zone=zone,
            tags={"karpenter.sh/discovery": "ci", "kubernetes.io/role/internal-elb": "1"},
            opts=opts,
        )
        table = ec2.RouteTable(f"private-{zone}", vpc_id=the_vpc.id, opts=opts)
        ec2.Route(
            f"private-{zone}",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            nat_gateway_id=gateway.id,
            opts=opts,
        )
        ec2.RouteTableAssociation(f"private-{zone}", subnet_id=subnet.id, route_table_id=table.id, opts=opts)
        private.append(subnet)
    inner = ec2.SecurityGroup(
        "endpoints",
        vpc_id=the_vpc.id,
        ingress=[{"protocol": "tcp", "from_port": 443, "to_port": 443, "cidr_blocks": ["10.0.0.0/16"]}],
        opts=opts,
    )
    ec2.VpcEndpoint(
        "ecr",
        vpc_id=the_vpc.id,
        service_name="com.amazonaws.eu-west-1.ecr.api",
        vpc_endpoint_type="Interface",
        subnet_ids=[each.id for each in private],
        security_group_ids=[inner.id],
        private_dns_enabled=True,
        opts=opts,
    )
    return private


def cluster(opts: pulumi.ResourceOptions, subnets: list[ec2.Subnet]) -> pulumi.Resource:
    """A control plane with its role, key and log; a node group with its own; addons and access."""
    key = kms.Key(
        "secrets", description="Secrets of ci", enable_key_rotation=True, deletion_window_in_days=7, opts=opts
    )
    kms.Alias("secrets", name="alias/ci", target_key_id=key.key_id, opts=opts)
    cloudwatch.LogGroup("control-plane", name="/aws/eks/ci/cluster", retention_in_days=30, opts=opts)
    role = iam.Role("cluster", name="ci-cluster", assume_role_policy=trust("eks.amazonaws.com"), opts=opts)
    attached(role, "cluster", ["AmazonEKSClusterPolicy"], opts)
    front = ec2.SecurityGroup("control-plane", description="API server", vpc_id=subnets[0].vpc_id, opts=opts)
    plane = eks.Cluster(
        "ci",
        name="ci",
        role_arn=role.arn,
        version="1.34",
        access_config={"authentication_mode": "API"},
        vpc_config={
            "subnet_ids": [each.id for each in subnets],
            "endpoint_private_access": True,
            "security_group_ids": [front.id],
        },
        encryption_config={"provider": {"key_arn": key.arn}, "resources": ["secrets"]},
        opts=opts,
    )
    group = ec2.SecurityGroup("nodes", description="Nodes of ci", vpc_id=subnets[0].vpc_id, opts=opts)
    ec2.Tag("discovery", resource_id=group.id, key="karpenter.sh/discovery", value="ci", opts=opts)
    vpc.SecurityGroupIngressRule(
        "nodes", security_group_id=group.id, referenced_security_group_id=group.id, ip_protocol="-1", opts=opts
    )
    vpc.SecurityGroupEgressRule(
        "nodes",
        security_group_id=group.id,
        cidr_ipv4="0.0.0.0/0",
        ip_protocol="tcp",
        from_port=0,
        to_port=65535,
        opts=opts,
    )
    let_through(front, group, opts)
    template = ec2.LaunchTemplate(
        "system",
        vpc_security_group_ids=[group.id],
        block_device_mappings=[
            {"device_name": "/dev/xvda", "ebs": {"volume_size": 50, "volume_type": "gp3", "encrypted": "true"}}
        ],
        metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1},
        opts=opts,
    )
    workers = iam.Role("system-nodes", assume_role_policy=trust("ec2.amazonaws.com"), opts=opts)
    policies = ["AmazonEKS_CNI_Policy", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"]
    attachments = attached(workers, "system-nodes", policies, opts)
    iam.InstanceProfile("system-nodes", role=workers.name, opts=opts)
    system = eks.NodeGroup(
        "system",
        cluster_name=plane.name,
        node_group_name="system",
        node_role_arn=workers.arn,
        subnet_ids=[each.id for each in subnets],
        ami_type="AL2023_x86_64_STANDARD",
        instance_types=["m7i.large"],
        capacity_type="ON_DEMAND",
        scaling_config={"min_size": 2, "max_size": 4, "desired_size": 2},
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        taints=[{"key": "CriticalAddonsOnly", "value": "true", "effect": "NO_SCHEDULE"}],
        update_config={"max_unavailable": 1},
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=attachments)),
    )
    for addon in ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent"):
        eks.Addon(addon, cluster_name=plane.name, addon_name=addon, resolve_conflicts_on_create="OVERWRITE", opts=opts)
    access(opts, plane)
    return system


def let_through(front: ec2.SecurityGroup, nodes: ec2.SecurityGroup, opts: pulumi.ResourceOptions) -> None:
    """What goes between the control plane, its nodes and the VPC."""
    https = {"ip_protocol": "tcp", "from_port": 443, "to_port": 443}
    every_port = {"ip_protocol": "tcp", "from_port": 0, "to_port": 65535}
    ingress, egress = vpc.SecurityGroupIngressRule, vpc.SecurityGroupEgressRule
    egress(
        "nodes-udp", security_group_id=nodes.id, cidr_ipv4="0.0.0.0/0", **every_port | {"ip_protocol": "udp"}, opts=opts
    )
    ingress("from-vpc", security_group_id=front.id, cidr_ipv4="10.0.0.0/16", **https, opts=opts)
    ingress("from-nodes", security_group_id=front.id, referenced_security_group_id=nodes.id, **https, opts=opts)
    egress("to-nodes", security_group_id=front.id, referenced_security_group_id=nodes.id, **every_port, opts=opts)
    ingress("to-nodes", security_group_id=nodes.id, referenced_security_group_id=front.id, **every_port, opts=opts)


def access(opts: pulumi.ResourceOptions, plane: eks.Cluster) -> None:
    """Who else may use the cluster, and by whose word."""
    admin = f"arn:aws:iam::{ACCOUNT}:role/admin"
    eks.AccessEntry("admin", cluster_name=plane.name, principal_arn=admin, opts=opts)
    eks.AccessPolicyAssociation(
        "admin",
        cluster_name=plane.name,
        principal_arn=admin,
        policy_arn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        access_scope={"type": "cluster"},
        opts=opts,
    )
    iam.OpenIdConnectProvider(
        "issuer",
        url="https://oidc.eks.eu-west-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF",
        client_id_lists=["sts.amazonaws.com"],
        opts=opts,
    )


def storage(opts: pulumi.ResourceOptions) -> None:
    """A bucket for caches, and who may read it."""
    bucket = Bucket("cache", bucket="ci-cache-111122223333", force_destroy=True, opts=opts)
    BucketPublicAccessBlock(
        "cache",
        bucket=bucket.id,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=opts,
    )
    BucketVersioning("cache", bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=opts)
    BucketServerSideEncryptionConfiguration(
        "cache",
        bucket=bucket.id,
        rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
        opts=opts,
    )
    reader = iam.Role("cache-reader", assume_role_policy=trust("pods.eks.amazonaws.com"), opts=opts)
    iam.RolePolicy(
        "cache-reader",
        role=reader.name,
        policy=bucket.arn.apply(lambda arn: json.dumps(statement("s3:GetObject", f"{arn}/*"))),
        opts=opts,
    )
    encrypted = statement("s3:*", [bucket.arn, pulumi.Output.concat(bucket.arn, "/*")])
    encrypted["Statement"][0] |= {
        "Effect": "Deny",
        "Principal": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    BucketPolicy("cache", bucket=bucket.id, policy=pulumi.Output.json_dumps(encrypted), opts=opts)


def trust(service: str) -> str:
    document = {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [document]})


def statement(action: str, resource: object) -> dict[str, list[dict[str, object]]]:
    return {
        "Version": "2012-10-17",  # type: ignore[dict-item]
        "Statement": [{"Effect": "Allow", "Action": action, "Resource": resource}],
    }


def attached(role: iam.Role, name: str, policies: list[str], opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    return [
        iam.RolePolicyAttachment(
            f"{name}-{policy}", role=role.name, policy_arn=f"arn:aws:iam::aws:policy/{policy}", opts=opts
        )
        for policy in policies
    ]


PROGRAMS: dict[str, Callable[[], None]] = {
    "resources": cluster_of_resources,
    "components": cluster_of_components,
    "components with everything": lambda: cluster_of_components(**EVERYTHING),
}
