"""EksCluster: what it registers, who may do what in it, and in which order all of it goes."""

from __future__ import annotations

import json
from typing import Any

import pulumi_eks
import pytest

from gpufleet.aws import (
    AccessPolicy,
    ApiEndpoint,
    ClusterAccess,
    ClusterCredentials,
    EksCluster,
    EksClusterArgs,
    NetworkReference,
    SystemNodes,
)
from gpufleet_tools.plan.plan import UNKNOWN, Plan, Resource
from tests.iam import Request, allowed
from tests.input_types import wrong_inputs
from tests.recording import on_aws, recorded, the

ADDONS = {
    "vpc-cni": "v1.20.4-eksbuild.2",
    "kube-proxy": "v1.33.3-eksbuild.4",
    "eks-pod-identity-agent": "v1.3.8-eksbuild.2",
    "coredns": "v1.12.2-eksbuild.4",
}
EBS = {"aws-ebs-csi-driver": "v1.48.0-eksbuild.1"}
SUBNETS = {"eu-west-1a": "subnet-1", "eu-west-1b": "subnet-2"}
CLUSTER: dict[str, Any] = {
    "cluster_name": "ci",
    "region": "eu-west-1",
    "account_id": "111122223333",
    "kubernetes_version": "1.33",
    "network": NetworkReference(vpc_id="vpc-1", private_subnets=SUBNETS, cidr="10.0.0.0/16"),
    "addons": ADDONS,
}
OPERATIONS = "arn:aws:iam::111122223333:role/operations"
EVERYTHING: dict[str, Any] = {
    "addons": ADDONS | EBS,
    "admins": {"operations": OPERATIONS},
    "access": {
        "ml": ClusterAccess(
            principal="arn:aws:iam::111122223333:role/ml",
            policies=[AccessPolicy(policy="AmazonEKSEditPolicy", namespaces=["ml"])],
        )
    },
    "addon_configuration": {"vpc-cni": {"env": {"ENABLE_PREFIX_DELEGATION": "true"}}},
    "endpoint": ApiEndpoint(public=True, cidrs=["192.0.2.0/24"]),
    "system_nodes": SystemNodes(critical_addons_only=True, labels={"team": "ci"}, release_version="1.33.5-20251112"),
    "credentials": ClusterCredentials(role_arn=OPERATIONS, profile="ci"),
    "tags": {"owner": "ci team"},
}

of_every_kind = pytest.mark.parametrize("args", [{}, EVERYTHING], ids=["least", "everything"])


def cluster(*, unknown_outputs: bool = True, **args: Any) -> tuple[EksCluster, Plan]:
    """A cluster with these arguments, and the plan that it is all of."""
    made: list[EksCluster] = []
    plan = recorded(
        lambda: made.append(EksCluster("ci", EksClusterArgs(**(CLUSTER | args)), on_aws())),
        unknown_outputs=unknown_outputs,
    )
    return made[0], plan


def of_kind(plan: Plan, kind: str) -> list[Resource]:
    return [resource for resource in plan.resources if resource.type.split(":")[-1] == kind]


def control_plane(plan: Plan) -> Resource:
    (found,) = (resource for resource in plan.resources if resource.type == "eks:index:Cluster")
    return found


def launch_template(**args: Any) -> dict[str, Any]:
    return dict(the(cluster(**args)[1], "LaunchTemplate").inputs)


def node_group(**args: Any) -> dict[str, Any]:
    return dict(the(cluster(**args)[1], "NodeGroup").inputs)


# -- what is registered -----------------------------------------------------------------------------------------------


def test_it_registers_no_more_and_no_less() -> None:
    _, plan = cluster()
    kinds = [resource.type.split(":")[-1] for resource in plan.resources if resource.parent is not None]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "Addon": 4,
        "Cluster": 1,
        "Key": 1,
        "LaunchTemplate": 1,
        "LogGroup": 1,
        "NodeGroup": 1,
        "Role": 2,
        "RolePolicyAttachment": 5,
        "SecurityGroup": 2,
        "SecurityGroupEgressRule": 2,
        "SecurityGroupIngressRule": 4,
        "Tag": 2,
        "eks": 1,
        "kubernetes": 1,
    }


@of_every_kind
def test_inputs_are_what_the_sdk_expects(args: dict[str, Any]) -> None:
    _, plan = cluster(**args)
    assert wrong_inputs(plan) == []


