"""The declared machine under maintenance: its node, its GPUs, its place in the cluster, and the way to it by SSH."""

from __future__ import annotations

import asyncio
import difflib
import pathlib
import shlex
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpufleet.bare_metal.ssh import SshHost, SshLogin, root_shell, user_of
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, Maintenance, NodePool
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.hosts.clients import client_files, run
from gpufleet_tools.hosts.declared import bare_metal
from gpufleet_tools.plan.stack import Stack

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""File with the ID of a machine's current boot, which the kubelet reports as `bootID` of its node."""

REBOOT = f"""\
if [ "$(cat {BOOT_ID})" = "$1" ]; then systemctl reboot && echo rebooting; else echo rebooted; fi
"""
"""Script that reboots a machine once: at a second call it has another boot ID."""


class RebootFailed(Exception):
    """The machine rejects the reboot. `str()` is one line."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A declared machine."""

    name: str
    """Name of the machine and its node."""
    pool: str
    """Name of its pool."""
    peers: Collection[str]
    """Names of the other machines of the pool."""
    devices: tuple[str, int]
    """Resource name and number of its GPUs or partitions."""
    voters: Collection[str]
    """Members of etcd, if it is one of them; empty otherwise, and for a cluster whose stack declares no roles."""
    labels: Mapping[str, Collection[str]]
    """Labels whose runners can run on its node, each with the other nodes that take them."""
    announced: Maintenance | None
    """Maintenance in the stack file that is in effect: `pulumi up` cordons the node until the entry is removed."""


def machine(stack: Stack, name: str) -> Machine:
    """Return the declared machine of a name. Raises InvalidSettings if the stack does not declare it."""
    settings = bare_metal(stack)
    pools = settings.cluster.node_pools
    found = next(((pool_name, pool) for pool_name, pool in pools.items() if name in pool.nodes), None)
    if found is None:
        raise InvalidSettings([stack.file.problem(("cluster", "nodePools"), _unknown(name, pools))])
    pool_name, pool = found
    voters = {each for members in pools.values() for each, node in members.nodes.items() if "etcd" in node.roles}
    return Machine(
        name=name,
        pool=pool_name,
        peers=[each for each in pool.nodes if each != name],
        devices=(settings.gpu_resource(pool_name), pool.accelerator.devices),
        voters=voters if name in voters else (),
        labels=dict(_labels(settings, pool_name, name)),
        announced=pool.in_maintenance().get(name),
    )


def _unknown(name: str, pools: Mapping[str, NodePool]) -> str:
    names = [each for pool in pools.values() for each in pool.nodes]
    close = difflib.get_close_matches(name, names, 1)
    return f"no machine is named {name}; " + (
        f"did you mean {close[0]}?" if close else f"use one of {', '.join(names)}"
    )


def _labels(settings: BareMetalSettings, pool: str, name: str) -> Mapping[str, Collection[str]]:
    found = {}
    for label, runner in settings.runners.items():
        selected = settings.pool(runner).selected_by(settings.profile(runner).node_selector)
        if settings.pool_name(runner) == pool and name in selected:
            found[label] = [each for each in selected if each != name]
    return found


@dataclass(frozen=True)
class Connection:
    """SSH connection to a machine."""

    host: SshHost
    login: SshLogin
    seconds: float = 60
    """Time limit of one command."""

    @property
    def command(self) -> str:
        """The command by which a person reboots the machine."""
        jump = self.login.jump
        route = f"-J {user_of(jump, self.login)}@{jump.address}:{jump.port} " if jump else ""
        port = f"-p {self.host.port} " if self.host.port != 22 else ""
        sudo = "" if user_of(self.host, self.login) == "root" else "sudo "
        return f"ssh {route}{port}{user_of(self.host, self.login)}@{self.host.address} {sudo}systemctl reboot"

    def boot_id(self) -> str:
        """Return the boot ID of the machine, read as root.

        Raises RebootFailed without root's rights; Unreachable, TimeoutError and ClientLimit.
        """
        return self._run(f"cat {BOOT_ID}\n")

    def reboot(self, boot_id: str) -> bool:
        """Reboot the machine if its boot ID is still this one. Return whether it is. The connection may end before the
        command does.

        Raises RebootFailed if the machine rejects it; Unreachable, TimeoutError and ClientLimit.
        """
        return self._run(REBOOT, boot_id) == "rebooting"

    def _run(self, script: str, *arguments: str) -> str:
        """Return the last line that the script prints."""
        with tempfile.TemporaryDirectory(prefix="gpufleet-ssh-") as folder:
            config = client_files(pathlib.Path(folder), [self.host], self.login)
            command = " ".join([root_shell(self.host, self.login), *map(shlex.quote, arguments)])
            out, errors, _ = asyncio.run(asyncio.wait_for(run(config, self.host, command, script), self.seconds))
        if not out.strip():
            raise RebootFailed(errors.strip().splitlines()[-1] if errors.strip() else "the command printed nothing")
        return out.strip().splitlines()[-1]
