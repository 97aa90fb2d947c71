"""What Karpenter may do in an AWS account, what its nodes may do, and who may send to its queue: IAM policies as data.

The statements are those that Karpenter's own CloudFormation template grants (website/content/en/docs/getting-started/
getting-started-with-karpenter/cloudformation.yaml at v1.14.1): six policies with eighteen statements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Partition = Literal["aws", "aws-cn", "aws-us-gov"]

_REGION_PREFIXES: Mapping[str, Partition] = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""Partitions by how their regions begin."""

CLUSTER_NAME_LIMIT = 64 - len("KarpenterNodeRole-")
"""Characters of a cluster's name that leave room for the node role's: IAM allows a role 64
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html)."""

Statement = dict[str, Any]
Conditions = Mapping[str, Mapping[str, str | Sequence[str]]]

NODE_POLICIES = (
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
"""AWS's managed policies of a node that Karpenter starts."""

NODEPOOL_TAG = "karpenter.sh/nodepool"
NODECLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"
CLUSTER_TAG = "eks:eks-cluster-name"
REGION_TAG = "topology.kubernetes.io/region"
"""Tags that Karpenter puts on whatever it makes (pkg/apis/v1/labels.go at v1.14.1). A policy that asks for them keeps
it off everything that is not its own."""


def as_text(document: Mapping[str, Any]) -> str:
    """A policy or a pattern as AWS takes it, without the blanks that would count towards its limits."""
    return json.dumps(document, separators=(",", ":"))


def partition_of(region: str) -> Partition:
    """The partition that a region is in."""
    return next((each for start, each in _REGION_PREFIXES.items() if region.startswith(start)), "aws")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where a Karpenter works: everything that its policies are narrowed to."""

    cluster: str
    """Name of the EKS cluster."""
    region: str
    """Region of the cluster."""
    account: str
    """Account of the cluster, twelve digits."""
    partition: Partition
    """Partition of the region."""

    @property
    def owned(self) -> str:
        """Key of the tag that marks a resource as the cluster's; its value is `owned`."""
        return f"kubernetes.io/cluster/{self.cluster}"

    @property
    def cluster_arn(self) -> str:
        return self.arn("eks", f"cluster/{self.cluster}")

    @property
    def node_role(self) -> str:
        """Name of the role of Karpenter's nodes, as Karpenter's own documentation has it."""
        return f"KarpenterNodeRole-{self.cluster}"

    @property
    def controller_role(self) -> str:
        """Name of the role of Karpenter itself (scripts/step02-create-cluster.sh beside the template)."""
        return f"{self.cluster}-karpenter"

    @property
    def queue_arn(self) -> str:
        return self.arn("sqs", self.cluster)

    def arn(self, service: str, resource: str) -> str:
        """ARN of a resource in the cluster's account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def iam_arn(self, resource: str) -> str:
        """ARN of an IAM resource of the account, which has no region."""
        return f"arn:{self.partition}:iam::{self.account}:{resource}"

    def ec2_arns(self, *kinds: str) -> list[str]:
        """ARNs of every EC2 resource of these kinds. Whose account it is stays open: subnets and capacity reservations
        may be shared by another."""
        return [f"arn:{self.partition}:ec2:{self.region}:*:{kind}/*" for kind in kinds]


def policy_document(*statements: Statement) -> dict[str, Any]:
    """A policy in the current version of IAM's language."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(
    sid: str, actions: str | Sequence[str], resources: str | Sequence[str], conditions: Conditions | None = None
) -> Statement:
    """A statement that allows."""
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
    return statement | ({"Condition": conditions} if conditions else {})


def controller_policies(scope: Scope, *, interruption_queue: bool = True) -> dict[str, dict[str, Any]]:
    """Karpenter's policies by their part of the name `KarpenterController<part>Policy-<cluster>`.

    Six, because one is too long: IAM takes 6,144 characters of a managed policy, blanks not counted
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
    """
    policies = {
        "NodeLifecycle": node_lifecycle_policy(scope),
        "IAMIntegration": iam_integration_policy(scope),
        "EKSIntegration": eks_integration_policy(scope),
        "Interruption": interruption_policy(scope),
        "ZonalShift": zonal_shift_policy(scope),
        "ResourceDiscovery": resource_discovery_policy(scope),
    }
    return {part: policy for part, policy in policies.items() if interruption_queue or part != "Interruption"}


