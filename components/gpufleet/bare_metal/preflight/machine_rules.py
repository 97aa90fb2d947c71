"""Requirements that a machine fails, apart from its GPUs: one line each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet.bare_metal.preflight.needs import GIB, MIB, HostNeeds

ANY = ("*",)

OPERATING_SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "ubuntu": ("22.04", "24.04"),
    "debian": ("11", "12", "13"),
    "rhel": ("9", "10"),
    "centos": ("9", "10"),
    "rocky": ("9", "10"),
    "almalinux": ("9", "10"),
    "ol": ("9", "10"),
    "fedora": ("39", "40", "41", "42"),
    "opensuse-leap": ("15",),
    "opensuse-tumbleweed": ANY,
    "flatcar": ANY,
    "amzn": ("2",),
    "kylin": ("V10",),
    "uos": ("20",),
    "openEuler": ANY,
}
"""Versions that kubespray v2.31.0 supports (README.md:87-102; roles/bootstrap_os/tasks has a file for each family, and
roles/kubernetes/preinstall/defaults/main.yml:80 the names), by `ID` of /etc/os-release. Fedora CoreOS has the ID of
Fedora, Oracle Linux `ol`. Minor versions are ignored, except Ubuntu's."""

CERTIFICATE_DAYS = 30
"""Days before their end at which certificates have to be renewed. kubeadm's are valid for a year; kubespray's timer
renews them each month (roles/kubernetes/control-plane/templates/k8s-certs-renew.timer.j2 at v2.31.0)."""


def sudo(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure without root."""
    if not facts.root:
        yield "sudo: requires a password; set NOPASSWD for the user in /etc/sudoers.d"


def operating_system(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure for a distribution or an architecture that is not supported."""
    version = facts.os_version if facts.os == "ubuntu" else facts.os_version.partition(".")[0]
    versions = OPERATING_SYSTEMS.get(facts.os, ())
    if versions != ANY and version not in versions:
        known = ", ".join(
            name if versions == ANY else f"{name} {'/'.join(versions)}" for name, versions in OPERATING_SYSTEMS.items()
        )
        yield f"os: {facts.os or 'unknown'} {facts.os_version} is not supported; install one of: {known}"
    if facts.architecture not in needs.architectures:
        allowed = " or ".join(sorted(needs.architectures))
        yield f"architecture: {facts.architecture or 'unknown'}; {allowed} is required; use another machine"


def hostname(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure for a hostname that differs from the node's name, or that is another node's."""
    found = facts.hostname.partition(".")[0]
    if found in needs.foreign_hostnames:
        yield f"hostname: is {found}, the name of another declared machine; exchange their addresses in the stack file"
    elif needs.hostname and found != needs.hostname.partition(".")[0]:
        yield (
            f"hostname: is {facts.hostname}, declared is {needs.hostname}; correct the name or the address, or run:"
            f" hostnamectl set-hostname {needs.hostname}"
        )


def kubelet(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield what keeps a kubelet and kube-proxy from running."""
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
    missing = sorted(needs.modules - {*facts.modules})
    if missing and not facts.modules_installed:
        yield f"modules: those of the running kernel {facts.kernel} are not installed; reboot into an installed kernel"
    elif missing:
        yield (
            f"modules: the kernel has no {', '.join(missing)}; install its package of additional modules, such as"
            " linux-modules-extra or kernel-modules"
        )


def docker(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure if kubespray would uninstall Docker
    (roles/container-engine/validate-container-engine/tasks/main.yml:103-127 and
    roles/container-engine/docker/tasks/reset.yml at v2.31.0)."""
    if facts.docker and needs.container_manager not in (None, "docker"):
        yield (
            f"docker: {facts.docker} is installed; if it runs, kubespray drains the node, kills all of Docker's"
            f" containers and uninstalls Docker, because container_manager is {needs.container_manager}; remove Docker"
            " yourself, or use container_manager docker"
        )


def room(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure for too few cores, too little memory and too little disk space."""
    if facts.cores < needs.cores:
        yield f"cores: {facts.cores}; pods are promised {needs.cores:g}; correct allocatable.cpu, or enable the others"
    memory = facts.memory_kib // MIB
    if memory < needs.memory_mib:
        yield f"memory: {memory} MiB; at least {needs.memory_mib} MiB is required; use another machine"
    elif memory < needs.pod_memory_mib:
        promised = f"{needs.pod_memory_mib / 1024:.0f} GiB"
        yield (
            f"memory: {memory / 1024:.0f} GiB; pods are promised {promised}; replace faulty modules, or correct"
            " allocatable.memory"
        )
    free, size = facts.disk_free_kib // GIB, facts.disk_kib // GIB
    if size < needs.pod_disk_gib:
        yield (
            f"disk: {size} GiB at /var/lib; pods are promised {needs.pod_disk_gib} GiB; mount a larger disk there, or"
            " correct allocatable.ephemeralStorage"
        )
    elif free < needs.disk_gib:
        yield (
            f"disk: {free} GiB is free at /var/lib; at least {needs.disk_gib} GiB is required;"
            " free disk space, or mount a larger disk there"
        )


def network(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure for an address that the host does not have, and for a missing nameserver."""
    if needs.address and needs.address not in facts.addresses:
        yield (
            f"address: the host does not have {needs.address}, only {', '.join(facts.addresses)}; use an address of one"
            " of its interfaces"
        )
    if not facts.nameserver:
        yield "nameserver: none in /etc/resolv.conf, so images cannot be pulled; add one"


def certificates(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure if a certificate of the cluster expires soon: one line, for the first of them."""
    if not facts.certificates:
        return
    file, end = min(facts.certificates.items(), key=lambda each: each[1])
    days = math.floor((end - facts.clock) / 86400)
    if days < CERTIFICATE_DAYS:
        when = f"expires in {days} days" if days >= 0 else f"expired {-days} days ago"
        more = sum((end - facts.clock) / 86400 < CERTIFICATE_DAYS for end in facts.certificates.values()) - 1
        others = f" (and {more} more)" if more else ""
        yield f"certificates: {file}{others} {when}; renew them on the machine: kubeadm certs renew all"


def snapshots(facts: HostFacts, needs: HostNeeds) -> Iterator[str]:
    """Yield a failure for snapshots of etcd that have stopped; before they are installed, none is due."""
    if needs.snapshot_hours is None or not facts.snapshots or not facts.root:
        return
    remedy = "search for the reason: journalctl --unit gpufleet-etcd-snapshot"
    if facts.last_snapshot is None:
        yield f"etcd snapshot: none is stored; {remedy}"
    elif (age := (facts.clock - facts.last_snapshot) / 3600) > 2 * needs.snapshot_hours:
        yield f"etcd snapshot: the last is {age:.0f} hours old, declared is every {needs.snapshot_hours}; {remedy}"
