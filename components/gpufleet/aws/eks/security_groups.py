"""Security groups of an EKS cluster's control plane and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws.ec2 import SecurityGroup
from pulumi_aws.vpc import SecurityGroupEgressRule, SecurityGroupIngressRule

from gpufleet.aws.eks.cluster_args import EksClusterArgs
from gpufleet.aws.eks.network_args import ANYWHERE, DISCOVERY_TAG


@dataclass(frozen=True, kw_only=True)
class ClusterSecurityGroups:
    """The security groups of a cluster."""

    control_plane: SecurityGroup
    """Security group of the control plane's interfaces."""
    nodes: SecurityGroup
    """Security group of all nodes, the system's and Karpenter's."""
    rules: Sequence[pulumi.Resource]
    """Rules of both groups as separate resources, because the groups refer to each other."""


def cluster_security_groups(name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions) -> ClusterSecurityGroups:
    """Create the cluster's security groups, with the component's name and its children's options."""
    control_plane = SecurityGroup(
        f"{name}-control-plane",
        description=f"Control plane of {args.cluster_name}",
        vpc_id=args.network.vpc_id,
        tags=args.tagged("control-plane"),
        opts=opts,
    )
    nodes = SecurityGroup(
        f"{name}-nodes",
        description=f"Nodes of {args.cluster_name}",
        vpc_id=args.network.vpc_id,
        tags={**args.tagged("nodes"), DISCOVERY_TAG: args.cluster_name, args.scope.owned: "owned"},
        opts=opts,
    )
    return ClusterSecurityGroups(
        control_plane=control_plane, nodes=nodes, rules=_rules(name, args, control_plane, nodes, opts)
    )


def _rules(
    name: str,
    args: EksClusterArgs,
    control_plane: SecurityGroup,
    nodes: SecurityGroup,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Create the rules. Nodes reach each other and the API server; the API server reaches kubelets, and webhooks on any
    port. Clients in the VPC reach the API server, but no node."""
    clients = {"vpc": args.network.cidr, **{cidr.replace("/", "-"): cidr for cidr in args.endpoint.private_cidrs}}
    return [
        *(
            SecurityGroupIngressRule(
                f"{name}-control-plane-from-{client}",
                security_group_id=control_plane.id,
                description="API server, from the VPC" if client == "vpc" else "API server, from a joined network",
                cidr_ipv4=cidr,
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                opts=opts,
            )
            for client, cidr in clients.items()
        ),
        SecurityGroupIngressRule(
            f"{name}-control-plane-from-nodes",
            security_group_id=control_plane.id,
            description="API server, from nodes",
            referenced_security_group_id=nodes.id,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=opts,
        ),
        SecurityGroupEgressRule(
            f"{name}-control-plane-to-nodes",
            security_group_id=control_plane.id,
            description="Kubelets and webhooks",
            referenced_security_group_id=nodes.id,
            ip_protocol="tcp",
            from_port=0,
            to_port=65535,
            opts=opts,
        ),
        SecurityGroupIngressRule(
            f"{name}-nodes-from-control-plane",
            security_group_id=nodes.id,
            description="Kubelets and webhooks, from the control plane",
            referenced_security_group_id=control_plane.id,
            ip_protocol="tcp",
            from_port=0,
            to_port=65535,
            opts=opts,
        ),
        SecurityGroupIngressRule(
            f"{name}-nodes-from-nodes",
            security_group_id=nodes.id,
            description="Nodes and pods among themselves",
            referenced_security_group_id=nodes.id,
            ip_protocol="-1",
            opts=opts,
        ),
        SecurityGroupEgressRule(
            f"{name}-nodes-to-anywhere",
            security_group_id=nodes.id,
            description="Registries, AWS and GitHub",
            cidr_ipv4=ANYWHERE,
            ip_protocol="-1",
            opts=opts,
        ),
    ]
