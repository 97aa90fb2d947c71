"""The table of instance types is what moto keeps of EC2's answers, and labels are those that Karpenter computes."""

from __future__ import annotations

import collections
import gzip
import json
import pathlib
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pytest

from gpufleet.aws.ec2 import instance_types as ec2_instance_types
from gpufleet.aws.ec2.instance_types import (
    LABELS,
    REGION,
    TABLE,
    ZONE,
    InstanceType,
    instance_types,
    known_zones,
    label,
    labels,
    offered,
    region_of,
    zones_of,
)
from gpufleet.aws.karpenter.node_pool_args import INSTANCE_LABELS
from tests.conftest import Generated

AWS = "karpenter.k8s.aws"
GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden"

# -- the table and its source -----------------------------------------------------------------------------------------


RESOURCES = files("moto") / "ec2/resources"
"""Named from `moto`, whose import is cheap; that of `moto.ec2` takes a second."""


def answered(path: str) -> Any:
    """What moto keeps of an answer of EC2."""
    return json.loads(gzip.decompress((RESOURCES / path).read_bytes()))


def offerings() -> dict[str, set[str]]:
    """Zones by the type that is offered there."""
    found = collections.defaultdict(set)
    for file in (RESOURCES / "instance_type_offerings/availability-zone").iterdir():
        for offering in answered(f"instance_type_offerings/availability-zone/{file.name}"):
            found[offering["InstanceType"]].add(offering["Location"])
    return found


def described() -> dict[str, Any]:
    """EC2's descriptions of the types that Karpenter reads."""
    read = {"x86_64", "arm64"}
    found = answered("instance_types.json.gz")
    return {
        name: found[name] for name in sorted(found) if read & {*found[name]["ProcessorInfo"]["SupportedArchitectures"]}
    }


def devices(info: Any) -> dict[str, list[object]]:
    """GPUs and accelerators, as the table has them. EC2 describes some accelerators twice: also as Neuron."""
    found: dict[str, list[object]] = {}
    if gpus := info.get("GpuInfo", {}).get("Gpus"):
        (gpu,) = gpus
        found["gpus"] = [gpu["Count"], gpu["Manufacturer"], gpu["Name"], gpu["MemoryInfo"]["SizeInMiB"]]
    if neuron := info.get("NeuronInfo", {}).get("NeuronDevices"):
        (device,) = neuron
        found["accelerators"] = [device["Count"], "aws", device["Name"], device["MemoryInfo"]["SizeInMiB"]]
    elif accelerators := info.get("InferenceAcceleratorInfo", {}).get("Accelerators"):
        (device,) = accelerators
        memory = device["MemoryInfo"]["SizeInMiB"]
        found["accelerators"] = [device["Count"], device["Manufacturer"], device["Name"], memory]
    return found


