"""EksNetwork: its addresses, its ways out, and what it refuses."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.aws import EksNetwork, EksNetworkArgs
from gpufleet.aws.eks.network_args import INDISPENSABLE_ENDPOINTS, ZONE_LETTERS, private_cidr, public_cidr
from gpufleet.aws.eks.network_rules import network_problems
from gpufleet.problem import InvalidArguments
from gpufleet_tools.plan.plan import Plan, Resource
from tests.input_types import wrong_inputs
from tests.recording import on_aws, recorded, stays_for, the

ZONES = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
NETWORK: dict[str, Any] = {"cluster_name": "ci", "region": "eu-west-1", "zones": ZONES}
CLOSED: dict[str, Any] = {"nat": "none", "interface_endpoints": INDISPENSABLE_ENDPOINTS}

of_every_kind = pytest.mark.parametrize(
    "args", [{}, {"nat": "per-zone"}, CLOSED], ids=["single NAT", "NAT per zone", "no way out"]
)


def network(*, unknown_outputs: bool = True, **args: Any) -> tuple[EksNetwork, Plan]:
    made: list[EksNetwork] = []
    plan = recorded(
        lambda: made.append(EksNetwork("net", EksNetworkArgs(**(NETWORK | args)), on_aws())),
        unknown_outputs=unknown_outputs,
    )
    return made[0], plan


def of_kind(plan: Plan, kind: str) -> dict[str, Resource]:
    return {resource.name: resource for resource in plan.resources if resource.type.split(":")[-1] == kind}


# -- addresses --------------------------------------------------------------------------------------------------------

SUBNETS = [
    *((private_cidr, f"eu-west-1{letter}") for letter in ZONE_LETTERS),
    *((public_cidr, f"eu-west-1{letter}") for letter in ZONE_LETTERS),
]
"""Every subnet that a network can have."""


@given(address=st.integers(0, 2**24 - 1), prefix=st.integers(16, 20))
def test_subnets_are_apart_within_the_vpc_and_big_enough(address: int, prefix: int) -> None:
    vpc = ipaddress.IPv4Network((10 * 2**24 + address, prefix), strict=False)
    made = [ipaddress.IPv4Network(cidr(str(vpc), zone)) for cidr, zone in SUBNETS]
    assert all(subnet.subnet_of(vpc) for subnet in made)
    # As many addresses as there are in all of them together: none is in two.
    assert sum(subnet.num_addresses for subnet in ipaddress.collapse_addresses(made)) == sum(
        subnet.num_addresses for subnet in made
    )
    private, public = made[: len(ZONE_LETTERS)], made[len(ZONE_LETTERS) :]
    assert all(subnet.num_addresses >= vpc.num_addresses / 8 for subnet in private)
    assert all(subnet.prefixlen <= 28 for subnet in public), "AWS makes no smaller subnet"
    assert not [*network_problems(EksNetworkArgs(**NETWORK | {"cidr": str(vpc)}))]


@pytest.mark.parametrize(("zones", "further"), [("ab", "c"), ("bc", "a"), ("ad", "c"), ("cba", "f")])
def test_a_further_zone_moves_no_other(zones: str, further: str) -> None:
    def cidrs(letters: str) -> dict[str, Any]:
        _, plan = network(zones=[f"eu-west-1{letter}" for letter in letters])
        return {name: subnet.inputs["cidrBlock"] for name, subnet in of_kind(plan, "Subnet").items()}

    assert cidrs(zones).items() < cidrs(further + zones).items()


def test_a_vpc_of_16_bits_has_room_for_8190_pods_in_each_zone() -> None:
    _, plan = network()
    assert {name: subnet.inputs["cidrBlock"] for name, subnet in of_kind(plan, "Subnet").items()} == {
        "net-private-eu-west-1a": "10.0.0.0/19",
        "net-private-eu-west-1b": "10.0.32.0/19",
        "net-private-eu-west-1c": "10.0.64.0/19",
        "net-public-eu-west-1a": "10.0.224.0/22",
        "net-public-eu-west-1b": "10.0.228.0/22",
        "net-public-eu-west-1c": "10.0.232.0/22",
    }


# -- what is registered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "counts"),
    [
        ({}, {"Subnet": 6, "InternetGateway": 1, "NatGateway": 1, "Eip": 1, "RouteTable": 4, "VpcEndpoint": 1}),
        ({"nat": "per-zone"}, {"Subnet": 6, "InternetGateway": 1, "NatGateway": 3, "Eip": 3, "RouteTable": 4}),
        (CLOSED, {"Subnet": 3, "InternetGateway": 0, "NatGateway": 0, "Eip": 0, "Route": 0, "VpcEndpoint": 7}),
    ],
)
def test_it_registers_no_more_and_no_less(args: dict[str, Any], counts: dict[str, int]) -> None:
    _, plan = network(**args)
    assert {kind: len(of_kind(plan, kind)) for kind in counts} == counts
    assert len(of_kind(plan, "RouteTableAssociation")) == counts["Subnet"], "a subnet without is in the main table"


@of_every_kind
def test_inputs_are_what_the_sdk_expects(args: dict[str, Any]) -> None:
    _, plan = network(**args)
    assert wrong_inputs(plan) == []


@of_every_kind
def test_the_same_is_registered_when_outputs_are_known(args: dict[str, Any]) -> None:
    _, before = network(**args)
    _, after = network(unknown_outputs=False, **args)
    assert [resource.urn for resource in before.resources] == [resource.urn for resource in after.resources]


def test_names_are_resolved_in_it() -> None:
    """Both are required for the private name of the API server and of endpoints."""
    vpc = the(network()[1], "Vpc").inputs
    assert (vpc["enableDnsSupport"], vpc["enableDnsHostnames"]) == (True, True)


def test_private_subnets_are_found_by_karpenter_and_by_load_balancers() -> None:
    _, plan = network(tags={"owner": "ci team"})
    for name, subnet in of_kind(plan, "Subnet").items():
        tags = subnet.inputs["tags"]
        private = name.startswith("net-private-")
        assert tags.get("karpenter.sh/discovery") == ("ci" if private else None)
        assert tags.get("kubernetes.io/role/internal-elb") == ("1" if private else None)
        assert tags.get("kubernetes.io/role/elb") == (None if private else "1")
        assert tags["owner"] == "ci team"
        assert subnet.inputs["mapPublicIpOnLaunch"] is False


def test_the_cluster_is_told_of_private_subnets_alone() -> None:
    made, _ = network()
    assert list(made.reference.private_subnets) == ZONES
    assert made.reference.discoverable
    assert {resource._name for resource in made.reference.needs} == {
        *(f"net-private-{zone}-{part}" for zone in ZONES for part in ("route", "association")),
        "net-endpoint-s3",
    }


def test_endpoints_are_named_as_aws_does_and_open_to_the_vpc_alone() -> None:
    _, plan = network(**CLOSED)
    endpoints = of_kind(plan, "VpcEndpoint")
    assert {each.inputs["serviceName"] for each in endpoints.values()} == {
        f"com.amazonaws.eu-west-1.{service}" for service in (*INDISPENSABLE_ENDPOINTS, "s3")
    }
    for name, each in endpoints.items():
        interface = name != "net-endpoint-s3"
        assert each.inputs["vpcEndpointType"] == ("Interface" if interface else "Gateway")
        assert each.inputs.get("privateDnsEnabled", False) is interface
    rule = the(plan, "SecurityGroupIngressRule").inputs
    assert (rule["cidrIpv4"], rule["fromPort"], rule["toPort"], rule["ipProtocol"]) == ("10.0.0.0/16", 443, 443, "tcp")


# -- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ZONES)
def test_a_way_out_stays_until_its_route_is_gone(zone: str) -> None:
    """AWS takes no internet gateway from a VPC with addresses of its own, and a NAT gateway without it is none."""
    _, plan = network(nat="per-zone")
    staying = stays_for(plan, the(plan, "Route", f"net-private-{zone}-route"))
    awaited = ("Vpc", "InternetGateway")
    assert {the(plan, kind).urn for kind in awaited} <= staying
    for kind, name in (
        ("NatGateway", f"net-nat-{zone}"),
        ("Eip", f"net-nat-{zone}-address"),
        ("Route", "net-public-route"),
        ("RouteTableAssociation", f"net-public-{zone}-association"),
    ):
        assert the(plan, kind, name).urn in staying, name
    for address in of_kind(plan, "Eip").values():
        assert the(plan, "InternetGateway").urn in stays_for(plan, address)


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "problems"),
    [
        ({"region": "Ireland"}, ["region: 'Ireland'", "zones[0]: 'eu-west-1a' is not a zone of region 'Ireland'"]),
        ({"zones": []}, ["zones: has 0 zones; EKS requires at least 2"]),
        ({"zones": ["eu-west-1a"]}, ["zones: has 1 zones; EKS requires at least 2"]),
        ({"zones": ["eu-west-1a", "eu-west-1a"]}, ["zones: has 1 zones;", "zones[1]: 'eu-west-1a' is listed twice"]),
        ({"zones": ["eu-west-1a", "eu-west-2b"]}, ["zones[1]: 'eu-west-2b' is not a zone of region 'eu-west-1'"]),
        ({"zones": ["eu-west-1a", "b"]}, ["zones[1]: 'b' is not a zone of region 'eu-west-1'"]),
        (
            {"zones": ["eu-west-1a", "eu-west-1g"]},
            ["zones[1]: 'eu-west-1g' has no subnet in the VPC, which has room for zones a to f"],
        ),
        ({"zones": ["eu-west-1a", ""]}, ["zones[1]: '' is not a zone of region"]),
        ({"cidr": "10.0.0.0/21"}, ["cidr: '10.0.0.0/21': /16 to /20 is allowed"]),
        ({"cidr": "10.0.0.0/8"}, ["cidr: '10.0.0.0/8': /16 to /20 is allowed"]),
        ({"cidr": "10.0.0.1/16"}, ["cidr: '10.0.0.1/16' is not an IPv4 network (10.0.0.1/16 has host bits set"]),
        ({"cidr": "10.0.0/16"}, ["cidr: '10.0.0/16' is not an IPv4 network (Expected 4 octets"]),
        ({"cidr": ""}, ["cidr: '' is not an IPv4 network"]),
        ({"cidr": "8.8.0.0/16"}, ["cidr: '8.8.0.0/16' is not private"]),
        ({"cidr": "172.32.0.0/16"}, ["cidr: '172.32.0.0/16' is not private"]),
        ({"nat": "two"}, ["nat: 'two' is not valid; allowed: single, per-zone, none"]),
        (
            {"nat": "none"},
            ["interface_endpoints: has no ec2, ecr.api, ecr.dkr, eks, eks-auth, sts, which are required"],
        ),
        (CLOSED | {"interface_endpoints": INDISPENSABLE_ENDPOINTS[:-1]}, ["interface_endpoints: has no sts, which"]),
        ({"interface_endpoints": ["iam"]}, ["interface_endpoints[0]: 'iam' is not available"]),
        ({"interface_endpoints": ["s3"]}, ["interface_endpoints[0]: 's3' already has a gateway endpoint"]),
        ({"interface_endpoints": ["ec2", "ec2"]}, ["interface_endpoints[1]: 'ec2' is listed twice"]),
        ({"interface_endpoints": ["com amazonaws"]}, ["interface_endpoints[0]: 'com amazonaws' is not a service name"]),
        (
            {"region": "cn-north-1", "zones": ["cn-north-1a", "cn-north-1b"], "interface_endpoints": ["ec2"]},
            ["interface_endpoints: not supported in China"],
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_each(args: dict[str, Any], problems: list[str]) -> None:
    every = [str(problem) for problem in network_problems(EksNetworkArgs(**(NETWORK | args)))]
    found = [problem for problem in every if any(problem.startswith(wanted) for wanted in problems)]
    assert len(found) == len(problems), every
    with pytest.raises(InvalidArguments) as raised:
        network(**args)
    assert [str(problem) for problem in raised.value.problems] == every
    assert len(str(raised.value).splitlines()) == len(every)


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "172.31.0.0/16", "192.168.0.0/16", "100.64.0.0/18", "10.240.16.0/20"])
def test_private_networks_are_taken(cidr: str) -> None:
    assert not [*network_problems(EksNetworkArgs(**NETWORK | {"cidr": cidr}))]
