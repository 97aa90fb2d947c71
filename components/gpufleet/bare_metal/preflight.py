"""Preflight checks of hosts: facts and unmet requirements, before anything is installed."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")

OPERATING_SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "ubuntu": ("22.04", "24.04"),
    "debian": ("11", "12", "13"),
    "rhel": ("9", "10"),
    "rocky": ("9", "10"),
    "almalinux": ("9", "10"),
}
"""Versions that kubespray v2.31.0 supports (its README), by `ID` of /etc/os-release. Minor versions of Red Hat are
ignored."""

CLOCK_SKEW_SECONDS = 1.0
"""Maximum clock difference: etcd warns about peers above one second (server/etcdserver/api/rafthttp/probing_status.go
of etcd-io/etcd)."""

MIB, GIB = 1024, 1024**2
"""Units in KiB, as used by the script."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Facts about a host, found by the script."""

    clock: float
    """System time in seconds since 1970."""
    root: bool
    """Whether the user is root or has passwordless sudo."""
    hostname: str
    """Hostname."""
    os: str
    """`ID` of /etc/os-release."""
    os_version: str
    """`VERSION_ID` of /etc/os-release."""
    kernel: str
    """Release of the running kernel."""
    architecture: str
    """Architecture of the running kernel: `x86_64`."""
    cgroup: str
    """File system type of /sys/fs/cgroup; `cgroup2fs` for cgroups v2."""
    memory_kib: int
    """Total memory in KiB."""
    swap_kib: int
    """Enabled swap in KiB."""
    disk_free_kib: int
    """Free disk space at /var/lib in KiB, for users other than root."""
    addresses: tuple[str, ...]
    """IP addresses."""
    nameserver: str
    """First nameserver in /etc/resolv.conf."""
    gpus_amd: int
    """Number of AMD GPUs on the PCI bus, with or without a driver."""
    gpus_nvidia: int
    """Number of NVIDIA GPUs on the PCI bus."""
    module_amdgpu: bool
    """Whether the AMD driver is loaded."""
    module_nvidia: bool
    """Whether the NVIDIA driver is loaded."""
    driver_nvidia: str
    """Version of the loaded NVIDIA driver; empty if none."""
    containerd: str
    """Version of containerd; empty if not installed."""
    docker: str
    """Version of Docker; empty if not installed."""
    render_gid: int | None
    """ID of the group of the first render node, which containers must join to use an AMD GPU; None if there is no
    render node."""


@dataclass(frozen=True, kw_only=True)
class HostNeeds:
    """Requirements on a host."""

    address: str | None = None
    """Address that the host must have; None for any."""
    kubernetes: bool = True
    """Whether a kubelet will run on the host."""
    container_manager: str | None = None
    """Container manager that kubespray installs on the host; None without kubespray."""
    memory_mib: int = 1024
    """Minimum memory in MiB. kubespray itself rejects workers below 1024 and control plane nodes below 1500
    (roles/kubernetes/preinstall/defaults/main.yml at v2.31.0)."""
    disk_gib: int = 20
    """Minimum free disk space in GiB for images and logs."""
    gpu: Literal["amd", "nvidia"] | None = None
    """Required GPU vendor; None for no GPUs."""
    gpus: int | None = None
    """Required number of GPUs; None for at least one."""


def preflight_script() -> str:
    """Return the script that collects the facts, for `sh -s`. It prints one `name=value` per line."""
    return SCRIPT.read_text()


def parse_facts(text: str) -> HostFacts:
    """Return the facts that the script printed. Other lines, such as login banners, are ignored.

    Raise ValueError for missing or non-numeric facts, for example after a broken connection.
    """
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "complete" not in facts:
        raise ValueError("facts are missing: the connection was interrupted, or the login shell is not a shell")
    try:
        return HostFacts(
            clock=float(facts["clock"]),
            root=facts["root"] == "yes",
            hostname=facts["hostname"],
            os=facts["os"],
            os_version=facts["os_version"],
            kernel=facts["kernel"],
            architecture=facts["architecture"],
            cgroup=facts["cgroup"],
            memory_kib=int(facts["memory_kib"]),
            swap_kib=int(facts["swap_kib"]),
            disk_free_kib=int(facts["disk_free_kib"]),
            addresses=tuple(facts["addresses"].split()),
            nameserver=facts["nameserver"],
            gpus_amd=int(facts["gpus_amd"]),
            gpus_nvidia=int(facts["gpus_nvidia"]),
            module_amdgpu=facts["module_amdgpu"] == "yes",
            module_nvidia=facts["module_nvidia"] == "yes",
            driver_nvidia=facts["driver_nvidia"],
            containerd=facts["containerd"],
            docker=facts["docker"],
            render_gid=int(facts["render_gid"]) if facts["render_gid"] else None,
        )
    except KeyError as error:
        raise ValueError(f"the fact {error.args[0]} is missing") from None
    except ValueError as error:
        raise ValueError(f"a fact is not a number: {error}") from None


