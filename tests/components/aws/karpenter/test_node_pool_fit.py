"""Capacity of nodes as Karpenter calculates it, and the reason why a pod fits no node of a pool."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.aws import AmiTerm, Kubelet, NodeClass
from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.karpenter.node_pool_fit import (
    allocatable,
    capacity,
    fit,
    gpu_counts,
    instance_types_of,
    within_limits,
)
from gpufleet.nvidia import TimeSlicing
from gpufleet.nvidia.sharing import GPU as GPU_RESOURCE
from gpufleet.quantity import parsed
from tests.karpenter_module import karpenter_file
from tests.node_pools import AWS, CPU, GPU, changed, gpu, isin, node_class

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden"

KARPENTER: dict[str, Any] = json.loads((GOLDEN / "karpenter-1.14.1.instance-types.json").read_text())

NODE_CLASSES: dict[str, NodeClass] = {
    "20 GiB": node_class("a", root_volume_size="20Gi"),
    "local disks": node_class("a", root_volume_size="200Gi", instance_store_policy="RAID0"),
    "Bottlerocket, 29 pods": node_class(
        "a",
        root_volume_size="1Ti",
        ami_terms=[AmiTerm(alias="bottlerocket@v1.40.0")],
        kubelet=Kubelet(max_pods=29, pods_per_core=2),
    ),
    "every setting of the kubelet": node_class(
        "a",
        root_volume_size="333G",
        kubelet=Kubelet(
            max_pods=110,
            pods_per_core=4,
            kube_reserved={"cpu": "100m", "ephemeral-storage": "3Gi"},
            system_reserved={"cpu": "1", "memory": "500Mi"},
            eviction_hard={"memory.available": "5%", "nodefs.available": "7.5%"},
        ),
    ),
}
"""What Karpenter was asked about, by the golden file's names."""

# -- what a node holds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", NODE_CLASSES)
@pytest.mark.parametrize("name", KARPENTER)
def test_allocatable_is_what_karpenter_computes(name: str, machine: str) -> None:
    """To the byte."""
    ours = allocatable(instance_types()[name], NODE_CLASSES[machine])
    theirs = {resource: Decimal(amount) for resource, amount in KARPENTER[name]["allocatable"][machine].items()}
    theirs["cpu"] /= 1000
    ours = {resource: amount for resource, amount in ours.items() if resource != EFA}
    assert {GPU_RESOURCE: Decimal(0)} | ours == theirs


def test_efa_interfaces_take_the_place_of_addresses() -> None:
    """p5.48xlarge: two interfaces with 49 addresses for pods on the first card; as Karpenter has it
    (`ENILimitedPods`)."""
    machine = instance_types()["p5.48xlarge"]
    usual = capacity(machine, node_class("a"))
    assert (usual[EFA], usual["pods"]) == (32, 100)
    only = capacity(machine, node_class("a", efa_only_interfaces=8))
    assert (only[EFA], only["pods"]) == (8, 51)
    assert EFA not in capacity(instance_types()["g5.2xlarge"], node_class("a"))


@pytest.mark.process
def test_efa_interfaces_are_those_of_karpenters_own_copy() -> None:
    """Of the few types that Karpenter's tests describe."""
    text = karpenter_file("pkg/fake/zz_generated.describe_instance_types.go").read_text()
    described = re.split(r"InstanceType: +\"", text.partition("InstanceTypeOfferings")[0])[1:]
    found = {each.partition('"')[0]: re.search(r"MaximumEfaInterfaces: aws.Int32\((\d+)\)", each) for each in described}
    known = {name: instance_types()[name].efa for name in found if name in instance_types()}
    assert {name: efa.interfaces if efa else None for name, efa in known.items()} == {
        name: int(found[name][1]) if found[name] else None for name in known
    }
    assert sum(efa is not None for efa in known.values()) == 3


def test_types_with_fewer_efa_interfaces_are_excluded() -> None:
    args = gpu(requirements=[isin(f"{AWS}/instance-family", "p5")])
    assert [each.name for each in instance_types_of(args)] == ["p5.48xlarge", "p5.4xlarge"]
    machine = dataclasses.replace(args.node_class, efa_only_interfaces=2)
    assert [each.name for each in instance_types_of(dataclasses.replace(args, node_class=machine))] == ["p5.48xlarge"]


