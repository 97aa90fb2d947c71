"""Objections to the maintenance of a machine: reasons to refuse it, and effects on labels to know beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufleet_tools.maintenance.cluster import State
from gpufleet_tools.maintenance.machine import Machine


@dataclass(frozen=True)
class Objection:
    """A reason against the maintenance now."""

    name: str
    """Name of the refusal; empty for an effect that does not refuse it."""
    text: str
    """The fact, and its consequence or what to do."""

    def __str__(self) -> str:
        return f"refused: {self.text} (--allow {self.name})" if self.name else f"warning: {self.text}"


def refusals(machine: Machine, state: State, allowed: frozenset[str] = frozenset()) -> Iterator[Objection]:
    """Yield the reasons to refuse a maintenance that has not begun."""
    found = [*_quorum(machine, state), *_pool(machine, state)]
    yield from (each for each in found if each.name not in allowed)


def _quorum(machine: Machine, state: State) -> Iterator[Objection]:
    missing = lost_quorum(machine, state)
    if missing is not None:
        yield Objection("quorum", missing)


def lost_quorum(machine: Machine, state: State) -> str | None:
    """Return why etcd would lose its quorum while the machine is down; None if it keeps it."""
    voters = {*machine.voters} or ({*state.control_plane} if machine.name in state.control_plane else set())
    if not voters:
        return None
    ready = voters - {machine.name} - {*state.unready}
    required = len(voters) // 2 + 1
    if len(ready) >= required:
        return None
    down = sorted(voters & {*state.unready})
    because = f"{', '.join(down)} {'is' if len(down) == 1 else 'are'} not ready" if down else "it has too few members"
    return (
        f"etcd would lose its quorum: {len(ready)} of {len(voters)} members would run, {required} are required;"
        f" {because}"
    )


def _pool(machine: Machine, state: State) -> Iterator[Objection]:
    others = sorted({*machine.peers} & {*state.away})
    if others:
        are = "is" if len(others) == 1 else "are"
        text = f"{', '.join(others)} of pool {machine.pool} {are} cordoned or not ready; one machine at a time"
        yield Objection("pool", text)


def effects(machine: Machine, state: State) -> Iterator[Objection]:
    """Yield the labels that have no other node meanwhile."""
    for label, others in machine.labels.items():
        if not {*others} - {*state.away}:
            yield Objection("", f"{label} has no other node; its jobs wait until {machine.name} is back")
