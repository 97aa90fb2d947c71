"""Arguments of an EKS cluster's network, and the reference that it passes to others."""

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
"""Zone letters that a VPC has room for, in the order of their subnets."""

PRIVATE_BITS, PUBLIC_BITS = 3, 6
"""Prefix lengths of subnets, relative to the VPC's: an eighth for each zone's nodes, and eighths of the last eighth for
public subnets."""

INDISPENSABLE_ENDPOINTS = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "sts")
"""Interface endpoints required without NAT gateways; otherwise no node joins and no image can be pulled. The CNI calls
`ec2`, images come from `ecr.api` and `ecr.dkr`, nodes query `eks`, and the Pod Identity agent calls `eks-auth`
(https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html)."""

REGION = r"[a-z]{2}(-[a-z]+)+-[0-9]"
"""Pattern of a region code."""

FEWEST_ZONES = 2
"""Minimum number of zones that EKS requires."""


@dataclass(frozen=True, kw_only=True)
class NetworkReference:
    """Connection details of a network, passed to its cluster. Use `EksNetwork.reference`, or describe an existing
    network."""

    vpc_id: pulumi.Input[str]
    """ID of the VPC. DNS must be enabled: `enableDnsSupport` and `enableDnsHostnames`."""
    private_subnets: Mapping[str, pulumi.Input[str]]
    """IDs of the subnets for nodes and control plane interfaces, by zone; at least two zones."""
    control_plane_zones: Sequence[str] = ()
    """Zones of the control plane's interfaces and of the system nodes, at least two; if empty, all. EKS keeps the zones
    that a cluster was created with (https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html). To add a zone
    for nodes later, list here those that the cluster has."""
    cidr: pulumi.Input[str]
    """IPv4 range of the VPC, which may reach the API server. For an existing VPC, use the output `cidr_block` of
    `Vpc.get`."""
    discoverable: bool = False
    """Whether the subnets already have the tag `karpenter.sh/discovery`. If not, the cluster adds it."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before a node starts, and outlive the last node: the NAT gateways and endpoints."""

    @property
    def control_plane_subnets(self) -> list[pulumi.Input[str]]:
        """Return the IDs of the subnets of the control plane's interfaces and of the system nodes."""
        zones = self.control_plane_zones
        return [subnet for zone, subnet in self.private_subnets.items() if not zones or zone in zones]


@dataclass(frozen=True, kw_only=True)
class EksNetworkArgs:
    """Arguments of `EksNetwork`."""

    cluster_name: str
    """Name of the EKS cluster; value of the tag `karpenter.sh/discovery`."""
    region: str
    """AWS region of the VPC."""
    zones: Sequence[str]
    """Availability zones by full name, such as `eu-west-1a`; at least two, usually three. A zone's subnets depend only
    on its letter, so adding or removing zones does not move others."""
    control_plane_zones: Sequence[str] = ()
    """Zones of the control plane's interfaces and of the system nodes; see `NetworkReference`."""
    cidr: str = "10.0.0.0/16"
    """Address range of the VPC, a private range from /16 to /20. Each zone gets an eighth of it, and every pod uses one
    address."""
    nat: Nat = "single"
    """NAT gateways of the private subnets: one in a single zone, which is a single point of failure and adds inter-zone
    traffic costs; one per zone; or none. Without any, there are no public subnets and no internet gateway."""
    interface_endpoints: Sequence[str] = ()
    """AWS services reached through interface endpoints, such as `ecr.api`. Without NAT gateways, required: `ec2`,
    `ecr.api`, `ecr.dkr`, `eks`, `eks-auth` and `sts`. Karpenter also requires `ssm` and `sqs`; other workloads use
    `logs`, `elasticloadbalancing` or `autoscaling`. IAM and the price list have no endpoints, so node classes must then
    name an existing instance profile. S3 always has a gateway endpoint."""
    protect: bool = False
    """Whether to prevent Pulumi from deleting or replacing the VPC, and with it everything inside."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of all resources that support them."""


def private_cidr(vpc: str, zone: str) -> str:
    """Return the address range of a zone's private subnet: the eighth of the VPC that its letter selects."""
    return str(_part(ipaddress.IPv4Network(vpc), PRIVATE_BITS, ZONE_LETTERS.index(zone[-1])))


def public_cidr(vpc: str, zone: str) -> str:
    """Return the address range of a zone's public subnet: the eighth of the VPC's last eighth that its letter
    selects."""
    last = _part(ipaddress.IPv4Network(vpc), PRIVATE_BITS, 2**PRIVATE_BITS - 1)
    return str(_part(last, PUBLIC_BITS - PRIVATE_BITS, ZONE_LETTERS.index(zone[-1])))


def _part(whole: ipaddress.IPv4Network, bits: int, index: int) -> ipaddress.IPv4Network:
    prefix = whole.prefixlen + bits
    return ipaddress.IPv4Network((int(whole.network_address) + (index << (32 - prefix)), prefix))
