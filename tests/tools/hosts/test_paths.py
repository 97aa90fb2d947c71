"""Which paths are measured between hosts, and which host a fault is attributed to."""

from __future__ import annotations

import dataclasses

import pytest

from gpufleet_tools.hosts import between_hosts
from gpufleet_tools.hosts.paths import Paths, Peer, faulty_hosts, parse_paths, scripts
from tests.components.bare_metal.preflight.test_rules import GOOD

CONTROL = frozenset({"control_plane", "etcd", "worker"})


def calls(script: str) -> set[str]:
    """The calls of a script, without its definitions."""
    return {line.removesuffix(" &") for line in script.splitlines() if line.endswith(" &")}


def peers(*names: str, **further: object) -> list[Peer]:
    return [Peer(name=name, address=f"10.0.0.{number}", **further) for number, name in enumerate(names, 1)]  # type: ignore[arg-type]


def test_who_reaches_whom() -> None:
    worker, control = peers("worker", "control")
    found = scripts([worker, dataclasses.replace(control, roles=CONTROL)])
    assert calls(found["worker"]) == {"connect control 10.0.0.2 6443", "packets control 10.0.0.2"}
    assert calls(found["control"]) == {"connect worker 10.0.0.1 10250", "sync_disk /var/lib/etcd"}


def test_members_of_etcd_reach_each_other() -> None:
    found = scripts(peers("one", "two", roles=CONTROL))
    ports = {f"connect two 10.0.0.2 {port}" for port in (6443, 10250, 2379, 2380)}
    assert calls(found["one"]) == {*ports, "packets two 10.0.0.2", "round_trip two 10.0.0.2", "sync_disk /var/lib/etcd"}
    assert "round_trip one 10.0.0.1" not in calls(found["two"])


def test_large_packets_go_round_each_site_and_once_between_sites() -> None:
    here, there = peers("a1", "a2", "a3", site="a"), peers("b1", "b2", site="b")
    probed = {
        (source, call.split()[1])
        for source, script in scripts([*here, *there]).items()
        for call in calls(script)
        if call.startswith("packets")
    }
    assert probed == {("a1", "a2"), ("a2", "a3"), ("a3", "a1"), ("b1", "b2"), ("a1", "b1")}


def test_a_hundred_hosts_are_no_ten_thousand_connections() -> None:
    workers = peers(*(f"worker-{number}" for number in range(97)))
    control = peers("c1", "c2", "c3", roles=CONTROL)
    found = scripts([*control, *workers])
    assert sum(line.startswith("connect ") for script in found.values() for line in calls(script)) < 700


PRINTED = """\
Welcome
connect two 6443 open
connect two 10250 silent
packets two 1500 1400
packets three 1500 unknown
round_trip two 0.345
round_trip three unknown
sync_disk 0.25
complete
"""


def test_results_are_read_one_by_one() -> None:
    found = parse_paths(PRINTED)
    assert found.connections == {("two", 6443): "open", ("two", 10250): "silent"}
    assert (found.packets, found.round_trips) == ({"two": (1500, 1400)}, {"two": 0.345})
    # A hundred writes in 0.25 s.
    assert found.sync_milliseconds == 2.5
    assert found.unmeasured == (
        "path MTU to three: no answer to ping",
        "round trip to three: no answer to ping",
    )


def test_results_that_break_off_are_said_to() -> None:
    found = parse_paths(PRINTED.replace("complete\n", ""))
    assert found.packets
    assert found.unmeasured[-1] == "some paths: not finished in time"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([("a", "b")], [("b", ["a"])]),
        ([("a", "b"), ("b", "c")], [("b", ["a", "c"])]),
        ([("a", "d"), ("b", "d"), ("c", "d")], [("d", ["a", "b", "c"])]),
        ([("d", "a"), ("d", "b"), ("d", "c")], [("d", ["a", "b", "c"])]),
        ([("a", "b"), ("c", "d"), ("c", "e")], [("c", ["d", "e"]), ("b", ["a"])]),
    ],
)
def test_the_host_that_explains_most_is_at_fault(
    pairs: list[tuple[str, str]], expected: list[tuple[str, list[str]]]
) -> None:
    assert [*faulty_hosts(pairs)] == expected


def faults(paths: dict[str, Paths]) -> list[between_hosts.Fault]:
    return [*between_hosts.faults({}, paths)]


def test_a_firewall_is_one_line_at_its_host() -> None:
    blocked = {("three", 10250): "silent", ("three", 6443): "rejected", ("four", 10250): "refused"}
    ((host, line),) = faults({name: Paths(connections=blocked) for name in ("one", "two")})
    assert host == "three"
    assert line == (
        "ports: 6443 (API server), 10250 (kubelet) cannot be reached from one, two; admit nodes in its firewall"
    )


def test_a_host_that_reaches_nobody_is_at_fault_itself() -> None:
    ((host, line),) = faults({"one": Paths(connections={(name, 10250): "silent" for name in ("two", "three")})})
    assert (host, line.split(";")[0]) == ("one", "ports: 10250 (kubelet) of two, three cannot be reached")


def test_a_slow_member_of_etcd_is_said() -> None:
    slow = Paths(round_trips={"two": 300.4, "three": 80}, sync_milliseconds=24.2)
    assert [(host, line.split(";")[0]) for host, line in faults({"one": slow})] == [
        ("one", "etcd disk: a synchronous write takes 24 ms on average, etcd requires 10 ms"),
        ("two", "etcd: the round trip to one takes 300 ms, the heartbeat interval is 250 ms"),
    ]


def test_identities_are_compared() -> None:
    other = dataclasses.replace(GOOD, machine_id="", product_uuid="other")
    hosts = {"one": GOOD, "two": dataclasses.replace(GOOD, product_uuid="its own"), "three": other, "four": other}
    assert [(host, line.split(",")[0]) for host, line in between_hosts.faults(hosts, {})] == [
        ("two", "machine-id: the same as of one"),
        ("four", "product_uuid: the same as of three"),
    ]


@pytest.mark.parametrize(("skews", "right"), [([], 0), ([9, 9], 0), ([0, 0, 90], 0), ([90, 90.5, 91], 90.5)])
def test_the_right_time_is_that_of_most(skews: list[float], right: float) -> None:
    assert between_hosts.reference_skew({str(number): skew for number, skew in enumerate(skews)}) == right
