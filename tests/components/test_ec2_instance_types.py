"""The table of instance types is what moto keeps of EC2's answers, and labels are those that Karpenter computes."""

from __future__ import annotations

import collections
import gzip
import json
from importlib.resources import files
from typing import Any

import pytest

from components.ec2_instance_types import (
    TABLE,
    InstanceType,
    instance_types,
    known_zones,
    zones_of,
)
from tests.conftest import Generated

AWS = "karpenter.k8s.aws"

# -- the table and its source -----------------------------------------------------------------------------------------


def answered(path: str) -> Any:
    """What moto keeps of an answer of EC2."""
    return json.loads(gzip.decompress((files("moto.ec2") / "resources" / path).read_bytes()))


def offerings() -> dict[str, set[str]]:
    """Zones by the type that is offered there."""
    found = collections.defaultdict(set)
    for file in (files("moto.ec2") / "resources/instance_type_offerings/availability-zone").iterdir():
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
