"""EC2 instance types that Karpenter supports: their properties, and the zones that offer them.

The table `instance_types.json` is made from answers of EC2 (DescribeInstanceTypes, DescribeInstanceTypeOfferings)
that moto 5.2.5 keeps, and is compared with them at every test run. What it lacks:

- g4ad, p3 but for p3dn, g3 and p2 are not in it, nor any type newer than it.
- g6f and gr6f have a fraction of a GPU. EC2 reports 0 GPUs, so Karpenter never provisions them for `nvidia.com/gpu`.
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
"""Table of instance types, one per line. A set of zones is named after the first type that has it."""

_NAME = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
"""Category and generation (`instanceTypeScheme` in types.go)."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
FAMILY = "karpenter.k8s.aws/instance-family"


class Devices(NamedTuple):
    """GPUs or other accelerators of an instance type."""

    number: int
    """Number of devices; 0 for a fraction of one."""
    manufacturer: str
    """Manufacturer, such as `NVIDIA`."""
    name: str
    """Model name, such as `A10G`."""
    memory: int = 0
    """Memory of each device in MiB; 0 if unknown."""


class Efa(NamedTuple):
    """Elastic Fabric Adapters of an instance type."""

    interfaces: int
    """Maximum number of EFA interfaces."""
    cards: int
    """Number of network cards; each can have one EFA interface."""
    addresses: int
    """Number of pods that one network interface has addresses for."""


class InstanceType(NamedTuple):
    """An EC2 instance type."""

    name: str
    """Family and size, such as `g5.2xlarge`."""
    architecture: str
    """Architecture by its Kubernetes name: `amd64` or `arm64`."""
    hypervisor: str
    """Hypervisor: `nitro`, `xen`, or empty for bare metal."""
    cpus: int
    """Number of vCPUs."""
    memory: int
    """Memory in MiB, before the hypervisor's overhead."""
    pods: int
    """Maximum number of pods, limited by the addresses of the network interfaces."""
    cpu_manufacturer: str
    """CPU manufacturer: `intel`, `amd` or `aws`."""
    clock: int
    """Sustained clock speed in MHz; 0 if EC2 reports none."""
    ebs_bandwidth: int
    """Maximum bandwidth to EBS in Mbit/s; 0 if not EBS-optimised by default."""
    encrypts_transit: bool
    """Whether traffic between instances of such types is encrypted."""
    usage: str
    """Purchase options by their first letters (on-demand, spot, capacity block): `os`, `osc`, `o`."""
    zones_of: str
    """Name of the type whose set of zones applies."""
    disk: int = 0
    """Total size of the local disks in GB."""
    nvme: bool = False
    """Whether the local disks are NVMe."""
    gpus: Devices | None = None
    """GPUs. No EC2 type has two kinds."""
    accelerators: Devices | None = None
    """Accelerators other than GPUs: Neuron devices or other inference hardware."""
    efa: Efa | None = None
    """Elastic Fabric Adapters."""

    @property
    def family(self) -> str:
        """Return the instance family: `g5` of `g5.2xlarge`."""
        return self.name.partition(".")[0]

    @property
    def has_part_of_a_gpu(self) -> bool:
        """Return whether the type has only a fraction of a GPU, which no pod can request by number."""
        return self.gpus is not None and self.gpus.number == 0


@functools.cache
def _table() -> Any:
    return json.loads(TABLE.read_text())


@functools.cache
def instance_types() -> Mapping[str, InstanceType]:
    """Return all types of the table by name. Read once, on first use."""
    return {row[0]: _instance_type(row) for row in _table()["types"]}


def _instance_type(row: list[Any]) -> InstanceType:
    if not isinstance(row[-1], dict):
        return InstanceType(*row)
    *common, further = row
    devices = {name: Devices(*further[name]) for name in ("gpus", "accelerators") if name in further}
    efa = {"efa": Efa(*further["efa"])} if "efa" in further else {}
    return InstanceType(*common, **{**further, **devices, **efa})


@functools.cache
def _zones(zones_of: str) -> frozenset[str]:
    """Return the zones of an entry, which is stored as a region with its zone letters: `us-east-1abc`."""
    regions = re.findall(r"([a-z-]+[0-9])([a-z]+)", _table()["zones"][zones_of])
    return frozenset(region + letter for region, letters in regions for letter in letters)


def zones_of(instance_type: InstanceType) -> frozenset[str]:
    """Return all zones that offer the type."""
    return _zones(instance_type.zones_of)


@functools.cache
def known_zones() -> frozenset[str]:
    """Return all zones in the table."""
    return frozenset[str]().union(*(_zones(name) for name in _table()["zones"]))


def offered(instance_type: InstanceType, zones: Iterable[str] = ()) -> frozenset[str]:
    """Return which of the given zones offer the type, or all zones that do if none are given. Zones that the table does
    not contain count as offering it."""
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
"""Values of each label, derived from the type as in `computeRequirements` (pkg/providers/instancetype/types.go of
aws/karpenter-provider-aws at v1.14.1). For Linux, without capacity reservations."""

LABELS = frozenset(_OF_TYPE) | {ZONE, REGION}
"""Labels that the table determines. Values of all other labels are unknown."""


def label(instance_type: InstanceType, key: str, zones: Iterable[str] = ()) -> Sequence[str]:
    """Return the values that an instance of the type may have for a label of `LABELS`; empty if it does not have the
    label."""
    if key == ZONE:
        return sorted(offered(instance_type, zones))
    if key == REGION:
        return sorted({region_of(zone) for zone in offered(instance_type, zones)})
    return _OF_TYPE[key](instance_type)


@functools.cache
def by_label(key: str) -> Mapping[str, Sequence[InstanceType]]:
    """Return the types that have each value of a label of `LABELS`, over all zones."""
    found: dict[str, list[InstanceType]] = {}
    for instance_type in instance_types().values():
        for value in label(instance_type, key):
            found.setdefault(value, []).append(instance_type)
    return found


def labels(instance_type: InstanceType, zones: Iterable[str] = ()) -> dict[str, Sequence[str]]:
    """Return the possible values of all labels in `LABELS` for an instance of the type, by key."""
    return {key: label(instance_type, key, zones) for key in sorted(LABELS)}


def region_of(zone: str) -> str:
    """Return the region of a zone: `us-east-1` of `us-east-1a`."""
    match = re.match(r"[a-z]+(?:-[a-z]+)+-[0-9]+", zone)
    return match[0] if match else zone
