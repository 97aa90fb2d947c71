"""The network of an EKS cluster: a VPC with private subnets for nodes, and public ones for what leads out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pulumi
from pulumi_aws.ec2 import (
    Eip,
    InternetGateway,
    NatGateway,
    Route,
    RouteTable,
    RouteTableAssociation,
    SecurityGroup,
    Subnet,
    Vpc,
    VpcEndpoint,
)
from pulumi_aws.vpc import SecurityGroupIngressRule

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

_PRIVATE_RANGES = [
    ipaddress.IPv4Network(cidr)
    for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15")
]
"""RFC 1918, and the two further ranges that EKS takes for pods
(https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html)."""

_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]")
_ENDPOINT = re.compile(r"[a-z0-9][-a-z0-9]*(?:\.[a-z0-9][-a-z0-9]*)*")

Fault = Iterator[str]


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
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of everything that can have some."""


class EksNetwork(pulumi.ComponentResource):
    """A VPC, its subnets by zone, and their ways out.

    Owns all of it. Karpenter's instances and the load balancers of services keep interfaces in the subnets that Pulumi
    knows nothing of: whatever makes them has to be gone first, or AWS refuses to remove the subnets.
    """

    ready: list[pulumi.Resource]
    """Routes and endpoints: depend on them for "what starts in a private subnet reaches what it needs"."""
    reference: NetworkReference
    """What the cluster is told."""

    def __init__(self, name: str, args: EksNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        faults = network_violations(args)
        if faults:
            raise ValueError("\n".join(f"network of {args.cluster_name!r}: {fault}" for fault in faults))
        super().__init__("gpu-runners:index:EksNetwork", name, None, opts)
        vpc = Vpc(
            name,
            cidr_block=args.cidr,
            enable_dns_support=True,
            # Private names of endpoints, the API server's among them, are resolved only with both.
            enable_dns_hostnames=True,
            tags=tagged(args, args.cluster_name),
            opts=self._child(),
        )
        private = self._subnets(name, args, vpc, "private")
        tables = self._route_tables(name, args, vpc, private)
        gateways = self._nat_gateways(name, args, vpc) if args.nat != "none" else {}
        self.ready = [
            *self._routes(name, tables, gateways),
            *self._associations(name, "private", private, tables),
            *self._endpoints(name, args, vpc, private, tables),
        ]
        self.reference = NetworkReference(
            vpc_id=vpc.id,
            private_subnets={zone: subnet.id for zone, subnet in private.items()},
            discoverable=True,
            needs=self.ready,
        )
        self.register_outputs({"vpc_id": vpc.id})

    def _child(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*needs])

    def _subnets(
        self, name: str, args: EksNetworkArgs, vpc: Vpc, kind: Literal["private", "public"]
    ) -> dict[str, Subnet]:
        """One subnet in each zone. A service's load balancer looks for the tag of its role."""
        if kind == "private":
            cidr, tags = private_cidr, {DISCOVERY_TAG: args.cluster_name, "kubernetes.io/role/internal-elb": "1"}
        else:
            cidr, tags = public_cidr, {"kubernetes.io/role/elb": "1"}
        return {
            zone: Subnet(
                f"{name}-{kind}-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=cidr(args.cidr, zone),
                map_public_ip_on_launch=False,
                tags=tagged(args, f"{args.cluster_name}-{kind}-{zone}", tags),
                opts=self._child(),
            )
            for zone in args.zones
        }

    def _route_tables(self, name: str, args: EksNetworkArgs, vpc: Vpc, zones: Mapping[str, Any]) -> dict[str, Any]:
        """A table for each zone's private subnet, with one NAT gateway too: a second one then changes a route."""
        return {
            zone: RouteTable(
                f"{name}-private-{zone}-routes",
                vpc_id=vpc.id,
                tags=tagged(args, f"{args.cluster_name}-private-{zone}"),
                opts=self._child(),
            )
            for zone in zones
        }

    def _nat_gateways(self, name: str, args: EksNetworkArgs, vpc: Vpc) -> dict[str, NatGateway]:
        """The way out of each zone, in public subnets with a way to the internet."""
        internet = InternetGateway(
            f"{name}-internet", vpc_id=vpc.id, tags=tagged(args, args.cluster_name), opts=self._child()
        )
        public = self._subnets(name, args, vpc, "public")
        table = RouteTable(
            f"{name}-public-routes",
            vpc_id=vpc.id,
            tags=tagged(args, f"{args.cluster_name}-public"),
            opts=self._child(),
        )
        route = Route(
            f"{name}-public-route",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=internet.id,
            opts=self._child(),
        )
        ways = [route, *self._associations(name, "public", public, dict.fromkeys(public, table))]
        places = sorted(public) if args.nat == "per-zone" else sorted(public)[:1]
        made = {zone: self._nat_gateway(name, args, zone, public[zone], ways) for zone in places}
        return {zone: made.get(zone, made[places[0]]) for zone in public}

    def _nat_gateway(
        self, name: str, args: EksNetworkArgs, zone: str, subnet: Subnet, ways: Sequence[pulumi.Resource]
    ) -> NatGateway:
        tags = tagged(args, f"{args.cluster_name}-{zone}")
        # AWS takes no internet gateway away from a VPC with public addresses: the gateway has to outlast them.
        address = Eip(f"{name}-nat-{zone}-address", domain="vpc", tags=tags, opts=self._child(*ways))
        return NatGateway(
            f"{name}-nat-{zone}", allocation_id=address.id, subnet_id=subnet.id, tags=tags, opts=self._child(*ways)
        )

    def _routes(
        self, name: str, tables: Mapping[str, RouteTable], gateways: Mapping[str, NatGateway]
    ) -> list[pulumi.Resource]:
        return [
            Route(
                f"{name}-private-{zone}-route",
                route_table_id=tables[zone].id,
                destination_cidr_block=ANYWHERE,
                nat_gateway_id=gateway.id,
                opts=self._child(),
            )
            for zone, gateway in gateways.items()
        ]

    def _associations(
        self, name: str, kind: str, subnets: Mapping[str, Subnet], tables: Mapping[str, RouteTable]
    ) -> list[pulumi.Resource]:
        return [
            RouteTableAssociation(
                f"{name}-{kind}-{zone}-association",
                subnet_id=subnet.id,
                route_table_id=tables[zone].id,
                opts=self._child(),
            )
            for zone, subnet in subnets.items()
        ]

    def _endpoints(
        self,
        name: str,
        args: EksNetworkArgs,
        vpc: Vpc,
        subnets: Mapping[str, Subnet],
        tables: Mapping[str, RouteTable],
    ) -> list[pulumi.Resource]:
        """S3 by way of the route tables, which costs nothing and is where ECR keeps layers; others by interfaces."""
        storage = VpcEndpoint(
            f"{name}-endpoint-s3",
            vpc_id=vpc.id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{args.region}.s3",
            route_table_ids=[table.id for table in tables.values()],
            tags=tagged(args, f"{args.cluster_name}-s3"),
            opts=self._child(),
        )
        if not args.interface_endpoints:
            return [storage]
        group = SecurityGroup(
            f"{name}-endpoints",
            description=f"Interface endpoints of {args.cluster_name}",
            vpc_id=vpc.id,
            tags=tagged(args, f"{args.cluster_name}-endpoints"),
            opts=self._child(),
        )
        rule = SecurityGroupIngressRule(
            f"{name}-endpoints-from-vpc",
            security_group_id=group.id,
            description="HTTPS from the VPC",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=args.cidr,
            opts=self._child(),
        )
        interfaces = [
            VpcEndpoint(
                f"{name}-endpoint-{service}",
                vpc_id=vpc.id,
                vpc_endpoint_type="Interface",
                service_name=f"com.amazonaws.{args.region}.{service}",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in subnets.values()],
                security_group_ids=[group.id],
                tags=tagged(args, f"{args.cluster_name}-{service}"),
                opts=self._child(),
            )
            for service in args.interface_endpoints
        ]
        return [storage, rule, *interfaces]


