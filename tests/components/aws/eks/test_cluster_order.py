"""In which order a cluster, its network, Karpenter and its pools come, and go."""

from __future__ import annotations

import pulumi
import pytest
from pulumi_aws.sqs import Queue
from pulumi_kubernetes.core.v1 import Namespace

from gpufleet.aws import (
    EksCluster,
    EksClusterArgs,
    EksNetwork,
    EksNetworkArgs,
    Karpenter,
    KarpenterArgs,
    KarpenterNodePool,
)
from gpufleet_tools.plan.plan import Plan
from tests.components.aws.eks.test_cluster import CLUSTER, EVERYTHING, SUBNETS, cluster, control_plane, of_kind
from tests.node_pools import DOCUMENT_004
from tests.recording import on_aws, recorded, stays_for, the


def whole() -> Plan:
    """A cluster in a network of its own, with Karpenter, a pool, and a namespace without dependencies."""

    def build() -> None:
        opts = on_aws()
        account = next(provider for provider in opts.providers if provider.package == "aws")
        network = EksNetwork("net", EksNetworkArgs(cluster_name="ci", region="eu-west-1", zones=list(SUBNETS)), opts)
        made = EksCluster("ci", EksClusterArgs(**CLUSTER | EVERYTHING | {"network": network.reference}), opts)
        on_it = pulumi.ResourceOptions(providers=[made.provider, account])
        karpenter = Karpenter(
            "karpenter",
            KarpenterArgs(
                cluster_name=made.reference.name,
                region=made.reference.region,
                account_id=made.reference.account_id,
                partition=made.reference.partition,
                cluster_endpoint=made.reference.endpoint,
                needs=made.reference.needs,
            ),
            on_it,
        )
        Namespace("untold", opts=on_it)
        after = pulumi.ResourceOptions(depends_on=karpenter.reference.needs)
        KarpenterNodePool("pool", DOCUMENT_004["default"], pulumi.ResourceOptions.merge(on_it, after))

    return recorded(build)


def test_everything_stays_until_the_last_node_pool_is_gone() -> None:
    """Karpenter ends its instances with its role, its queue, its CRDs and the network's ways out; interfaces of
    instances keep subnets and security groups from going."""
    plan = whole()
    staying = stays_for(plan, the(plan, "NodePool"))
    ours = {each.urn for each in plan.resources if each.name.startswith(("net", "ci", "karpenter"))}
    assert ours <= staying, sorted(ours - staying)


def test_what_is_on_the_cluster_goes_before_nodes_and_network_without_being_told() -> None:
    """By its provider: load balancers of services and volumes of claims are ended by what runs on the nodes."""
    plan = whole()
    ours = {each.urn for each in plan.resources if each.name.startswith(("net", "ci"))}
    assert ours <= stays_for(plan, the(plan, "Namespace"))


def test_tags_of_another_networks_subnets_and_rights_of_admins_stay_for_what_is_on_the_cluster() -> None:
    """Karpenter reads the tags whenever it starts a node; the provider may work with an admin's rights."""
    _, plan = cluster(**EVERYTHING)
    staying = stays_for(plan, the(plan, "kubernetes", "ci-kubernetes"))
    for kind in ("Tag", "AccessEntry", "AccessPolicyAssociation"):
        assert of_kind(plan, kind)
        assert {each.urn for each in of_kind(plan, kind)} <= staying, kind


@pytest.mark.parametrize("addon", ["vpc-cni", "kube-proxy", "eks-pod-identity-agent"])
def test_what_every_node_needs_is_there_before_the_nodes(addon: str) -> None:
    plan = whole()
    group = the(plan, "NodeGroup")
    assert the(plan, "Addon", f"ci-{addon}").urn in group.depends_on


@pytest.mark.parametrize("addon", ["coredns", "aws-ebs-csi-driver"])
def test_what_needs_a_node_goes_before_the_nodes(addon: str) -> None:
    plan = whole()
    staying = stays_for(plan, the(plan, "Addon", f"ci-{addon}"))
    assert the(plan, "NodeGroup").urn in staying
    if addon == "aws-ebs-csi-driver":
        assert {each.urn for each in plan.resources if each.name.startswith("ci-volumes")} <= staying


def test_the_control_plane_stays_until_what_is_in_it_is_gone() -> None:
    """By an edge from each: all of them name the cluster by its output."""
    plan = whole()
    for kind in ("Addon", "AccessEntry", "AccessPolicyAssociation", "NodeGroup"):
        found = [each for each in of_kind(plan, kind) if each.name.startswith("ci-")]
        assert found
        assert all(control_plane(plan).urn in each.depends_on for each in found), kind


def test_role_key_network_and_groups_stay_until_the_control_plane_is_gone() -> None:
    plan = whole()
    staying = stays_for(plan, control_plane(plan))
    for kind in ("Vpc", "Key", "LogGroup", "SecurityGroup", "SecurityGroupIngressRule", "SecurityGroupEgressRule"):
        assert {each.urn for each in of_kind(plan, kind)} <= staying, kind
    assert {each.urn for each in of_kind(plan, "Subnet") if "private" in each.name} <= staying
    assert the(plan, "RolePolicyAttachment", "ci-role-AmazonEKSClusterPolicy").urn in staying


def test_what_is_needed_before_stays_until_the_control_plane_is_gone() -> None:
    def build() -> None:
        opts = on_aws()
        before = Queue("before", opts=opts)
        EksCluster("ci", EksClusterArgs(**CLUSTER, needs=[before]), opts)

    plan = recorded(build)
    assert the(plan, "Queue", "before").urn in control_plane(plan).depends_on


def test_pods_run_once_there_is_dns() -> None:
    made, _ = cluster()
    assert made.ready._name == "ci-coredns"
    assert made.ready in made.reference.needs
