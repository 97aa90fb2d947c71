"""Defects that checks of AWS inputs are tried on: what is wrong, where, and which of the checks find it.

The list is by the same hand as some of the checks. Read it as a map of who looks where; it is no rate of detection.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.plan import Plan
from tests.aws.references import kind_of

Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Defect:
    """One thing that is wrong, and nothing else."""

    what: str
    """What is wrong."""
    kind: str
    """Kind of the resource: `NodeGroup`."""
    name: str
    """Its logical name."""
    change: Change | None
    """What is done to its inputs; None where the resource is missing."""
    found_by: tuple[str, ...]
    """Names of the checks that find it, and no others; empty for what nobody finds."""

    def injected(self, plan: Plan) -> Plan:
        """The plan with the defect in it."""
        (resource,) = [each for each in plan.resources if (kind_of(each), each.name) == (self.kind, self.name)]
        others = [each for each in plan.resources if each is not resource]
        if self.change is None:
            return dataclasses.replace(plan, resources=tuple(others))
        inputs = copy.deepcopy(dict(resource.inputs))
        self.change(inputs)
        assert inputs != resource.inputs, "the change changes nothing"
        return dataclasses.replace(plan, resources=(*others, dataclasses.replace(resource, inputs=inputs)))


def given(path: str, value: Any) -> Change:
    """The value at a path of keys and numbers: `scalingConfig.minSize`, `taints.0.effect`."""

    def change(inputs: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            inputs = inputs[int(step)] if isinstance(inputs, list) else inputs[step]
        inputs[int(last) if isinstance(inputs, list) else last] = value

    return change


def lacking(key: str) -> Change:
    def change(inputs: dict[str, Any]) -> None:
        del inputs[key]

    return change


def written(key: str, old: str, new: str) -> Change:
    """Another word in a text, such as a policy; `old` has to be in it."""

    def change(inputs: dict[str, Any]) -> None:
        assert old in inputs[key], f"{old} is not in {key}"
        inputs[key] = inputs[key].replace(old, new)

    return change


_NODE_ROLE = "<<Role.karpenter-node-role:arn>>"
_GROUP = "<<SecurityGroup.nodes:id>>"

DEFECTS = [
    # -- node groups --------------------------------------------------------------------------------------------------
    Defect("more nodes at least than at most", "NodeGroup", "system", given("scalingConfig.minSize", 9), ("rules",)),
    Defect("more nodes wanted than at most", "NodeGroup", "system", given("scalingConfig.desiredSize", 9), ("rules",)),
    Defect("a number of nodes as text", "NodeGroup", "system", given("scalingConfig.minSize", "2"), ("SDK", "API")),
    Defect(
        "a misspelt size",
        "NodeGroup",
        "system",
        given("scalingConfig.desiredCapacity", 2),
        ("SDK", "API", "CloudFormation"),
    ),
    Defect(
        "no node may be replaced at a time",
        "NodeGroup",
        "system",
        given("updateConfig.maxUnavailable", 0),
        ("API", "CloudFormation"),
    ),
    Defect(
        "an AMI type that there is not",
        "NodeGroup",
        "system",
        given("amiType", "AL2023_x86"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "an Arm image for x86 machines", "NodeGroup", "system", given("amiType", "AL2023_ARM_64_STANDARD"), ("rules",)
    ),
    Defect(
        "an NVIDIA image for machines without GPU",
        "NodeGroup",
        "system",
        given("amiType", "AL2023_x86_64_NVIDIA"),
        ("rules",),
    ),
    Defect(
        "an instance type that there is not", "NodeGroup", "system", given("instanceTypes", ["m7i.big"]), ("rules",)
    ),
    Defect("instance types as text", "NodeGroup", "system", given("instanceTypes", "m7i.large"), ("SDK", "rules")),
    Defect(
        "a capacity type that there is not",
        "NodeGroup",
        "system",
        given("capacityType", "ONDEMAND"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a taint's effect as Kubernetes writes it",
        "NodeGroup",
        "system",
        given("taints.0.effect", "NoSchedule"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a role by name and not by ARN",
        "NodeGroup",
        "system",
        given("nodeRoleArn", "<<Role.system-nodes:name>>"),
        ("rules",),
    ),
    Defect("no role", "NodeGroup", "system", lacking("nodeRoleArn"), ("SDK", "API", "CloudFormation")),
    Defect(
        "the cluster's role for its nodes",
        "NodeGroup",
        "system",
        given("nodeRoleArn", "<<Role.cluster:arn>>"),
        ("verdicts",),
    ),
    Defect(
        "subnets of one zone",
        "NodeGroup",
        "system",
        given("subnetIds", ["<<Subnet.private-eu-west-1a:id>>", "<<Subnet.public-eu-west-1a:id>>"]),
        ("rules",),
    ),
    Defect(
        "a security group for a subnet",
        "NodeGroup",
        "system",
        given("subnetIds.0", _GROUP),
        ("CloudFormation", "rules"),
    ),
    Defect(
        "a launch template without a version", "NodeGroup", "system", given("launchTemplate", {"id": "lt-1"}), ("SDK",)
    ),
    Defect("a release that there is not", "NodeGroup", "system", given("releaseVersion", "1.99.0-20990101"), ()),
    # -- cluster ------------------------------------------------------------------------------------------------------
    Defect("a version of Kubernetes that EKS has not", "Cluster", "ci", given("version", "1.99"), ()),
    Defect(
        "a mode of access that there is not",
        "Cluster",
        "ci",
        given("accessConfig.authenticationMode", "APII"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "the nodes' role for the cluster", "Cluster", "ci", given("roleArn", "<<Role.system-nodes:arn>>"), ("verdicts",)
    ),
    Defect(
        "one subnet", "Cluster", "ci", given("vpcConfig.subnetIds", ["<<Subnet.private-eu-west-1a:id>>"]), ("rules",)
    ),
    Defect("a name with a blank", "Cluster", "ci", given("name", "c i"), ("API",)),
    Defect(
        "a key by its id",
        "Cluster",
        "ci",
        given("encryptionConfig.provider.keyArn", "<<Key.secrets:keyId>>"),
        ("rules",),
    ),
    Defect(
        "something to encrypt that is no secret", "Cluster", "ci", given("encryptionConfig.resources", ["pods"]), ()
    ),
    # -- addons -------------------------------------------------------------------------------------------------------
    Defect(
        "an addon that there is not",
        "Addon",
        "eks-pod-identity-agent",
        given("addonName", "pod-identity-agent"),
        ("rules",),
    ),
    Defect(
        "a way out of conflicts that there is not",
        "Addon",
        "coredns",
        given("resolveConflictsOnCreate", "FORCE"),
        ("API", "CloudFormation"),
    ),
    Defect("settings that are no JSON", "Addon", "coredns", given("configurationValues", "replicas: 2"), ("rules",)),
    Defect("settings that the addon does not know", "Addon", "coredns", given("configurationValues", '{"pods":2}'), ()),
    Defect("a version that the addon has not", "Addon", "coredns", given("addonVersion", "v0.0.1-eksbuild.1"), ()),
    # -- access -------------------------------------------------------------------------------------------------------
    Defect(
        "a type of entry that there is not",
        "AccessEntry",
        "karpenter-node-access",
        given("type", "EC2_LINX"),
        ("rules",),
    ),
    Defect(
        "groups for a node",
        "AccessEntry",
        "karpenter-node-access",
        given("kubernetesGroups", ["system:nodes"]),
        ("rules",),
    ),
    Defect("a principal by name", "AccessEntry", "admin", given("principalArn", "admin"), ("rules",)),
    Defect(
        "the controller's role let in as a node",
        "AccessEntry",
        "karpenter-node-access",
        given("principalArn", "<<Role.karpenter-controller-role:arn>>"),
        ("rules", "verdicts"),
    ),
    Defect("nodes that nobody lets in", "AccessEntry", "karpenter-node-access", None, ("rules",)),
    Defect(
        "nodes let in as people",
        "AccessEntry",
        "karpenter-node-access",
        given("type", "STANDARD"),
        ("rules",),
    ),
    Defect(
        "an IAM policy for access to Kubernetes",
        "AccessPolicyAssociation",
        "admin",
        given("policyArn", "arn:aws:iam::aws:policy/AdministratorAccess"),
        ("rules",),
    ),
    Defect(
        "an access policy that there is not",
        "AccessPolicyAssociation",
        "admin",
        written("policyArn", "ClusterAdmin", "Administrator"),
        ("rules",),
    ),
    Defect(
        "a scope in capitals",
        "AccessPolicyAssociation",
        "admin",
        given("accessScope.type", "CLUSTER"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "namespaces of a whole cluster",
        "AccessPolicyAssociation",
        "admin",
        given("accessScope.namespaces", ["ci"]),
        ("rules",),
    ),
    Defect(
        "the nodes' role for pods",
        "PodIdentityAssociation",
        "karpenter-pod-identity",
        given("roleArn", _NODE_ROLE),
        ("verdicts",),
    ),
    Defect(
        "a service account that no pod has",
        "PodIdentityAssociation",
        "karpenter-pod-identity",
        given("serviceAccount", "karpentr"),
        ("verdicts",),
    ),
    # -- network ------------------------------------------------------------------------------------------------------
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
        "a protocol that there is not",
        "SecurityGroupEgressRule",
        "nodes",
        given("ipProtocol", "tpc"),
        ("CloudFormation",),
    ),
    Defect(
        "a rule without a peer", "SecurityGroupEgressRule", "nodes", lacking("cidrIpv4"), ("CloudFormation", "rules")
    ),
    Defect(
        "everything open to everybody", "SecurityGroup", "endpoints", given("ingress.0.cidrBlocks", ["0.0.0.0/0"]), ()
    ),
    Defect("a service that there is not", "VpcEndpoint", "ecr", written("serviceName", "ecr.api", "ecr.app"), ()),
    Defect(
        "a kind of endpoint that there is not",
        "VpcEndpoint",
        "ecr",
        given("vpcEndpointType", "interface"),
        ("API", "CloudFormation"),
    ),
    Defect("a tag that nobody looks for", "Tag", "discovery", given("value", "other"), ("rules",)),
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
    # -- IAM ----------------------------------------------------------------------------------------------------------
    Defect(
        "a managed policy that AWS has not",
        "RolePolicyAttachment",
        "system-nodes-AmazonEKSWorkerNodePolicy",
        written("policyArn", "Worker", "Workers"),
        ("rules", "verdicts"),
    ),
    Defect(
        "nodes that may not pull",
        "RolePolicyAttachment",
        "system-nodes-AmazonEC2ContainerRegistryPullOnly",
        None,
        ("verdicts",),
    ),
    Defect(
        "a role's name too long",
        "Role",
        "karpenter-node-role",
        given("name", "n" * 70),
        ("API", "CloudFormation", "rules"),
    ),
    Defect(
        "a role of another name than pools know",
        "Role",
        "karpenter-node-role",
        given("name", "KarpenterNodeRole-co"),
        ("rules",),
    ),
    Defect(
        "a service that there is not",
        "Role",
        "cluster",
        written("assumeRolePolicy", "amazonaws.com", "amazon.com"),
        ("verdicts",),
    ),
    Defect(
        "trust in anybody",
        "Role",
        "cluster",
        written("assumeRolePolicy", '{"Service": "eks.amazonaws.com"}', '"*"'),
        ("verdicts",),
    ),
    Defect(
        "an effect in small letters",
        "Role",
        "cluster",
        written("assumeRolePolicy", "Allow", "allow"),
        ("CloudFormation", "verdicts"),
    ),
    Defect(
        "pods whose session has no tags",
        "Role",
        "karpenter-controller-role",
        written("assumeRolePolicy", ',"sts:TagSession"', ""),
        ("verdicts",),
    ),
    Defect(
        "an action that there is not",
        "Policy",
        "karpenter-NodeLifecycle",
        written("policy", "ec2:CreateFleet", "ec2:CreateFleets"),
        ("CloudFormation", "verdicts"),
    ),
    Defect(
        "a condition on a tag that nothing has",
        "Policy",
        "karpenter-NodeLifecycle",
        written("policy", "aws:RequestTag/karpenter.sh/nodepool", "aws:RequestTag/karpenter.sh/node-pool"),
        ("verdicts",),
    ),
    Defect(
        "a condition key that there is not",
        "Policy",
        "karpenter-NodeLifecycle",
        written("policy", "ec2:CreateAction", "ec2:CreatedBy"),
        ("verdicts",),
    ),
    Defect(
        "any role may be passed",
        "Policy",
        "karpenter-IAMIntegration",
        written("policy", "arn:aws:iam::111122223333:role/KarpenterNodeRole-ci", "*"),
        ("verdicts",),
    ),
    Defect(
        "another region's reads",
        "Policy",
        "karpenter-ResourceDiscovery",
        written("policy", "eu-west-1", "eu-west-2"),
        ("verdicts",),
    ),
    Defect("a policy that is no JSON", "Policy", "karpenter-ZonalShift", written("policy", "]}", "]"), ("verdicts",)),
    Defect(
        "a policy without a version",
        "Policy",
        "karpenter-ZonalShift",
        written("policy", '"Version":"2012-10-17",', ""),
        (),
    ),
    Defect(
        "a policy too long",
        "Policy",
        "karpenter-EKSIntegration",
        written("policy", "cluster/ci", "cluster/ci" + "i" * 7000),
        ("rules", "verdicts"),
    ),
    Defect(
        "a policy that is attached to no role",
        "RolePolicyAttachment",
        "karpenter-NodeLifecycle-attachment",
        None,
        ("verdicts",),
    ),
    Defect("a policy as data", "RolePolicy", "cache-reader", given("policy", {"Statement": []}), ("SDK", "API")),
    # -- queue and events ---------------------------------------------------------------------------------------------
    Defect(
        "a message forgotten too soon",
        "Queue",
        "karpenter-interruption",
        given("messageRetentionSeconds", 30),
        ("CloudFormation", "rules"),
    ),
    Defect(
        "seconds as text", "Queue", "karpenter-interruption", given("messageRetentionSeconds", "300"), ("SDK", "rules")
    ),
    Defect(
        "a queue's name with a dot", "Queue", "karpenter-interruption", given("name", "c.i"), ("verdicts", "account")
    ),
    Defect(
        "a queue of another name than its policy knows",
        "Queue",
        "karpenter-interruption",
        given("name", "other"),
        ("verdicts",),
    ),
    Defect("no policy of the queue", "QueuePolicy", "karpenter-interruption-policy", None, ("verdicts",)),
    Defect(
        "another service may send",
        "QueuePolicy",
        "karpenter-interruption-policy",
        written("policy", "events.amazonaws.com", "event.amazonaws.com"),
        ("verdicts",),
    ),
    Defect(
        "everybody may send",
        "QueuePolicy",
        "karpenter-interruption-policy",
        written("policy", '{"Service":["events.amazonaws.com","sqs.amazonaws.com"]}', '"*"'),
        ("verdicts",),
    ),
    Defect(
        "a pattern that is no JSON",
        "EventRule",
        "karpenter-rebalance",
        written("eventPattern", "]}", "]"),
        ("account",),
    ),
    Defect(
        "a source that sends nothing",
        "EventRule",
        "karpenter-rebalance",
        written("eventPattern", "aws.ec2", "ec2"),
        ("account",),
    ),
    Defect(
        "a key that events have not",
        "EventRule",
        "karpenter-spot-interruption",
        written("eventPattern", "detail-type", "detailType"),
        ("account",),
    ),
    Defect(
        "a pattern that is not one of lists",
        "EventRule",
        "karpenter-rebalance",
        given("eventPattern", '{"source":"aws.ec2"}'),
        ("account",),
    ),
    Defect(
        "a rule that takes everything of EC2",
        "EventRule",
        "karpenter-rebalance",
        given("eventPattern", '{"source":["aws.ec2"]}'),
        ("account",),
    ),
    Defect(
        "a description too long",
        "EventRule",
        "karpenter-rebalance",
        given("description", "d" * 600),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a queue by its URL",
        "EventTarget",
        "karpenter-rebalance-target",
        given("arn", "<<Queue.karpenter-interruption:url>>"),
        ("rules", "verdicts", "account"),
    ),
    Defect("a rule without a target", "EventTarget", "karpenter-rebalance-target", None, ("account",)),
    # -- keys, logs and buckets ---------------------------------------------------------------------------------------
    Defect("a key gone too soon", "Key", "secrets", given("deletionWindowInDays", 3), ("CloudFormation",)),
    Defect("a use that there is not", "Key", "secrets", given("keyUsage", "ENCRYPT"), ("API", "CloudFormation")),
    Defect("an alias without its prefix", "Alias", "secrets", given("name", "ci"), ("CloudFormation",)),
    Defect(
        "days that CloudWatch does not offer",
        "LogGroup",
        "control-plane",
        given("retentionInDays", 31),
        ("CloudFormation",),
    ),
    Defect(
        "a log of another name than EKS writes to",
        "LogGroup",
        "control-plane",
        given("name", "/aws/eks/co/cluster"),
        (),
    ),
    Defect("a bucket in capitals", "Bucket", "cache", given("bucket", "CI-cache"), ("CloudFormation",)),
    Defect(
        "versions by another word",
        "BucketVersioning",
        "cache",
        given("versioningConfiguration.status", "On"),
        ("API", "CloudFormation"),
    ),
    Defect(
        "a switch as text",
        "BucketPublicAccessBlock",
        "cache",
        given("blockPublicAcls", "yes"),
        ("SDK", "API", "CloudFormation"),
    ),
    Defect(
        "a cipher that there is not",
        "BucketServerSideEncryptionConfiguration",
        "cache",
        given("rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES"),
        ("API", "CloudFormation"),
    ),
]
"""What is injected into the program of resources, one at a time."""

OF_COMPONENTS = [
    # What an opaque cluster is told.
    Defect(
        "a cluster in one zone",
        "Cluster",
        "ci",
        given("privateSubnetIds", ["<<Subnet.network-private-eu-west-1a:id>>"]),
        ("rules",),
    ),
    Defect(
        "the nodes' role for the cluster",
        "Cluster",
        "ci",
        given("serviceRole.id", "<<Role.ci-node-role:id>>"),
        ("verdicts",),
    ),
    Defect("an argument that there is not", "Cluster", "ci", given("authMode", "API"), ("SDK",)),
    Defect("a mode of access that there is not", "Cluster", "ci", given("authenticationMode", "APII"), ("SDK",)),
    # What else is elsewhere than in the program of resources.
    Defect(
        "the nodes' role for a driver",
        "Addon",
        "ci-aws-ebs-csi-driver",
        given("podIdentityAssociations.0.roleArn", "<<Role.ci-node-role:arn>>"),
        ("verdicts",),
    ),
    Defect("no tag to be found by", "SecurityGroup", "ci-nodes", lacking("tags"), ("rules",)),
    Defect("no way out", "Route", "network-private-eu-west-1b-route", None, ("account",)),
]
"""What is injected into the program of components: the checks look there too."""
