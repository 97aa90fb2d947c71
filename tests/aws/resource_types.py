"""How each type of AWS resource that this project makes is said to AWS's API and to CloudFormation.

A key of Pulumi's that has the same name there, but for capitals and plurals, is in no line of this table: its place is
read from botocore's models and CloudFormation's schemas. A key that has no place at all has to stand under `provider`,
or it is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Part:
    """One API call, or one resource of CloudFormation, that comes of a Pulumi resource."""

    of: str
    """`ec2.CreateVpc` or `AWS::EC2::VPC`."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Places of Pulumi's keys that are called otherwise: `LaunchTemplateData.ImageId`. `id` is the resource itself."""
    when: str | None = None
    """Key without which there is no such part."""
    each: str | None = None
    """Key of a list: one part for each of its items."""
    into: tuple[str, str, str] | None = None
    """Not a resource of its own but part of another: the other's kind, the key that leads to it, and the key of the
    other that has the same value where that is no reference."""
    within: str | None = None
    """Where keys go that have no place otherwise: `LaunchTemplateData`."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One type of resource."""

    calls: tuple[Part, ...]
    """What the provider says to AWS's API when it makes one."""
    template: tuple[Part, ...]
    """What a CloudFormation template says in its place."""
    named: str | None = None
    """Key of the name that Pulumi makes up where none is given."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Outputs, in the shape that AWS gives them; `{name}` is the resource's name, `{hex}` seventeen digits of its
    own."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Outputs as CloudFormation's attributes; `Ref` for what a plain reference gives. The others are inputs."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Outputs as the first call answers them, by path."""
    provider: frozenset[str] = frozenset()
    """Keys that only Pulumi's provider reads, or that it says in a call that is not modelled here."""


ACCOUNT, REGION = "111122223333", "eu-west-1"

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


