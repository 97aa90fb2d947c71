"""Security groups of an EKS cluster's control plane and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pulumi
from pulumi_aws.ec2 import SecurityGroup
from pulumi_aws.vpc import SecurityGroupEgressRule, SecurityGroupIngressRule

from gpufleet.aws.eks.cluster_args import EksClusterArgs
from gpufleet.aws.eks.network_args import ANYWHERE, DISCOVERY_TAG


class _Ports(NamedTuple):
    """A protocol with its range of ports."""

    protocol: str
    first: int | None = None
    last: int | None = None


_HTTPS = _Ports("tcp", 443, 443)
_ANY_TCP = _Ports("tcp", 0, 65535)
_EVERYTHING = _Ports("-1")


class _Rule(NamedTuple):
    """A rule of a security group."""

    name: str
    direction: type[SecurityGroupIngressRule] | type[SecurityGroupEgressRule]
    group: SecurityGroup
    peer: SecurityGroup | pulumi.Input[str]
    """The other group, or an IPv4 range."""
    ports: _Ports
    description: str


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
    vpc, joined = "API server, from the VPC", "API server, from a joined network"
    ingress, egress = SecurityGroupIngressRule, SecurityGroupEgressRule
    rules = [
        _Rule("control-plane-from-vpc", ingress, control_plane, args.network.cidr, _HTTPS, vpc),
        *(
            _Rule(f"control-plane-from-{cidr.replace('/', '-')}", ingress, control_plane, cidr, _HTTPS, joined)
            for cidr in args.endpoint.private_cidrs
        ),
        _Rule("control-plane-from-nodes", ingress, control_plane, nodes, _HTTPS, "API server, from nodes"),
        _Rule("control-plane-to-nodes", egress, control_plane, nodes, _ANY_TCP, "Kubelets and webhooks"),
        _Rule(
            "nodes-from-control-plane",
            ingress,
            nodes,
            control_plane,
            _ANY_TCP,
            "Kubelets and webhooks, from the control plane",
        ),
        _Rule("nodes-from-nodes", ingress, nodes, nodes, _EVERYTHING, "Nodes and pods among themselves"),
        # EFA traffic has no addresses: it requires a rule for the group itself in both directions
        # (https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html).
        *([_Rule("nodes-to-nodes", egress, nodes, nodes, _EVERYTHING, "EFA among nodes")] if args.efa else []),
        _Rule("nodes-to-anywhere", egress, nodes, ANYWHERE, _EVERYTHING, "Registries, AWS and GitHub"),
    ]
    return [_created(name, rule, opts) for rule in rules]


def _created(name: str, rule: _Rule, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    """Create one rule."""
    return rule.direction(
        f"{name}-{rule.name}",
        security_group_id=rule.group.id,
        description=rule.description,
        referenced_security_group_id=rule.peer.id if isinstance(rule.peer, SecurityGroup) else None,
        cidr_ipv4=None if isinstance(rule.peer, SecurityGroup) else rule.peer,
        ip_protocol=rule.ports.protocol,
        from_port=rule.ports.first,
        to_port=rule.ports.last,
        opts=opts,
    )
