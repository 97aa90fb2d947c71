"""Steps of a maintenance, with the commands by which a person does the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpufleet_tools.doctor.target import Target
from gpufleet_tools.maintenance.cluster import RUNNER_POD, State
from gpufleet_tools.maintenance.machine import Connection, Machine


@dataclass(frozen=True)
class Step:
    """A step of a maintenance."""

    text: str
    """The step, and what it concerns now."""
    commands: Sequence[str] = ()
    """Commands of kubectl for the cluster, or of ssh."""
    is_done: bool = False
    """Whether the cluster shows that it is done."""


def freeing(machine: Machine, state: State, target: Target) -> Iterator[Step]:
    """Yield the steps that free the node."""
    name, is_over = machine.name, has_rebooted(state)
    idle, busy = state.runners_that_are("idle"), state.runners_that_are("busy")
    others = [*state.evictable, *state.lasting]
    yield Step(
        "cordon the node, so that it gets no further pods",
        [target.kubectl(f"cordon {name}")],
        state.mark is not None and state.is_cordoned,
    )
    yield Step(
        f"delete idle runners: {len(idle)} now; ARC starts others elsewhere",
        [target.kubectl(f"delete ephemeralrunner -n {each.namespace} --wait=false {each.name}") for each in idle],
        is_over,
    )
    yield Step(
        f"wait until runners with a job have ended: {len(busy)} now",
        [target.kubectl(f"get ephemeralrunner -n {each.namespace} {each.name}") for each in busy],
        is_over,
    )
    yield Step(
        f"evict other pods: {len(others)} now",
        [target.kubectl(f"drain {name} --ignore-daemonsets --delete-emptydir-data --pod-selector '!{RUNNER_POD}'")],
        is_over,
    )


def rebooting(machine: Machine, state: State, connection: Connection | None) -> Iterator[Step]:
    """Yield the step that reboots the machine."""
    yield Step("reboot the machine", [connection.command] if connection else (), has_rebooted(state))


def returning(machine: Machine, target: Target, *, with_reboot: bool) -> Iterator[Step]:
    """Yield the steps that return the node to service."""
    resource, count = machine.devices
    boot = " with another boot ID" if with_reboot else ""
    path = resource.replace(".", "\\.")
    yield Step(
        f"wait until the node is ready{boot} and offers {count} {resource}",
        [
            target.kubectl(
                f"get node {machine.name} -o jsonpath='{{.status.nodeInfo.bootID}} {{.status.allocatable.{path}}}'"
            )
        ],
    )
    if machine.announced:
        yield Step(f"keep the node cordoned: the stack file has its maintenance until {machine.announced.until}")
    else:
        yield Step("uncordon the node", [target.kubectl(f"uncordon {machine.name}")])


def has_rebooted(state: State) -> bool:
    """Return whether the machine has rebooted since its maintenance began."""
    return state.mark is not None and state.boot_id != state.mark.boot_id
