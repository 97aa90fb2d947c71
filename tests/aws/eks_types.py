"""How types of EKS are said to its API and to CloudFormation."""

from __future__ import annotations

from tests.aws.resource_type import ACCOUNT, REGION, Part, ResourceType

EKS_TYPES: dict[str, ResourceType] = {
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
}
