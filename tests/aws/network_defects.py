"""Defects of the network."""

from __future__ import annotations

from tests.aws.defect import Defect, given, lacking, written

_GROUP = "<<SecurityGroup.nodes:id>>"

NETWORK_DEFECTS = [
    Defect("a network too large", "Vpc", "vpc", given("cidrBlock", "10.0.0.0/8"), ("account",)),
    Defect(
        "an address range that is none",
        "Subnet",
        "private-eu-west-1a",
        given("cidrBlock", "10.0.128.0/33"),
        ("CloudFormation", "account"),
    ),
    Defect(
        "a subnet outside its network",
        "Subnet",
        "private-eu-west-1a",
        given("cidrBlock", "10.1.0.0/19"),
        ("CloudFormation", "account"),
    ),
    Defect(
        "two subnets that overlap", "Subnet", "private-eu-west-1a", given("cidrBlock", "10.0.160.0/20"), ("account",)
    ),
    Defect(
        "a zone that there is not",
        "Subnet",
        "private-eu-west-1a",
        given("availabilityZone", "eu-west-1z"),
        ("account",),
    ),
    Defect(
        "a zone of another region", "Subnet", "private-eu-west-1a", given("availabilityZone", "us-east-1a"), ("rules",)
    ),
    Defect(
        "a network's tags as a list", "Vpc", "vpc", given("tags", ["ci"]), ("SDK", "API", "CloudFormation", "account")
    ),
    Defect("no tag to be found by", "Subnet", "private-eu-west-1b", lacking("tags"), ()),
    Defect(
        "a NAT gateway in a private subnet",
        "NatGateway",
        "nat-eu-west-1a",
        given("subnetId", "<<Subnet.private-eu-west-1a:id>>"),
        ("account",),
    ),
    Defect("a group for an address", "NatGateway", "nat-eu-west-1a", given("allocationId", _GROUP), ("account",)),
    Defect("no way out", "Route", "private-eu-west-1a", None, ("account",)),
    Defect("a table that is no subnet's", "RouteTableAssociation", "private-eu-west-1a", None, ("account",)),
    Defect("a way out by nothing", "Route", "private-eu-west-1a", lacking("natGatewayId"), ("account",)),
    Defect("an internet gateway of no network", "InternetGateway", "internet", lacking("vpcId"), ("account",)),
    Defect(
        "a private subnet that is public",
        "RouteTableAssociation",
        "private-eu-west-1a",
        given("routeTableId", "<<RouteTable.public:id>>"),
        (),
    ),
    Defect("a port beyond the last", "SecurityGroupEgressRule", "nodes", given("toPort", 70000), ("rules",)),
    Defect(
        "system nodes in the control plane's group",
        "LaunchTemplate",
        "system",
        given("vpcSecurityGroupIds", ["<<SecurityGroup.control-plane:id>>"]),
        ("packets",),
    ),
    Defect("no way to the API server from the VPC", "SecurityGroupIngressRule", "from-vpc", None, ("packets",)),
    Defect("no way to kubelets", "SecurityGroupIngressRule", "to-nodes", None, ("packets",)),
    Defect("webhooks out of reach", "SecurityGroupEgressRule", "to-nodes", given("fromPort", 10000), ("packets",)),
    Defect("names that nobody resolves", "SecurityGroupEgressRule", "nodes-udp", None, ("packets",)),
    Defect(
        "kubelets open to the VPC",
        "SecurityGroupIngressRule",
        "from-vpc",
        given("securityGroupId", _GROUP),
        ("packets",),
    ),
    Defect(
        "a protocol that there is not",
        "SecurityGroupEgressRule",
        "nodes",
        given("ipProtocol", "tpc"),
        ("CloudFormation", "packets"),
    ),
    Defect(
        "a rule without a peer",
        "SecurityGroupEgressRule",
        "nodes",
        lacking("cidrIpv4"),
        ("CloudFormation", "rules", "packets"),
    ),
    Defect(
        "everything open to everybody",
        "SecurityGroup",
        "endpoints",
        given("ingress.0.cidrBlocks", ["0.0.0.0/0"]),
        ("packets",),
    ),
    Defect("a service that there is not", "VpcEndpoint", "ecr", written("serviceName", "ecr.api", "ecr.app"), ()),
    Defect(
        "a kind of endpoint that there is not",
        "VpcEndpoint",
        "ecr",
        given("vpcEndpointType", "interface"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a group by another word",
        "PlacementGroup",
        "training-placement-group",
        given("strategy", "clustered"),
        ("API", "CloudFormation"),
    ),
    Defect("a tag that nobody looks for", "Tag", "discovery", given("value", "other"), ("rules", "packets")),
    Defect(
        "a volume of no type",
        "LaunchTemplate",
        "system",
        given("blockDeviceMappings.0.ebs.volumeType", "gp9"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "tokens by another word",
        "LaunchTemplate",
        "system",
        given("metadataOptions.httpTokens", "require"),
        ("API", "CloudFormation"),
    ),
    Defect("too many hops", "LaunchTemplate", "system", given("metadataOptions.httpPutResponseHopLimit", 100), ()),
    Defect("a volume of no size", "LaunchTemplate", "system", given("blockDeviceMappings.0.ebs.volumeSize", 0), ()),
]
