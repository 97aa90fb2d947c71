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
    found_by: tuple[str, ...] = ()
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
    Defect("more nodes at least than at most", "NodeGroup", "system", given("scalingConfig.minSize", 9)),
    Defect("more nodes wanted than at most", "NodeGroup", "system", given("scalingConfig.desiredSize", 9)),
    Defect("a number of nodes as text", "NodeGroup", "system", given("scalingConfig.minSize", "2")),
    Defect("a misspelt size", "NodeGroup", "system", given("scalingConfig.desiredCapacity", 2)),
    Defect("no node may be replaced at a time", "NodeGroup", "system", given("updateConfig.maxUnavailable", 0)),
    Defect("an AMI type that there is not", "NodeGroup", "system", given("amiType", "AL2023_x86")),
    Defect("an Arm image for x86 machines", "NodeGroup", "system", given("amiType", "AL2023_ARM_64_STANDARD")),
    Defect("an NVIDIA image for machines without GPU", "NodeGroup", "system", given("amiType", "AL2023_x86_64_NVIDIA")),
    Defect("an instance type that there is not", "NodeGroup", "system", given("instanceTypes", ["m7i.big"])),
    Defect("instance types as text", "NodeGroup", "system", given("instanceTypes", "m7i.large")),
    Defect("a capacity type that there is not", "NodeGroup", "system", given("capacityType", "ONDEMAND")),
    Defect("a taint's effect as Kubernetes writes it", "NodeGroup", "system", given("taints.0.effect", "NoSchedule")),
    Defect("a role by name and not by ARN", "NodeGroup", "system", given("nodeRoleArn", "<<Role.system-nodes:name>>")),
    Defect("no role", "NodeGroup", "system", lacking("nodeRoleArn")),
    Defect("the cluster's role for its nodes", "NodeGroup", "system", given("nodeRoleArn", "<<Role.cluster:arn>>")),
    Defect(
        "subnets of one zone",
        "NodeGroup",
        "system",
        given("subnetIds", ["<<Subnet.private-eu-west-1a:id>>", "<<Subnet.public-eu-west-1a:id>>"]),
    ),
    Defect("a security group for a subnet", "NodeGroup", "system", given("subnetIds.0", _GROUP)),
    Defect("a launch template without a version", "NodeGroup", "system", given("launchTemplate", {"id": "lt-1"})),
    Defect("a release that there is not", "NodeGroup", "system", given("releaseVersion", "1.99.0-20990101")),
    # -- cluster ------------------------------------------------------------------------------------------------------
    Defect("a version of Kubernetes that EKS has not", "Cluster", "ci", given("version", "1.99")),
    Defect("a mode of access that there is not", "Cluster", "ci", given("accessConfig.authenticationMode", "APII")),
    Defect("the nodes' role for the cluster", "Cluster", "ci", given("roleArn", "<<Role.system-nodes:arn>>")),
    Defect("one subnet", "Cluster", "ci", given("vpcConfig.subnetIds", ["<<Subnet.private-eu-west-1a:id>>"])),
    Defect("a name with a blank", "Cluster", "ci", given("name", "c i")),
    Defect("a key by its id", "Cluster", "ci", given("encryptionConfig.provider.keyArn", "<<Key.secrets:keyId>>")),
    Defect("something to encrypt that is no secret", "Cluster", "ci", given("encryptionConfig.resources", ["pods"])),
    # -- addons -------------------------------------------------------------------------------------------------------
    Defect("an addon that there is not", "Addon", "eks-pod-identity-agent", given("addonName", "pod-identity-agent")),
    Defect("a way out of conflicts that there is not", "Addon", "coredns", given("resolveConflictsOnCreate", "FORCE")),
    Defect("settings that are no JSON", "Addon", "coredns", given("configurationValues", "replicas: 2")),
    Defect("settings that the addon does not know", "Addon", "coredns", given("configurationValues", '{"pods":2}')),
    Defect("a version that the addon has not", "Addon", "coredns", given("addonVersion", "v0.0.1-eksbuild.1")),
    # -- access -------------------------------------------------------------------------------------------------------
    Defect("a type of entry that there is not", "AccessEntry", "karpenter-node-access", given("type", "EC2_LINX")),
    Defect("groups for a node", "AccessEntry", "karpenter-node-access", given("kubernetesGroups", ["system:nodes"])),
    Defect("a principal by name", "AccessEntry", "admin", given("principalArn", "admin")),
    Defect(
        "the controller's role let in as a node",
        "AccessEntry",
        "karpenter-node-access",
        given("principalArn", "<<Role.karpenter-controller-role:arn>>"),
    ),
    Defect("nodes that nobody lets in", "AccessEntry", "karpenter-node-access", None),
    Defect(
        "nodes let in as people",
        "AccessEntry",
        "karpenter-node-access",
        given("type", "STANDARD"),
    ),
    Defect(
        "an IAM policy for access to Kubernetes",
        "AccessPolicyAssociation",
        "admin",
        given("policyArn", "arn:aws:iam::aws:policy/AdministratorAccess"),
    ),
    Defect(
        "an access policy that there is not",
        "AccessPolicyAssociation",
        "admin",
        written("policyArn", "ClusterAdmin", "Administrator"),
    ),
    Defect("a scope in capitals", "AccessPolicyAssociation", "admin", given("accessScope.type", "CLUSTER")),
    Defect(
        "namespaces of a whole cluster",
        "AccessPolicyAssociation",
        "admin",
        given("accessScope.namespaces", ["ci"]),
    ),
    Defect(
        "the nodes' role for pods", "PodIdentityAssociation", "karpenter-pod-identity", given("roleArn", _NODE_ROLE)
    ),
    Defect(
        "a service account that no pod has",
        "PodIdentityAssociation",
        "karpenter-pod-identity",
        given("serviceAccount", "karpentr"),
    ),
    # -- network ------------------------------------------------------------------------------------------------------
    Defect("a network too large", "Vpc", "vpc", given("cidrBlock", "10.0.0.0/8")),
    Defect("an address range that is none", "Subnet", "private-eu-west-1a", given("cidrBlock", "10.0.128.0/33")),
    Defect("a subnet outside its network", "Subnet", "private-eu-west-1a", given("cidrBlock", "10.1.0.0/19")),
    Defect("two subnets that overlap", "Subnet", "private-eu-west-1a", given("cidrBlock", "10.0.160.0/20")),
    Defect("a zone that there is not", "Subnet", "private-eu-west-1a", given("availabilityZone", "eu-west-1z")),
    Defect("a zone of another region", "Subnet", "private-eu-west-1a", given("availabilityZone", "us-east-1a")),
    Defect("a network's tags as a list", "Vpc", "vpc", given("tags", ["ci"])),
    Defect("no tag to be found by", "Subnet", "private-eu-west-1b", lacking("tags")),
    Defect(
        "a NAT gateway in a private subnet",
        "NatGateway",
        "nat-eu-west-1a",
        given("subnetId", "<<Subnet.private-eu-west-1a:id>>"),
    ),
    Defect("a group for an address", "NatGateway", "nat-eu-west-1a", given("allocationId", _GROUP)),
    Defect("no way out", "Route", "private-eu-west-1a", None),
    Defect("a table that is no subnet's", "RouteTableAssociation", "private-eu-west-1a", None),
    Defect("a way out by nothing", "Route", "private-eu-west-1a", lacking("natGatewayId")),
    Defect("an internet gateway of no network", "InternetGateway", "internet", lacking("vpcId")),
    Defect(
        "a private subnet that is public",
        "RouteTableAssociation",
        "private-eu-west-1a",
        given("routeTableId", "<<RouteTable.public:id>>"),
    ),
    Defect("a port beyond the last", "SecurityGroupEgressRule", "nodes", given("toPort", 70000)),
    Defect("a protocol that there is not", "SecurityGroupEgressRule", "nodes", given("ipProtocol", "tpc")),
    Defect("a rule without a peer", "SecurityGroupEgressRule", "nodes", lacking("cidrIpv4")),
    Defect("everything open to everybody", "SecurityGroup", "endpoints", given("ingress.0.cidrBlocks", ["0.0.0.0/0"])),
    Defect("a service that there is not", "VpcEndpoint", "ecr", written("serviceName", "ecr.api", "ecr.app")),
    Defect("a kind of endpoint that there is not", "VpcEndpoint", "ecr", given("vpcEndpointType", "interface")),
    Defect("a tag that nobody looks for", "Tag", "discovery", given("value", "other")),
    Defect(
        "a volume of no type", "LaunchTemplate", "system", given("blockDeviceMappings.0.ebs.volumeType", "gp9")
    ),
    Defect("tokens by another word", "LaunchTemplate", "system", given("metadataOptions.httpTokens", "require")),
    Defect(
        "too many hops", "LaunchTemplate", "system", given("metadataOptions.httpPutResponseHopLimit", 100)
    ),
    Defect("a volume of no size", "LaunchTemplate", "system", given("blockDeviceMappings.0.ebs.volumeSize", 0)),
    # -- IAM ----------------------------------------------------------------------------------------------------------
    Defect(
        "a managed policy that AWS has not",
        "RolePolicyAttachment",
        "system-nodes-AmazonEKSWorkerNodePolicy",
        written("policyArn", "Worker", "Workers"),
    ),
    Defect("nodes that may not pull", "RolePolicyAttachment", "system-nodes-AmazonEC2ContainerRegistryPullOnly", None),
    Defect("a role's name too long", "Role", "karpenter-node-role", given("name", "n" * 70)),
    Defect(
        "a role of another name than pools know", "Role", "karpenter-node-role", given("name", "KarpenterNodeRole-co")
    ),
    Defect("a service that there is not", "Role", "cluster", written("assumeRolePolicy", "amazonaws.com", "amazon.com")),
    Defect("trust in anybody", "Role", "cluster", written("assumeRolePolicy", '{"Service": "eks.amazonaws.com"}', '"*"')),
    Defect("an effect in small letters", "Role", "cluster", written("assumeRolePolicy", "Allow", "allow")),
    Defect(
        "pods whose session has no tags",
        "Role",
        "karpenter-controller-role",
        written("assumeRolePolicy", ',"sts:TagSession"', ""),
    ),
    Defect(
        "an action that there is not",
        "Policy",
        "karpenter-NodeLifecycle",
        written("policy", "ec2:CreateFleet", "ec2:CreateFleets"),
    ),
    Defect(
        "a condition on a tag that nothing has",
        "Policy",
        "karpenter-NodeLifecycle",
        written("policy", "aws:RequestTag/karpenter.sh/nodepool", "aws:RequestTag/karpenter.sh/node-pool"),
    ),
    Defect(
        "a condition key that there is not",
        "Policy",
        "karpenter-NodeLifecycle",
        written("policy", "ec2:CreateAction", "ec2:CreatedBy"),
    ),
    Defect(
        "any role may be passed",
        "Policy",
        "karpenter-IAMIntegration",
        written("policy", "arn:aws:iam::111122223333:role/KarpenterNodeRole-ci", "*"),
    ),
    Defect("another region's reads", "Policy", "karpenter-ResourceDiscovery", written("policy", "eu-west-1", "eu-west-2")),
    Defect("a policy that is no JSON", "Policy", "karpenter-ZonalShift", written("policy", "]}", "]")),
    Defect("a policy without a version", "Policy", "karpenter-ZonalShift", written("policy", '"Version":"2012-10-17",', "")),
    Defect(
        "a policy too long",
        "Policy",
        "karpenter-EKSIntegration",
        written("policy", "cluster/ci", "cluster/ci" + "i" * 7000),
    ),
    Defect("a policy that is attached to no role", "RolePolicyAttachment", "karpenter-NodeLifecycle-attachment", None),
    Defect("a policy as data", "RolePolicy", "cache-reader", given("policy", {"Statement": []})),
    # -- queue and events ---------------------------------------------------------------------------------------------
    Defect("a message forgotten too soon", "Queue", "karpenter-interruption", given("messageRetentionSeconds", 30)),
    Defect("seconds as text", "Queue", "karpenter-interruption", given("messageRetentionSeconds", "300")),
    Defect("a queue's name with a dot", "Queue", "karpenter-interruption", given("name", "c.i")),
    Defect("a queue of another name than its policy knows", "Queue", "karpenter-interruption", given("name", "other")),
    Defect("no policy of the queue", "QueuePolicy", "karpenter-interruption-policy", None),
    Defect(
        "another service may send",
        "QueuePolicy",
        "karpenter-interruption-policy",
        written("policy", "events.amazonaws.com", "event.amazonaws.com"),
    ),
    Defect(
        "everybody may send",
        "QueuePolicy",
        "karpenter-interruption-policy",
        written("policy", '{"Service":["events.amazonaws.com","sqs.amazonaws.com"]}', '"*"'),
    ),
    Defect(
        "a pattern that is no JSON",
        "EventRule",
        "karpenter-rebalance",
        written("eventPattern", "]}", "]"),
    ),
    Defect(
        "a source that sends nothing",
        "EventRule",
        "karpenter-rebalance",
        written("eventPattern", "aws.ec2", "ec2"),
    ),
    Defect(
        "a key that events have not",
        "EventRule",
        "karpenter-spot-interruption",
        written("eventPattern", "detail-type", "detailType"),
    ),
    Defect(
        "a pattern that is not one of lists",
        "EventRule",
        "karpenter-rebalance",
        given("eventPattern", '{"source":"aws.ec2"}'),
    ),
    Defect("a rule that takes everything of EC2", "EventRule", "karpenter-rebalance", given("eventPattern", '{"source":["aws.ec2"]}')),
    Defect("a description too long", "EventRule", "karpenter-rebalance", given("description", "d" * 600)),
    Defect(
        "a queue by its URL",
        "EventTarget",
        "karpenter-rebalance-target",
        given("arn", "<<Queue.karpenter-interruption:url>>"),
    ),
    Defect("a rule without a target", "EventTarget", "karpenter-rebalance-target", None),
    # -- keys, logs and buckets ---------------------------------------------------------------------------------------
    Defect("a key gone too soon", "Key", "secrets", given("deletionWindowInDays", 3)),
    Defect("a use that there is not", "Key", "secrets", given("keyUsage", "ENCRYPT")),
    Defect("an alias without its prefix", "Alias", "secrets", given("name", "ci")),
    Defect("days that CloudWatch does not offer", "LogGroup", "control-plane", given("retentionInDays", 31)),
    Defect("a log of another name than EKS writes to", "LogGroup", "control-plane", given("name", "/aws/eks/co/cluster")),
    Defect("a bucket in capitals", "Bucket", "cache", given("bucket", "CI-cache")),
    Defect("versions by another word", "BucketVersioning", "cache", given("versioningConfiguration.status", "On")),
    Defect("a switch as text", "BucketPublicAccessBlock", "cache", given("blockPublicAcls", "yes")),
    Defect(
        "a cipher that there is not",
        "BucketServerSideEncryptionConfiguration",
        "cache",
        given("rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES"),
    ),
]