@of_every_kind
def test_the_same_is_registered_when_outputs_are_known(args: dict[str, Any]) -> None:
    _, before = cluster(**args)
    _, after = cluster(unknown_outputs=False, **args)
    assert [resource.urn for resource in before.resources] == [resource.urn for resource in after.resources]


def test_names_are_short_enough_for_iam() -> None:
    _, plan = cluster(cluster_name="c" * 46, addons=ADDONS | EBS)
    assert {len(role.inputs["name"]) <= 64 for role in of_kind(plan, "Role")} == {True}


# -- the control plane ------------------------------------------------------------------------------------------------


def plain_inputs(**args: Any) -> dict[str, Any]:
    """Inputs of pulumi_eks.Cluster, except those that are resources."""
    inputs = control_plane(cluster(**args)[1]).inputs
    return {key: value for key, value in inputs.items() if key not in ("serviceRole", "clusterSecurityGroup")}


def test_a_zone_for_jobs_changes_neither_control_plane_nor_system_nodes() -> None:
    network = NetworkReference(
        vpc_id="vpc-1",
        private_subnets={**SUBNETS, "eu-west-1c": "subnet-3"},
        control_plane_zones=[*SUBNETS],
        cidr="10.0.0.0/16",
    )
    before, after = (cluster(**args)[1] for args in ({}, {"network": network}))
    assert control_plane(after).inputs == control_plane(before).inputs
    assert [each.inputs for each in of_kind(after, "NodeGroup")] == [
        each.inputs for each in of_kind(before, "NodeGroup")
    ]


def test_pulumi_eks_is_told_to_make_the_control_plane_alone() -> None:
    """All inputs: pulumi_eks decides what is omitted, and no plan shows that."""
    off = {"enabled": False, "resolveConflictsOnCreate": "OVERWRITE", "resolveConflictsOnUpdate": "OVERWRITE"}
    assert plain_inputs() == {
        "name": "ci",
        "version": "1.33",
        "vpcId": "vpc-1",
        "privateSubnetIds": ["subnet-1", "subnet-2"],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
        "authenticationMode": "API",
        "encryptionConfigKeyArn": UNKNOWN,
        "enabledClusterLogTypes": ["api", "audit", "authenticator", "controllerManager", "scheduler"],
        "deletionProtection": True,
        "providerCredentialOpts": {},
        "tags": {},
        "skipDefaultNodeGroup": True,
        "skipDefaultSecurityGroups": True,
        "createInstanceRole": False,
        "bootstrapSelfManagedAddons": False,
        "useDefaultVpcCni": True,
        "kubeProxyAddonOptions": off,
        "corednsAddonOptions": off,
    }


def test_pulumi_eks_is_given_our_role_and_security_group() -> None:
    _, plan = cluster()
    given = control_plane(plan).inputs
    assert given["serviceRole"] == the(plan, "Role", "ci-role").urn
    assert given["clusterSecurityGroup"] == the(plan, "SecurityGroup", "ci-control-plane").urn


