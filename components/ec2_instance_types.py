"""What EC2 sells: the instance types that Karpenter knows, what each is, and where it is offered.

The table `ec2_instance_types.json` is made from answers of EC2 (DescribeInstanceTypes, DescribeInstanceTypeOfferings)
that moto 5.2.5 keeps, and is compared with them at every test run. What it lacks:

- g4ad, p3 but for p3dn, g3 and p2 are not in it, nor any type newer than it.
- g6f and gr6f rent a part of a GPU: EC2 says their count is 0, so Karpenter buys none of them for `nvidia.com/gpu`.
- Regions of China and GovCloud, and local zones, are not in it.
- Karpenter's label `instance-network-bandwidth` comes from a table of its own, which is not part of this one.

Karpenter reads architectures x86_64 and arm64 only (UpdateInstanceTypes in pkg/providers/instancetype/instancetype.go
of aws/karpenter-provider-aws at v1.14.1), so Macs are left out.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TABLE = pathlib.Path(__file__).with_suffix(".json")
"""The table: one type a line, and sets of zones by the name of the first type that has them."""

_NAME = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
"""Category and generation (`instanceTypeScheme` in types.go)."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
FAMILY = "karpenter.k8s.aws/instance-family"


class Devices(NamedTuple):
    """GPUs, or accelerators of another kind, of one instance."""

    number: int
    """How many; 0 for a part of one."""
    manufacturer: str
    """Who makes them, such as `NVIDIA`."""
    name: str
    """What they are called, such as `A10G`."""
    memory: int = 0
    """MiB of each; 0 where it is not said."""


class InstanceType(NamedTuple):
    """One instance type."""

    name: str
    """Family and size, such as `g5.2xlarge`."""
    architecture: str
    """As Kubernetes calls it: `amd64` or `arm64`."""
    hypervisor: str
    """`nitro`, `xen`, or nothing for bare metal."""
    cpus: int
    """Virtual CPUs."""
    memory: int
    """MiB, before the hypervisor takes its part."""
    pods: int
    """Most pods whose addresses its network interfaces hold."""
    cpu_manufacturer: str
    """`intel`, `amd` or `aws`."""
    clock: int
    """Sustained MHz; 0 where EC2 does not say."""
    ebs_bandwidth: int
    """Most Mbit/s to EBS; 0 where it is not optimised for EBS by default."""
    encrypts_transit: bool
    """Whether traffic between such instances is encrypted."""
    usage: str
    """How it is sold, by the first letters of on-demand, spot and capacity block: `os`, `osc`, `o`."""
    zones_of: str
    """The type whose set of zones it shares."""
    disk: int = 0
    """GB of local disks, all together."""
    nvme: bool = False
    """Whether those are NVMe."""
    gpus: Devices | None = None
    """Its GPUs. EC2 has no type with two kinds."""
    accelerators: Devices | None = None
    """Its accelerators that are no GPUs: Neuron devices, or others for inference."""

    @property
    def family(self) -> str:
        """What is before the point: `g5`."""
        return self.name.partition(".")[0]

    @property
    def has_part_of_a_gpu(self) -> bool:
        """Whether it has less than one GPU, which no pod can ask for by number."""
        return self.gpus is not None and self.gpus.number == 0


@functools.cache
def _table() -> Any:
    return json.loads(TABLE.read_text())


@functools.cache
def instance_types() -> Mapping[str, InstanceType]:
    """Every type of the table, by name. Read once, when it is first asked for."""
    return {row[0]: _instance_type(row) for row in _table()["types"]}


def _instance_type(row: list[Any]) -> InstanceType:
    if not isinstance(row[-1], dict):
        return InstanceType(*row)
    *common, further = row
    devices = {name: Devices(*further[name]) for name in ("gpus", "accelerators") if name in further}
    return InstanceType(*common, **{**further, **devices})


@functools.cache
def _zones(zones_of: str) -> frozenset[str]:
    """Zones are kept as a region and the letters of its zones: `us-east-1abc`."""
    regions = re.findall(r"([a-z-]+[0-9])([a-z]+)", _table()["zones"][zones_of])
    return frozenset(region + letter for region, letters in regions for letter in letters)


def zones_of(instance_type: InstanceType) -> frozenset[str]:
    """Every zone that the type is offered in."""
    return _zones(instance_type.zones_of)


@functools.cache
def known_zones() -> frozenset[str]:
    """Every zone that the table knows."""
    return frozenset[str]().union(*(_zones(name) for name in _table()["zones"]))