def row(info: Any, zones_like: str) -> list[object]:
    """One type, as the table has it."""
    processor, network, ebs = info["ProcessorInfo"], info["NetworkInfo"], info["EbsInfo"]
    card = network["NetworkCards"][network["DefaultNetworkCardIndex"]]
    by_default = ebs["EbsOptimizedSupport"] == "default"
    storage = info.get("InstanceStorageInfo")
    nvme = {"nvme": True} if storage and storage["NvmeSupport"] != "unsupported" else {}
    further = ({"disk": storage["TotalSizeInGB"]} | nvme if storage else {}) | devices(info)
    if network["EfaSupported"]:
        efas = network["EfaInfo"]["MaximumEfaInterfaces"]
        further["efa"] = [efas, network["MaximumNetworkCards"], network["Ipv4AddressesPerInterface"] - 1]
    return [
        info["InstanceType"],
        "arm64" if "arm64" in processor["SupportedArchitectures"] else "amd64",
        info.get("Hypervisor", ""),
        info["VCpuInfo"]["DefaultVCpus"],
        info["MemoryInfo"]["SizeInMiB"],
        card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2,
        processor["Manufacturer"].lower(),
        round(processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        ebs["EbsOptimizedInfo"]["MaximumBandwidthInMbps"] if by_default else 0,
        network["EncryptionInTransitSupported"],
        "".join(kind for kind in "osc" if kind in {usage[0] for usage in info["SupportedUsageClasses"]}),
        zones_like,
        *([further] if further else []),
    ]


def written() -> str:
    """The whole table, one type a line."""
    places = offerings()
    first: dict[frozenset[str], str] = {}
    rows = [row(info, first.setdefault(frozenset(places[name]), name)) for name, info in described().items()]
    zones = {}
    for zone_set, name in first.items():
        letters = collections.defaultdict(list)
        for zone in sorted(zone_set):
            letters[zone[:-1]].append(zone[-1])
        zones[name] = " ".join(region + "".join(found) for region, found in letters.items())

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    types = ",\n".join(compact(each) for each in rows)
    listed = json.dumps(zones, indent=0, separators=(",", ":"))
    return f'{{"zones":{listed},\n"columns":{compact(InstanceType._fields)},\n"types":[\n{types}\n]}}\n'


@pytest.mark.generated
def test_the_table_is_what_ec2_answered(generated: Generated) -> None:
    generated(TABLE, written())


def test_it_is_small_enough_to_review() -> None:
    assert TABLE.stat().st_size < 200_000


def test_zones_are_those_that_ec2_answered() -> None:
    """Read back, not only written: the table keeps letters."""
    places = offerings()
    for name, instance_type in instance_types().items():
        assert zones_of(instance_type) == places[name]
    assert known_zones() == set().union(*places.values())


def test_it_lacks_what_its_docstring_says() -> None:
    assert ec2_instance_types.__doc__
    families = {instance_type.family for instance_type in instance_types().values()}
    assert not families & {"g4ad", "p3", "g3", "p2", "mac1", "mac2"}
    assert {each.family for each in instance_types().values() if each.has_part_of_a_gpu} == {"g6f", "gr6f"}


@pytest.mark.process
def test_it_is_not_read_before_it_is_asked_for() -> None:
    """Every preview imports the components; a stack on bare metal asks for no instance type."""
    program = (
        "import gpufleet.aws.karpenter.node_pool, gpufleet.aws.ec2.instance_types as table;"
        "print(table._table.cache_info().currsize)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout == "0\n"


# -- labels -----------------------------------------------------------------------------------------------------------

KARPENTER: dict[str, Any] = json.loads((GOLDEN / "karpenter-1.14.1.instance-types.json").read_text())
"""Labels and allocatable resources that `NewInstanceType` of aws/karpenter-provider-aws at v1.14.1 computed from EC2's
descriptions of these types, for the node classes of test_node_pool_fit.py."""


@pytest.mark.parametrize("name", KARPENTER)
def test_labels_are_those_that_karpenter_computes(name: str) -> None:
    ours = labels(instance_types()[name])
    assert {key: sorted(values) for key, values in ours.items() if key not in (ZONE, REGION)} == KARPENTER[name][
        "labels"
    ]


def test_labels_that_the_table_does_not_know_are_few() -> None:
    """A pool that requests one of these is not reported as matching nothing."""
    unknown = INSTANCE_LABELS - LABELS
    assert unknown == {
        f"{AWS}/{name}"
        for name in (
            "capacity-reservation-id",
            "capacity-reservation-interruptible",
            "capacity-reservation-type",
            "ec2nodeclass",
            "instance-network-bandwidth",
            "placement-group-id",
            "placement-group-partition",
        )
    }


# -- places -----------------------------------------------------------------------------------------------------------


def test_zones_and_regions_are_labels() -> None:
    g5 = instance_types()["g5.2xlarge"]
    assert label(g5, ZONE, ["eu-central-1a", "eu-central-1b", "af-south-1a"]) == ["eu-central-1a", "eu-central-1b"]
    assert label(g5, REGION, ["eu-central-1a", "eu-central-1b"]) == ["eu-central-1"]
    assert label(g5, REGION) == sorted({region_of(zone) for zone in zones_of(g5)})


def test_a_zone_that_is_not_known_rules_nothing_out() -> None:
    """A local zone, or a region of China: the table cannot tell."""
    g5 = instance_types()["g5.2xlarge"]
    assert offered(g5, ["cn-north-1a", "us-east-1-bos-1a", "af-south-1a"]) == {"cn-north-1a", "us-east-1-bos-1a"}


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east-1a", "us-east-1"), ("us-gov-west-1b", "us-gov-west-1"), ("us-west-2-lax-1a", "us-west-2")],
)
def test_the_region_of_a_zone(zone: str, region: str) -> None:
    assert region_of(zone) == region
