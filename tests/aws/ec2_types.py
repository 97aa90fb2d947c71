"""How types of EC2 are said to its API and to CloudFormation."""

from __future__ import annotations

from collections.abc import Mapping

from tests.aws.resource_type import ACCOUNT, REGION, Part, ResourceType

_TAGS = Part(of="ec2.CreateTags", when="tags", places={"id": "Resources"})


def _of_ec2(
    call: str,
    resource: str,
    prefix: str,
    attribute: str,
    answer: str,
    *more: Part,
    also: tuple[Part, ...] = (),
    places: Mapping[str, str] | None = None,
) -> ResourceType:
    """A type of EC2: its tags go by a call of their own, and its id begins with a prefix. `more` calls follow the
    first, and `also` follows in a template."""
    return ResourceType(
        calls=(Part(of=f"ec2.{call}", places=places or {}), *more, _TAGS),
        template=(Part(of=f"AWS::EC2::{resource}"), *also),
        outputs={"id": f"{prefix}-{{hex}}"},
        attributes={"id": attribute},
        answers={"id": answer},
    )


_ROUTE = {"cidrBlock": "DestinationCidrBlock", "ipv6CidrBlock": "DestinationIpv6CidrBlock", "id": "RouteTableId"}
_RULE = {
    "securityGroupId": "GroupId",
    **{
        key: f"IpPermissions.{place}"
        for key, place in {
            "ipProtocol": "IpProtocol",
            "fromPort": "FromPort",
            "toPort": "ToPort",
            "cidrIpv4": "IpRanges.CidrIp",
            "cidrIpv6": "Ipv6Ranges.CidrIpv6",
            "referencedSecurityGroupId": "UserIdGroupPairs.GroupId",
        }.items()
    },
}
_TEMPLATE_RULE = {"securityGroupId": "GroupId", "cidrIpv4": "CidrIp", "cidrIpv6": "CidrIpv6"}
_FROM = {**_TEMPLATE_RULE, "referencedSecurityGroupId": "SourceSecurityGroupId"}
_TO = {**_TEMPLATE_RULE, "referencedSecurityGroupId": "DestinationSecurityGroupId"}


def _security_group_rule(direction: str, places: Mapping[str, str]) -> ResourceType:
    return ResourceType(
        calls=(Part(of=f"ec2.AuthorizeSecurityGroup{direction}", places=_RULE),),
        template=(Part(of=f"AWS::EC2::SecurityGroup{direction}", places=places),),
        # The description lies in one of two places of the API, with the range or with the group.
        provider=frozenset({"description", "tags"}),
        outputs={"id": "sgr-{hex}"},
    )


