"""Facts about a host, and the script that finds them."""

from __future__ import annotations

import calendar
import dataclasses
import pathlib
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.gpu_validation import Result, parse_result

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Facts about a host, found by the script."""

    clock: float
    """System time in seconds since 1970."""
    root: bool
    """Whether the user is root or has passwordless sudo."""
    hostname: str
    """Hostname."""
    machine_id: str
    """Content of /etc/machine-id; empty if none."""
    product_uuid: str
    """UUID of the machine's firmware; empty if there is none, or without root."""
    os: str
    """`ID` of /etc/os-release."""
    os_version: str
    """`VERSION_ID` of /etc/os-release."""
    kernel: str
    """Release of the running kernel."""
    modules_installed: bool
    """Whether the modules of the running kernel are installed."""
    modules: tuple[str, ...]
    """Modules that the kernel has or can load, among those that Kubernetes uses."""
    architecture: str
    """Architecture of the running kernel: `x86_64`."""
    cgroup: str
    """File system type of /sys/fs/cgroup; `cgroup2fs` for cgroups v2."""
    cores: int
    """CPU cores that are online."""
    memory_kib: int
    """Total memory in KiB."""
    swap_kib: int
    """Enabled swap in KiB."""
    disk_kib: int
    """Size of the file system of /var/lib in KiB."""
    disk_free_kib: int
    """Free disk space at /var/lib in KiB, for users other than root."""
    addresses: tuple[str, ...]
    """IP addresses."""
    nameserver: str
    """First nameserver in /etc/resolv.conf."""
    containerd: str
    """Version of containerd; empty if not installed."""
    docker: str
    """Version of Docker; empty if not installed."""
    certificates: Mapping[str, float]
    """Ends of the certificates of the control plane, etcd and the kubelet in seconds since 1970, by file. Empty without
    root."""
    snapshots: bool
    """Whether `EtcdSnapshots` is installed."""
    last_snapshot: int | None
    """Time of the last stored snapshot of etcd in seconds since 1970; None if there is none, or without root."""
    gpus_amd: int
    """Number of AMD GPUs on the PCI bus, with or without a driver."""
    gpus_nvidia: int
    """Number of NVIDIA GPUs on the PCI bus."""
    gpu_models: frozenset[str]
    """Product names of the GPUs. AMD's driver has them for server cards only."""
    module_amdgpu: bool
    """Whether the AMD driver is loaded."""
    module_nvidia: bool
    """Whether the NVIDIA driver is loaded."""
    driver_amdgpu: str
    """Version of the loaded AMD driver; empty if none, or if it is the kernel's own."""
    driver_nvidia: str
    """Version of the loaded NVIDIA driver; empty if none."""
    rocm: str
    """Version of ROCm; empty if not installed."""
    kfd: bool
    """Whether /dev/kfd exists, which ROCm computes with."""
    render_gid: int | None
    """ID of the group of the first render node, which containers must join to use an AMD GPU; None if there is no
    render node."""
    compute_partitions: frozenset[str]
    """Compute partitions of AMD GPUs; empty if they cannot be partitioned."""
    memory_partitions: frozenset[str]
    """Memory partitions of AMD GPUs; empty if they cannot be partitioned."""
    gpu_iommu: frozenset[str]
    """Types of the GPUs' IOMMU groups, such as `identity` and `DMA-FQ`; empty without an IOMMU."""
    gpus_without_numa_node: int
    """Number of GPUs whose NUMA node the firmware does not name."""
    numa_nodes: int
    """Number of NUMA nodes."""
    numa_balancing: bool | None
    """Whether the kernel moves memory between NUMA nodes; None if unknown."""
    acs_redirecting: int | None
    """Number of PCI devices that redirect traffic between their peers; None if unknown."""
    gpu_validation: Result | None
    """Result of the last validation of the GPUs; None if there was none since the boot."""


def preflight_script() -> str:
    """Return the script that collects the facts, for `sh -s`. It prints one `name=value` per line."""
    return SCRIPT.read_text()


def parse_facts(text: str) -> HostFacts:
    """Return the facts that the script printed. Other lines, such as login banners, are ignored.

    Raise ValueError for missing or unreadable facts, for example after a broken connection.
    """
    printed = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "complete" not in printed:
        raise ValueError("facts are missing: the connection was interrupted, or the login shell is not a shell")
    types = typing.get_type_hints(HostFacts)
    facts: dict[str, Any] = {}
    for name in (field.name for field in dataclasses.fields(HostFacts)):
        if name not in printed:
            raise ValueError(f"the fact {name} is missing")
        try:
            facts[name] = READERS[types[name]](printed[name])
        except ValueError as error:
            raise ValueError(f"the fact {name} cannot be read: {error}") from None
    return HostFacts(**facts)


def _flag(text: str) -> bool:
    return text in ("yes", "1")


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(";")))


def _expiries(text: str) -> dict[str, float]:
    """Return the ends of certificates, which openssl-x509(1) prints as `Nov 22 17:38:01 2026 GMT`."""
    ends = (entry.partition("=") for entry in _names(text))
    return {file: calendar.timegm(time.strptime(end, "%b %d %H:%M:%S %Y GMT")) for end, _, file in ends}


def _result(text: str) -> Result | None:
    return parse_result(text.replace("|", "\n")) if text else None


READERS: Mapping[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: _flag,
    bool | None: lambda text: _flag(text) if text else None,
    int | None: lambda text: int(text) if text else None,
    tuple[str, ...]: lambda text: tuple(text.split()),
    frozenset[str]: _names,
    Mapping[str, float]: _expiries,
    Result | None: _result,
}
"""Functions that read a fact, by its type."""
