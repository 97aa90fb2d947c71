"""What a stack declares, as far as a live cluster shows it: ARC, scale sets, nodes and their GPUs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpufleet.arc import runner_releases
from gpufleet.arc.controller import service_account_name
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.plan import Plan, Release
from gpufleet_tools.plan.stack import Stack


@dataclass(frozen=True, kw_only=True)
class DeclaredScaleSet:
    """A scale set of the stack."""

    label: str
    namespace: str
    min: int
    max: int
    image: str
    """Image of the runner container."""
    runner_version: str | None
    """Version of the runner in that image; None if unknown."""
    expires: bool
    """Whether GitHub gives old runners no jobs, as on github.com."""
    secret: str
    """Name of the Secret with the credentials."""
    job_timeout: datetime.timedelta | None
    """Time limit of jobs; None without one."""


@dataclass(frozen=True, kw_only=True)
class DeclaredController:
    """ARC's controller."""

    namespace: str
    deployment: str
    """Name of its Deployment."""
    version: str
    chart: str
    """Arguments of Helm that select the chart."""
    release: str
    """Name of the Helm release."""


@dataclass(frozen=True, kw_only=True)
class Devices:
    """GPUs of nodes."""

    machines: Mapping[str, tuple[str, int]]
    """Resource name and number of devices of each declared machine; empty if Karpenter provisions the nodes."""
    pools: Mapping[str, str]
    """Resource name of the devices of Karpenter's pools with GPUs, by pool."""

    def of(self, node: Mapping[str, Any]) -> tuple[str, int] | None:
        """Return resource name and minimum number of devices of a node; None for a node without."""
        metadata = node["metadata"]
        pool = self.pools.get(metadata.get("labels", {}).get(NODE_POOL_LABEL, ""))
        return (pool, 1) if pool else self.machines.get(metadata["name"])


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a stack declares."""

    stack: str
    controller: DeclaredController
    scale_sets: Sequence[DeclaredScaleSet]
    devices: Devices
    device_namespaces: Sequence[str]
    """Namespaces of device plugins."""

    @property
    def namespaces(self) -> list[str]:
        """Namespaces of runners."""
        return sorted({each.namespace for each in self.scale_sets})


def declared(stack: Stack, plan: Plan) -> Declared | None:
    """Return what the stack declares; None if it does not install ARC."""
    controller = arc_releases.controller(plan)
    if controller is None:
        return None
    settings = stack.settings
    return Declared(
        stack=stack.name,
        controller=_controller(controller),
        scale_sets=[_scale_set(each, settings) for each in arc_releases.scale_sets(plan)],
        devices=_devices(settings),
        device_namespaces=sorted({namespace for _, namespace, _ in settings.device_plugin_namespaces()}),
    )


def _controller(release: Release) -> DeclaredController:
    repository = f" --repo {release.repository}" if release.repository else ""
    return DeclaredController(
        namespace=release.namespace,
        # The chart names the Deployment and its service account alike.
        deployment=service_account_name(release.name),
        version=release.version,
        chart=f"{release.chart}{repository} --version {release.version}",
        release=release.name,
    )


def _scale_set(release: Release, settings: Settings) -> DeclaredScaleSet:
    values = release.values
    image = next(each["image"] for each in values["template"]["spec"]["containers"] if each["name"] == "runner")
    runner = settings.runners.get(release.name)
    version = settings.profile(runner).held_runner_version if runner else runner_releases.known().version_of(image)
    minutes = settings.profile(runner).job_timeout_minutes if runner else None
    return DeclaredScaleSet(
        label=release.name,
        namespace=release.namespace,
        min=values["minRunners"],
        max=values["maxRunners"],
        image=image,
        runner_version=version,
        expires=runner_releases.is_enforced(str(values["githubConfigUrl"])),
        secret=str(values["githubConfigSecret"]),
        job_timeout=datetime.timedelta(minutes=minutes) if minutes else None,
    )


def _devices(settings: Settings) -> Devices:
    if isinstance(settings, EksSettings):
        with_gpus = {settings.pool_name(each) for each in settings.runners.values() if each.gpus}
        return Devices(machines={}, pools={name: settings.gpu_resource(name) for name in with_gpus})
    assert isinstance(settings, BareMetalSettings)
    machines = {
        name: (settings.gpu_resource(pool), members.accelerator.devices)
        for pool, members in settings.cluster.node_pools.items()
        for name in members.nodes
    }
    return Devices(machines=machines, pools={})
