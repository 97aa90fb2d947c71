"""Rules of AWS that neither botocore's models nor CloudFormation's schemas know, each with where it is from.

Tables come from elsewhere where somebody else keeps them: instance types and managed policies from moto, types of
access entries from Pulumi's EKS provider. Versions of Kubernetes, of addons and of images are in no table: they change
every few weeks, and a list of ours would be wrong before it was of use.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.iam.aws_managed_policies import aws_managed_policies_data
from pulumi_eks import AccessEntryType

from gpufleet_tools.plan.plan import Plan, Resource, revealed
from tests.aws.references import Reference, kind_of, referred, replaced
from tests.aws.resource_type import REGION
from tests.aws.resource_types import TYPES
from tests.aws.said import aws_resources, inputs_of, value_of

ADDONS = frozenset(
    {
        "amazon-cloudwatch-observability",
        "aws-ebs-csi-driver",
        "aws-efs-csi-driver",
        "aws-mountpoint-s3-csi-driver",
        "coredns",
        "eks-node-monitoring-agent",
        "eks-pod-identity-agent",
        "kube-proxy",
        "metrics-server",
        "snapshot-controller",
        "vpc-cni",
    }
)
"""Addons of EKS, short of those that no GPU cluster has a use for
(https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html)."""

ACCESS_POLICIES = frozenset(
    f"AmazonEKS{name}Policy" for name in ("ClusterAdmin", "Admin", "AdminView", "Edit", "View", "AutoNode")
)
"""EKS's access policies for people and nodes
(https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html)."""

ARN = re.compile(r"arn:aws(-cn|-us-gov)?:[a-z0-9-]+:[a-z0-9-]*:(\d{12}|aws)?:\S+")

ARN_KINDS = {
    "nodeRoleArn": r"arn:[^:]+:iam::\d{12}:role/.+",
    "principalArn": r"arn:[^:]+:iam::\d{12}:(role|user)/.+",
    "roleArn": r"arn:[^:]+:iam::\d{12}:role/.+",
}
"""What some ARNs have to be of, by key."""

SQS_LIMITS = {
    "delaySeconds": (0, 900),
    "maxMessageSize": (1024, 1024 * 1024),
    "messageRetentionSeconds": (60, 1209600),
    "receiveWaitTimeSeconds": (0, 20),
    "visibilityTimeoutSeconds": (0, 43200),
}
"""Least and most of a queue's settings, seconds and bytes
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html)."""

POLICY_LIMITS = {"Policy": 6144, "RolePolicy": 10240, "Role": 2048, "Queue": 20480, "QueuePolicy": 20480}
"""Characters of a policy that AWS takes, blanks not counted where it is IAM's
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html). That of a role is its trust."""

ServiceRule = Callable[[Mapping[str, Any], Plan], Iterator[str]]


def broken_rules(plan: Plan) -> list[str]:
    """What is against one of the rules, by resource."""
    value = value_of(plan)
    problems = [f"{pool}: {problem}" for pool, problem in undiscovered(plan)]
    for resource in plan.owned():
        # A cluster of Pulumi's EKS provider, opaque except for its inputs.
        if resource.type == "eks:index:Cluster":
            told_of = [*resource.inputs.get("privateSubnetIds", []), *resource.inputs.get("publicSubnetIds", [])]
            problems += [f"{resource.name}: {each}" for each in one_zone(told_of, plan)]
        if resource.type in TYPES:
            inputs = replaced(inputs_of(resource), value)
            found = [*RULES.get(kind_of(resource), _nothing)(inputs_of(resource), plan), *not_arns(inputs)]
            problems += [f"{resource.name}: {each}" for each in found]
    return problems


def _nothing(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    yield from ()


# -- machines ---------------------------------------------------------------------------------------------------------


def node_group(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    scaling = inputs.get("scalingConfig", {})
    sizes = [scaling.get(key) for key in ("minSize", "desiredSize", "maxSize")]
    if all(isinstance(size, int) for size in sizes) and sizes != sorted(sizes):
        yield f"min, desired and max of {sizes} are not in order"
    yield from one_zone(inputs.get("subnetIds", []), plan)
    ami = inputs.get("amiType", "AL2023_x86_64_STANDARD")
    architecture = "arm64" if "ARM_64" in ami else "x86_64"
    for name in inputs.get("instanceTypes", []):
        known = INSTANCE_TYPES.get(name)
        if known is None:
            yield f"there is no instance type {name}"
        elif ami != "CUSTOM" and architecture not in known["ProcessorInfo"]["SupportedArchitectures"]:
            yield f"{name} cannot run {ami}"
        elif "NVIDIA" in ami and "GpuInfo" not in known:
            yield f"{name} has no GPU for {ami}"


def cluster(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    yield from one_zone(inputs.get("vpcConfig", {}).get("subnetIds", []), plan)


def one_zone(subnets: list[str], plan: Plan) -> Iterator[str]:
    """EKS wants subnets in two zones (https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html); what is
    known of another stack's subnets is nothing."""
    by_name = {each.name: each for each in aws_resources(plan) if kind_of(each) == "Subnet"}
    named = [referred(each) for each in subnets]
    zones = {by_name[each.name].inputs.get("availabilityZone") for each in named if each and each.name in by_name}
    if None not in named and len(zones) < 2:
        yield f"subnets lie in {len(zones)} zone, and two are required"