def test_pulumi_eks_works_in_the_account_of_the_component() -> None:
    """Of several providers it takes AWS's from those that its parent has."""
    seen: list[dict[str, Any]] = []

    class Seen(pulumi_eks.Cluster):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            seen.append({package: provider._name for package, provider in self._providers.items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulumi_eks, "Cluster", Seen)
        cluster()
    assert seen == [{"aws": "account", "eks": "ci-eks", "kubernetes": "cluster"}]


def test_a_public_endpoint_is_for_those_named() -> None:
    given = plain_inputs(endpoint=ApiEndpoint(public=True, cidrs=["192.0.2.0/24", "198.51.100.7/32"]))
    assert (given["endpointPrivateAccess"], given["endpointPublicAccess"]) == (True, True)
    assert given["publicAccessCidrs"] == ["192.0.2.0/24", "198.51.100.7/32"]


def test_deletion_is_made_possible_by_choice() -> None:
    assert plain_inputs(deletion_protection=False)["deletionProtection"] is False


def test_protected_it_is_with_all_that_it_owns() -> None:
    """So that nothing of it goes before EKS refuses to delete the rest."""
    plan = recorded(lambda: EksCluster("ci", EksClusterArgs(**CLUSTER), on_aws(protect=True)))
    assert all(each.options.get("protect") for each in plan.resources if each.parent is not None)


def test_secrets_have_a_key_that_is_rotated_or_one_that_is_there() -> None:
    _, plan = cluster()
    key = the(plan, "Key")
    assert key.inputs["enableKeyRotation"] is True
    assert key.urn in control_plane(plan).depends_on
    arn = "arn:aws:kms:eu-west-1:111122223333:key/1"
    _, plan = cluster(secrets_key_arn=arn)
    assert of_kind(plan, "Key") == []
    assert control_plane(plan).inputs["encryptionConfigKeyArn"] == arn


def test_logs_are_kept_for_so_long_and_made_before_eks_makes_them() -> None:
    _, plan = cluster(log_retention_days=30, log_types=["audit"])
    logs = the(plan, "LogGroup")
    assert (logs.inputs["name"], logs.inputs["retentionInDays"]) == ("/aws/eks/ci/cluster", 30)
    assert logs.urn in control_plane(plan).depends_on
    assert control_plane(plan).inputs["enabledClusterLogTypes"] == ["audit"]


# -- who may do what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "service", "policies"),
    [
        ("ci-role", "eks.amazonaws.com", {"AmazonEKSClusterPolicy"}),
        (
            "ci-node-role",
            "ec2.amazonaws.com",
            {
                "AmazonEKS_CNI_Policy",
                "AmazonEKSWorkerNodePolicy",
                "AmazonEC2ContainerRegistryPullOnly",
                "AmazonSSMManagedInstanceCore",
            },
        ),
        ("ci-volumes", "pods.eks.amazonaws.com", {"service-role/AmazonEBSCSIDriverPolicy"}),
    ],
)
def test_each_role_is_one_services_and_has_awss_policies(role: str, service: str, policies: set[str]) -> None:
    _, plan = cluster(addons=ADDONS | EBS)
    found = the(plan, "Role", role)
    trust = json.loads(found.inputs["assumeRolePolicy"])
    services = ("eks.amazonaws.com", "ec2.amazonaws.com", "pods.eks.amazonaws.com", "lambda.amazonaws.com")
    callers = [("Service", each) for each in services] + [("AWS", "arn:aws:iam::111122223333:root"), ("AWS", "*")]
    takers = [each for each in callers if allowed([trust], Request(action="sts:AssumeRole", principal=each))]
    assert takers == [("Service", service)]
    attached = [each for each in of_kind(plan, "RolePolicyAttachment") if found.urn in each.depends_on]
    assert {each.inputs["policyArn"] for each in attached} == {f"arn:aws:iam::aws:policy/{each}" for each in policies}


def test_every_arn_is_of_the_partition() -> None:
    _, plan = cluster(
        partition="aws-us-gov",
        region="us-gov-west-1",
        network=NetworkReference(
            vpc_id="vpc-1", private_subnets={f"us-gov-west-1{zone}": zone for zone in "ab"}, cidr="10.0.0.0/16"
        ),
        addons=ADDONS | EBS,
        admins={"operations": "arn:aws-us-gov:iam::111122223333:role/operations"},
    )
    arns = [text for text in json.dumps([r.inputs for r in plan.resources], default=str).split('"') if "arn:" in text]
    assert len(arns) == 9
    assert {arn.split(":")[1] for arn in arns} == {"aws-us-gov"}


