"""Requirements on the machines of a stack file, from what it declares."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpufleet import quantity
from gpufleet.bare_metal.kubespray.inventory import SITE_LABEL
from gpufleet.bare_metal.preflight.needs import GpuNeeds, HostNeeds
from gpufleet_stacks.settings.args.machines import machines
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool, NodeSettings
from gpufleet_stacks.settings.models.kubespray import KubespraySettings
from gpufleet_tools.hosts.between_hosts import HEARTBEAT_MILLISECONDS
from gpufleet_tools.hosts.paths import Peer

CONTROL_PLANE_MIB = 1500
"""Minimum memory of a control plane for kubespray (roles/kubernetes/preinstall/defaults/main.yml at v2.31.0)."""

WORKER_MIB = 1024
"""The same of a worker."""

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures as the kernel names them, by the value of the label `kubernetes.io/arch`."""


def needs_of(settings: BareMetalSettings, name: str, node: NodeSettings, pool: NodePool) -> HostNeeds:
    """Return the requirements on a machine."""
    kubespray = settings.cluster.kubespray
    return HostNeeds(
        address=node.internal_address,
        hostname=None if _sets_hostnames(kubespray) else name,
        foreign_hostnames=frozenset(other for other, _, _ in machines(settings.cluster) if other != name),
        architectures=frozenset(_architectures(node, pool)),
        container_manager=kubespray.container_manager if kubespray else None,
        modules=frozenset(_modules(kubespray)),
        cores=float(quantity.parsed(pool.allocatable.cpu)),
        pod_memory_mib=math.ceil(quantity.parsed(pool.allocatable.memory) / 1024**2),
        pod_disk_gib=math.ceil(quantity.parsed(pool.allocatable.ephemeral_storage) / 1024**3),
        memory_mib=CONTROL_PLANE_MIB if "control_plane" in node.roles else WORKER_MIB,
        snapshot_hours=_snapshot_hours(node, kubespray),
        gpu=_gpu_needs(settings, pool),
    )


def _sets_hostnames(kubespray: KubespraySettings | None) -> bool:
    """Return whether kubespray gives machines the names of their nodes (roles/bootstrap_os/defaults/main.yml:43 at
    v2.31.0)."""
    return kubespray is not None and kubespray.variables.get("all", {}).get("override_system_hostname", True) is True


def _snapshot_hours(node: NodeSettings, kubespray: KubespraySettings | None) -> int | None:
    snapshots = kubespray.etcd_snapshots if kubespray else None
    return snapshots.every_hours if snapshots and "etcd" in node.roles else None


def _architectures(node: NodeSettings, pool: NodePool) -> Iterator[str]:
    """Yield the declared architecture; ROCm exists for x86_64 only."""
    declared = pool.node_labels(node).get("kubernetes.io/arch")
    for label, architecture in ARCHITECTURES.items():
        if declared in (None, label) and (label == "amd64" or pool.accelerator.vendor != "amd"):
            yield architecture


def _modules(kubespray: KubespraySettings | None) -> Iterator[str]:
    """Yield the kernel modules that kubespray loads (roles/kubernetes/node/tasks/main.yml at v2.31.0)."""
    if kubespray:
        yield "br_netfilter"
    if kubespray and kubespray.proxy_mode == "ipvs":
        yield "ip_vs"


def _gpu_needs(settings: BareMetalSettings, pool: NodePool) -> GpuNeeds:
    gpus = pool.accelerator
    runners = (runner for runner in settings.runners.values() if settings.pool(runner) is pool)
    groups = {settings.profile(runner).render_group for runner in runners}
    is_amd = gpus.vendor == "amd"
    validation = settings.device_plugin.validation if is_amd else settings.gpu_operator.validation
    return GpuNeeds(
        vendor=gpus.vendor,
        count=gpus.count,
        model=gpus.model,
        compute_partition=gpus.partition.compute if is_amd else None,
        memory_partition=gpus.partition.memory if is_amd else None,
        render_gids=frozenset(group for group in groups if group is not None) if is_amd else frozenset(),
        validated=validation.level != "none",
    )


def peer_of(name: str, node: NodeSettings, pool: NodePool, kubespray: KubespraySettings | None) -> Peer:
    """Return a machine as the others reach it."""
    return Peer(
        name=name,
        address=node.access_address or node.internal_address or node.address,
        roles=frozenset(node.roles),
        site=pool.node_labels(node).get(SITE_LABEL),
        mesh_ports=frozenset(_mesh_ports(kubespray)),
        etcd_folder=str(_etcd_variable(kubespray, "etcd_data_dir", "/var/lib/etcd")),
    )


def _mesh_ports(kubespray: KubespraySettings | None) -> Iterator[int]:
    """Yield the TCP ports of the network plugin (docs/operations/port-requirements.md of kubespray v2.31.0). Calico has
    BGP sessions where it does not encapsulate by VXLAN."""
    if kubespray and kubespray.network_plugin == "calico" and kubespray.calico.encapsulation != "vxlan":
        yield 179
    if kubespray and kubespray.network_plugin == "cilium":
        yield 4240


def heartbeat_milliseconds(kubespray: KubespraySettings | None) -> float:
    """Return the interval of etcd's heartbeats."""
    try:
        return float(_etcd_variable(kubespray, "etcd_heartbeat_interval", HEARTBEAT_MILLISECONDS))
    except ValueError:
        return HEARTBEAT_MILLISECONDS


def _etcd_variable(kubespray: KubespraySettings | None, name: str, default: str | float) -> str | float:
    groups = kubespray.variables if kubespray else {}
    value = groups.get("etcd", {}).get(name, groups.get("all", {}).get(name, default))
    return value if isinstance(value, (str, float, int)) else default
