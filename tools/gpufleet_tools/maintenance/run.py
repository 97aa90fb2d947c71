"""The maintenance itself: each step, and the waits between them. Its state is the node's, so that a run that was killed
goes on where it ended, on any machine."""

from __future__ import annotations

import datetime
import functools
import getpass
import math
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpufleet_tools.api_server import ApiError
from gpufleet_tools.doctor.view import identity
from gpufleet_tools.hosts.clients import ClientLimit, Unreachable
from gpufleet_tools.maintenance.cluster import Mark, Node, State
from gpufleet_tools.maintenance.machine import Connection, Machine, RebootFailed
from gpufleet_tools.maintenance.objections import lost_quorum
from gpufleet_tools.maintenance.steps import has_rebooted

PAUSE = 2.0
"""Seconds between two looks at the node."""

RETRY = 30.0
"""Seconds between two attempts to reboot a machine that SSH does not reach."""


class Stopped(Exception):
    """The maintenance cannot go on. `str()` is one line; a later run continues."""


@dataclass
class Run:
    """A run of the maintenance."""

    node: Node
    machine: Machine
    say: Callable[[str], None]
    """Prints a line about progress."""
    seconds: float | None = None
    """Time limit of each wait; None for no limit."""
    may_lose_quorum: bool = False
    """Whether to reboot although etcd loses its quorum."""
    _said: str = field(default="", init=False)
    _next_attempt: float = field(default=-math.inf, init=False)

    def begin(self, why: str) -> None:
        """Cordon the node. A maintenance that has begun keeps its record."""
        state = self.node.state()
        mark = state.mark or Mark(
            by=f"{getpass.getuser()}@{socket.gethostname()}",
            since=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            why=why,
            boot_id=state.boot_id,
        )
        if state.mark:
            self._tell(f"continues the maintenance that {mark.by} began at {mark.since}: {mark.why}")
        if state.mark is None or not state.is_cordoned:
            self.node.cordon(state.uid, mark)
            self._tell("cordoned")

    def free(self) -> None:
        """Delete idle runners, wait for the others, and evict other pods. Raises Stopped."""
        self._wait(self._frees)

    def _frees(self, state: State) -> str | None:
        if has_rebooted(state):
            return None
        reason = self._emptied(state)
        if reason is None:
            self._tell("the node is free: no runner, and no pod that would be lost")
        return reason

    def _emptied(self, state: State) -> str | None:
        """Delete what may be deleted. Return what to wait for; None if the node is free. Raises Stopped."""
        if not state.is_cordoned:
            raise Stopped(
                "somebody uncordoned the node meanwhile; run the command again to cordon it, or end the maintenance"
                " with --finish"
            )
        for runner in state.runners_that_are("idle"):
            self._tell(f"deletes the idle runner {runner.namespace}/{runner.name}")
            self.node.delete(runner)
        if state.runners:
            return _waiting(state)
        for pod in state.evictable:
            self.node.evict(pod)
        if left := [*state.evictable, *state.lasting]:
            alone = "; those without a controller are never evicted" if state.lasting else ""
            return f"waits for pods: {_some(['/'.join(identity(each)) for each in left])}{alone}"
        return None

    def reboot(self, connection: Connection) -> None:
        """Reboot the machine unless it has rebooted since the begin, and wait until the node reports it. Raises
        Stopped."""
        self._wait(functools.partial(self._reboots, connection))

    def _reboots(self, connection: Connection, state: State) -> str | None:
        if has_rebooted(state):
            self._tell("the machine has booted")
            return None
        if time.monotonic() < self._next_attempt:
            return self._said
        missing = None if self.may_lose_quorum else lost_quorum(self.machine, state)
        if missing:
            return f"waits to reboot: {missing}"
        # Somebody may have uncordoned the node during that wait.
        if reason := self._emptied(state):
            return reason
        self._next_attempt = time.monotonic() + RETRY
        self._tell("reboots the machine")
        try:
            is_new = connection.reboot(state.boot_id)
        except RebootFailed as error:
            raise Stopped(f"the machine rejects the reboot: {error}; correct that, and run again") from error
        except (Unreachable, TimeoutError, ClientLimit) as error:
            # The connection of a machine that goes down may end first.
            return f"waits until the machine has booted; SSH: {str(error) or 'no response in time'}"
        self._next_attempt = math.inf
        return "waits until the machine has booted" if is_new else "waits until the kubelet reports the boot"

    def finish(self) -> None:
        """Wait until the node is ready with all its GPUs, and uncordon it. Raises Stopped."""
        self._wait(self._returns)
        self._wait(self._has_returned)

    def _returns(self, state: State) -> str | None:
        resource, count = self.machine.devices
        if not state.is_ready:
            return "waits until the node is ready"
        if (found := state.devices(resource)) < count:
            return f"waits for {count} {resource}: the node offers {found}"
        self.node.uncordon(state.uid)
        return None

    def _has_returned(self, state: State) -> str | None:
        if not state.is_cordoned:
            self._tell("uncordoned")
        elif entry := self.machine.announced:
            self._tell(f"stays cordoned: the stack file has its maintenance until {entry.until}: {entry.why}")
        else:
            owners = _some(state.owners)
            self._tell(f"stays cordoned, by {owners}; to end that: kubectl uncordon {self.machine.name}")
        return None

    def _wait(self, look: Callable[[State], str | None]) -> None:
        """Look at the node until there is nothing to wait for. Raises Stopped at the time limit."""
        began = time.monotonic()
        while True:
            try:
                reason = look(self.node.state())
            except ApiError as error:
                if not error.transient:
                    raise
                # As while a machine of the control plane reboots.
                reason = f"waits for the API server: {error.message}"
            if reason is None:
                return
            self._tell(reason)
            if self.seconds is not None and time.monotonic() - began > self.seconds:
                raise Stopped(f"{reason}; not finished within {self.seconds / 60:g} min; run again to continue")
            time.sleep(PAUSE)

    def _tell(self, line: str) -> None:
        """Print a line, unless it is the last one."""
        if line != self._said:
            self._said = line
            self.say(line)


def _waiting(state: State) -> str:
    busy, ending = state.runners_that_are("busy"), state.runners_that_are("ending")
    parts = []
    if busy:
        runners = _some([f"{each.namespace}/{each.name}" for each in busy])
        parts.append(f"{len(busy)} runner{'s' * (len(busy) > 1)} with a job: {runners}")
    if ending:
        runners = _some([f"{each.namespace}/{each.name}" for each in ending])
        parts.append(f"{len(ending)} runner{'s' * (len(ending) > 1)} that ARC ends: {runners}")
    return "waits for " + (" and ".join(parts) or "idle runners to be deleted")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
