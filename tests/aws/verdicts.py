"""What recorded policies decide, by this project's evaluator: who may take a role, what a role may do, who may send.

Requests follow from the program's resources: EC2 must be able to assume a node group's role. AWS's managed policies are
the documents that moto ships.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from moto.iam.aws_managed_policies import aws_managed_policies_data

from gpufleet_tools.plan.plan import Plan, Resource
from tests.aws.references import Reference, kind_of, referred, replaced
from tests.aws.resource_types import TYPES
from tests.aws.said import aws_resources, inputs_of, value_of
from tests.components.aws.karpenter.test_policies import CALLS, FORBIDDEN
from tests.iam import Request, allowed

TAKERS = {
    ("Cluster", "roleArn"): ("eks.amazonaws.com", ["sts:AssumeRole"]),
    # A cluster of Pulumi's EKS provider, opaque except for its inputs.
    ("Cluster", "serviceRole"): ("eks.amazonaws.com", ["sts:AssumeRole"]),
    ("NodeGroup", "nodeRoleArn"): ("ec2.amazonaws.com", ["sts:AssumeRole"]),
    ("InstanceProfile", "role"): ("ec2.amazonaws.com", ["sts:AssumeRole"]),
    ("PodIdentityAssociation", "roleArn"): ("pods.eks.amazonaws.com", ["sts:AssumeRole", "sts:TagSession"]),
}
"""Who takes the role that a key leads to, and how."""

STRANGERS = [("Service", "lambda.amazonaws.com"), ("AWS", "arn:aws:iam::444455556666:root"), ("AWS", "anyone")]
"""Nobody of these takes a role here, or sends to a queue."""

OF_A_NODE = ["ec2:DescribeInstances", "ecr:GetAuthorizationToken", "ecr:BatchGetImage"]
"""What a node does itself: find out who it is, and pull images
(https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html)."""

TOKENS = "eks-auth:AssumeRoleForPodIdentity"
"""What the Pod Identity agent does with its node's role (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-agent-setup.html)."""

ENCRYPTED = {"aws:SecureTransport": "true"}


def wrong_verdicts(plan: Plan) -> list[str]:
    """Requests that are decided otherwise than they have to be, by resource."""
    return [*trusted(plan), *nodes_may(plan), *senders(plan), *karpenter_may(plan)]


def taken(plan: Plan) -> Iterator[tuple[str, Any, str, list[str]]]:
    """Every role that a resource says is to be taken: the resource, the role, by which service and how."""
    # A resource among the inputs is registered as its URN.
    references = {each.urn: str(Reference(kind_of(each), each.name, "id")) for each in plan.resources}
    for resource in plan.owned():
        for (kind, key), (service, actions) in TAKERS.items():
            if kind_of(resource) == kind and key in resource.inputs:
                value = resource.inputs[key]
                yield resource.name, references.get(str(value), value), service, actions
        if kind_of(resource) == "Addon":
            for association in resource.inputs.get("podIdentityAssociations", []):
                yield resource.name, association["roleArn"], *TAKERS["PodIdentityAssociation", "roleArn"]


def trusted(plan: Plan) -> Iterator[str]:
    """Roles that who has to take them may not, and roles that a stranger may."""
    roles = _roles(plan)
    for name, given, service, actions in taken(plan):
        role = _role(given, roles)
        for action in actions:
            if role and not _may_take(role, ("Service", service), action):
                yield f"{name}: {service} has no {action} of the role {role.name}"
    for resource in aws_resources(plan):
        if kind_of(resource) == "AccessEntry" and resource.inputs.get("type") == "EC2_LINUX":
            role = _role(resource.inputs["principalArn"], roles)
            if role and not _may_take(role, ("Service", "ec2.amazonaws.com"), "sts:AssumeRole"):
                yield f"{resource.name}: nodes are let in by {role.name}, which is no role of instances"
    for role in roles.values():
        for stranger in STRANGERS:
            if _may_take(role, stranger, "sts:AssumeRole"):
                yield f"{role.name}: {stranger[1]} may take the role"


def nodes_may(plan: Plan) -> Iterator[str]:
    """Roles of nodes that lack what a node does."""
    roles = _roles(plan)
    of_nodes = [each.inputs.get("nodeRoleArn") for each in aws_resources(plan) if kind_of(each) == "NodeGroup"]
    of_nodes += [
        each.inputs.get("principalArn")
        for each in aws_resources(plan)
        if kind_of(each) == "AccessEntry" and each.inputs.get("type") == "EC2_LINUX"
    ]
    agent = any(each.inputs.get("addonName") == "eks-pod-identity-agent" for each in aws_resources(plan))
    for given in of_nodes:
        role = _role(given, roles)
        if role:
            for action in [*OF_A_NODE, *([TOKENS] if agent else [])]:
                if not allowed(policies_of(role, plan), Request(action=action)):
                    yield f"{role.name}: a node may not {action}"


