"""Simulated AWS of a stack: the API with the stack's account, the real Karpenter, and simulated instances."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufleet_tools.plan.plan import Plan, Release
from gpufleet_tools.sandbox import addons
from gpufleet_tools.sandbox.aws import account, answers, device_plugin, karpenter, system_nodes
from gpufleet_tools.sandbox.aws.account import CapacityReservation
from gpufleet_tools.sandbox.control_plane import daemons
from gpufleet_tools.sandbox.control_plane.control_plane import LOOPBACK, ControlPlane
from gpufleet_tools.sandbox.control_plane.daemons import Daemon
from gpufleet_tools.sandbox.errors import SandboxError

_PORTS = ("aws", "metrics", "health")


@dataclass(frozen=True)
class Cloud:
    """Processes of a stack with Karpenter, beside its control plane, which must be running."""

    plan: Plan
    control_plane: ControlPlane
    build: Path
    """Directory with Karpenter and the files of its module."""
    release: Release
    """Helm release of Karpenter."""
    reservations: Sequence[CapacityReservation] = ()
    """Capacity reservations of the account."""

    def definitions(self) -> list[dict[str, Any]]:
        """Return Karpenter's CRDs, which its other chart would install."""
        return karpenter.definitions(self.build)

    def simulated_objects(self) -> list[dict[str, Any]]:
        """Return the nodes and add-ons of EKS, the DaemonSets of device plugins, and Karpenter's pods."""
        plugin = device_plugin.release_of(self.plan)
        nodes = system_nodes.system_nodes(self.plan, account.region_of(self.plan))
        plugins = [device_plugin.daemon_set(plugin)] if plugin else []
        if efa_plugin := device_plugin.efa_daemon_set(self.plan):
            plugins.append(efa_plugin)
        system = [karpenter.pods(self.release), *addons.deployments(self.plan)]
        return [*nodes, *addons.daemon_sets(self.plan), *plugins, *system]

    def start(self) -> None:
        """Start all processes. Karpenter's CRDs must exist. Raises SandboxError."""
        with self.control_plane.locked():
            ports = daemons.ports(self.control_plane, _PORTS)
        aws, controller, kubelets = self._aws(ports), self._karpenter(ports), self._kubelets()
        new = daemons.started(self.control_plane, aws)
        # Karpenter must read a new account from the start.
        daemons.started(self.control_plane, controller, restart=new)
        daemons.started(self.control_plane, kubelets)

    def _aws(self, ports: Mapping[str, int]) -> Daemon:
        cluster = karpenter.cluster_of(self.release)
        content = json.dumps(dataclasses.asdict(account.account_of(self.plan, cluster, self.reservations)))
        # Named by its contents: a changed account changes the command line, so that the process is restarted.
        file = self.control_plane.directory / f"account-{hashlib.sha256(content.encode()).hexdigest()[:8]}.json"
        file.write_text(content)
        return daemons.python(
            "aws",
            "gpufleet_tools.sandbox.aws.server",
            str(file),
            str(self.build),
            str(ports["aws"]),
            ready=lambda: _answers(ports["aws"], answers.READY),
        )

    def _karpenter(self, ports: Mapping[str, int]) -> Daemon:
        environment = karpenter.from_values(self.release) | karpenter.of_the_sandbox(
            self.control_plane.kubeconfig,
            self.control_plane.certificate_authority,
            self.control_plane.address,
            f"http://{LOOPBACK}:{ports['aws']}",
            account.region_of(self.plan),
            ports,
        )
        return Daemon(
            "karpenter",
            self.build / "karpenter",
            (),
            environment,
            ready=lambda: _answers(ports["health"], "/readyz"),
        )

    def _kubelets(self) -> Daemon:
        plugin = device_plugin.release_of(self.plan)
        offers = device_plugin.offers_of(plugin) if plugin else {}
        encoded = [
            json.dumps({name: dataclasses.asdict(offer) for name, offer in each.items()})
            for each in (offers, device_plugin.built_in(self.plan))
        ]
        arguments = (str(self.control_plane.kubeconfig), *encoded)
        return daemons.python("kubelets", "gpufleet_tools.sandbox.aws.kubelets", *arguments, ready=lambda: True)


def cloud_of(
    plan: Plan, control_plane: ControlPlane, build: Path, reservations: Sequence[CapacityReservation] = ()
) -> Cloud:
    """Return the cloud of a stack. Raises SandboxError for a stack without Karpenter."""
    release = karpenter.release_of(plan)
    if release is None:
        raise SandboxError(f"{plan.stack}: the stack has no Karpenter, which the sandbox requires to start instances")
    return Cloud(plan, control_plane, build, release, reservations)


def running_build(control_plane: ControlPlane) -> Path:
    """Return the directory of the running Karpenter. Raises SandboxError if a process beside the control plane has
    ended."""
    program = daemons.program(control_plane, "karpenter")
    ended = {"aws", "karpenter", "kubelets"} - daemons.alive(control_plane)
    if program is None or ended:
        raise SandboxError(
            f"cluster {control_plane.name}: {', '.join(sorted(ended))} not running (logs: {control_plane.directory}); "
            "start it again: gpufleet sandbox up"
        )
    return program.parent


def _answers(port: int, path: str) -> bool:
    """Return whether a server on loopback is ready."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