def test_karpenter_promises_less_memory_than_document_004s_node_had() -> None:
    """And as much of the rest, but for the file system's own part of the disk: what fits by this figure fits."""
    real = {
        "cpu": "7910m",
        "memory": "31785232Ki",
        "ephemeral-storage": "18181869946",
        "pods": "29",
        GPU_RESOURCE: "10",
    }
    ours = allocatable(instance_types()["g4dn.2xlarge"], NODE_CLASSES["20 GiB"], TimeSlicing(replicas=10))
    for resource in ("cpu", "pods", GPU_RESOURCE):
        assert ours[resource] == parsed(real[resource])
    assert Decimal("0.93") < ours["memory"] / parsed(real["memory"]) < 1
    assert 1 < ours["ephemeral-storage"] / parsed(real["ephemeral-storage"]) < Decimal("1.01")


def test_eviction_at_100_percent_is_none() -> None:
    given_up = node_class("a", kubelet=Kubelet(eviction_hard={"memory.available": "100%"}))
    plain = node_class("a", kubelet=Kubelet(eviction_hard={"memory.available": "0"}))
    instance_type = instance_types()["m5.large"]
    assert allocatable(instance_type, given_up) == allocatable(instance_type, plain)


@given(name=st.sampled_from(sorted(instance_types())), machine=st.sampled_from(list(NODE_CLASSES.values())))
def test_no_more_is_allocatable_than_is_there(name: str, machine: NodeClass) -> None:
    instance_type = instance_types()[name]
    whole, left = capacity(instance_type, machine), allocatable(instance_type, machine)
    assert left.keys() == whole.keys()
    assert all(left[resource] <= whole[resource] for resource in whole)


# -- GPU counts -------------------------------------------------------------------------------------------------------


def test_counts_follow_requirements() -> None:
    assert gpu_counts(gpu(requirements=[isin(f"{AWS}/instance-family", "g5")])) == [1, 4, 8]
    assert gpu_counts(gpu(requirements=[isin(f"{AWS}/instance-family", "g5g", "p5")])) == [1, 2, 8]


def test_counts_that_are_given_win() -> None:
    assert gpu_counts(gpu(gpu_counts=[16, 3, 3])) == [3, 16]
    assert gpu_counts(gpu(gpu_counts=[])) == []


def test_parts_of_a_gpu_are_not_counted() -> None:
    assert gpu_counts(gpu(requirements=[isin(f"{AWS}/instance-gpu-name", "l4")])) == [1, 4, 8]


def test_labels_of_nodes_are_requirements_too() -> None:
    """Karpenter joins them before it looks for types."""
    labelled = gpu(labels={f"{AWS}/instance-size": "4xlarge", "example.com/own": "yes"})
    assert sorted(each.name for each in instance_types_of(labelled)) == ["g4dn.4xlarge", "g5.4xlarge"]


def test_zones_narrow_the_types() -> None:
    everywhere, somewhere = instance_types_of(GPU), instance_types_of(gpu(zones=["ap-southeast-1a"]))
    assert {each.family for each in somewhere} == {"g4dn"}
    assert {each.family for each in everywhere} == {"g4dn", "g5"}


def test_al2023_does_not_run_on_the_first_graviton() -> None:
    first = [isin(f"{AWS}/instance-family", "a1", "m6g")]
    bottlerocket = [AmiTerm(alias="bottlerocket@v1.40.0")]
    assert {each.family for each in instance_types_of(changed(requirements=first))} == {"m6g"}
    on_bottlerocket = changed(requirements=first, class_ami_terms=bottlerocket)
    assert {each.family for each in instance_types_of(on_bottlerocket)} == {"a1", "m6g"}


# -- what fits --------------------------------------------------------------------------------------------------------

JOB = {"cpu": "7", "memory": "20Gi", GPU_RESOURCE: "1"}