# -- instances and launch templates -----------------------------------------------------------------------------------

MADE_TOGETHER = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
"""Kinds of what comes into being when Karpenter starts an instance, all of it tagged in the same call."""


def node_lifecycle_policy(scope: Scope) -> dict[str, Any]:
    """Start, tag and end instances of the cluster, and launch templates for them."""
    return policy_document(
        allow("AllowScopedEC2InstanceAccessActions", ["ec2:RunInstances", "ec2:CreateFleet"], launched_from(scope)),
        allow(
            "AllowScopedEC2LaunchTemplateAccessActions",
            ["ec2:RunInstances", "ec2:CreateFleet"],
            scope.ec2_arns("launch-template"),
            owned_resource(scope),
        ),
        allow(
            "AllowScopedEC2InstanceActionsWithTags",
            ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            scope.ec2_arns(*MADE_TOGETHER),
            tagged_request(scope),
        ),
        allow(
            "AllowScopedResourceCreationTagging",
            "ec2:CreateTags",
            scope.ec2_arns(*MADE_TOGETHER),
            tagged_request(scope, {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}),
        ),
        allow("AllowScopedResourceTagging", "ec2:CreateTags", scope.ec2_arns("instance"), late_tags(scope)),
        allow(
            "AllowScopedDeletion",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            scope.ec2_arns("instance", "launch-template"),
            owned_resource(scope),
        ),
    )


def launched_from(scope: Scope) -> list[str]:
    """What an instance is started from and into. Images and snapshots have no account in their ARNs."""
    public = [f"arn:{scope.partition}:ec2:{scope.region}::{kind}/*" for kind in ("image", "snapshot")]
    return [*public, *scope.ec2_arns("security-group", "subnet", "capacity-reservation", "placement-group")]


def owned_resource(scope: Scope) -> Conditions:
    """The resource is the cluster's, and Karpenter has made it."""
    return {
        "StringEquals": {f"aws:ResourceTag/{scope.owned}": "owned"},
        "StringLike": {f"aws:ResourceTag/{NODEPOOL_TAG}": "*"},
    }


def tagged_request(scope: Scope, further: Mapping[str, str | Sequence[str]] | None = None) -> Conditions:
    """The request tags what it makes as the cluster's and as Karpenter's."""
    equal: dict[str, str | Sequence[str]] = {
        f"aws:RequestTag/{scope.owned}": "owned",
        f"aws:RequestTag/{CLUSTER_TAG}": scope.cluster,
    }
    return {
        "StringEquals": equal | dict(further or {}),
        "StringLike": {f"aws:RequestTag/{NODEPOOL_TAG}": "*"},
    }


def late_tags(scope: Scope) -> Conditions:
    """An instance that runs is only ever given its name, its claim and its cluster; never the tags that make it
    Karpenter's, or any instance could be made so (pkg/controllers/nodeclaim/tagging/controller.go)."""
    return {
        **owned_resource(scope),
        "StringEqualsIfExists": {f"aws:RequestTag/{CLUSTER_TAG}": scope.cluster},
        "ForAllValues:StringEquals": {"aws:TagKeys": [CLUSTER_TAG, "karpenter.sh/nodeclaim", "Name"]},
    }


# -- instance profiles ------------------------------------------------------------------------------------------------


def iam_integration_policy(scope: Scope) -> dict[str, Any]:
    """Hand the node role to instances, by way of instance profiles that Karpenter makes for its node classes."""
    profiles = scope.iam_arn("instance-profile/*")
    creating, there = profile_tags(scope, "aws:RequestTag"), profile_tags(scope, "aws:ResourceTag")
    named = {f"aws:RequestTag/{CLUSTER_TAG}": scope.cluster}
    creating = {**creating, "StringEquals": {**creating["StringEquals"], **named}}
    tagging = {operator: {**there[operator], **creating[operator]} for operator in creating}
    changes = ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"]
    # Both names of the service in every partition, as in the template; the second is China's.
    ec2 = {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}}
    return policy_document(
        allow("AllowPassingInstanceRole", "iam:PassRole", scope.iam_arn(f"role/{scope.node_role}"), ec2),
        allow("AllowScopedInstanceProfileCreationActions", ["iam:CreateInstanceProfile"], profiles, creating),
        allow("AllowScopedInstanceProfileTagActions", ["iam:TagInstanceProfile"], profiles, tagging),
        allow("AllowScopedInstanceProfileActions", changes, profiles, there),
    )