def tagged(args: EksNetworkArgs, name: str, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """Tags of a resource: the caller's, the name that AWS's console shows, and those that something looks for."""
    return {**args.tags, "Name": name, **(further or {})}


# -- addresses --------------------------------------------------------------------------------------------------------


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


# -- what a network cannot be -----------------------------------------------------------------------------------------


def network_violations(args: EksNetworkArgs) -> list[str]:
    """Every fault of a network, one line each: what, what was got, what is allowed, what to do."""
    return [
        *_wrong_region(args.region),
        *wrong_zones(args.zones, args.region),
        *_wrong_letters(args.zones),
        *_wrong_cidr(args.cidr),
        *_wrong_ways_out(args),
    ]


def _wrong_region(region: str) -> Fault:
    if not _REGION.fullmatch(region):
        yield f"region: {region!r}; a region's code is allowed; write it as 'eu-west-1'"


def wrong_zones(zones: Sequence[str], region: str) -> Fault:
    """Faults of a cluster's zones; EKS wants two."""
    if len(set(zones)) < 2:
        yield f"zones: {len(set(zones))}; EKS takes no fewer than 2; name three, as '{region}a'"
    for zone in sorted({zone for zone in zones if list(zones).count(zone) > 1}):
        yield f"zone {zone!r}: named twice; each zone is allowed once; remove one"
    for zone in zones:
        if not re.fullmatch(rf"{re.escape(region)}[a-z]", zone):
            yield f"zone {zone!r}: not of region {region!r}; its zones are allowed; write one as '{region}a'"


def _wrong_letters(zones: Sequence[str]) -> Fault:
    for zone in zones:
        if zone and zone[-1].islower() and zone[-1] not in ZONE_LETTERS:
            yield f"zone {zone!r}: the VPC has room for zones a to {ZONE_LETTERS[-1]}; choose among them"


def _wrong_cidr(cidr: str) -> Fault:
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        yield f"CIDR {cidr!r}: {error}; an IPv4 network is allowed; write it as '10.0.0.0/16'"
        return
    if not 16 <= network.prefixlen <= 20:
        yield f"CIDR {cidr!r}: /{network.prefixlen}; /16 to /20 is allowed; a pod takes an address, so take /16"
    if not any(network.subnet_of(allowed) for allowed in _PRIVATE_RANGES):
        allowed = ", ".join(map(str, _PRIVATE_RANGES))
        yield f"CIDR {cidr!r}: no private addresses; part of {allowed} is allowed; take '10.0.0.0/16'"


def _wrong_ways_out(args: EksNetworkArgs) -> Fault:
    endpoints = list(args.interface_endpoints)
    if args.nat not in get_args(Nat):
        yield f"NAT: {args.nat!r}; {', '.join(get_args(Nat))} are allowed; choose one"
    missing = [service for service in INDISPENSABLE_ENDPOINTS if service not in endpoints]
    if args.nat == "none" and missing:
        yield f"interface endpoints: no {', '.join(missing)}; without NAT they are all needed; add them"
    if endpoints and args.region.startswith("cn-"):
        yield "interface endpoints: in China names differ from service to service; none are allowed; make them yourself"
    for service in sorted(set(endpoints)):
        if endpoints.count(service) > 1:
            yield f"interface endpoint {service!r}: named twice; each service is allowed once; remove one"
        if not _ENDPOINT.fullmatch(service):
            yield f"interface endpoint {service!r}: no service; a service's name is allowed; write it as 'ecr.api'"
        if service == "s3":
            yield "interface endpoint 's3': the gateway endpoint is there already; others are allowed; remove it"
        if service in ("iam", "pricing"):
            yield f"interface endpoint {service!r}: AWS has none in a region; others are allowed; remove it"
