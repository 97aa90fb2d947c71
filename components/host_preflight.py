"""What a host is like, and why a cluster or a runner could not be on it: known before anything is installed."""

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
"""Versions by `ID` of /etc/os-release that kubespray v2.31.0 names (its README); a Red Hat's counts without its minor
version."""

CLOCK_SKEW_SECONDS = 1.0
"""How far clocks may be apart: etcd warns of its peers above one second
(server/etcdserver/api/rafthttp/probing_status.go of etcd-io/etcd)."""

MIB, GIB = 1024, 1024**2
"""In KiB, which the script counts in."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What the script found."""

    clock: float
    """Its time, in seconds since 1970."""
    root: bool
    """The user is root, or may be by sudo without a password."""
    hostname: str
    """What it calls itself."""
    os: str
    """`ID` of /etc/os-release."""
    os_version: str
    """`VERSION_ID` of /etc/os-release."""
    kernel: str
    """Release of the kernel that runs."""
    architecture: str
    """Of that kernel: `x86_64`."""
    cgroup: str
    """Type of the file system at /sys/fs/cgroup: `cgroup2fs` where cgroups are of version 2."""
    memory_kib: int
    """Memory."""
    swap_kib: int
    """Swap that is on."""
    disk_free_kib: int
    """Space left where /var/lib is, for users who are not root."""
    addresses: tuple[str, ...]
    """Its IP addresses."""
    nameserver: str
    """The first of /etc/resolv.conf."""
    gpus_amd: int
    """GPUs of AMD on the PCI bus, whether a driver knows them or not."""
    gpus_nvidia: int
    """GPUs of NVIDIA on the PCI bus."""
    module_amdgpu: bool
    """AMD's driver is loaded."""
    module_nvidia: bool
    """NVIDIA's driver is loaded."""
    driver_nvidia: str
    """Version of NVIDIA's driver that is loaded; empty where none is."""
    containerd: str
    """Version of containerd; empty where it is not there."""
    docker: str
    """Version of Docker; empty where it is not there."""
    render_gid: int | None
    """Group of the first render node, whom containers have to be in to use an AMD GPU; None where there is no node."""


@dataclass(frozen=True, kw_only=True)
class HostNeeds:
    """What a host is needed for."""

    address: str | None = None
    """Address that has to be one of its own; None for any."""
    kubernetes: bool = True
    """A kubelet is going to run on it."""
    memory_mib: int = 1024
    """Least memory. kubespray itself refuses a worker below 1024 and a control plane below 1500
    (roles/kubernetes/preinstall/defaults/main.yml at v2.31.0)."""
    disk_gib: int = 20
    """Least space that is left for images and logs."""
    gpu: Literal["amd", "nvidia"] | None = None
    """Whose GPUs it has to have; None for none."""
    gpus: int | None = None
    """How many of them; None for any number but none."""


def preflight_script() -> str:
    """The script that finds the facts, for `sh -s`. It prints one `name=value` a line."""
    return SCRIPT.read_text()


def parse_facts(text: str) -> HostFacts:
    """What the script printed. Lines that are none of its own are passed over: hosts greet whom they let in.

    Raises ValueError for facts that are missing or no numbers, as of a connection that broke off.
    """
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "complete" not in facts:
        raise ValueError("facts are missing: the connection broke off, or the login shell is no shell")
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
        raise ValueError(f"a fact is no number: {error}") from None


Rule = Callable[[HostFacts, HostNeeds], Iterator[str]]


def preflight_failures(facts: HostFacts, needs: HostNeeds, *, skew_seconds: float | None = None) -> list[str]:
    """Why the host is not what is needed: what is so, why it matters, what to do. Empty where it is.

    `skew_seconds` is how far its clock is ahead of the one who asks, where that is known.
    """
    found = [failure for rule in RULES for failure in rule(facts, needs)]
    if skew_seconds is not None and abs(skew_seconds) > CLOCK_SKEW_SECONDS:
        found.append(
            f"clock: is {abs(skew_seconds):.1f} s {'ahead' if skew_seconds > 0 else 'behind'}; certificates and etcd"
            " want the same time everywhere. Start a time service: timedatectl set-ntp true"
        )
    return found


def _root(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if not facts.root:
        yield "sudo: asks for a password; give the user NOPASSWD in /etc/sudoers.d"


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
            "cgroup: is not version 2, and the kubelet of 1.35 refuses any other; start the kernel with"
            " systemd.unified_cgroup_hierarchy=1"
        )
    if facts.swap_kib:
        yield (
            f"swap: {facts.swap_kib // MIB} MiB is on, and the kubelet does not start; swapoff -a, and take it out of"
            " /etc/fstab"
        )


def _room(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if facts.memory_kib < needs.memory_mib * MIB:
        yield f"memory: {facts.memory_kib // MIB} MiB; at least {needs.memory_mib} MiB is needed. Use another machine"
    if facts.disk_free_kib < needs.disk_gib * GIB:
        yield (
            f"disk: {facts.disk_free_kib // GIB} GiB is left at /var/lib; at least {needs.disk_gib} GiB is needed."
            " Make room, or mount a larger disk there"
        )


def _network(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if needs.address and needs.address not in facts.addresses:
        yield (
            f"address: {needs.address} is none of its own ({', '.join(facts.addresses)}); a node has to be named by an"
            " address that is on one of its interfaces"
        )
    if not facts.nameserver:
        yield "nameserver: none in /etc/resolv.conf, so no image is ever pulled; name one"


def _gpus(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    if needs.gpu is None:
        return
    there, module, vendor = {
        "amd": (facts.gpus_amd, facts.module_amdgpu, "AMD"),
        "nvidia": (facts.gpus_nvidia, facts.module_nvidia, "NVIDIA"),
    }[needs.gpu]
    if there == 0 or (needs.gpus is not None and there != needs.gpus):
        wanted = "at least one" if needs.gpus is None else needs.gpus
        yield f"gpus: {there} of {vendor} on the PCI bus, {wanted} is wanted; seat them, or correct the number"
    if there and not module:
        driver = "amdgpu" if needs.gpu == "amd" else "nvidia"
        yield f"driver: the module {driver} is not loaded; install the driver, or: modprobe {driver}"
    if needs.gpu == "amd" and there and module and facts.render_gid is None:
        yield "render: no /dev/dri/renderD*, though the driver is loaded; look for amdgpu in: dmesg"


RULES: tuple[Rule, ...] = (_root, _operating_system, _kubelet, _room, _network, _gpus)
