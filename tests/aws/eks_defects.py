"""Defects of the cluster, its node groups, addons and access."""

from __future__ import annotations

from tests.aws.defect import Defect, given, lacking, written

_NODE_ROLE = "<<Role.karpenter-node-role:arn>>"
_GROUP = "<<SecurityGroup.nodes:id>>"

EKS_DEFECTS = [
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
]
