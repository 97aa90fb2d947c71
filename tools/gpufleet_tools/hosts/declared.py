"""Survey of the machines that a stack file declares, and comparison with the stack file."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from gpufleet.bare_metal.container_toolkit import toolkit_script
from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet.bare_metal.ssh import SshHost, SshLogin, ssh_problems
from gpufleet_stacks.settings.args.machines import login_from_here, machines, ssh_host, toolkit_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster, BareMetalSettings
from gpufleet_stacks.settings.models.kubespray import Ssh
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_stacks.settings.rules.machine_places import ssh_places
from gpufleet_stacks.settings.rules.machines import STAND_IN_KEY
from gpufleet_tools.check import compatibility
from gpufleet_tools.check.compatibility_findings import message
from gpufleet_tools.check.fixed_versions import Fact, facts
from gpufleet_tools.hosts.needs import heartbeat_milliseconds, needs_of, peer_of
from gpufleet_tools.hosts.survey import HostReport, Survey, survey
from gpufleet_tools.plan.stack import Stack

DEFAULT_IDENTITY = "~/.ssh/id_ed25519"
"""Default private key if no agent runs."""


class NoKey(Exception):
    """There is neither an SSH agent nor a private key. `str()` is one line."""


def surveyed(stack: Stack, identity: pathlib.Path | None, seconds: float) -> list[HostReport]:
    """Return a report about each declared machine, in the order of the file.

    `identity` is a file with a private key; None selects the declared agent, the caller's agent, or the caller's key.
    `seconds` is the time limit of one machine.

    Raises the errors of `reached`, and FileNotFoundError without an SSH client.
    """
    settings = bare_metal(stack)
    cluster = settings.cluster
    login, hosts = reached(stack, identity)
    toolkit = toolkit_args(cluster, STAND_IN_KEY)
    parameters = Survey(
        login,
        needs={name: needs_of(settings, name, node, pool) for name, node, pool in machines(cluster)},
        verifications={"nvidia-container-toolkit": toolkit_script(toolkit)} if toolkit else {},
        verified={host.name for host in toolkit.hosts} if toolkit else (),
        peers=[peer_of(name, node, pool, cluster.kubespray) for name, node, pool in machines(cluster)],
        heartbeat_milliseconds=heartbeat_milliseconds(cluster.kubespray),
        seconds=seconds,
    )
    reports = {report.host.name: report for report in survey([*hosts.values()], parameters)}
    return [_with_versions(reports[name], stack) for name in hosts]


def _with_versions(report: HostReport, stack: Stack) -> HostReport:
    """Return the report with the incompatible versions of the machine and the stack."""
    if report.facts is None:
        return report
    fixed = next(facts(stack.settings))
    together = {name: Fact(value, ()) for name, value in on_host(report.facts).items()} | dict(fixed)
    found = compatibility.incompatible({name: each.value for name, each in together.items()})
    more = [f"versions: {message(entry, together)}" for entry in found if not fixed.keys() >= {*entry.names}]
    return dataclasses.replace(report, failures=(*report.failures, *more))


def on_host(found: HostFacts) -> dict[str, str]:
    """Return the versions that only the machine knows, by their names in the compatibility matrix. Versions that the
    stack pins take precedence, since the machine will have them."""
    known = {
        "kernel": found.kernel,
        "nvidia-driver": found.driver_nvidia,
        "containerd": found.containerd,
        "docker": found.docker,
    }
    return {name: value for name, value in known.items() if value[:1].isdigit()}


def bare_metal(stack: Stack) -> BareMetalSettings:
    """Return the settings of a stack on machines. Raises InvalidSettings for another."""
    if not isinstance(stack.settings, BareMetalSettings):
        message = "eks has no declared machines; use a stack of kind bareMetal"
        raise InvalidSettings([stack.file.problem(("cluster", "kind"), message)])
    return stack.settings


def reached(stack: Stack, identity: pathlib.Path | None) -> tuple[SshLogin, dict[str, SshHost]]:
    """Return the declared login with an available key, and the declared machines by name.

    Raises InvalidSettings if the stack file has no SSH settings, NoKey without a key, and OSError for a key that cannot
    be read.
    """
    cluster = bare_metal(stack).cluster
    if cluster.ssh is None:
        message = "is missing; add the user who logs in to the machines: ssh: {user: NAME}"
        raise InvalidSettings([stack.file.problem(("cluster", "ssh"), message)])
    login = _login(cluster, cluster.ssh, identity)
    hosts = {name: ssh_host(name, node) for name, node, _ in machines(cluster)}
    if problems := [*ssh_places(cluster, hosts).placed(ssh_problems([*hosts.values()], login))]:
        raise InvalidSettings(stack.file.problem(problem.path, problem.message, problem.code) for problem in problems)
    return login, hosts


def _login(cluster: BareMetalCluster, ssh: Ssh, identity: pathlib.Path | None) -> SshLogin:
    """Return the declared login with an available key; the stack's own key is a secret that is not decrypted."""
    login = login_from_here(cluster, ssh, STAND_IN_KEY)
    socket = None if identity else login.agent_socket or os.environ.get("SSH_AUTH_SOCK")
    if socket:
        return dataclasses.replace(login, private_key=None, agent_socket=socket)
    file = identity or pathlib.Path(DEFAULT_IDENTITY).expanduser()
    if identity is None and not file.exists():
        raise NoKey(f"there is neither an SSH agent nor {DEFAULT_IDENTITY}; specify a private key with --identity")
    return dataclasses.replace(login, private_key=file.read_text(), agent_socket=None)