def _iam_arn(kind: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:{kind}/{{name}}"


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


def _of_bucket(call: str, places: Mapping[str, str], template: Mapping[str, str]) -> ResourceType:
    return ResourceType(
        calls=(Part(of=f"s3.{call}", places={"bucket": "Bucket", **places}),),
        template=(Part(of="AWS::S3::Bucket", into=("Bucket", "bucket", "bucket"), places=template),),
        outputs={"id": "{name}"},
    )


_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_QUEUE = {
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    "maxMessageSize": "MaximumMessageSize",
    "name": "QueueName",
}
_ATTRIBUTES = {
    **{key: f"Attributes.{place}" for key, place in _QUEUE.items()},
    **{
        key: f"Attributes.{key[0].upper()}{key[1:]}"
        for key in ("delaySeconds", "fifoQueue", "kmsMasterKeyId", "policy", "redrivePolicy", "sqsManagedSseEnabled")
    },
    "name": "QueueName",
}

TYPES: dict[str, ResourceType] = {
    # -- EKS ----------------------------------------------------------------------------------------------------------
    "aws:eks/nodeGroup:NodeGroup": ResourceType(
        calls=(Part(of="eks.CreateNodegroup", places={"nodeRoleArn": "nodeRole", "subnetIds": "subnets"}),),
        template=(
            Part(
                of="AWS::EKS::Nodegroup",
                places={
                    "nodeRoleArn": "NodeRole",
                    "subnetIds": "Subnets",
                    "launchTemplate": "LaunchTemplate",
                },
            ),
        ),
        named="nodeGroupName",
        outputs={
            "id": "cluster:{name}",
            "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup/cluster/{{name}}/{{hex}}",
        },
        attributes={"id": "Id", "arn": "Arn"},
        provider=frozenset({"forceUpdateVersion"}),
    ),
    "aws:eks/addon:Addon": ResourceType(
        calls=(Part(of="eks.CreateAddon", places={"resolveConflictsOnCreate": "resolveConflicts"}),),
        template=(Part(of="AWS::EKS::Addon", places={"resolveConflictsOnCreate": "ResolveConflicts"}),),
        outputs={"id": "cluster:{name}", "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:addon/cluster/{{name}}/{{hex}}"},
        attributes={"arn": "Arn", "id": "Ref"},
        # For an addon that is there already.
        provider=frozenset({"preserve", "resolveConflictsOnUpdate"}),
    ),
    "aws:eks/accessEntry:AccessEntry": ResourceType(
        calls=(Part(of="eks.CreateAccessEntry"),),
        template=(Part(of="AWS::EKS::AccessEntry"),),
        outputs={"id": "cluster:principal", "accessEntryArn": "arn:aws:eks:::access-entry/cluster/role/{hex}"},
        attributes={"accessEntryArn": "AccessEntryArn", "id": "Ref"},
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": ResourceType(
        calls=(Part(of="eks.AssociateAccessPolicy"),),
        template=(
            Part(
                of="AWS::EKS::AccessEntry",
                into=("AccessEntry", "principalArn", "principalArn"),
                places={"policyArn": "AccessPolicies.PolicyArn", "accessScope": "AccessPolicies.AccessScope"},
            ),
        ),
        outputs={"id": "cluster#principal#policy"},
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": ResourceType(
        calls=(Part(of="eks.CreatePodIdentityAssociation"),),
        template=(Part(of="AWS::EKS::PodIdentityAssociation"),),
        outputs={"id": "a-{hex}", "associationId": "a-{hex}"},
        attributes={"associationId": "AssociationId", "id": "Ref"},
    ),
    "aws:eks/cluster:Cluster": ResourceType(
        calls=(Part(of="eks.CreateCluster", places={"vpcConfig": "resourcesVpcConfig"}),),
        template=(Part(of="AWS::EKS::Cluster", places={"vpcConfig": "ResourcesVpcConfig"}),),
        named="name",
        outputs={
            "id": "{name}",
            "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{{name}}",
            "endpoint": "https://{hex}.eks.amazonaws.com",
        },
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn", "endpoint": "Endpoint"},
        provider=frozenset({"enabledClusterLogTypes", "defaultAddonsToRemoves"}),
    ),
    # -- EC2 ----------------------------------------------------------------------------------------------------------
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
    "aws:ec2/tag:Tag": ResourceType(
        calls=(
            Part(of="ec2.CreateTags", places={"resourceId": "Resources", "key": "Tags.Key", "value": "Tags.Value"}),
        ),
        template=(),
        outputs={"id": "{name}"},
    ),
    # -- IAM ----------------------------------------------------------------------------------------------------------
    "aws:iam/role:Role": ResourceType(
        calls=(
            Part(of="iam.CreateRole", places={"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"}),
            Part(
                of="iam.AttachRolePolicy",
                each="managedPolicyArns",
                places={"name": "RoleName", "item": "PolicyArn"},
            ),
        ),
        template=(
            Part(
                of="AWS::IAM::Role",
                places={"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"},
            ),
        ),
        named="name",
        outputs={"id": "{name}", "arn": _iam_arn("role"), "uniqueId": "AROA{hex}"},
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn"},
        answers={"arn": "Role.Arn", "id": "Role.RoleName", "name": "Role.RoleName"},
        provider=frozenset({"forceDetachPolicies", "inlinePolicies"}),
    ),
    "aws:iam/policy:Policy": ResourceType(
        calls=(Part(of="iam.CreatePolicy", places={"name": "PolicyName", "policy": "PolicyDocument"}),),
        template=(
            Part(of="AWS::IAM::ManagedPolicy", places={"name": "ManagedPolicyName", "policy": "PolicyDocument"}),
        ),
        named="name",
        outputs={"id": _iam_arn("policy"), "arn": _iam_arn("policy")},
        attributes={"id": "Ref", "arn": "Ref"},
        answers={"arn": "Policy.Arn", "id": "Policy.Arn"},
        # CloudFormation's managed policies have no tags.
        provider=frozenset({"tags"}),
    ),
    "aws:iam/rolePolicy:RolePolicy": ResourceType(
        calls=(
            Part(
                of="iam.PutRolePolicy",
                places={"name": "PolicyName", "policy": "PolicyDocument", "role": "RoleName"},
            ),
        ),
        template=(
            Part(
                of="AWS::IAM::RolePolicy",
                places={"name": "PolicyName", "policy": "PolicyDocument", "role": "RoleName"},
            ),
        ),
        named="name",
        outputs={"id": "role:{name}"},
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ResourceType(
        calls=(Part(of="iam.AttachRolePolicy", places={"role": "RoleName"}),),
        template=(
            Part(
                of="AWS::IAM::Role",
                into=("Role", "role", "name"),
                places={"policyArn": "ManagedPolicyArns", "role": ""},
            ),
        ),
        outputs={"id": "{name}"},
    ),
    "aws:iam/instanceProfile:InstanceProfile": ResourceType(
        calls=(
            Part(of="iam.CreateInstanceProfile", places={"name": "InstanceProfileName"}),
            Part(
                of="iam.AddRoleToInstanceProfile",
                when="role",
                places={"name": "InstanceProfileName", "role": "RoleName"},
            ),
        ),
        template=(Part(of="AWS::IAM::InstanceProfile", places={"name": "InstanceProfileName", "role": "Roles"}),),
        named="name",
        outputs={"id": "{name}", "arn": _iam_arn("instance-profile")},
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn"},
        provider=frozenset({"tags"}),
    ),
    "aws:iam/serviceLinkedRole:ServiceLinkedRole": ResourceType(
        calls=(Part(of="iam.CreateServiceLinkedRole"),),
        template=(Part(of="AWS::IAM::ServiceLinkedRole"),),
        outputs={"id": _iam_arn("role/aws-service-role"), "arn": _iam_arn("role/aws-service-role")},
        provider=frozenset({"tags"}),
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": ResourceType(
        calls=(
            Part(
                of="iam.CreateOpenIDConnectProvider",
                places={"clientIdLists": "ClientIDList", "thumbprintLists": "ThumbprintList"},
            ),
        ),
        template=(
            Part(
                of="AWS::IAM::OIDCProvider",
                places={"clientIdLists": "ClientIdList", "thumbprintLists": "ThumbprintList"},
            ),
        ),
        outputs={"id": _iam_arn("oidc-provider"), "arn": _iam_arn("oidc-provider")},
        attributes={"id": "Ref", "arn": "Arn"},
        answers={"arn": "OpenIDConnectProviderArn"},
    ),
    # -- queue and events ---------------------------------------------------------------------------------------------
    "aws:sqs/queue:Queue": ResourceType(
        calls=(Part(of="sqs.CreateQueue", places=_ATTRIBUTES),),
        template=(Part(of="AWS::SQS::Queue", places=_QUEUE),),
        named="name",
        outputs={
            "id": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{{name}}",
            "url": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{{name}}",
            "arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{name}}",
        },
        attributes={"id": "QueueUrl", "url": "QueueUrl", "arn": "Arn"},
        answers={"url": "QueueUrl", "id": "QueueUrl"},
    ),
    "aws:sqs/queuePolicy:QueuePolicy": ResourceType(
        calls=(Part(of="sqs.SetQueueAttributes", places={"policy": "Attributes.Policy"}),),
        template=(Part(of="AWS::SQS::QueuePolicy", places={"policy": "PolicyDocument", "queueUrl": "Queues"}),),
        outputs={"id": "{name}"},
    ),
    "aws:cloudwatch/eventRule:EventRule": ResourceType(
        calls=(Part(of="events.PutRule"),),
        template=(Part(of="AWS::Events::Rule"),),
        named="name",
        outputs={"id": "{name}", "arn": f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{{name}}"},
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn"},
        provider=frozenset({"forceDestroy", "isEnabled"}),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": ResourceType(
        calls=(Part(of="events.PutTargets", within="Targets", places={"targetId": "Targets.Id"}),),
        template=(
            Part(
                of="AWS::Events::Rule",
                into=("EventRule", "rule", "name"),
                within="Targets",
                places={"targetId": "Targets.Id", "rule": "", "arn": "Targets.Arn", "roleArn": "Targets.RoleArn"},
            ),
        ),
        named="targetId",
        outputs={"id": "{name}"},
        provider=frozenset({"forceDestroy"}),
    ),
    # -- keys and logs ------------------------------------------------------------------------------------------------
    "aws:kms/key:Key": ResourceType(
        calls=(
            Part(of="kms.CreateKey"),
            Part(
                of="kms.EnableKeyRotation",
                when="enableKeyRotation",
                places={"id": "KeyId"},
            ),
        ),
        template=(
            Part(
                of="AWS::KMS::Key",
                places={"policy": "KeyPolicy", "deletionWindowInDays": "PendingWindowInDays"},
            ),
        ),
        outputs={"id": "{uuid}", "keyId": "{uuid}", "arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{{uuid}}"},
        attributes={"id": "Ref", "keyId": "Ref", "arn": "Arn"},
        answers={"id": "KeyMetadata.KeyId", "keyId": "KeyMetadata.KeyId", "arn": "KeyMetadata.Arn"},
        # Said when the key is deleted, and by which call rotation is switched on.
        provider=frozenset({"deletionWindowInDays", "enableKeyRotation", "isEnabled"}),
    ),
    "aws:kms/alias:Alias": ResourceType(
        calls=(Part(of="kms.CreateAlias", places={"name": "AliasName"}),),
        template=(Part(of="AWS::KMS::Alias", places={"name": "AliasName"}),),
        named="name",
        outputs={"id": "{name}", "arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:{{name}}"},
        attributes={"id": "Ref", "name": "Ref"},
    ),
    "aws:cloudwatch/logGroup:LogGroup": ResourceType(
        calls=(
            Part(of="logs.CreateLogGroup", places={"name": "logGroupName"}),
            Part(of="logs.PutRetentionPolicy", when="retentionInDays", places={"name": "logGroupName"}),
        ),
        template=(Part(of="AWS::Logs::LogGroup", places={"name": "LogGroupName"}),),
        named="name",
        outputs={"id": "{name}", "arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{name}}"},
        attributes={"id": "Ref", "name": "Ref", "arn": "Arn"},
        provider=frozenset({"skipDestroy"}),
    ),
    # -- S3 -----------------------------------------------------------------------------------------------------------
    "aws:s3/bucket:Bucket": ResourceType(
        calls=(Part(of="s3.CreateBucket", places={"bucket": "Bucket"}),),
        template=(Part(of="AWS::S3::Bucket", places={"bucket": "BucketName"}),),
        named="bucket",
        outputs={"id": "{name}", "arn": "arn:aws:s3:::{name}"},
        attributes={"id": "Ref", "bucket": "Ref", "arn": "Arn"},
        provider=frozenset({"forceDestroy", "tags"}),
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _of_bucket(
        "PutPublicAccessBlock",
        {key: f"PublicAccessBlockConfiguration.{key[0].upper()}{key[1:]}" for key in _BLOCKS},
        {"bucket": "", **{key: f"PublicAccessBlockConfiguration.{key[0].upper()}{key[1:]}" for key in _BLOCKS}},
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _of_bucket("PutBucketVersioning", {}, {"bucket": ""}),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _of_bucket(
        "PutBucketEncryption",
        {"rules": "ServerSideEncryptionConfiguration.Rules"},
        {"bucket": "", "rules": "BucketEncryption.ServerSideEncryptionConfiguration"},
    ),
    "aws:s3/bucketPolicy:BucketPolicy": ResourceType(
        calls=(Part(of="s3.PutBucketPolicy"),),
        template=(Part(of="AWS::S3::BucketPolicy", places={"policy": "PolicyDocument"}),),
        outputs={"id": "{name}"},
    ),
}
"""By Pulumi's type."""