EC2_TYPES: dict[str, ResourceType] = {
    "aws:ec2/vpc:Vpc": _of_ec2(
        "CreateVpc",
        "VPC",
        "vpc",
        "VpcId",
        "Vpc.VpcId",
        *(
            Part(of="ec2.ModifyVpcAttribute", when=key, places={"id": "VpcId", key: f"{key[0].upper()}{key[1:]}.Value"})
            for key in ("enableDnsSupport", "enableDnsHostnames")
        ),
    ),
    "aws:ec2/subnet:Subnet": _of_ec2(
        "CreateSubnet",
        "Subnet",
        "subnet",
        "SubnetId",
        "Subnet.SubnetId",
        Part(
            of="ec2.ModifySubnetAttribute",
            when="mapPublicIpOnLaunch",
            places={"id": "SubnetId", "mapPublicIpOnLaunch": "MapPublicIpOnLaunch.Value"},
        ),
    ),
    "aws:ec2/securityGroup:SecurityGroup": ResourceType(
        calls=(
            Part(of="ec2.CreateSecurityGroup", places={"name": "GroupName"}),
            Part(of="ec2.AuthorizeSecurityGroupIngress", each="ingress", places=_RULE),
            Part(of="ec2.AuthorizeSecurityGroupEgress", each="egress", places=_RULE),
            _TAGS,
        ),
        template=(
            Part(of="AWS::EC2::SecurityGroup", places={"name": "GroupName", "description": "GroupDescription"}),
            Part(of="AWS::EC2::SecurityGroupIngress", each="ingress", places=_FROM),
            Part(of="AWS::EC2::SecurityGroupEgress", each="egress", places=_TO),
        ),
        named="name",
        outputs={"id": "sg-{hex}", "arn": f"arn:aws:ec2:{REGION}:{ACCOUNT}:security-group/sg-{{hex}}"},
        attributes={"id": "GroupId"},
        answers={"id": "GroupId"},
        provider=frozenset({"revokeRulesOnDelete"}),
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _security_group_rule("Ingress", _FROM),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _security_group_rule("Egress", _TO),
    "aws:ec2/routeTable:RouteTable": _of_ec2(
        "CreateRouteTable",
        "RouteTable",
        "rtb",
        "RouteTableId",
        "RouteTable.RouteTableId",
        Part(of="ec2.CreateRoute", each="routes", places=_ROUTE),
        also=(Part(of="AWS::EC2::Route", each="routes", places=_ROUTE),),
    ),
    "aws:ec2/route:Route": ResourceType(
        calls=(Part(of="ec2.CreateRoute"),),
        template=(Part(of="AWS::EC2::Route"),),
        outputs={"id": "r-rtb-{hex}"},
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ResourceType(
        calls=(Part(of="ec2.AssociateRouteTable"),),
        template=(Part(of="AWS::EC2::SubnetRouteTableAssociation"),),
        outputs={"id": "rtbassoc-{hex}"},
        answers={"id": "AssociationId"},
    ),
    "aws:ec2/natGateway:NatGateway": _of_ec2(
        "CreateNatGateway",
        "NatGateway",
        "nat",
        "NatGatewayId",
        "NatGateway.NatGatewayId",
        places={"privateIp": "PrivateIpAddress"},
    ),
    "aws:ec2/internetGateway:InternetGateway": ResourceType(
        calls=(
            Part(of="ec2.CreateInternetGateway"),
            Part(of="ec2.AttachInternetGateway", when="vpcId", places={"id": "InternetGatewayId"}),
            _TAGS,
        ),
        template=(
            Part(of="AWS::EC2::InternetGateway"),
            Part(of="AWS::EC2::VPCGatewayAttachment", when="vpcId", places={"id": "InternetGatewayId"}),
        ),
        outputs={"id": "igw-{hex}"},
        attributes={"id": "InternetGatewayId"},
        answers={"id": "InternetGateway.InternetGatewayId"},
    ),
    "aws:ec2/eip:Eip": ResourceType(
        calls=(Part(of="ec2.AllocateAddress"), _TAGS),
        template=(Part(of="AWS::EC2::EIP"),),
        outputs={"id": "eipalloc-{hex}", "allocationId": "eipalloc-{hex}", "publicIp": "192.0.2.1"},
        attributes={"id": "AllocationId", "allocationId": "AllocationId", "publicIp": "PublicIp"},
        answers={"id": "AllocationId", "allocationId": "AllocationId", "publicIp": "PublicIp"},
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ResourceType(
        calls=(Part(of="ec2.CreateVpcEndpoint", places={"policy": "PolicyDocument"}), _TAGS),
        template=(Part(of="AWS::EC2::VPCEndpoint", places={"policy": "PolicyDocument"}),),
        outputs={"id": "vpce-{hex}"},
        attributes={"id": "Id"},
        answers={"id": "VpcEndpoint.VpcEndpointId"},
        provider=frozenset({"autoAccept"}),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": ResourceType(
        calls=(
            Part(
                of="ec2.CreateLaunchTemplate",
                within="LaunchTemplateData",
                places={
                    "name": "LaunchTemplateName",
                    "description": "VersionDescription",
                    "vpcSecurityGroupIds": "LaunchTemplateData.SecurityGroupIds",
                    "tagSpecifications": "LaunchTemplateData.TagSpecifications",
                },
            ),
            _TAGS,
        ),
        template=(
            Part(
                of="AWS::EC2::LaunchTemplate",
                within="LaunchTemplateData",
                places={
                    "name": "LaunchTemplateName",
                    "description": "VersionDescription",
                    "vpcSecurityGroupIds": "LaunchTemplateData.SecurityGroupIds",
                    "tagSpecifications": "LaunchTemplateData.TagSpecifications",
                },
            ),
        ),
        named="name",
        outputs={"id": "lt-{hex}", "arn": f"arn:aws:ec2:{REGION}:{ACCOUNT}:launch-template/lt-{{hex}}"},
        attributes={"id": "LaunchTemplateId"},
        answers={"id": "LaunchTemplate.LaunchTemplateId"},
        # A template's own tags are said elsewhere in CloudFormation, for lack of a type for the resource.
        provider=frozenset({"updateDefaultVersion", "tags"}),
    ),
    "aws:ec2/placementGroup:PlacementGroup": ResourceType(
        calls=(Part(of="ec2.CreatePlacementGroup", places={"name": "GroupName"}),),
        # CloudFormation makes up the name of a group itself.
        template=(Part(of="AWS::EC2::PlacementGroup", places={"name": ""}),),
        named="name",
        outputs={"id": "{name}", "placementGroupId": "pg-{hex}"},
        attributes={"id": "Ref", "name": "Ref"},
        answers={"placementGroupId": "PlacementGroup.GroupId", "id": "PlacementGroup.GroupName"},
        # Said in the same call, by the resource's type.
        provider=frozenset({"tags"}),
    ),
    "aws:ec2/tag:Tag": ResourceType(
        calls=(
            Part(of="ec2.CreateTags", places={"resourceId": "Resources", "key": "Tags.Key", "value": "Tags.Value"}),
        ),
        template=(),
        outputs={"id": "{name}"},
    ),
}
