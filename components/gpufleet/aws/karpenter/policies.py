"""IAM policies of Karpenter, of its nodes and of its queue, as data.

The statements are those that Karpenter's own CloudFormation template grants
(website/content/en/docs/getting-started/getting-started-with-karpenter/cloudformation.yaml at v1.14.1): six policies
with eighteen statements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Partition = Literal["aws", "aws-cn", "aws-us-gov"]

_REGION_PREFIXES: Mapping[str, Partition] = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""Partitions by the prefix of their regions."""

CLUSTER_NAME_LIMIT = 64 - len("KarpenterNodeRole-")
"""Maximum length of a cluster's name, so that the node role's name fits IAM's limit of 64
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html)."""

Statement = dict[str, Any]
Conditions = Mapping[str, Mapping[str, str | Sequence[str]]]

NODE_POLICIES = (
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
"""AWS managed policies of Karpenter's nodes."""

NODEPOOL_TAG = "karpenter.sh/nodepool"
NODECLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"
CLUSTER_TAG = "eks:eks-cluster-name"
REGION_TAG = "topology.kubernetes.io/region"
"""Tags that Karpenter sets on everything it creates (pkg/apis/v1/labels.go at v1.14.1). Policies that require them
prevent access to all other resources."""


def as_text(document: Mapping[str, Any]) -> str:
    """Return a policy or pattern as JSON without whitespace, which would count towards AWS's limits."""
    return json.dumps(document, separators=(",", ":"))


def partition_of(region: str) -> Partition:
    """Return the partition of a region."""
    return next((each for start, each in _REGION_PREFIXES.items() if region.startswith(start)), "aws")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Scope of a Karpenter installation, to which its policies are restricted."""

    cluster: str
    """Name of the EKS cluster."""
    region: str
    """AWS region of the cluster."""
    account: str
    """AWS account ID of the cluster, twelve digits."""
    partition: Partition
    """Partition of the region."""

    @property
    def owned(self) -> str:
        """Return the key of the tag that marks a resource as the cluster's; its value is `owned`."""
        return f"kubernetes.io/cluster/{self.cluster}"

    @property
    def cluster_arn(self) -> str:
        return self.arn("eks", f"cluster/{self.cluster}")

    @property
    def node_role(self) -> str:
        """Return the name of the nodes' role, as in Karpenter's documentation."""
        return f"KarpenterNodeRole-{self.cluster}"

    @property
    def controller_role(self) -> str:
        """Return the name of the controller's role (scripts/step02-create-cluster.sh beside the template)."""
        return f"{self.cluster}-karpenter"

    @property
    def queue_arn(self) -> str:
        return self.arn("sqs", self.cluster)

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource in the cluster's account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def iam_arn(self, resource: str) -> str:
        """Return the ARN of an IAM resource in the account; it has no region."""
        return f"arn:{self.partition}:iam::{self.account}:{resource}"

    def ec2_arns(self, *kinds: str) -> list[str]:
        """Return ARNs of all EC2 resources of these kinds, in any account: other accounts may share subnets and
        capacity reservations."""
        return [f"arn:{self.partition}:ec2:{self.region}:*:{kind}/*" for kind in kinds]


def policy_document(*statements: Statement) -> dict[str, Any]:
    """Return a policy in the current version of IAM's policy language."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(
    sid: str, actions: str | Sequence[str], resources: str | Sequence[str], conditions: Conditions | None = None
) -> Statement:
    """Return a statement that allows actions."""
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
    return statement | ({"Condition": conditions} if conditions else {})


def controller_policies(scope: Scope, *, interruption_queue: bool = True) -> dict[str, dict[str, Any]]:
    """Return Karpenter's policies, by their part of the name `KarpenterController<part>Policy-<cluster>`.

    There are six, because one would be too long: IAM allows 6,144 characters in a managed policy, not counting
    whitespace (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
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
"""Kinds of resources created with an instance, all tagged in the same call."""


def node_lifecycle_policy(scope: Scope) -> dict[str, Any]:
    """Return the policy to launch, tag and terminate the cluster's instances, and to manage their launch templates."""
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
    """Return the ARNs of resources that a launch uses. ARNs of AMIs and snapshots have no account."""
    public = [f"arn:{scope.partition}:ec2:{scope.region}::{kind}/*" for kind in ("image", "snapshot")]
    return [*public, *scope.ec2_arns("security-group", "subnet", "capacity-reservation", "placement-group")]


def owned_resource(scope: Scope) -> Conditions:
    """Return the condition that the resource belongs to the cluster and was created by Karpenter."""
    return {
        "StringEquals": {f"aws:ResourceTag/{scope.owned}": "owned"},
        "StringLike": {f"aws:ResourceTag/{NODEPOOL_TAG}": "*"},
    }


def tagged_request(scope: Scope, further: Mapping[str, str | Sequence[str]] | None = None) -> Conditions:
    """Return the condition that the request tags new resources as the cluster's and Karpenter's."""
    equal: dict[str, str | Sequence[str]] = {
        f"aws:RequestTag/{scope.owned}": "owned",
        f"aws:RequestTag/{CLUSTER_TAG}": scope.cluster,
    }
    return {
        "StringEquals": equal | dict(further or {}),
        "StringLike": {f"aws:RequestTag/{NODEPOOL_TAG}": "*"},
    }


def late_tags(scope: Scope) -> Conditions:
    """Return the condition that only name, claim and cluster may be added to a running instance. If Karpenter's own
    tags were allowed, it could take over any instance (pkg/controllers/nodeclaim/tagging/controller.go)."""
    return {
        **owned_resource(scope),
        "StringEqualsIfExists": {f"aws:RequestTag/{CLUSTER_TAG}": scope.cluster},
        "ForAllValues:StringEquals": {"aws:TagKeys": [CLUSTER_TAG, "karpenter.sh/nodeclaim", "Name"]},
    }


# -- instance profiles ------------------------------------------------------------------------------------------------


def iam_integration_policy(scope: Scope) -> dict[str, Any]:
    """Return the policy to pass the node role to instances, through instance profiles that Karpenter creates for its
    node classes."""
    profiles = scope.iam_arn("instance-profile/*")
    creating, there = profile_tags(scope, "aws:RequestTag"), profile_tags(scope, "aws:ResourceTag")
    named = {f"aws:RequestTag/{CLUSTER_TAG}": scope.cluster}
    creating = {**creating, "StringEquals": {**creating["StringEquals"], **named}}
    tagging = {operator: {**there[operator], **creating[operator]} for operator in creating}
    changes = ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"]
    # Both service names in every partition, as in the template; the second is China's.
    ec2 = {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}}
    return policy_document(
        allow("AllowPassingInstanceRole", "iam:PassRole", scope.iam_arn(f"role/{scope.node_role}"), ec2),
        allow("AllowScopedInstanceProfileCreationActions", ["iam:CreateInstanceProfile"], profiles, creating),
        allow("AllowScopedInstanceProfileTagActions", ["iam:TagInstanceProfile"], profiles, tagging),
        allow("AllowScopedInstanceProfileActions", changes, profiles, there),
    )


def profile_tags(scope: Scope, where: str) -> Conditions:
    """Return the condition that an instance profile has the cluster's and the region's tags. IAM is global, and another
    region may have a cluster of the same name."""
    return {
        "StringEquals": {f"{where}/{scope.owned}": "owned", f"{where}/{REGION_TAG}": scope.region},
        "StringLike": {f"{where}/{NODECLASS_TAG}": "*"},
    }


# -- the rest of the controller's -------------------------------------------------------------------------------------


def eks_integration_policy(scope: Scope) -> dict[str, Any]:
    """Return the policy to read the cluster's endpoint, version and address range."""
    return policy_document(allow("AllowAPIServerEndpointDiscovery", "eks:DescribeCluster", scope.cluster_arn))


def interruption_policy(scope: Scope) -> dict[str, Any]:
    """Return the policy to receive events from the queue."""
    actions = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
    return policy_document(allow("AllowInterruptionQueueActions", actions, scope.queue_arn))


def zonal_shift_policy(scope: Scope) -> dict[str, Any]:
    """Return the policy to read zonal shifts."""
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
"""EC2 actions that only read, and cannot be restricted to resources."""


def resource_discovery_policy(scope: Scope) -> dict[str, Any]:
    """Return the policy to read instance types, prices and AMIs."""
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
    """Return the trust policy that lets EC2 assume the role for its instances."""
    suffix = "amazonaws.com.cn" if scope.partition == "aws-cn" else "amazonaws.com"
    return policy_document({"Effect": "Allow", "Principal": {"Service": f"ec2.{suffix}"}, "Action": ["sts:AssumeRole"]})


def pod_identity_trust() -> dict[str, Any]:
    """Return the trust policy that lets EKS assume the role for pods of an association, and tag the session with their
    names (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html)."""
    actions = ["sts:AssumeRole", "sts:TagSession"]
    return policy_document({"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": actions})


def web_identity_trust(provider_arn: str, provider_url: str, namespace: str, service_account: str) -> dict[str, Any]:
    """Return the trust policy that lets one service account assume the role with its own token. The provider vouches
    for all accounts of the cluster: without `sub`, all of them could assume the role
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
    """Return the queue's policy: AWS's event services may send, and all unencrypted access is denied."""
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
