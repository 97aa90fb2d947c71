"""Faults that only a comparison of hosts finds: one line each, at the host that most likely causes it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping

from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet_tools.hosts.paths import SERVICES, Paths, faulty_hosts

Fault = tuple[str, str]
"""Name of a host, and the line."""

SYNC_MILLISECONDS = 10
"""Maximum duration of a synchronous write: etcd requires it of the 99th percentile (FAQ of etcd.io). The mean is
smaller, so a disk with a larger mean is certainly too slow."""

HEARTBEAT_MILLISECONDS = 250
"""Interval of etcd's heartbeats under kubespray (roles/etcd_defaults/defaults/main.yml at v2.31.0). etcd's tuning guide
sets it to about the largest round trip between members."""

BLOCKED = ("silent", "rejected")
"""Results of connections that a firewall stops. A refused connection came through: nothing listens there yet."""


def reference_skew(skews: Mapping[str, float]) -> float:
    """Return how far the right time is ahead of this machine's: the median of three or more hosts. Of fewer, none is
    more credible than this machine."""
    return statistics.median(skews.values()) if len(skews) > 2 else 0


def faults(
    facts: Mapping[str, HostFacts], paths: Mapping[str, Paths], heartbeat: float = HEARTBEAT_MILLISECONDS
) -> Iterator[Fault]:
    """Yield all faults, by comparison of facts and by measurement."""
    yield from _duplicates(facts)
    yield from _blocked_ports(paths)
    yield from _small_packets(paths)
    yield from _slow_etcd(paths, heartbeat)


def _duplicates(facts: Mapping[str, HostFacts]) -> Iterator[Fault]:
    """Yield hosts with the identity of an earlier one; kubeadm requires unique ones (its installation guide)."""
    remedies = {
        "machine_id": ("machine-id", "rm /etc/machine-id && systemd-machine-id-setup"),
        "product_uuid": ("product_uuid", "set a unique system UUID in the firmware"),
    }
    for field, (name, remedy) in remedies.items():
        first: dict[str, str] = {}
        for host, each in facts.items():
            identity = dataclasses.asdict(each)[field]
            if identity and (other := first.setdefault(identity, host)) != host:
                yield host, f"{name}: the same as of {other}, as of a cloned disk; remedy: {remedy}"


def _blocked_ports(paths: Mapping[str, Paths]) -> Iterator[Fault]:
    blocked: dict[tuple[str, str], list[int]] = {}
    for source, measured in paths.items():
        for (target, port), state in measured.connections.items():
            if state in BLOCKED:
                blocked.setdefault((source, target), []).append(port)
    for host, others in faulty_hosts(blocked):
        incoming = {port for (_, target), ports in blocked.items() if target == host for port in ports}
        outgoing = {port for (source, _), ports in blocked.items() if source == host for port in ports}
        if incoming:
            text = f"ports: {_services(incoming)} cannot be reached from {_some(others)}; admit nodes in its firewall"
        else:
            text = f"ports: {_services(outgoing)} of {_some(others)} cannot be reached; allow them in its firewall"
        yield host, text


def _services(ports: set[int]) -> str:
    return ", ".join(f"{port} ({SERVICES.get(port, 'network plugin')})" for port in sorted(ports))


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} others"


def _small_packets(paths: Mapping[str, Paths]) -> Iterator[Fault]:
    small = {
        (source, target): sizes
        for source, measured in paths.items()
        for target, sizes in measured.packets.items()
        if sizes[1] < sizes[0]
    }
    for host, others in faulty_hosts(small):
        mtu, largest = min(sizes for pair, sizes in small.items() if host in pair)
        line = (
            f"mtu: packets of {mtu} bytes get lost between it and {_some(others)}, those of {largest} arrive;"
            " correct the MTU on the path, or set that of the interface"
        )
        yield host, line


def _slow_etcd(paths: Mapping[str, Paths], heartbeat: float) -> Iterator[Fault]:
    for host, measured in paths.items():
        if (sync := measured.sync_milliseconds) is not None and sync > SYNC_MILLISECONDS:
            line = (
                f"etcd disk: a synchronous write takes {sync:.0f} ms on average, etcd requires"
                f" {SYNC_MILLISECONDS} ms; put /var/lib/etcd on an SSD of its own"
            )
            yield host, line
    slow = {
        (source, target): mean
        for source, measured in paths.items()
        for target, mean in measured.round_trips.items()
        if mean > heartbeat
    }
    for host, others in faulty_hosts(slow):
        worst = max(mean for pair, mean in slow.items() if host in pair)
        line = (
            f"etcd: the round trip to {_some(others)} takes {worst:.0f} ms, the heartbeat interval is"
            f" {heartbeat:g} ms; use members that are nearer, or increase etcd_heartbeat_interval"
        )
        yield host, line