def offered(instance_type: InstanceType, zones: Iterable[str] = ()) -> frozenset[str]:
    """In which of these zones the type is offered; in which of all, where none are given. Of a zone that the table does
    not know, it is taken that it is."""
    wanted = frozenset(zones)
    if not wanted:
        return zones_of(instance_type)
    return wanted & zones_of(instance_type) | wanted - known_zones()


def _name_part(part: int) -> Callable[[InstanceType], Sequence[str]]:
    def found(instance_type: InstanceType) -> Sequence[str]:
        match = _NAME.match(instance_type.name)
        return (match[part],) if match else ()

    return found


def _of(devices: Devices | None, part: str) -> Sequence[str]:
    return () if devices is None else (str(getattr(devices, part)).lower().replace(" ", "-"),)


def _number(amount: int) -> Sequence[str]:
    return (str(amount),) if amount else ()


_OF_TYPE: Mapping[str, Callable[[InstanceType], Sequence[str]]] = {
    INSTANCE_TYPE: lambda it: (it.name,),
    "kubernetes.io/arch": lambda it: (it.architecture,),
    "kubernetes.io/os": lambda _: ("linux",),
    "node.kubernetes.io/windows-build": lambda _: (),
    FAMILY: lambda it: (it.family,),
    "karpenter.k8s.aws/instance-category": _name_part(1),
    "karpenter.k8s.aws/instance-generation": _name_part(2),
    "karpenter.k8s.aws/instance-size": lambda it: (it.name.partition(".")[2],),
    "karpenter.k8s.aws/instance-cpu": lambda it: (str(it.cpus),),
    "karpenter.k8s.aws/instance-cpu-manufacturer": lambda it: (it.cpu_manufacturer,),
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz": lambda it: (str(it.clock),),
    "karpenter.k8s.aws/instance-memory": lambda it: (str(it.memory),),
    "karpenter.k8s.aws/instance-ebs-bandwidth": lambda it: _number(it.ebs_bandwidth),
    "karpenter.k8s.aws/instance-hypervisor": lambda it: (it.hypervisor,),
    "karpenter.k8s.aws/instance-encryption-in-transit-supported": lambda it: (str(it.encrypts_transit).lower(),),
    "karpenter.k8s.aws/instance-capability-flex": lambda it: (str("-flex" in it.family).lower(),),
    "karpenter.k8s.aws/instance-local-nvme": lambda it: _number(it.disk if it.nvme else 0),
    "karpenter.k8s.aws/instance-tenancy": lambda _: ("dedicated", "default"),
    "karpenter.k8s.aws/instance-gpu-name": lambda it: _of(it.gpus, "name"),
    "karpenter.k8s.aws/instance-gpu-manufacturer": lambda it: _of(it.gpus, "manufacturer"),
    "karpenter.k8s.aws/instance-gpu-count": lambda it: _of(it.gpus, "number"),
    "karpenter.k8s.aws/instance-gpu-memory": lambda it: _of(it.gpus, "memory"),
    "karpenter.k8s.aws/instance-accelerator-name": lambda it: _of(it.accelerators, "name"),
    "karpenter.k8s.aws/instance-accelerator-manufacturer": lambda it: _of(it.accelerators, "manufacturer"),
    "karpenter.k8s.aws/instance-accelerator-count": lambda it: _of(it.accelerators, "number"),
    CAPACITY_TYPE: lambda it: tuple(kind for kind in ("on-demand", "spot") if kind[0] in it.usage),
}
"""How each label follows from the type (`computeRequirements` in pkg/providers/instancetype/types.go of
aws/karpenter-provider-aws at v1.14.1), for Linux and without capacity reservations."""

LABELS = frozenset(_OF_TYPE) | {ZONE, REGION}
"""Labels that the table knows. Of any other it cannot tell whether a type has it."""


def label(instance_type: InstanceType, key: str, zones: Iterable[str] = ()) -> Sequence[str]:
    """The values that an instance of that type may have for a label of `LABELS`; none where it does not have it."""
    if key == ZONE:
        return sorted(offered(instance_type, zones))
    if key == REGION:
        return sorted({region_of(zone) for zone in offered(instance_type, zones)})
    return _OF_TYPE[key](instance_type)


def labels(instance_type: InstanceType, zones: Iterable[str] = ()) -> dict[str, Sequence[str]]:
    """What an instance of that type may have for each label of `LABELS`, by key."""
    return {key: label(instance_type, key, zones) for key in sorted(LABELS)}


def region_of(zone: str) -> str:
    """The region of a zone: `us-east-1` of `us-east-1a`."""
    match = re.match(r"[a-z]+(?:-[a-z]+)+-[0-9]+", zone)
    return match[0] if match else zone
