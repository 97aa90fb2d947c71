"""Waits of a maintenance, from one state of the node to the next. The same with a real API server is in tests/hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpufleet_tools.api_server import ApiError
from gpufleet_tools.hosts.clients import Unreachable
from gpufleet_tools.maintenance import run
from gpufleet_tools.maintenance.cluster import Mark, State
from gpufleet_tools.maintenance.machine import Machine, RebootFailed
from gpufleet_tools.maintenance.run import Run, Stopped
from tests.tools.maintenance.states import state

MACHINE = Machine(
    name="node-1",
    pool="mi300x",
    peers=(),
    devices=("amd.com/gpu", 8),
    voters=("node-1", "node-2", "node-3"),
    labels={},
    announced=None,
)
MARK = Mark(by="me@here", since="2026-12-01T00:00:00+00:00", why="", boot_id="a")
EMPTY = {"mark": MARK, "is_cordoned": True}
BOOTED = state(**EMPTY, boot_id="b")


class Node:
    """A node that has these states, one at each look, and an SSH connection with these results."""

    def __init__(self, *states: State | ApiError, reboots: list[Any] | None = None) -> None:
        self.states = [*states]
        self.results = reboots or [True]
        self.attempts = 0

    def state(self) -> State:
        found = self.states.pop(0)
        if isinstance(found, ApiError):
            raise found
        return found

    def reboot(self, _boot_id: str) -> bool:
        self.attempts += 1
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return bool(result)

    def evict(self, _pod: object) -> None:
        pass


Rebooted = Callable[..., list[str]]


@pytest.fixture
def rebooted(monkeypatch: pytest.MonkeyPatch) -> Rebooted:
    """Reboots, and returns the lines that are printed."""
    monkeypatch.setattr(run, "PAUSE", 0)
    monkeypatch.setattr(run, "RETRY", 0)

    def lines(node: Node, **options: Any) -> list[str]:
        printed: list[str] = []
        Run(node, MACHINE, printed.append, **options).reboot(node)  # type: ignore[arg-type]
        assert node.states == []
        return printed

    return lines


def test_a_reboot_waits_for_the_quorum_of_etcd(rebooted: Rebooted) -> None:
    node = Node(state(**EMPTY, unready=["node-2"]), state(**EMPTY), BOOTED)
    first, *rest = rebooted(node)
    assert first.startswith("waits to reboot: etcd would lose its quorum")
    assert (rest[-1], node.attempts) == ("the machine has booted", 1)


def test_an_accepted_loss_of_the_quorum_reboots_at_once(rebooted: Rebooted) -> None:
    node = Node(state(**EMPTY, unready=["node-2"]), BOOTED)
    assert rebooted(node, may_lose_quorum=True)[0] == "reboots the machine"
    assert node.attempts == 1


def test_a_node_that_is_uncordoned_during_that_wait_is_not_rebooted(rebooted: Rebooted) -> None:
    node = Node(state(**EMPTY, unready=["node-2"]), state(mark=MARK))
    with pytest.raises(Stopped, match="somebody uncordoned the node meanwhile"):
        rebooted(node)
    assert node.attempts == 0


def test_a_machine_is_rebooted_once_although_its_node_is_slow(rebooted: Rebooted) -> None:
    node = Node(*[state(**EMPTY)] * 5, BOOTED)
    assert rebooted(node) == ["reboots the machine", "waits until the machine has booted", "the machine has booted"]
    assert node.attempts == 1


def test_an_unreachable_machine_is_tried_again(rebooted: Rebooted) -> None:
    node = Node(state(**EMPTY), state(**EMPTY), BOOTED, reboots=[Unreachable("no response"), True])
    assert "waits until the machine has booted; SSH: no response" in rebooted(node)
    assert node.attempts == 2


def test_an_api_server_that_reboots_too_is_waited_for(rebooted: Rebooted) -> None:
    node = Node(state(**EMPTY), ApiError(0, "the API server does not respond"), BOOTED)
    assert "waits for the API server: the API server does not respond" in rebooted(node)
    with pytest.raises(ApiError, match="forbidden"):
        rebooted(Node(ApiError(403, "forbidden")))


def test_a_machine_that_rejects_the_reboot_stops_it(rebooted: Rebooted) -> None:
    with pytest.raises(Stopped, match="the machine rejects the reboot: a password is required"):
        rebooted(Node(state(**EMPTY), reboots=[RebootFailed("a password is required")]))


def test_each_wait_has_the_time_limit(rebooted: Rebooted) -> None:
    with pytest.raises(Stopped, match="not finished within 0 min; run again to continue"):
        rebooted(Node(*[state(**EMPTY)] * 3), seconds=0)