# -- the cluster's own ------------------------------------------------------------------------------------------------


def addon(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    if inputs.get("addonName") not in ADDONS:
        yield f"EKS has no addon {inputs.get('addonName')!r}"
    settings = inputs.get("configurationValues")
    if settings is not None and not _is_json(settings):
        yield "configurationValues is not JSON"


def access_entry(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    kind = inputs.get("type", "STANDARD")
    if kind not in set(AccessEntryType):
        yield f"EKS has no type {kind!r} of access entries"
    elif kind != "STANDARD" and inputs.get("kubernetesGroups"):
        yield f"only a STANDARD entry has groups, and this is {kind}"


def access_policy(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    arn = str(inputs.get("policyArn"))
    prefix, _, name = arn.rpartition("/")
    if not re.fullmatch(r"arn:[^:]+:eks::aws:cluster-access-policy", prefix) or name not in ACCESS_POLICIES:
        yield f"EKS has no access policy {arn}"
    scope = inputs.get("accessScope", {})
    if (scope.get("type") == "namespace") != bool(scope.get("namespaces")):
        yield "namespaces go with an access scope of type namespace, and only with that"


# -- network ----------------------------------------------------------------------------------------------------------


def subnet(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    if not str(inputs.get("availabilityZone", REGION)).startswith(REGION):
        yield f"{inputs['availabilityZone']} is no zone of {REGION}"


def security_group(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    for direction in ("ingress", "egress"):
        for rule in inputs[direction]:
            yield from security_group_rule(rule, plan)


def security_group_rule(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_IpPermission.html"""
    protocol, first, last = (inputs.get(key) for key in ("ipProtocol", "fromPort", "toPort"))
    peers = [key for key in ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId") if inputs.get(key)]
    if len(peers) != 1:
        yield f"a rule has one peer, and this has {len(peers)}"
    if protocol in ("tcp", "udp") and not (
        isinstance(first, int) and isinstance(last, int) and 0 <= first <= last <= 65535
    ):
        yield f"ports {first} to {last} are none of {protocol}"


def discovered(terms: list[Mapping[str, Any]], kind: str, plan: Plan) -> bool:
    """Whether something that the plan makes has what one of the terms asks for."""
    tags: dict[str, dict[str, str]] = {each.name: dict(each.inputs.get("tags", {})) for each in _of_kind(plan, kind)}
    for tag in _of_kind(plan, "Tag"):
        reference = referred(str(tag.inputs.get("resourceId")))
        if reference and reference.kind == kind and reference.name in tags:
            tags[reference.name][tag.inputs["key"]] = tag.inputs["value"]
    return any(term.get("tags", {}).items() <= each.items() for term in terms for each in tags.values())


def undiscovered(plan: Plan) -> Iterator[tuple[str, str]]:
    """Node classes of Karpenter that find nothing of what the same program makes for them, or whose instances would
    start and never join."""
    roles = {inputs_of(each)["name"]: each.name for each in _of_kind(plan, "Role")}
    let_in = {
        referred(str(each.inputs.get("principalArn")))
        for each in _of_kind(plan, "AccessEntry")
        if each.inputs.get("type") == "EC2_LINUX"
    }
    for resource in plan.owned():
        if resource.inputs.get("kind") != "EC2NodeClass":
            continue
        spec = revealed(resource.inputs["spec"])
        for key, kind in (("subnetSelectorTerms", "Subnet"), ("securityGroupSelectorTerms", "SecurityGroup")):
            if _of_kind(plan, kind) and not discovered(spec[key], kind, plan):
                yield resource.name, f"no {kind} has what {key} asks for"
        role = replaced(spec.get("role"), value_of(plan))
        if isinstance(role, str) and role not in roles:
            yield resource.name, f"there is no role {role!r}"
        elif isinstance(role, str) and Reference("Role", roles[role], "arn") not in let_in:
            yield resource.name, f"instances of the role {role!r} are not let in as nodes"


# -- IAM --------------------------------------------------------------------------------------------------------------


def attachment(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    if not referred(inputs["policyArn"]):
        yield from _unknown_policy(inputs["policyArn"])


def role(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    for arn in inputs.get("managedPolicyArns", []):
        if not referred(arn):
            yield from _unknown_policy(arn)
    yield from too_long(inputs.get("assumeRolePolicy"), "Role")


def _unknown_policy(arn: str) -> Iterator[str]:
    """Whether AWS has a policy of its own of that ARN; an account's own policies are nobody's to know."""
    owner = arn.split(":")[4:5]
    if owner == ["aws"] and arn.split(":", 5)[5] not in managed_policies():
        yield f"AWS has no managed policy {arn}"


@functools.cache
def managed_policies() -> frozenset[str]:
    """AWS's managed policies, as the last part of their ARNs: `policy/service-role/AmazonEBSCSIDriverPolicy`."""
    known = json.loads(aws_managed_policies_data)
    return frozenset(f"policy{each.get('Path', '/')}{name}" for name, each in known.items())


def policy(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    yield from too_long(inputs.get("policy"), "Policy")


def role_policy(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    yield from too_long(inputs.get("policy"), "RolePolicy")


def too_long(text: Any, kind: str) -> Iterator[str]:
    length = len("".join(str(text).split()))
    if length > POLICY_LIMITS[kind]:
        yield f"the policy has {length} characters, and AWS takes {POLICY_LIMITS[kind]}"


# -- queue and events -------------------------------------------------------------------------------------------------


def queue(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    for key, (least, most) in SQS_LIMITS.items():
        given = inputs.get(key, least)
        if not isinstance(given, int) or not least <= given <= most:
            yield f"{key}: {given} is not {least} to {most}"
    if inputs.get("sqsManagedSseEnabled") and inputs.get("kmsMasterKeyId"):
        yield "a queue is encrypted by SQS or by a key, and this is by both"


def event_target(inputs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    reference = referred(str(inputs.get("arn")))
    if reference and reference.output != "arn":
        yield f"arn is the {reference.output} of {reference.name}"


# -- everything -------------------------------------------------------------------------------------------------------


def not_arns(inputs: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Keys that are called ARN and hold none, or one of something else."""
    for key, value in inputs.items():
        if isinstance(value, Mapping):
            yield from not_arns(value, f"{path}{key}.")
        if key.lower().endswith("arn") and isinstance(value, str):
            if not ARN.fullmatch(value):
                yield f"{path}{key}: {value!r} is no ARN"
            elif not re.fullmatch(ARN_KINDS.get(key, ".*"), value):
                yield f"{path}{key}: {value!r} is an ARN of something else"


def _of_kind(plan: Plan, kind: str) -> list[Resource]:
    return [each for each in aws_resources(plan) if kind_of(each) == kind]


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


RULES: dict[str, ServiceRule] = {
    "AccessEntry": access_entry,
    "AccessPolicyAssociation": access_policy,
    "Addon": addon,
    "Cluster": cluster,
    "EventTarget": event_target,
    "NodeGroup": node_group,
    "Policy": policy,
    "Queue": queue,
    "Role": role,
    "RolePolicy": role_policy,
    "RolePolicyAttachment": attachment,
    "SecurityGroup": security_group,
    "SecurityGroupEgressRule": security_group_rule,
    "SecurityGroupIngressRule": security_group_rule,
    "Subnet": subnet,
}
"""What is asked of a resource, by the last part of its type. Inputs come with references in them."""
