"""EksNetwork, made: what is recorded, applied to moto's EC2, which has rules of its own for networks and routes."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import boto3
import botocore.exceptions
import pytest
from moto import mock_aws

from gpufleet.aws.eks.network_args import INDISPENSABLE_ENDPOINTS
from gpufleet_tools.plan.plan import Plan, Resource
from tests.components.aws.eks.test_network import CLOSED, ZONES, network

Ec2 = Any

MAKE: dict[str, Callable[[Ec2, dict[str, Any]], str]] = {
    "Vpc": lambda ec2, given: ec2.create_vpc(CidrBlock=given["cidrBlock"])["Vpc"]["VpcId"],
    "Subnet": lambda ec2, given: ec2.create_subnet(
        VpcId=given["vpcId"], CidrBlock=given["cidrBlock"], AvailabilityZone=given["availabilityZone"]
    )["Subnet"]["SubnetId"],
    "InternetGateway": lambda ec2, given: attached(
        ec2, given["vpcId"], ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ),
    "Eip": lambda ec2, given: ec2.allocate_address(Domain=given["domain"])["AllocationId"],
    "NatGateway": lambda ec2, given: ec2.create_nat_gateway(
        SubnetId=given["subnetId"], AllocationId=given["allocationId"]
    )["NatGateway"]["NatGatewayId"],
    "RouteTable": lambda ec2, given: ec2.create_route_table(VpcId=given["vpcId"])["RouteTable"]["RouteTableId"],
    "Route": lambda ec2, given: str(
        ec2.create_route(
            RouteTableId=given["routeTableId"],
            DestinationCidrBlock=given["destinationCidrBlock"],
            **{"GatewayId": given["gatewayId"]} if "gatewayId" in given else {"NatGatewayId": given["natGatewayId"]},
        )["Return"]
    ),
    "RouteTableAssociation": lambda ec2, given: ec2.associate_route_table(
        SubnetId=given["subnetId"], RouteTableId=given["routeTableId"]
    )["AssociationId"],
    "SecurityGroup": lambda ec2, given: ec2.create_security_group(
        GroupName="endpoints", Description=given["description"], VpcId=given["vpcId"]
    )["GroupId"],
    "SecurityGroupIngressRule": lambda ec2, given: ec2.authorize_security_group_ingress(
        GroupId=given["securityGroupId"],
        IpPermissions=[
            {
                "IpProtocol": given["ipProtocol"],
                "FromPort": given["fromPort"],
                "ToPort": given["toPort"],
                "IpRanges": [{"CidrIp": given["cidrIpv4"]}],
            }
        ],
    )["SecurityGroupRules"][0]["SecurityGroupRuleId"],
    "VpcEndpoint": lambda ec2, given: ec2.create_vpc_endpoint(
        VpcId=given["vpcId"],
        VpcEndpointType=given["vpcEndpointType"],
        ServiceName=given["serviceName"],
        RouteTableIds=given.get("routeTableIds", []),
        SubnetIds=given.get("subnetIds", []),
        SecurityGroupIds=given.get("securityGroupIds", []),
        PrivateDnsEnabled=given.get("privateDnsEnabled", False),
    )["VpcEndpoint"]["VpcEndpointId"],
}
"""How each kind of resource is made; the answer is its id."""


def attached(ec2: Ec2, vpc: str, gateway: str) -> str:
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    return gateway


@pytest.fixture
def ec2() -> Iterator[Ec2]:
    """An account of moto's, without any network in it."""
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    with mock.patch.dict(os.environ, keys), mock_aws():
        yield boto3.client("ec2", region_name="eu-west-1")


def make(ec2: Ec2, plan: Plan) -> dict[str, str]:
    """Ids of what is made, by kind and name, each once all that it depends on is there."""
    ids: dict[str, str] = {}
    left = {resource.urn: resource for resource in plan.resources if resource.type.split(":")[-1] in MAKE}
    names: dict[str, str] = {}
    while left:
        ready = [each for each in left.values() if not left.keys() & set(each.depends_on)]
        assert ready, "resources that wait for each other"
        for each in ready:
            kind = each.type.split(":")[-1]
            given = {key: _with_ids(value, each, names) for key, value in each.inputs.items()}
            names[each.urn] = ids[f"{kind} {each.name}"] = MAKE[kind](ec2, given)
            del left[each.urn]
    return ids