Rule = Callable[[HostFacts, HostNeeds], Iterator[str]]


def preflight_failures(facts: HostFacts, needs: HostNeeds, *, skew_seconds: float | None = None) -> list[str]:
    """Return unmet requirements: what was found, why it matters, what to do. Empty if all are met.

    `skew_seconds` is how far the host's clock is ahead of the caller's, if known.
    """
    found = [failure for rule in RULES for failure in rule(facts, needs)]
    if skew_seconds is not None and abs(skew_seconds) > CLOCK_SKEW_SECONDS:
        found.append(
            f"clock: is {abs(skew_seconds):.1f} s {'ahead' if skew_seconds > 0 else 'behind'}; certificates and etcd"
            " require the same time on all hosts; start a time service: timedatectl set-ntp true"
        )
    return found


def _root(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if not facts.root:
        yield "sudo: requires a password; set NOPASSWD for the user in /etc/sudoers.d"


def _operating_system(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    version = facts.os_version if facts.os in ("ubuntu", "debian") else facts.os_version.partition(".")[0]
    if version not in OPERATING_SYSTEMS.get(facts.os, ()):
        known = ", ".join(f"{name} {'/'.join(versions)}" for name, versions in OPERATING_SYSTEMS.items())
        yield f"os: {facts.os or 'unknown'} {facts.os_version} is not supported; install one of: {known}"


def _kubelet(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if not needs.kubernetes:
        return
    if facts.cgroup != "cgroup2fs":
        yield (
            "cgroup: is not version 2, which the kubelet requires from 1.35 on; boot with"
            " systemd.unified_cgroup_hierarchy=1"
        )
    if facts.swap_kib:
        yield (
            f"swap: {facts.swap_kib // MIB} MiB is enabled, so the kubelet would not start; run swapoff -a, and remove"
            " it from /etc/fstab"
        )


def _docker(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure if kubespray would uninstall Docker
    (roles/container-engine/validate-container-engine/tasks/main.yml:103-127 and
    roles/container-engine/docker/tasks/reset.yml at v2.31.0)."""
    if facts.docker and needs.container_manager not in (None, "docker"):
        yield (
            f"docker: {facts.docker} is installed; if it runs, kubespray drains the node, kills all of Docker's"
            f" containers and uninstalls Docker, because container_manager is {needs.container_manager}; remove Docker"
            " yourself, or use container_manager docker"
        )


def _room(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if facts.memory_kib < needs.memory_mib * MIB:
        yield f"memory: {facts.memory_kib // MIB} MiB; at least {needs.memory_mib} MiB is required; use another machine"
    if facts.disk_free_kib < needs.disk_gib * GIB:
        yield (
            f"disk: {facts.disk_free_kib // GIB} GiB is free at /var/lib; at least {needs.disk_gib} GiB is required;"
            " free disk space, or mount a larger disk there"
        )


def _network(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if needs.address and needs.address not in facts.addresses:
        yield (
            f"address: the host does not have {needs.address}, only {', '.join(facts.addresses)}; use an address of one"
            " of its interfaces"
        )
    if not facts.nameserver:
        yield "nameserver: none in /etc/resolv.conf, so images cannot be pulled; add one"


def _gpus(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if needs.gpu is None:
        return
    present, module, vendor = {
        "amd": (facts.gpus_amd, facts.module_amdgpu, "AMD"),
        "nvidia": (facts.gpus_nvidia, facts.module_nvidia, "NVIDIA"),
    }[needs.gpu]
    if present == 0 or (needs.gpus is not None and present != needs.gpus):
        expected = "at least one" if needs.gpus is None else needs.gpus
        yield f"gpus: {present} {vendor} GPUs on the PCI bus, expected {expected}; reseat them, or correct the number"
    if present and not module:
        driver = "amdgpu" if needs.gpu == "amd" else "nvidia"
        yield f"driver: the module {driver} is not loaded; install the driver, or run: modprobe {driver}"
    if needs.gpu == "amd" and present and module and facts.render_gid is None:
        yield "render: no /dev/dri/renderD*, although the driver is loaded; search for amdgpu in the output of dmesg"


RULES: tuple[Rule, ...] = (_root, _operating_system, _kubelet, _docker, _room, _network, _gpus)