FITS: dict[str, tuple[dict[str, str], Any, set[str]]] = {
    "a small job": ({"cpu": "1", "memory": "1Gi"}, GPU, {"2xlarge", "4xlarge", "8xlarge"}),
    "most of the smallest": (JOB, GPU, {"2xlarge", "4xlarge", "8xlarge"}),
    "more CPUs": ({**JOB, "cpu": "8"}, GPU, {"4xlarge", "8xlarge"}),
    "more memory": ({**JOB, "memory": "60Gi"}, GPU, {"8xlarge"}),
    "within the limits": (JOB, gpu(limits={"cpu": "16", "nvidia.com/gpu": "100"}), {"2xlarge", "4xlarge"}),
}

FITS_NOT: dict[str, tuple[dict[str, str], Any, str]] = {
    "CPUs": ({**JOB, "cpu": "32"}, GPU, "cpu: 32 requested, but the largest type, g4dn.8xlarge, has 31.85"),
    "memory": ({**JOB, "memory": "500Gi"}, GPU, "memory: 512000Mi requested, but the largest type, g4dn.8xlarge, has"),
    "disk": ({"ephemeral-storage": "250Gi"}, GPU, "ephemeral-storage: 256000Mi requested"),
    "GPUs": ({GPU_RESOURCE: "2"}, gpu(sharing=None), "nvidia.com/gpu: 2 requested, but the largest type"),
    "shared GPUs": ({GPU_RESOURCE: "2"}, GPU, "nvidia.com/gpu: 2 requested, but the largest type, g4dn.2xlarge, has 1"),
    "GPUs where there are none": ({GPU_RESOURCE: "1"}, CPU, "nvidia.com/gpu: 1 requested"),
    "something of one's own": ({"example.com/thing": "1"}, CPU, "example.com/thing: 1 requested"),
    "not together": (
        {"cpu": "20", "memory": "100Gi"},
        changed(requirements=[isin("node.kubernetes.io/instance-type", "c5.9xlarge", "r5.4xlarge")]),
        "cpu 20, memory 102400Mi: no type has room for all of them",
    ),
}


@pytest.mark.parametrize(("asked", "args", "sizes"), FITS.values(), ids=list(FITS))
def test_it_fits(asked: dict[str, str], args: Any, sizes: set[str]) -> None:
    found = fit(asked, args)
    assert {each.name.partition(".")[2] for each in found.instance_types} == sizes
    assert found.reason == ""


@pytest.mark.parametrize(("asked", "args", "why"), FITS_NOT.values(), ids=list(FITS_NOT))
def test_it_does_not_fit(asked: dict[str, str], args: Any, why: str) -> None:
    found = fit(asked, args)
    assert list(found.instance_types) == []
    assert found.reason.startswith(why)


def test_daemons_take_their_part() -> None:
    whole = fit({"cpu": "7900m"}, GPU)
    beside = fit({"cpu": "7900m"}, GPU, {"cpu": Decimal("0.05"), "memory": Decimal(200 * 1024**2)})
    left = {each.name for each in whole.instance_types} - {each.name for each in beside.instance_types}
    assert left == {"g4dn.2xlarge", "g5.2xlarge"}


def test_of_types_that_the_table_does_not_have_nothing_is_said() -> None:
    newer = gpu(requirements=[isin(f"{AWS}/instance-family", "g99")], gpu_counts=[1])
    assert fit(JOB, newer).reason == ""


@given(cpu=st.integers(1, 70000), memory=st.integers(1, 300), disk=st.integers(1, 300), gpus=st.integers(0, 2))
def test_what_fits_is_what_is_allocatable(cpu: int, memory: int, disk: int, gpus: int) -> None:
    """A type holds the pod, or the reason is given."""
    asked = {"cpu": f"{cpu}m", "memory": f"{memory}Gi", "ephemeral-storage": f"{disk}Gi", GPU_RESOURCE: str(gpus)}
    args = gpu(sharing=None)
    found = fit(asked, args)
    for each in instance_types_of(args):
        room = allocatable(each, args.node_class)
        holds = all(parsed(amount) <= room[resource] for resource, amount in asked.items())
        assert (each in found.instance_types) == (holds and within_limits(each, args))
    assert bool(found.reason) == (not found.instance_types)
