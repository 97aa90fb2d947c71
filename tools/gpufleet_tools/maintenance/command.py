"""The command `gpufleet maintenance`: its plan as text, and its run."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpufleet_tools.api_server import ApiError, ApiServer
from gpufleet_tools.doctor import connection as clusters
from gpufleet_tools.doctor.finding import DoctorError
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.hosts.clients import ClientLimit, Unreachable
from gpufleet_tools.hosts.declared import NoKey, reached
from gpufleet_tools.maintenance import objections, steps
from gpufleet_tools.maintenance.cluster import Node, NoNode, State
from gpufleet_tools.maintenance.machine import Connection, Machine, RebootFailed, machine
from gpufleet_tools.maintenance.run import Run, Stopped
from gpufleet_tools.plan.stack import Stack

Say = Callable[[str], None]


class MaintenanceError(Exception):
    """The maintenance cannot begin. `str()` is one line."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks for."""

    name: str
    """Name of the machine."""
    reboot: bool = False
    """Whether to reboot the machine and return it to service."""
    finish: bool = False
    """Whether to return the machine to service without a reboot by this command."""
    run: bool = False
    """Whether to do the steps; otherwise they are printed."""
    why: str = "maintenance"
    """Reason, recorded at the node."""
    allowed: frozenset[str] = frozenset()
    """Refusals to accept."""
    minutes: float | None = None
    """Time limit of each wait."""
    identity: pathlib.Path | None = None
    """File with the private key for SSH; None for the agent's or the user's own."""
    kubeconfig: pathlib.Path | None = None
    """Kubeconfig; None for the one of the stack."""
    context: str | None = None
    """Context of the kubeconfig."""


def maintain(stack: Stack, request: Request, say: Say) -> bool:
    """Print the steps of the maintenance, or do them. Return whether nothing stood against it.

    Raises InvalidSettings for a machine that the stack does not declare, and MaintenanceError.
    """
    subject = machine(stack, request.name)
    try:
        target = clusters.target(stack, request.kubeconfig, request.context)
        with ApiServer(clusters.configuration(stack, target)) as api:
            node = Node(api, request.name)
            state = node.state()
            by_ssh = _connection(stack, request) if request.reboot else None
            if not request.run:
                return _plan(request, subject, state, by_ssh, target, say)
            return _run(request, subject, node, by_ssh, _with_time(say))
    except (DoctorError, NoKey, NoNode) as error:
        raise MaintenanceError(str(error)) from error
    except ApiError as error:
        raise MaintenanceError(error.message) from error


def _connection(stack: Stack, request: Request) -> Connection:
    login, hosts = reached(stack, request.identity)
    return Connection(hosts[request.name], login)


def _with_time(say: Say) -> Say:
    return lambda line: say(f"{datetime.datetime.now():%H:%M:%S} {line}")


def _plan(
    request: Request,
    subject: Machine,
    state: State,
    by_ssh: Connection | None,
    target: Target,
    say: Say,
) -> bool:
    """Print the steps with their commands. Return whether nothing stands against it."""
    resource, count = subject.devices
    say(f"{subject.name}: pool {subject.pool}, {count} {resource}, boot ID {state.boot_id or 'unknown'}")
    if state.mark:
        say(f"begun by {state.mark.by} at {state.mark.since}: {state.mark.why}")
    for number, step in enumerate(_steps(request, subject, state, by_ssh, target), 1):
        say(f"  {number}. {step.text}{' (done)' * step.is_done}")
        for command in () if step.is_done else step.commands:
            say(f"     $ {command}")
    found = [*_objections(request, subject, state)]
    for each in found:
        say(str(each))
    say("gpufleet does these steps with --run")
    return not found


def _steps(
    request: Request, subject: Machine, state: State, by_ssh: Connection | None, target: Target
) -> Iterator[steps.Step]:
    if not request.finish:
        yield from steps.freeing(subject, state, target)
    if request.reboot:
        yield from steps.rebooting(subject, state, by_ssh)
    if request.reboot or request.finish:
        yield from steps.returning(subject, target, with_reboot=request.reboot)


def _objections(request: Request, subject: Machine, state: State) -> Iterator[objections.Objection]:
    if request.finish:
        return
    if state.mark is None:
        yield from objections.refusals(subject, state, request.allowed)
    yield from objections.effects(subject, state)


def _run(request: Request, subject: Machine, node: Node, by_ssh: Connection | None, say: Say) -> bool:
    """Do the steps. Return whether they are done."""
    state = node.state()
    found = [*_objections(request, subject, state)]
    for each in found:
        say(str(each))
    if any(each.name for each in found):
        return False
    if by_ssh and state.mark is None:
        _require_same_machine(by_ssh, subject, state)
    seconds = None if request.minutes is None else request.minutes * 60
    run = Run(node, subject, say, seconds, may_lose_quorum="quorum" in request.allowed)
    try:
        if not request.finish:
            run.begin(request.why)
            run.free()
        if by_ssh:
            run.reboot(by_ssh)
        if by_ssh or request.finish:
            run.finish()
    except Stopped as error:
        say(f"stopped: {error}")
        return False
    return True


def _require_same_machine(by_ssh: Connection, subject: Machine, state: State) -> None:
    """Raise MaintenanceError if SSH does not reach the machine of the node, before anything changes."""
    try:
        found = by_ssh.boot_id()
    except (Unreachable, TimeoutError, ClientLimit, RebootFailed) as error:
        raise MaintenanceError(f"{subject.name}: ssh: {str(error) or 'no response in time'}") from error
    if found != state.boot_id:
        raise MaintenanceError(
            f"{subject.name}: the machine at {by_ssh.host.address} has boot ID {found}, its node reports"
            f" {state.boot_id}; correct the address, or wait until the kubelet has reported the last boot"
        )
