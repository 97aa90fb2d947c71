"""Measurements of the paths between hosts: which are made, and their results."""

from __future__ import annotations

import itertools
import pathlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SCRIPT = pathlib.Path(__file__).with_suffix(".sh")

AT_ONCE = 50
"""Connections that a host opens at the same time."""

SERVICES: Mapping[int, str] = {
    6443: "API server",
    10250: "kubelet",
    2379: "etcd",
    2380: "etcd peers",
    179: "Calico, BGP",
    4240: "Cilium",
}
"""TCP ports between nodes (docs/operations/port-requirements.md of kubespray v2.31.0). UDP ports cannot be probed
before something answers there."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A host as others reach it."""

    name: str
    """Name."""
    address: str
    """Address at which other hosts reach it."""
    roles: frozenset[str] = frozenset({"worker"})
    """Roles in the cluster."""
    site: str | None = None
    """Location."""
    mesh_ports: frozenset[int] = frozenset()
    """TCP ports on which all nodes reach each other, for the network plugin."""
    etcd_folder: str = "/var/lib/etcd"
    """Data directory of etcd."""


@dataclass(frozen=True)
class Paths:
    """Results of the measurements from one host."""

    connections: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """`open`, `refused`, `silent`, `rejected` or `unknown`, by peer and port."""
    packets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """MTU of the interface, and the largest packet that reaches the peer and comes back, by peer."""
    round_trips: Mapping[str, float] = field(default_factory=dict)
    """Mean round trip in milliseconds, by peer."""
    sync_milliseconds: float | None = None
    """Mean duration of a synchronous write to etcd's disk."""
    unmeasured: tuple[str, ...] = ()
    """Measurements without a result."""


def scripts(peers: Sequence[Peer]) -> dict[str, str]:
    """Return the script of each host that measures something, by its name."""
    lines: dict[str, list[str]] = {peer.name: [] for peer in peers}
    for source, target in itertools.permutations(peers, 2):
        for port in sorted(_ports(source, target)):
            lines[source.name].append(_call("connect", target.name, target.address, port))
    for source, target in _probed(peers):
        lines[source.name].append(_call("packets", target.name, target.address))
    members = [peer for peer in peers if "etcd" in peer.roles]
    for source, target in itertools.combinations(members, 2):
        lines[source.name].append(_call("round_trip", target.name, target.address))
    for member in members:
        lines[member.name].append(_call("sync_disk", member.etcd_folder))
    return {name: _script(calls) for name, calls in lines.items() if calls}


def _call(*words: object) -> str:
    return shlex.join(str(word) for word in words)


def _script(calls: Sequence[str]) -> str:
    """Return the script with its calls in the background, some at a time."""
    batches = [calls[start : start + AT_ONCE] for start in range(0, len(calls), AT_ONCE)]
    body = "wait\n".join("".join(f"{call} &\n" for call in batch) for batch in batches)
    return f"{SCRIPT.read_text()}\n{{\n{body}finish\n}} </dev/null\n"


def _ports(source: Peer, target: Peer) -> Iterator[int]:
    """Yield the TCP ports on which one host reaches another."""
    if "control_plane" in target.roles:
        yield 6443
    if "control_plane" in source.roles:
        yield 10250
    if "etcd" in target.roles and source.roles & {"control_plane", "etcd"}:
        yield 2379
    if "etcd" in target.roles and "etcd" in source.roles:
        yield 2380
    yield from source.mesh_ports


def _probed(peers: Sequence[Peer]) -> Iterator[tuple[Peer, Peer]]:
    """Yield pairs of hosts whose path is probed with large packets: neighbours in a ring at each site, so that a host
    with a faulty port has two, and one pair between sites. An echo tests both directions."""
    sites: dict[str | None, list[Peer]] = {}
    for peer in peers:
        sites.setdefault(peer.site, []).append(peer)
    for ring in sites.values():
        yield from itertools.pairwise(ring)
        if len(ring) > 2:
            yield ring[-1], ring[0]
    yield from itertools.combinations((ring[0] for ring in sites.values()), 2)


def parse_paths(printed: str) -> Paths:
    """Return the results that a script printed, as far as it came. Other lines are ignored."""
    connections: dict[tuple[str, int], str] = {}
    packets: dict[str, tuple[int, int]] = {}
    round_trips: dict[str, float] = {}
    sync: float | None = None
    unmeasured: list[str] = []
    for line in printed.splitlines():
        try:
            match line.split():
                case ["connect", peer, port, state]:
                    connections[peer, int(port)] = state
                case ["packets", peer, mtu, largest]:
                    packets[peer] = (int(mtu), int(largest))
                case ["round_trip", peer, mean]:
                    round_trips[peer] = float(mean)
                case ["sync_disk", seconds]:
                    sync = float(seconds) * 10
        except ValueError:
            unmeasured.append(_unmeasured(line.split()))
    if "complete" not in printed.splitlines():
        unmeasured.append("some paths: not finished in time")
    return Paths(connections, packets, round_trips, sync, tuple(unmeasured))


def _unmeasured(words: Sequence[str]) -> str:
    kind, peer, *_ = words
    return {
        "packets": f"path MTU to {peer}: no answer to ping",
        "round_trip": f"round trip to {peer}: no answer to ping",
    }.get(kind, f"{kind}: no result")


def faulty_hosts(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield hosts that explain faulty paths, each with the hosts at the other ends: first the one that explains most.
    Of equals, the target of a path comes first."""
    left = dict.fromkeys(pairs)
    while left:
        targets, sources = [target for _, target in left], [source for source, _ in left]
        counts = {name: targets.count(name) + sources.count(name) for name in [*targets, *sources]}
        culprit = max(counts, key=lambda name: counts[name])
        ends = [source if target == culprit else target for source, target in left if culprit in (source, target)]
        left = {pair: None for pair in left if culprit not in pair}
        yield culprit, list(dict.fromkeys(ends))