def _with_ids(value: Any, resource: Resource, made: dict[str, str]) -> Any:
    """A value with the ids that resources have got in place of the recorder's, which are a name and `-id`."""
    if isinstance(value, list):
        return [_with_ids(item, resource, made) for item in value]
    known = {f"{urn.rpartition('::')[2]}-id": id_ for urn, id_ in made.items() if urn in resource.depends_on}
    return known.get(value, value) if isinstance(value, str) else value


def way_out(ec2: Ec2, subnet: str) -> dict[str, Any] | None:
    """The route to everywhere of a subnet's own table."""
    tables = ec2.describe_route_tables(Filters=[{"Name": "association.subnet-id", "Values": [subnet]}])["RouteTables"]
    (table,) = tables
    found = [route for route in table["Routes"] if route.get("DestinationCidrBlock") == "0.0.0.0/0"]
    return found[0] if found else None


@pytest.mark.parametrize(("nat", "gateways"), [("single", 1), ("per-zone", 3)])
def test_each_private_subnet_reaches_the_internet_by_nat(ec2: Ec2, nat: str, gateways: int) -> None:
    ids = make(ec2, network(unknown_outputs=False, nat=nat)[1])
    places = {each["NatGatewayId"]: each["SubnetId"] for each in ec2.describe_nat_gateways()["NatGateways"]}
    assert len(places) == gateways
    for zone in ZONES:
        route = way_out(ec2, ids[f"Subnet net-private-{zone}"])
        assert route is not None
        assert "GatewayId" not in route, "a private subnet with an internet gateway is public"
        place = places[route["NatGatewayId"]]
        assert place in {ids[f"Subnet net-public-{each}"] for each in ([zone] if gateways > 1 else ZONES)}
        leads_out = way_out(ec2, place)
        assert leads_out is not None
        assert leads_out["GatewayId"] == ids["InternetGateway net-internet"]


def test_without_nat_no_subnet_has_a_way_out_and_all_have_the_endpoints(ec2: Ec2) -> None:
    ids = make(ec2, network(unknown_outputs=False, **CLOSED)[1])
    private = {ids[f"Subnet net-private-{zone}"] for zone in ZONES}
    assert [way_out(ec2, subnet) for subnet in private] == [None] * len(ZONES)
    endpoints = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    interfaces = [each for each in endpoints if each["VpcEndpointType"] == "Interface"]
    assert len(interfaces) == len(INDISPENSABLE_ENDPOINTS)
    assert all(set(each["SubnetIds"]) == private for each in interfaces)
    (storage,) = (each for each in endpoints if each["VpcEndpointType"] == "Gateway")
    assert set(storage["RouteTableIds"]) == {ids[f"RouteTable net-private-{zone}-routes"] for zone in ZONES}


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "172.16.0.0/20", "192.168.0.0/19"])
def test_six_zones_fit(ec2: Ec2, cidr: str) -> None:
    """EC2 refuses subnets that overlap, that leave the VPC, or that are too small."""
    region = boto3.client("ec2", region_name="us-east-1")
    zones = [each["ZoneName"] for each in region.describe_availability_zones()["AvailabilityZones"]]
    make(region, network(unknown_outputs=False, region="us-east-1", zones=zones, cidr=cidr)[1])
    made = [
        each
        for each in region.describe_subnets()["Subnets"]
        if ipaddress.IPv4Network(each["CidrBlock"]).subnet_of(ipaddress.IPv4Network(cidr)) and not each["DefaultForAz"]
    ]
    assert len(made) == 2 * len(zones) == 12


def test_moto_has_such_rules(ec2: Ec2) -> None:
    """A test that nothing can fail would be worth nothing."""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/19", AvailabilityZone="eu-west-1a")
    for cidr, zone in (("10.0.16.0/20", "eu-west-1a"), ("10.1.0.0/20", "eu-west-1a"), ("10.0.32.0/19", "eu-west-9a")):
        with pytest.raises(botocore.exceptions.ClientError):
            ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)
