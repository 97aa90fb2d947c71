"""Requirements on a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MIB, GIB = 1024, 1024**2
"""Units in KiB, as used by the script."""


@dataclass(frozen=True, kw_only=True)
class GpuNeeds:
    """Requirements on a host's GPUs."""

    vendor: Literal["amd", "nvidia"]
    """GPU vendor."""
    count: int | None = None
    """Number of GPUs; None for at least one."""
    model: str | None = None
    """Words of the product name, in any order: `MI300X`; None for any."""
    compute_partition: str | None = None
    """Compute partition of AMD GPUs; None for any."""
    memory_partition: str | None = None
    """Memory partition of AMD GPUs; None for any."""
    render_gids: frozenset[int] = frozenset()
    """Groups with which containers open render nodes; empty for any."""
    validated: bool = False
    """Whether the GPUs are validated after each boot, and must have passed if they were."""


@dataclass(frozen=True, kw_only=True)
class HostNeeds:
    """Requirements on a host."""

    address: str | None = None
    """Address that the host must have; None for any."""
    hostname: str | None = None
    """Hostname that the host must have, as the name of its node; None for any."""
    foreign_hostnames: frozenset[str] = frozenset()
    """Hostnames that the host must not have: those of other nodes."""
    architectures: frozenset[str] = frozenset({"x86_64", "aarch64"})
    """Architectures that the host may have, as the kernel names them."""
    kubernetes: bool = True
    """Whether a kubelet will run on the host."""
    container_manager: str | None = None
    """Container manager that kubespray installs on the host; None without kubespray."""
    modules: frozenset[str] = frozenset()
    """Kernel modules that the host must be able to load."""
    cores: float = 0
    """CPU cores that pods are promised."""
    pod_memory_mib: int = 0
    """Memory in MiB that pods are promised."""
    pod_disk_gib: int = 0
    """Disk space in GiB that pods are promised."""
    memory_mib: int = 1024
    """Minimum memory in MiB. kubespray itself rejects workers below 1024 and control plane nodes below 1500
    (roles/kubernetes/preinstall/defaults/main.yml at v2.31.0)."""
    disk_gib: int = 20
    """Minimum free disk space in GiB for images and logs."""
    snapshot_hours: int | None = None
    """Hours between snapshots of etcd; None if the host takes none."""
    gpu: GpuNeeds | None = None
    """Requirements on its GPUs; None for no GPUs."""
