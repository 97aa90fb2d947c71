"""Node pools: document 004's two, the objects of a pool, and refused arguments."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any

import pulumi
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpufleet import Taint
from gpufleet.aws import (
    AmiTerm,
    CapacityReservationTerm,
    Disruption,
    DisruptionBudget,
    KarpenterNodePool,
    KarpenterNodePoolArgs,
    Kubelet,
    NodeClass,
    PlacementGroup,
)
from gpufleet.aws.karpenter._node_pool_specs import node_class_spec, node_overlay_specs, node_pool_spec
from gpufleet.aws.karpenter.node_pool_args import INSTANCE_LABELS
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet.nvidia import Mig, TimeSlicing
from gpufleet.nvidia.sharing import GPU as GPU_RESOURCE
from gpufleet_tools.plan.plan import Plan, Resource
from tests.karpenter_module import karpenter_file
from tests.node_pools import CPU, CRD_REFUSES, GPU, VALID, WE_REFUSE, changed, gpu, isin, node_class
from tests.recording import on_aws, on_cluster, recorded, stays_for, the

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden" / "document-004.pools.yaml"


def plan(args: KarpenterNodePoolArgs) -> Plan:
    return recorded(lambda: KarpenterNodePool("nodes", args, on_cluster()))


def of_kind(found: Plan, kind: str) -> list[Resource]:
    return [resource for resource in found.resources if resource.inputs.get("kind") == kind]


def pool(args: KarpenterNodePoolArgs) -> Any:
    return node_pool_spec(args)


def template(args: KarpenterNodePoolArgs) -> Any:
    return node_pool_spec(args)["template"]["spec"]


# -- document 004 -----------------------------------------------------------------------------------------------------


def problems_of(args: KarpenterNodePoolArgs) -> list[str]:
    return [str(problem) for problem in node_pool_problems(args)]


def documents() -> dict[str, Any]:
    return {manifest["metadata"]["name"]: manifest for manifest in yaml.safe_load_all(GOLDEN.read_text())}


def test_the_golden_file_is_the_document(document_004: str) -> None:
    blocks = re.findall(r"```shell\n(apiVersion: karpenter.*?)```", document_004, re.DOTALL)
    assert [yaml.safe_load(block) for block in blocks] == list(documents().values())


def test_the_documents_own_gpu_pool_would_be_refused() -> None:
    """Each for a reason of its own: jobs would be lost, or money."""
    literal = gpu(limits={"cpu": "80", "memory": "128Gi"}, termination_grace_period=None, sharing=None)
    problems = problems_of(literal)
    assert len(problems) == 2
    assert any(problem.startswith("termination_grace_period: ") for problem in problems)
    assert any("nvidia.com/gpu" in problem for problem in problems)


# -- what is registered -----------------------------------------------------------------------------------------------


def test_a_pool_without_gpus_is_two_objects() -> None:
    found = plan(CPU)
    assert [resource.inputs["kind"] for resource in found.resources if "kind" in resource.inputs] == [
        "EC2NodeClass",
        "NodePool",
    ]


def test_versions_are_those_of_the_crds() -> None:
    found = plan(GPU)
    assert {
        kind: of_kind(found, kind)[0].inputs["apiVersion"] for kind in ("NodePool", "EC2NodeClass", "NodeOverlay")
    } == {
        "NodePool": "karpenter.sh/v1",
        "EC2NodeClass": "karpenter.k8s.aws/v1",
        "NodeOverlay": "karpenter.sh/v1alpha1",
    }


def test_names_in_the_cluster_are_said() -> None:
    """A name that the engine makes up could not be what a runner or an overlay selects by."""
    found = plan(gpu(gpu_counts=[1, 4]))
    names = [resource.inputs["metadata"]["name"] for resource in found.resources if "kind" in resource.inputs]
    assert sorted(names) == ["gpu", "nvidia-gpu", "nvidia-gpu-1-gpus", "nvidia-gpu-4-gpus"]


def test_resources_are_named_after_component_and_count() -> None:
    found = plan(gpu(gpu_counts=[4, 1]))
    names = {resource.name for resource in found.resources if "kind" in resource.inputs}
    assert names == {"nodes", "nodes-node-class", "nodes-1-gpus", "nodes-4-gpus"}


def test_the_pool_refers_to_its_node_class() -> None:
    reference = template(GPU)["nodeClassRef"]
    assert reference == {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": GPU.node_class.name}


def test_the_pool_comes_last_and_goes_first() -> None:
    found = plan(GPU)
    registered = the(found, "NodePool", "nodes")
    needed = stays_for(found, registered)
    assert {resource.urn for kind in ("EC2NodeClass", "NodeOverlay") for resource in of_kind(found, kind)} <= needed


def test_ready_is_the_pool() -> None:
    made: list[KarpenterNodePool] = []
    found = recorded(lambda: made.append(KarpenterNodePool("nodes", GPU, on_cluster())))
    assert made[0].ready._name == the(found, "NodePool").name
    assert made[0].pool == "nvidia-gpu"


def test_a_role_may_be_known_later() -> None:
    """As that of a role that is made in the same program."""

    def build() -> None:
        role = pulumi.Output.from_input("made-here")
        KarpenterNodePool("nodes", changed(class_role=role), on_cluster())

    (registered,) = of_kind(recorded(build), "EC2NodeClass")
    assert registered.inputs["spec"]["role"] == "made-here"


# -- safe for CI by default -------------------------------------------------------------------------------------------


def test_only_empty_nodes_are_taken_away() -> None:
    assert pool(CPU)["disruption"] == {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}


def test_expiry_is_said() -> None:
    assert template(CPU)["expireAfter"] == "720h"


def test_the_disk_holds_runners() -> None:
    (mapping,) = node_class_spec(CPU)["blockDeviceMappings"]
    assert mapping == {
        "deviceName": "/dev/xvda",
        "ebs": {"volumeSize": "200Gi", "volumeType": "gp3", "encrypted": True, "deleteOnTermination": True},
    }


def test_bottlerockets_disk_is_the_one_that_pods_write_to() -> None:
    args = changed(class_ami_terms=[AmiTerm(alias="bottlerocket@v1.40.0")])
    assert node_class_spec(args)["blockDeviceMappings"][0]["deviceName"] == "/dev/xvdb"
    args = changed(class_ami_terms=[AmiTerm(id="ami-01")], class_ami_family="Bottlerocket")
    assert node_class_spec(args)["blockDeviceMappings"][0]["deviceName"] == "/dev/xvdb"


def test_pods_do_not_reach_the_nodes_role() -> None:
    assert node_class_spec(CPU)["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }


def test_what_is_not_given_is_left_to_karpenter() -> None:
    assert pool(changed(limits={})).keys() == {"template", "disruption"}
    assert template(CPU).keys() == {"nodeClassRef", "requirements", "expireAfter"}
    assert node_class_spec(CPU).keys() == {
        "amiSelectorTerms",
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "blockDeviceMappings",
        "metadataOptions",
        "role",
    }


# -- every argument reaches an object ------------------------------------------------------------------------------


def test_requirements_keep_operator_values_and_min_values() -> None:
    requirements = template(VALID["every operator"])["requirements"]
    assert requirements[0] == {
        "key": "karpenter.k8s.aws/instance-family",
        "operator": "In",
        "values": ["c7gd", "m7gd"],
        "minValues": 2,
    }
    assert requirements[2] == {"key": "karpenter.k8s.aws/instance-local-nvme", "operator": "Exists"}


def test_taints_and_startup_taints_are_told_apart() -> None:
    spec = template(gpu(startup_taints=[Taint(key="starting", value="yes", effect="NoExecute")]))
    assert spec["taints"] == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    assert spec["startupTaints"] == [{"key": "starting", "effect": "NoExecute", "value": "yes"}]


def test_weight_is_told() -> None:
    assert pool(changed(weight=7))["weight"] == 7


def test_labels_are_told() -> None:
    assert pool(GPU)["template"]["metadata"] == {"labels": {"nvidia.com/gpu.present": "true"}}


def test_budgets_are_told() -> None:
    night = DisruptionBudget(nodes="0", reasons=["Drifted"], schedule="0 8 * * *", duration="8h")
    args = changed(disruption=Disruption(budgets=[DisruptionBudget(nodes="10%"), night]))
    assert pool(args)["disruption"]["budgets"] == [
        {"nodes": "10%"},
        {"nodes": "0", "reasons": ["Drifted"], "schedule": "0 8 * * *", "duration": "8h"},
    ]


def test_capacity_reservations_are_told() -> None:
    terms = [
        CapacityReservationTerm(id="cr-01"),
        CapacityReservationTerm(tags={"for": "ci"}, owner_id="123456789012", match_criteria="open"),
    ]
    assert node_class_spec(changed(class_capacity_reservation_terms=terms))["capacityReservationSelectorTerms"] == [
        {"id": "cr-01"},
        {"tags": {"for": "ci"}, "ownerID": "123456789012", "instanceMatchCriteria": "open"},
    ]


def test_the_kubelet_is_told() -> None:
    kubelet = Kubelet(max_pods=29, kube_reserved={"cpu": "1"}, eviction_hard={"memory.available": "5%"})
    spec = node_class_spec(changed(class_kubelet=kubelet))["kubelet"]
    assert spec == {"maxPods": 29, "kubeReserved": {"cpu": "1"}, "evictionHard": {"memory.available": "5%"}}


def test_an_instance_profile_stands_in_for_a_role() -> None:
    spec = node_class_spec(changed(class_role=None, class_instance_profile="nodes"))
    assert spec["instanceProfile"] == "nodes"
    assert "role" not in spec


def test_places_are_found_by_tag() -> None:
    spec = node_class_spec(CPU)
    for terms in ("subnetSelectorTerms", "securityGroupSelectorTerms"):
        assert spec[terms] == [{"tags": {"karpenter.sh/discovery": "cluster"}}]


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_an_overlay_tells_karpenter_what_the_plugin_will_offer() -> None:
    """Measured: one node is provisioned for ten pods with it, ten nodes without."""
    (registered,) = of_kind(plan(GPU), "NodeOverlay")
    assert registered.inputs["spec"] == {
        "requirements": [
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["nvidia-gpu"]},
            {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "In", "values": ["1"]},
        ],
        "capacity": {"nvidia.com/gpu": "10"},
    }


def test_without_sharing_there_is_no_overlay() -> None:
    assert of_kind(plan(gpu(sharing=None)), "NodeOverlay") == []


@given(counts=st.lists(st.integers(1, 16), min_size=1), replicas=st.integers(2, 100))
def test_one_overlay_for_each_count_and_none_overlaps(counts: list[int], replicas: int) -> None:
    """Two overlays that say something else of one type are a conflict, and Karpenter then minds neither."""
    specs = node_overlay_specs(gpu(gpu_counts=counts, sharing=TimeSlicing(replicas=replicas)))
    selected = [spec["requirements"][1]["values"] for spec in specs.values()]
    assert selected == [[str(count)] for count in sorted(set(counts))]
    for count, spec in specs.items():
        assert spec["capacity"] == {GPU_RESOURCE: str(count * replicas)}


@pytest.mark.parametrize("other", [{"mig": "single"}, {"mps": {"replicas": 10}}])
def test_what_is_no_way_to_share_is_refused(other: Any) -> None:
    (problem,) = problems_of(gpu(sharing=other))
    assert "is not TimeSlicing, Mps or Mig" in problem


def test_an_overlay_counts_mig_instances() -> None:
    args = gpu(gpu_counts=[8], sharing=Mig(profile="1g.10gb", instances=7))
    assert node_overlay_specs(args)[8]["capacity"] == {GPU_RESOURCE: "56"}


P5 = [isin("karpenter.k8s.aws/instance-family", "p5"), isin("karpenter.k8s.aws/instance-size", "48xlarge")]
PARTITIONING = {
    "node_class": dataclasses.replace(GPU.node_class, user_data="#!/bin/sh\n"),
    "limits": {GPU_RESOURCE: "56"},
}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sharing": Mig(profile="1g.10gb", instances=7)}, "(T4) do not support MIG"),
        (
            {"requirements": P5, "sharing": Mig(profile="1g.5gb", instances=7)},
            "1g.5gb: GPUs of p5.48xlarge (H100) do not support it; use one of 1g.10gb, 1g.20gb",
        ),
        (
            {"requirements": P5, "sharing": Mig(profile="1g.10gb", instances=4)},
            "a GPU of p5.48xlarge holds 7 instances, other types' GPUs 4",
        ),
    ],
)
def test_gpus_are_partitioned_as_they_can_be(fields: dict[str, Any], problem: str) -> None:
    found = problems_of(gpu(**PARTITIONING | fields))
    assert any(problem in each for each in found), found


def test_somebody_has_to_partition_gpus() -> None:
    args = gpu(requirements=P5, sharing=Mig(profile="1g.10gb", instances=7), **PARTITIONING)
    assert problems_of(args) == []
    (problem,) = problems_of(dataclasses.replace(args, node_class=GPU.node_class))
    assert "create no MIG instances" in problem


def test_whole_gpus_need_a_smaller_limit() -> None:
    limits = {GPU_RESOURCE: "1"}
    assert problems_of(gpu(sharing=None, limits=limits)) == []
    assert problems_of(gpu(limits=limits)) != []


# -- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[KarpenterNodePoolArgs, str]] = {
    **{name: (args, ours) for name, (args, ours, _) in CRD_REFUSES.items()},
    **WE_REFUSE,
}


@pytest.mark.parametrize(("args", "ours"), REFUSED.values(), ids=list(REFUSED))
def test_refused(args: KarpenterNodePoolArgs, ours: str) -> None:
    """And for that reason alone, in one line that says what is wrong and what to do."""
    (problem,) = set(problems_of(args))
    assert ours in problem
    assert "\n" not in problem
    assert problem.count(";") >= 1


@pytest.mark.parametrize("args", VALID.values(), ids=list(VALID))
def test_not_refused(args: KarpenterNodePoolArgs) -> None:
    assert problems_of(args) == []


def test_all_problems_are_told_at_once_with_the_components_name() -> None:
    wrong = changed(weight=0, expire_after="30d", class_role=None)
    with pytest.raises(ValueError, match="weight: 0") as refused:
        recorded(lambda: KarpenterNodePool("nodes", wrong, on_cluster()))
    lines = str(refused.value).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("nodes: ") for line in lines)


def test_nothing_is_registered_of_a_pool_that_is_refused() -> None:
    def build() -> None:
        options = on_cluster()
        with pytest.raises(ValueError, match="weight"):
            KarpenterNodePool("nodes", changed(weight=0), options)

    assert [resource.name for resource in recorded(build).resources if resource.component] == []


@pytest.mark.process
def test_labels_are_those_that_the_crd_lists() -> None:
    file = karpenter_file("pkg/apis/crds/karpenter.sh_nodepools.yaml")
    lists = [
        set(re.findall(r'"(karpenter\.k8s\.aws/[^"]+)"', rule))
        for rule in re.findall(r"rule: (self(?:\.all\(x, x)? in .*)", file.read_text())
    ]
    assert [listed for listed in lists if listed] == [INSTANCE_LABELS, INSTANCE_LABELS]


def test_efa_only_interfaces_are_beside_an_ordinary_one() -> None:
    spec = node_class_spec(dataclasses.replace(GPU, node_class=node_class("gpu", efa_only_interfaces=3)))
    assert [tuple(each.values()) for each in spec["networkInterfaces"]] == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
    ]
    assert "networkInterfaces" not in node_class_spec(GPU)


def test_a_new_placement_group_comes_before_the_node_class() -> None:
    args = VALID["EFA-only interfaces in a placement group"]
    found = recorded(lambda: KarpenterNodePool("nodes", args, on_aws()))
    (group,) = (each for each in found.resources if each.type == "aws:ec2/placementGroup:PlacementGroup")
    assert (group.inputs["name"], group.inputs["strategy"]) == ("lab-gpu", "cluster")
    (machine,) = of_kind(found, "EC2NodeClass")
    assert machine.inputs["spec"]["placementGroupSelector"] == {"name": "lab-gpu"}
    assert group.urn in machine.depends_on


def test_an_existing_placement_group_is_only_named() -> None:
    found = plan(changed(class_placement_group=PlacementGroup(id="pg-01")))
    assert not [each for each in found.resources if each.type == "aws:ec2/placementGroup:PlacementGroup"]
    (machine,) = of_kind(found, "EC2NodeClass")
    assert machine.inputs["spec"]["placementGroupSelector"] == {"id": "pg-01"}


def test_every_part_of_a_node_class_is_told() -> None:
    """A field that no function reads would have neither an effect nor a rule."""
    snapshot = VALID["Bottlerocket"].node_class.image_snapshot
    full = dataclasses.replace(
        VALID["every field of the node class"].node_class, image_snapshot=snapshot, efa_only_interfaces=1
    )
    plain = node_class("default")
    for field in dataclasses.fields(NodeClass):
        if field.name not in ("name", "ami_terms", "subnet_terms", "security_group_terms", "role"):
            one = dataclasses.replace(plain, **{field.name: getattr(full, field.name)})
            assert node_class_spec(dataclasses.replace(CPU, node_class=one)) != node_class_spec(CPU), field.name
