"""Network of an EKS cluster: a VPC with private subnets for nodes, and public subnets for NAT gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

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

from gpufleet.aws.eks.network_args import (
    ANYWHERE,
    DISCOVERY_TAG,
    EksNetworkArgs,
    NetworkReference,
    private_cidr,
    public_cidr,
)
from gpufleet.aws.eks.network_rules import network_problems
from gpufleet.problem import refuse


class EksNetwork(pulumi.ComponentResource):
    """A VPC with subnets in each zone, NAT gateways and endpoints.

    Owns all of them. Karpenter's instances and load balancers of services keep network interfaces in the subnets,
    unknown to Pulumi. Remove what creates them first; otherwise AWS refuses to delete the subnets.
    """

    ready: pulumi.Resource
    """The network; depend on it to wait until private subnets reach what they need."""
    reference: NetworkReference
    """Connection details for the cluster."""

    def __init__(self, name: str, args: EksNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, network_problems(args))
        super().__init__("gpu-runners:index:EksNetwork", name, None, opts)
        vpc = Vpc(
            name,
            cidr_block=args.cidr,
            enable_dns_support=True,
            # Both are required to resolve private names of endpoints, including the API server's.
            enable_dns_hostnames=True,
            tags=tagged(args, args.cluster_name),
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect or None),
        )
        private = self._subnets(name, args, vpc, "private")
        tables = self._route_tables(name, args, vpc, private)
        gateways = self._nat_gateways(name, args, vpc) if args.nat != "none" else {}
        ways_out = [
            *self._routes(name, tables, gateways),
            *self._associations(name, "private", private, tables),
            *self._endpoints(name, args, vpc, private, tables),
        ]
        self.reference = NetworkReference(
            vpc_id=vpc.id,
            private_subnets={zone: subnet.id for zone, subnet in private.items()},
            control_plane_zones=args.control_plane_zones,
            cidr=args.cidr,
            discoverable=True,
            needs=ways_out,
        )
        self.ready = self
        self.register_outputs({"vpc_id": vpc.id})

    def _child(self, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*needs])

    def _subnets(
        self, name: str, args: EksNetworkArgs, vpc: Vpc, kind: Literal["private", "public"]
    ) -> dict[str, Subnet]:
        """Create one subnet in each zone, tagged with its role so that load balancers of services find it."""
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
        """Create a route table for each zone's private subnet, even for a single NAT gateway. Adding a second gateway
        then only changes a route."""
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
        """Create the NAT gateways of the zones, in public subnets with an internet gateway."""
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
        # AWS does not detach an internet gateway while the VPC has public addresses, so it must outlive them.
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
        """Create the S3 gateway endpoint, which is free and serves ECR's image layers, and the interface endpoints."""
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
    """Return the tags of a resource: the caller's, the name shown in the AWS console, and discovery tags."""
    return {**args.tags, "Name": name, **(further or {})}
