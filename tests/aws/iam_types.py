"""How types of IAM are said to its API and to CloudFormation."""

from __future__ import annotations

from tests.aws.resource_type import ACCOUNT, Part, ResourceType


def _iam_arn(kind: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:{kind}/{{name}}"


IAM_TYPES: dict[str, ResourceType] = {
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
}