def senders(plan: Plan) -> Iterator[str]:
    """Queues that events are to go to and may not, or that a stranger may send to."""
    value = value_of(plan)
    for target in aws_resources(plan):
        reference = referred(str(target.inputs.get("arn"))) if kind_of(target) == "EventTarget" else None
        if reference is None or reference.kind != "Queue":
            continue
        policies = [
            document(replaced(each.inputs["policy"], value))
            for each in aws_resources(plan)
            if kind_of(each) == "QueuePolicy" and _names(each.inputs["queueUrl"]) == reference.name
        ]
        arn = value(reference)

        def may(kind: str, name: str, arn: str = arn, policies: list[Any] = policies) -> bool:
            sending = Request(action="sqs:SendMessage", resource=arn, principal=(kind, name), context=ENCRYPTED)
            return allowed(policies, sending)

        if not may("Service", "events.amazonaws.com"):
            yield f"{target.name}: EventBridge may not send to the queue {reference.name}"
        for stranger in STRANGERS:
            if may(*stranger):
                yield f"{reference.name}: {stranger[1]} may send"


def karpenter_may(plan: Plan) -> Iterator[str]:
    """Calls of Karpenter's that its role's policies decide wrongly: the tables are those of the test of the policies.
    The role is that of the chart's service account."""
    for release in plan.releases():
        if release.name != "karpenter":
            continue
        account = release.values["serviceAccount"]
        associated = [
            _role(each.inputs["roleArn"], _roles(plan))
            for each in aws_resources(plan)
            if kind_of(each) == "PodIdentityAssociation"
            and (each.inputs["namespace"], each.inputs["serviceAccount"]) == (release.namespace, account["name"])
        ]
        annotated = account.get("annotations", {}).get("eks.amazonaws.com/role-arn")
        role = next(iter(associated), None) or _role(annotated, _roles(plan))
        policies = policies_of(role, plan) if role else []
        for line, (action, resource, context) in CALLS:
            if not allowed(policies, Request(action=action, resource=resource, context=context)):
                yield f"{release.name}: Karpenter may not {action} ({line})"
        for what, (action, resource, context) in FORBIDDEN.items():
            if allowed(policies, Request(action=action, resource=resource, context=context)):
                yield f"{release.name}: Karpenter may {what}"


# -- roles and their policies -----------------------------------------------------------------------------------------


def policies_of(role: Resource, plan: Plan) -> list[dict[str, Any]]:
    """Documents of everything that is attached to the role, and of what lies in it."""
    value = value_of(plan)
    policies = {each.name: each for each in aws_resources(plan) if kind_of(each) == "Policy"}
    found = [managed_policy(arn) for arn in role.inputs.get("managedPolicyArns", [])]
    for each in aws_resources(plan):
        if kind_of(each) == "RolePolicy" and _names(each.inputs["role"]) == role.name:
            found.append(document(replaced(each.inputs["policy"], value)))
        if kind_of(each) == "RolePolicyAttachment" and _names(each.inputs["role"]) == role.name:
            own = _names(each.inputs["policyArn"])
            text = replaced(policies[own].inputs["policy"], value) if own else None
            found.append(document(text) if text else managed_policy(each.inputs["policyArn"]))
    return found


@functools.cache
def _managed() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(aws_managed_policies_data)
    return known


def managed_policy(arn: str) -> dict[str, Any]:
    """AWS's own document; one that allows nothing where there is none of that ARN, which is another check's to find."""
    found: dict[str, Any] = _managed().get(arn.rpartition("/")[2], {}).get("Document", {"Statement": []})
    return found


def document(text: Any) -> dict[str, Any]:
    """A policy from its text; one that allows nothing where it is no JSON, which is another check's to find."""
    try:
        found: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError):
        return {"Statement": []}
    return found


def _roles(plan: Plan) -> dict[str, Resource]:
    return {each.name: each for each in aws_resources(plan) if kind_of(each) == "Role"}


def _role(given: Any, roles: dict[str, Resource]) -> Resource | None:
    """The role that a key leads to, where the program makes it: by reference, by name, or by ARN."""
    name = _names(given)
    if name:
        return roles.get(name)
    named = {inputs_of(each)[TYPES[each.type].named or ""]: each for each in roles.values()}
    return named.get(str(given).rpartition("/")[2])


def _names(given: Any) -> str | None:
    if isinstance(given, Mapping):
        given = given.get("id")
    reference = referred(given) if isinstance(given, str) else None
    return reference.name if reference else None


def _may_take(role: Resource, principal: tuple[str, str], action: str) -> bool:
    trust = document(role.inputs["assumeRolePolicy"])
    return allowed([trust], Request(action=action, principal=principal))
