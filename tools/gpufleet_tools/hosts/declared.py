"""The machines that a stack file declares, asked by SSH whether they are what it says."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping

from gpufleet.bare_metal.container_toolkit import toolkit_script
from gpufleet.bare_metal.preflight import HostFacts, HostNeeds
from gpufleet.bare_metal.ssh import SshHost, SshLogin, ssh_problems
from gpufleet_stacks.settings.args.machines import login_from_here, machines, ssh_host, toolkit_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster, BareMetalSettings, NodePool, NodeSettings
from gpufleet_stacks.settings.models.kubespray import KubespraySettings, Ssh
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_stacks.settings.rules.machine_places import ssh_places
from gpufleet_stacks.settings.rules.machines import STAND_IN_KEY
from gpufleet_tools.check import compatibility
from gpufleet_tools.check.compatibility_findings import message
from gpufleet_tools.check.fixed_versions import Fact, facts
from gpufleet_tools.hosts.survey import HostReport, survey
from gpufleet_tools.plan.stack import Stack

CONTROL_PLANE_MIB = 1500
"""Least memory of a control plane for kubespray (roles/kubernetes/preinstall/defaults/main.yml at v2.31.0)."""

DEFAULT_IDENTITY = "~/.ssh/id_ed25519"
"""Private key where none is named and no agent runs."""


class NoKey(Exception):
    """Nobody can log in: one line that says what to do."""


def surveyed(stack: Stack, identity: pathlib.Path | None, seconds: float) -> list[HostReport]:
    """What each declared machine is like, in the order of the file.

    `identity` is a file with a private key; None takes the declared agent, the caller's own, or the caller's key.
    `seconds` is what one machine may take.

    Raises InvalidSettings where the file does not say how machines are reached, NoKey where there is no
    key, OSError for a key that cannot be read, and FileNotFoundError without an SSH client.
    """
    cluster, ssh = _reached(stack)
    login = _login(cluster, ssh, identity)
    hosts = {name: ssh_host(name, node) for name, node, _ in machines(cluster)}
    if problems := [*ssh_places(cluster, hosts).placed(ssh_problems([*hosts.values()], login))]:
        raise InvalidSettings(stack.file.problem(problem.path, problem.message, problem.code) for problem in problems)
    needs = {name: needs_of(node, pool, cluster.kubespray) for name, node, pool in machines(cluster)}
    reports: dict[str, HostReport] = {}
    for verifications, group in _groups(cluster, hosts):
        found = survey(group, login, needs, verifications=verifications, seconds=seconds) if group else []
        reports |= {report.host.name: report for report in found}
    return [_with_versions(reports[name], stack) for name in hosts]


def _with_versions(report: HostReport, stack: Stack) -> HostReport:
    """The report with what does not go together of the machine's versions and the stack's."""
    if report.facts is None:
        return report
    fixed = next(facts(stack.settings))
    together = {name: Fact(value, ()) for name, value in on_host(report.facts).items()} | dict(fixed)
    found = compatibility.incompatible({name: each.value for name, each in together.items()})
    more = [f"versions: {message(entry, together)}" for entry in found if not fixed.keys() >= {*entry.names}]
    return dataclasses.replace(report, failures=(*report.failures, *more))


def on_host(found: HostFacts) -> dict[str, str]:
    """What only the machine knows, by the names of the compatibility matrix; what a stack fixes counts before it, since
    that is what the machine will have."""
    known = {
        "kernel": found.kernel,
        "nvidia-driver": found.driver_nvidia,
        "containerd": found.containerd,
        "docker": found.docker,
    }
    return {name: value for name, value in known.items() if value[:1].isdigit()}


def _reached(stack: Stack) -> tuple[BareMetalCluster, Ssh]:
    if not isinstance(stack.settings, BareMetalSettings):
        message = "its machines come and go, and nobody logs in to them; name a stack of kind bareMetal"
        raise InvalidSettings([stack.file.problem(("cluster", "kind"), message)])
    cluster = stack.settings.cluster
    if cluster.ssh is None:
        message = "is missing, and it says who logs in to the machines; add it: ssh: {user: NAME}"
        raise InvalidSettings([stack.file.problem(("cluster", "ssh"), message)])
    return cluster, cluster.ssh


def _login(cluster: BareMetalCluster, ssh: Ssh, identity: pathlib.Path | None) -> SshLogin:
    """The declared login with a key that is at hand: the stack's own is a secret, and stays one."""
    way = login_from_here(cluster, ssh, STAND_IN_KEY)
    socket = None if identity else way.agent_socket or os.environ.get("SSH_AUTH_SOCK")
    if socket:
        return dataclasses.replace(way, private_key=None, agent_socket=socket)
    file = identity or pathlib.Path(DEFAULT_IDENTITY).expanduser()
    if identity is None and not file.exists():
        raise NoKey(f"there is no agent, and no key in {DEFAULT_IDENTITY}; name a private key with --identity")
    return dataclasses.replace(way, private_key=file.read_text(), agent_socket=None)


def needs_of(node: NodeSettings, pool: NodePool, kubespray: KubespraySettings | None) -> HostNeeds:
    """What a machine is needed for."""
    gpus = pool.accelerator
    needs = HostNeeds(
        address=node.internal_address,
        container_manager=kubespray.container_manager if kubespray else None,
        gpu=gpus.vendor,
        gpus=gpus.count,
    )
    return dataclasses.replace(needs, memory_mib=CONTROL_PLANE_MIB) if "control_plane" in node.roles else needs


def _groups(
    cluster: BareMetalCluster, hosts: Mapping[str, SshHost]
) -> Iterator[tuple[Mapping[str, str], list[SshHost]]]:
    """Machines that are asked alike: those with the container toolkit, with the script that says where it has drifted,
    and the others."""
    toolkit = toolkit_args(cluster, STAND_IN_KEY)
    has_it = {host.name for host in toolkit.hosts} if toolkit else set()
    yield {}, [host for name, host in hosts.items() if name not in has_it]
    if toolkit:
        script = toolkit_script(toolkit)
        yield {"nvidia-container-toolkit": script}, [host for name, host in hosts.items() if name in has_it]