def profile_tags(scope: Scope, where: str) -> Conditions:
    """The cluster's and the region's tags on an instance profile. The region counts: IAM knows none, and a cluster of
    the same name may live in another."""
    return {
        "StringEquals": {f"{where}/{scope.owned}": "owned", f"{where}/{REGION_TAG}": scope.region},
        "StringLike": {f"{where}/{NODECLASS_TAG}": "*"},
    }


# -- the rest of the controller's -------------------------------------------------------------------------------------


def eks_integration_policy(scope: Scope) -> dict[str, Any]:
    """Ask for the cluster's endpoint, version and address range."""
    return policy_document(allow("AllowAPIServerEndpointDiscovery", "eks:DescribeCluster", scope.cluster_arn))


def interruption_policy(scope: Scope) -> dict[str, Any]:
    """Take events from the queue."""
    actions = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
    return policy_document(allow("AllowInterruptionQueueActions", actions, scope.queue_arn))


def zonal_shift_policy(scope: Scope) -> dict[str, Any]:
    """Ask whether a zone is shifted away from."""
    this = {"StringEquals": {"arc-zonal-shift:ResourceIdentifier": scope.cluster_arn}}
    return policy_document(allow("AllowZonalShiftStatusReadOnly", ["arc-zonal-shift:GetManagedResource"], "*", this))


REGIONAL_READS = (
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
)
"""What Karpenter looks up in EC2; none of these can be narrowed to a resource."""


def resource_discovery_policy(scope: Scope) -> dict[str, Any]:
    """Look up what instances there could be, what they cost and what they would start from."""
    here = {"StringEquals": {"aws:RequestedRegion": scope.region}}
    images = f"arn:{scope.partition}:ssm:{scope.region}::parameter/aws/service/*"
    profiles = scope.iam_arn("instance-profile/*")
    return policy_document(
        allow("AllowRegionalReadActions", list(REGIONAL_READS), "*", here),
        allow("AllowSSMReadActions", "ssm:GetParameter", images),
        allow("AllowPricingReadActions", "pricing:GetProducts", "*"),
        allow("AllowUnscopedInstanceProfileListAction", "iam:ListInstanceProfiles", "*"),
        allow("AllowInstanceProfileReadActions", "iam:GetInstanceProfile", profiles),
    )


# -- who may take a role, who may send --------------------------------------------------------------------------------


def node_trust(scope: Scope) -> dict[str, Any]:
    """EC2 takes the role for its instances."""
    suffix = "amazonaws.com.cn" if scope.partition == "aws-cn" else "amazonaws.com"
    return policy_document({"Effect": "Allow", "Principal": {"Service": f"ec2.{suffix}"}, "Action": ["sts:AssumeRole"]})


def pod_identity_trust() -> dict[str, Any]:
    """EKS takes the role for pods that an association names, and tags the session with them
    (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html)."""
    actions = ["sts:AssumeRole", "sts:TagSession"]
    return policy_document({"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": actions})


def web_identity_trust(provider_arn: str, provider_url: str, namespace: str, service_account: str) -> dict[str, Any]:
    """One service account takes the role with its own token. The cluster's provider vouches for every account of the
    cluster, so that a trust without `sub` would give the role to all of them
    (https://docs.aws.amazon.com/eks/latest/userguide/associate-service-account-role.html)."""
    issuer = provider_url.removeprefix("https://")
    subject = f"system:serviceaccount:{namespace}:{service_account}"
    return policy_document(
        {
            "Effect": "Allow",
            "Principal": {"Federated": provider_arn},
            "Action": ["sts:AssumeRoleWithWebIdentity"],
            "Condition": {"StringEquals": {f"{issuer}:sub": subject, f"{issuer}:aud": "sts.amazonaws.com"}},
        }
    )


def queue_policy(scope: Scope) -> dict[str, Any]:
    """AWS's event services send to the queue, and nobody does anything with it that is not encrypted on the way."""
    return policy_document(
        {
            "Sid": "AllowEvents",
            "Effect": "Allow",
            "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
            "Action": "sqs:SendMessage",
            "Resource": scope.queue_arn,
        },
        {
            "Sid": "DenyHTTP",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": scope.queue_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )
