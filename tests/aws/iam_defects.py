"""Defects of roles and policies."""

from __future__ import annotations

from tests.aws.defect import Defect, given, written

IAM_DEFECTS = [
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
]
