"""The network of an EKS cluster: a VPC with private subnets for nodes, and public ones for what leads out."""

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

from components.eks_network_args import (
    ANYWHERE,
    DISCOVERY_TAG,
    EksNetworkArgs,
    NetworkReference,
    private_cidr,
    public_cidr,
)
from components.eks_network_rules import network_violations


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
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect or None),
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
