"""A stack's AWS on this machine: the API with the stack's account, Karpenter, and what its instances would run."""

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
from gpufleet_tools.sandbox import addons, arc_stand_in
from gpufleet_tools.sandbox.aws import account, answers, device_plugin, karpenter, system_nodes
from gpufleet_tools.sandbox.aws.account import CapacityReservation
from gpufleet_tools.sandbox.control_plane import daemons
from gpufleet_tools.sandbox.control_plane.control_plane import LOOPBACK, ControlPlane
from gpufleet_tools.sandbox.control_plane.daemons import Daemon
from gpufleet_tools.sandbox.errors import SandboxError

_PORTS = ("aws", "metrics", "health")


@dataclass(frozen=True)
class Cloud:
    """What a stack with Karpenter runs beside its control plane, which has to be up."""

    plan: Plan
    control_plane: ControlPlane
    build: Path
    """Directory with Karpenter and the files of its module."""
    release: Release
    """Karpenter's."""
    reservations: Sequence[CapacityReservation] = ()
    """Capacity reservations of the account."""

    def definitions(self) -> list[dict[str, Any]]:
        """Karpenter's CRDs, as its other chart would bring them."""
        return karpenter.definitions(self.build)

    def played_objects(self) -> list[dict[str, Any]]:
        """Nodes that EKS would start with its addons, what a chart would bring that GPUs depend on, and ARC's pods."""
        plugin = device_plugin.release_of(self.plan)
        nodes = system_nodes.system_nodes(self.plan, account.region_of(self.plan))
        plugins = [device_plugin.daemon_set(plugin)] if plugin else []
        return [*nodes, *addons.daemon_sets(self.plan), *plugins, *arc_stand_in.pods(self.plan)]

    def start(self) -> None:
        """Has everything running. Karpenter's CRDs have to be there. Raises SandboxError."""
        with self.control_plane.locked():
            ports = daemons.ports(self.control_plane, _PORTS)
        aws, controller, kubelets = self._aws(ports), self._karpenter(ports), self._kubelets()
        new = daemons.started(self.control_plane, aws)
        # With an account that is new, Karpenter has to ask for everything anew.
        daemons.started(self.control_plane, controller, anew=new)
        daemons.started(self.control_plane, kubelets)

    def _aws(self, ports: Mapping[str, int]) -> Daemon:
        cluster = karpenter.cluster_of(self.release)
        made = json.dumps(dataclasses.asdict(account.account_of(self.plan, cluster, self.reservations)))
        # Named by its contents: another account is another command line, which is started anew.
        file = self.control_plane.directory / f"account-{hashlib.sha256(made.encode()).hexdigest()[:8]}.json"
        file.write_text(made)
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
        told = [
            json.dumps({name: dataclasses.asdict(offer) for name, offer in each.items()})
            for each in (offers, device_plugin.built_in(self.plan))
        ]
        arguments = (str(self.control_plane.kubeconfig), *told)
        return daemons.python("kubelets", "gpufleet_tools.sandbox.aws.kubelets", *arguments, ready=lambda: True)


def cloud_of(
    plan: Plan, control_plane: ControlPlane, build: Path, reservations: Sequence[CapacityReservation] = ()
) -> Cloud:
    """The cloud of a stack. Raises SandboxError for one without Karpenter."""
    release = karpenter.release_of(plan)
    if release is None:
        raise SandboxError(f"{plan.stack}: no Karpenter among its releases, and nothing else starts instances here")
    return Cloud(plan, control_plane, build, release, reservations)


def running_build(control_plane: ControlPlane) -> Path:
    """The directory with the Karpenter that runs. Raises SandboxError when something beside the control plane does not
    run."""
    program = daemons.program(control_plane, "karpenter")
    ended = {"aws", "karpenter", "kubelets"} - daemons.alive(control_plane)
    if program is None or ended:
        raise SandboxError(
            f"cluster {control_plane.name}: {', '.join(sorted(ended))} not running (logs: {control_plane.directory}); "
            "bring it up again: gpufleet sandbox up"
        )
    return program.parent


def _answers(port: int, path: str) -> bool:
    """Whether a server on loopback says that it is ready."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