def test_an_admin_has_an_entry_and_everything_in_the_cluster() -> None:
    _, plan = cluster(admins={"operations": OPERATIONS})
    entry, policy = the(plan, "AccessEntry"), the(plan, "AccessPolicyAssociation")
    assert (entry.inputs["principalArn"], entry.inputs["type"]) == (OPERATIONS, "STANDARD")
    assert policy.inputs["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    assert policy.inputs["accessScope"] == {"type": "cluster"}
    assert entry.urn in policy.depends_on


def test_a_team_has_an_entry_and_its_policies_in_its_namespaces() -> None:
    team = ClusterAccess(
        principal=OPERATIONS,
        policies=[
            AccessPolicy(policy="AmazonEKSEditPolicy", namespaces=["ml", "ml-*"]),
            AccessPolicy(policy="AmazonEKSViewPolicy"),
        ],
        groups=["ml-operators"],
    )
    _, plan = cluster(access={"ml": team}, partition="aws")
    entry = the(plan, "AccessEntry", "ci-access-ml")
    assert entry.inputs["principalArn"] == OPERATIONS
    assert (entry.inputs["type"], entry.inputs["kubernetesGroups"]) == ("STANDARD", ["ml-operators"])
    associations = {
        each.inputs["policyArn"].rpartition("/")[2]: each for each in of_kind(plan, "AccessPolicyAssociation")
    }
    assert {name: each.inputs["accessScope"] for name, each in associations.items()} == {
        "AmazonEKSEditPolicy": {"type": "namespace", "namespaces": ["ml", "ml-*"]},
        "AmazonEKSViewPolicy": {"type": "cluster"},
    }
    assert all(entry.urn in each.depends_on for each in associations.values())


def test_nodes_of_a_managed_group_need_no_entry_of_ours() -> None:
    """EKS makes it, and refuses a second one."""
    _, plan = cluster()
    assert of_kind(plan, "AccessEntry") == []


# -- security groups --------------------------------------------------------------------------------------------------


def test_nothing_is_open_to_the_world() -> None:
    """But for what leaves nodes, which goes by way of NAT. The VPC reaches the API server."""
    _, plan = cluster(**EVERYTHING)
    rules = of_kind(plan, "SecurityGroupIngressRule") + of_kind(plan, "SecurityGroupEgressRule")
    assert {rule.name: rule.inputs["cidrIpv4"] for rule in rules if "cidrIpv4" in rule.inputs} == {
        "ci-nodes-to-anywhere": "0.0.0.0/0",
        "ci-control-plane-from-vpc": "10.0.0.0/16",
    }


def test_joined_networks_reach_the_api_server() -> None:
    _, plan = cluster(endpoint=ApiEndpoint(private_cidrs=["10.8.0.0/16"]))
    rule = the(plan, "SecurityGroupIngressRule", "ci-control-plane-from-10.8.0.0-16").inputs
    assert (rule["cidrIpv4"], rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("10.8.0.0/16", "tcp", 443, 443)


@pytest.mark.parametrize("efa", [False, True])
def test_efa_traffic_has_rules_for_the_group_itself(efa: bool) -> None:
    """EFA traffic has no addresses, so that a range, even 0.0.0.0/0, does not cover it."""
    _, plan = cluster(unknown_outputs=False, efa=efa)
    own = {
        resource.type.rpartition(":")[2]
        for resource in plan.resources
        if resource.inputs.get("securityGroupId") == "ci-nodes-id" == resource.inputs.get("referencedSecurityGroupId")
        and resource.inputs["ipProtocol"] == "-1"
    }
    assert own == {"SecurityGroupIngressRule"} | ({"SecurityGroupEgressRule"} if efa else set())


@pytest.mark.parametrize(
    ("rule", "group", "other", "ports"),
    [
        ("ci-control-plane-from-nodes", "ci-control-plane", "ci-nodes", ("tcp", 443, 443)),
        ("ci-control-plane-to-nodes", "ci-control-plane", "ci-nodes", ("tcp", 0, 65535)),
        ("ci-nodes-from-control-plane", "ci-nodes", "ci-control-plane", ("tcp", 0, 65535)),
        ("ci-nodes-from-nodes", "ci-nodes", "ci-nodes", ("-1", None, None)),
    ],
)
def test_nodes_and_control_plane_reach_each_other(rule: str, group: str, other: str, ports: Any) -> None:
    _, plan = cluster(unknown_outputs=False)
    (found,) = (resource for resource in plan.resources if resource.name == rule)
    assert found.inputs["securityGroupId"] == f"{group}-id"
    assert found.inputs["referencedSecurityGroupId"] == f"{other}-id"
    assert (found.inputs["ipProtocol"], found.inputs.get("fromPort"), found.inputs.get("toPort")) == ports


def test_karpenter_finds_the_nodes_security_group_and_no_other() -> None:
    _, plan = cluster()
    tags = {group.name: group.inputs["tags"].get("karpenter.sh/discovery") for group in of_kind(plan, "SecurityGroup")}
    assert tags == {"ci-nodes": "ci", "ci-control-plane": None}
    assert the(plan, "SecurityGroup", "ci-nodes").inputs["tags"]["kubernetes.io/cluster/ci"] == "owned"


def test_subnets_of_another_are_tagged_for_karpenter() -> None:
    _, plan = cluster()
    assert {each.name: each.inputs for each in of_kind(plan, "Tag")} == {
        f"ci-discovery-{zone}": {"resourceId": subnet, "key": "karpenter.sh/discovery", "value": "ci"}
        for zone, subnet in SUBNETS.items()
    }
    network = NetworkReference(vpc_id="vpc-1", private_subnets=SUBNETS, cidr="10.0.0.0/16", discoverable=True)
    assert of_kind(cluster(network=network)[1], "Tag") == []


# -- system nodes -----------------------------------------------------------------------------------------------------


def test_pods_cannot_ask_for_the_nodes_credentials() -> None:
    """A pod is one hop further from the metadata service than its node."""
    assert launch_template()["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
    }


def test_the_root_volume_is_encrypted() -> None:
    (root,) = launch_template(system_nodes=SystemNodes(disk_gib=80))["blockDeviceMappings"]
    assert root["deviceName"] == "/dev/xvda"
    assert root["ebs"] == {"volumeSize": 80, "volumeType": "gp3", "encrypted": "true", "deleteOnTermination": "true"}


def test_what_nodes_are_made_of_is_tagged() -> None:
    specifications = launch_template(tags={"owner": "ci team"})["tagSpecifications"]
    assert {each["resourceType"] for each in specifications} == {"instance", "volume", "network-interface"}
    assert {each["tags"]["owner"] for each in specifications} == {"ci team"}


def test_two_nodes_are_there_for_two_replicas_of_karpenter() -> None:
    given = node_group()
    assert given["scalingConfig"] == {"minSize": 2, "desiredSize": 2, "maxSize": 3}
    assert given["subnetIds"] == ["subnet-1", "subnet-2"]
    assert given["version"] == "1.33"
    assert "taints" not in given
    assert "nodeGroupName" not in given, "a group with another template could not be made beside the old one"


def test_other_pods_are_kept_away_by_choice() -> None:
    given = node_group(system_nodes=SystemNodes(critical_addons_only=True, labels={"team": "ci"}))
    assert given["taints"] == [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NO_SCHEDULE"}]
    assert given["labels"] == {"team": "ci", "gpu-runners/nodes": "system"}


# -- addons -----------------------------------------------------------------------------------------------------------


def test_addons_are_of_exactly_the_versions_given() -> None:
    _, plan = cluster(addons=ADDONS | EBS | {"metrics-server": "v0.8.0-eksbuild.2"})
    made = {addon.inputs["addonName"]: addon.inputs["addonVersion"] for addon in of_kind(plan, "Addon")}
    assert made == ADDONS | EBS | {"metrics-server": "v0.8.0-eksbuild.2"}


def configurations(**args: Any) -> dict[str, Any]:
    """Configuration values of the addons that have some."""
    made = of_kind(cluster(**args)[1], "Addon")
    given = {each.inputs["addonName"]: each.inputs.get("configurationValues") for each in made}
    return {name: json.loads(values) for name, values in given.items() if values is not None}


def test_configuration_of_addons_is_merged_into_the_components_own() -> None:
    own = {"nodeSelector": {"gpu-runners/nodes": "system"}}
    assert configurations() == {"coredns": own}
    given = {"vpc-cni": {"enableNetworkPolicy": "true"}, "coredns": {"replicaCount": 3}}
    assert configurations(addon_configuration=given) == {
        "vpc-cni": {"enableNetworkPolicy": "true"},
        "coredns": own | {"replicaCount": 3},
    }


def test_deeper_configuration_is_merged_too() -> None:
    given = {"aws-ebs-csi-driver": {"controller": {"loggingFormat": "json"}}}
    (driver,) = [
        values
        for name, values in configurations(addons=ADDONS | EBS, addon_configuration=given).items()
        if name == "aws-ebs-csi-driver"
    ]
    assert driver == {"controller": {"nodeSelector": {"gpu-runners/nodes": "system"}, "loggingFormat": "json"}}


def test_the_volume_driver_alone_has_a_role_of_its_own() -> None:
    _, plan = cluster(unknown_outputs=False, addons=ADDONS | EBS)
    identities = {each.name: each.inputs.get("podIdentityAssociations") for each in of_kind(plan, "Addon")}
    (identity,) = identities.pop("ci-aws-ebs-csi-driver")
    assert set(identities.values()) == {None}
    assert identity["serviceAccount"] == "ebs-csi-controller-sa"
    driver = the(plan, "Addon", "ci-aws-ebs-csi-driver")
    assert the(plan, "Role", "ci-volumes").urn in driver.depends_on


# -- references for other components ----------------------------------------------------------------------------------


def test_the_provider_is_the_clusters_by_a_name_known_beforehand() -> None:
    """By anything known only later, each preview of a change to the cluster would replace everything on it."""
    _, plan = cluster()
    provider = the(plan, "kubernetes", "ci-kubernetes")
    assert provider.inputs["clusterIdentifier"] == "ci"
    assert provider.inputs["kubeconfig"] is UNKNOWN


def test_the_cluster_is_described_to_what_runs_on_it() -> None:
    made, _ = cluster()
    found = made.reference
    assert (found.name, found.region, found.account_id, found.partition) == ("ci", "eu-west-1", "111122223333", "aws")
    assert list(found.private_subnet_ids) == ["subnet-1", "subnet-2"]
