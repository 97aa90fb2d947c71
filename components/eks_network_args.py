"""What the network of an EKS cluster is told, and what others are told of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pulumi

ANYWHERE = "0.0.0.0/0"

DISCOVERY_TAG = "karpenter.sh/discovery"
"""Tag by which Karpenter's node classes find subnets and security groups; its value is the cluster's name."""

Nat = Literal["single", "per-zone", "none"]

ZONE_LETTERS = "abcdef"
"""Last letters of zones that a VPC has room for, in the order of their subnets."""

PRIVATE_BITS, PUBLIC_BITS = 3, 6
"""How many bits longer a subnet's prefix is than the VPC's: eighths for nodes, and the last eighth in eighths again."""

INDISPENSABLE_ENDPOINTS = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "sts")
"""Services without which no node joins and no image is pulled where no way leads out: the CNI calls `ec2`, images are
in `ecr.api` and `ecr.dkr`, nodes ask `eks` for the cluster, the Pod Identity agent calls `eks-auth`
(https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html)."""


@dataclass(frozen=True, kw_only=True)
class NetworkReference:
    """A network, as a cluster has to know it. Take `EksNetwork.reference`, or describe one that is there already."""

    vpc_id: pulumi.Input[str]
    """Id of the VPC. Names have to be resolved in it: `enableDnsSupport` and `enableDnsHostnames`."""
    private_subnets: Mapping[str, pulumi.Input[str]]
    """Ids of the subnets that the control plane's interfaces and the nodes are in, by zone; two zones at least."""
    discoverable: bool = False
    """Whether the subnets bear the tag `karpenter.sh/discovery` already. If not, the cluster puts it on them."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before a node starts, and has to stay until the last one is gone: its ways out."""


@dataclass(frozen=True, kw_only=True)
class EksNetworkArgs:
    """What a network needs to know."""

    cluster_name: str
    """Name of the EKS cluster that it is for: value of the tag `karpenter.sh/discovery`."""
    region: str
    """Region of the VPC."""
    zones: Sequence[str]
    """Availability zones by their full names, such as `eu-west-1a`; two at least, three for most. A zone's subnets
    depend on its letter alone, so that zones can be added and taken away without moving others."""
    cidr: str = "10.0.0.0/16"
    """Addresses of the VPC, a private range from /16 to /20. Each pod takes one: an eighth of them is each zone's."""
    nat: Nat = "single"
    """Ways out of the private subnets: one NAT gateway, which is one zone to fail and traffic between zones to pay for;
    one in each zone; or none. Without any there is no public subnet and no internet gateway either."""
    interface_endpoints: Sequence[str] = ()
    """AWS services reached without leaving the VPC, such as `ecr.api`. Those of a cluster without a NAT gateway are
    `ec2`, `ecr.api`, `ecr.dkr`, `eks`, `eks-auth` and `sts`; Karpenter wants `ssm` and `sqs` too, and others have
    `logs`, `elasticloadbalancing` or `autoscaling`. IAM and the price list have none: there a node class has to name an
    instance profile that exists. S3 has its gateway endpoint in any case."""
    protect: bool = False
    """Have Pulumi refuse to delete or replace the VPC, and everything in it with it."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of everything that can have some."""


def private_cidr(vpc: str, zone: str) -> str:
    """Addresses of a zone's private subnet: the eighth of the VPC's that its letter stands for."""
    return str(_part(ipaddress.IPv4Network(vpc), PRIVATE_BITS, ZONE_LETTERS.index(zone[-1])))


def public_cidr(vpc: str, zone: str) -> str:
    """Addresses of a zone's public subnet: the eighth that its letter stands for, of the VPC's last eighth."""
    last = _part(ipaddress.IPv4Network(vpc), PRIVATE_BITS, 2**PRIVATE_BITS - 1)
    return str(_part(last, PUBLIC_BITS - PRIVATE_BITS, ZONE_LETTERS.index(zone[-1])))


def _part(whole: ipaddress.IPv4Network, bits: int, index: int) -> ipaddress.IPv4Network:
    prefix = whole.prefixlen + bits
    return ipaddress.IPv4Network((int(whole.network_address) + (index << (32 - prefix)), prefix))
