"""Commands of the sandbox: up, status and down of a stack on this machine."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpufleet_stacks.settings.models.settings import ExistingSecretCredentials, Settings
from gpufleet_tools.plan.arc_releases import scale_sets
from gpufleet_tools.plan.plan import Plan, revealed
from gpufleet_tools.plan.stack import STAND_IN, Stack
from gpufleet_tools.sandbox import arc_stand_in, helm_releases, job_driver, nodes, real_arc, state
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.aws import observation, prices
from gpufleet_tools.sandbox.aws.account import reservations_of
from gpufleet_tools.sandbox.aws.cloud import cloud_of, running_build
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.control_plane import objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.rehearsal import Rehearsal, require_cli
from gpufleet_tools.sandbox.state import Observer, State

TIMEOUT = 60.0
"""Seconds to wait for a stable state of the runner pods before the table is printed."""

TIMEOUT_WITH_INSTANCES = 120.0
"""The same on EKS, where instances are started first, which takes half a minute."""

_REHEARSAL = "-rehearsal"


@dataclass(frozen=True)
class Outcome:
    """Result of an `up`."""

    state: State
    """State of the sandbox."""
    jobs: Mapping[str, int]
    """Jobs by label."""
    changed: str
    """One line about the changes."""


def up(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str], *, runs_arc: bool = False) -> Outcome:
    """Bring the stack up, or update it. Safe to interrupt at any time and to call again. `runs_arc`: ARC's own
    controller and listeners run, and only GitHub is simulated. Raises SandboxError."""
    mix = job_driver.job_mix(jobs, stack.settings)
    # Before anything starts: programs and charts may be missing.
    installed = real_arc.installed_objects(plan) if runs_arc else []
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.find(source), runs_arc=runs_arc)
    karpenter = build.find(source) if on_eks(stack) else None
    change = control_plane.up()
    upgraded_from = real_arc.upgraded_from(control_plane.kubeconfig, stack, plan) if runs_arc else None
    cloud = cloud_of(plan, control_plane, karpenter, reservations_of(stack.settings)) if karpenter else None
    wanted = [*prerequisites(stack, plan), *own_objects(plan)]
    if runs_arc:
        wanted = real_arc.with_app_keys(wanted, real_arc.folder_of(control_plane))
        real_arc.assign(real_arc.start(control_plane, plan), mix)
        if upgraded_from:
            real_arc.upgrade_controller(control_plane.kubeconfig, plan, upgraded_from, wanted)
        wanted += installed
    else:
        wanted += [*job_driver.service_accounts(scale_sets(plan)), *job_driver.runner_jobs(scale_sets(plan), mix)]
    if cloud:
        # Karpenter requires its CRDs when it starts.
        objects.apply(control_plane.kubeconfig, cloud.definitions(), stack.name)
        cloud.start()
        wanted += [*cloud.definitions(), *cloud.simulated_objects(), *([] if runs_arc else arc_stand_in.pods(plan))]
    outcome = _applied(stack, plan, control_plane, change, wanted, mix)
    if cloud:
        # Raises an error if Karpenter has ended: otherwise pods would stay pending without a reason.
        running_build(control_plane)
    return outcome


def rehearse(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str], *, runs_arc: bool = False) -> Outcome:
    """Bring the stack up through a real `pulumi up`, in a separate sandbox. `runs_arc` as in `up`. Raises
    SandboxError."""
    refuse_eks(stack)
    require_cli()
    mix = job_driver.job_mix(jobs, stack.settings)
    if runs_arc:
        real_arc.require_programs(plan)
    rehearsal = Rehearsal(stack, rehearsal_control_plane(stack, binaries.find(source), runs_arc=runs_arc))
    with rehearsal.locked():
        control_plane = rehearsal.control_plane
        change = control_plane.up()
        required = prerequisites(stack, plan)
        objects.apply(control_plane.kubeconfig, required, stack.name)
        rehearsal.prepare(_app_keys(stack, control_plane) if runs_arc else {})
        with arc_of(control_plane, plan if runs_arc else None) as github:
            for line in helm_releases.forget_interrupted(control_plane.kubeconfig, rehearsal.releases()):
                print(line, flush=True)
            rehearsal.pulumi("up", "--yes", "--skip-preview")
        if github:
            real_arc.assign(github, mix)
        wanted = [*required, *([] if github else job_driver.runner_jobs(scale_sets(plan), mix))]
        return _applied(stack, plan, control_plane, change, wanted, mix)


@contextlib.contextmanager
def arc_of(control_plane: ControlPlane, plan: Plan | None) -> Iterator[Control | None]:
    """Run what the engine's operations require of ARC: its own programs for a plan, else a simulated controller. Yield
    the connection to the simulated GitHub; None without it."""
    if plan:
        yield real_arc.start(control_plane, plan)
        return
    with arc_stand_in.simulated(control_plane.kubeconfig):
        yield None


def _app_keys(stack: Stack, control_plane: ControlPlane) -> dict[str, str]:
    """Return generated private keys of GitHub Apps by the stack's secret: ARC reads them."""
    folder = real_arc.folder_of(control_plane)
    return {
        key: real_arc.app_key(folder, key)
        for key in Settings.secret_keys(stack.settings)
        if key.endswith("-privateKey")
    }


def on_eks(stack: Stack) -> bool:
    """Return whether the stack's cluster is on EKS."""
    return stack.settings.cluster.kind == "eks"


def refuse_eks(stack: Stack) -> None:
    """Raise SandboxError for a stack on EKS, for which the engine requires AWS."""
    if on_eks(stack):
        raise SandboxError(
            f"{stack.name}: `pulumi up` would create a cluster on EKS, which the sandbox does not have; omit --engine"
        )


def rehearsal_control_plane(stack: Stack, programs: binaries.Binaries, *, runs_arc: bool = False) -> ControlPlane:
    """Return the control plane for rehearsals of the stack."""
    return ControlPlane.of(stack.root, f"{stack.name}{_REHEARSAL}", programs, runs_arc=runs_arc)


def _applied(
    stack: Stack,
    plan: Plan,
    control_plane: ControlPlane,
    change: str,
    wanted: list[dict[str, Any]],
    mix: Mapping[str, int],
) -> Outcome:
    kept = {objects.identity(manifest) for manifest in wanted}
    # Objects that are no longer wanted are removed first: new pods may need their room.
    removed = [] if change == "created" else objects.prune(control_plane.kubeconfig, kept, stack.name)
    applied = objects.apply(control_plane.kubeconfig, wanted, stack.name)
    _write_jobs(control_plane, mix)
    counts = job_driver.runner_counts(scale_sets(plan), mix)
    timeout = TIMEOUT_WITH_INSTANCES if on_eks(stack) else TIMEOUT
    observed = observer(stack, control_plane)
    settled = state.settled(control_plane.kubeconfig, observed, counts, node_count(stack), timeout)
    return Outcome(settled, mix, _changes(change, applied, len(removed)))


def prerequisites(stack: Stack, plan: Plan) -> list[dict[str, Any]]:
    """Return the objects that the stack requires but does not create: nodes, lookups, Secrets and RuntimeClasses."""
    expected = [*plan.expected_objects(), *nodes.nodes(stack.settings)]
    return [*expected, *existing_secrets(stack.settings), *runtime_classes(stack.settings)]


def runtime_classes(settings: Settings) -> list[dict[str, Any]]:
    """Return the RuntimeClasses of runners, without which the API server rejects their pods."""
    names = {settings.profile(runner).runtime_class: None for runner in settings.runners.values()}
    return [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        for name in names
        if name
    ]


def existing_secrets(settings: Settings) -> list[dict[str, Any]]:
    """Return stand-ins for Secrets that must exist already."""
    value = base64.b64encode(STAND_IN.encode()).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": project.credentials.secret_name, "namespace": project.namespace},
            "data": {"github_token": value},
        }
        for project in settings.projects.values()
        if isinstance(project.credentials, ExistingSecretCredentials)
    ]


def own_objects(plan: Plan) -> list[dict[str, Any]]:
    """Return the stack's own objects as its program registers them, with stand-ins for secrets."""
    return [revealed(manifest) for manifest in plan.objects()]


def observer(stack: Stack, control_plane: ControlPlane) -> Observer:
    """Return the function that observes the stack's sandbox."""
    if not on_eks(stack):
        return state.on_declared_nodes
    known = prices.on_demand(running_build(control_plane))
    return functools.partial(observation.with_karpenter, prices=known)


def node_count(stack: Stack) -> int:
    """Return the number of nodes that the stack declares; 0 on EKS."""
    return len(nodes.nodes(stack.settings))


@dataclass(frozen=True)
class Status:
    """A running sandbox."""

    state: State
    """Observed nodes, pods and objects."""
    jobs: dict[str, int]
    """Jobs by label."""
    installed: bool
    """Whether Helm has installed the charts: it is the sandbox of a rehearsal."""
    runs_arc: bool
    """Whether ARC's own programs run."""


def status(stack: Stack) -> Status:
    """Return the current status. Raises SandboxError if the sandbox is not running."""
    control_plane = running(stack)
    return Status(
        state=state.observe(control_plane.kubeconfig, observer(stack, control_plane)),
        jobs=_read_jobs(control_plane),
        installed=control_plane == rehearsal_control_plane(stack, control_plane.binaries),
        runs_arc=real_arc.runs(control_plane),
    )


def running(stack: Stack) -> ControlPlane:
    """Return the stack's control plane, or that of its rehearsal if only that is running. Raises SandboxError if
    neither is."""
    programs = binaries.without_building()
    for control_plane in (ControlPlane.of(stack.root, stack.name, programs), rehearsal_control_plane(stack, programs)):
        if control_plane.running():
            return control_plane
    raise SandboxError(f"the sandbox of {stack.name} is not running; start it: gpufleet sandbox up {stack.name}")


def down(root: pathlib.Path, stack: str) -> bool:
    """Remove the stack's sandboxes, including that of rehearsals, and return whether there was one. The stack file may
    no longer exist."""
    programs = binaries.without_building()
    names = (stack, f"{stack}{_REHEARSAL}")
    ended = [ControlPlane.of(root, name, programs).down() for name in names]
    return any(ended)


def destroy(stack: Stack) -> bool:
    """Run a real `pulumi destroy` of a rehearsal, then `down`. Raises SandboxError."""
    refuse_eks(stack)
    require_cli()
    rehearsal = Rehearsal(stack, rehearsal_control_plane(stack, binaries.without_building()))
    with rehearsal.locked():
        if rehearsal.control_plane.running():
            destroy_rehearsal(stack, rehearsal)
    return down(stack.root, stack.name)


def destroy_rehearsal(stack: Stack, rehearsal: Rehearsal) -> None:
    """Run a real `pulumi destroy` in a running sandbox, under the lock of rehearsals. Raises SandboxError."""
    control_plane = rehearsal.control_plane
    rehearsal.prepare()
    helm_releases.refuse_interrupted(control_plane.kubeconfig, rehearsal.releases(), stack.name)
    with arc_of(control_plane, stack.plan() if real_arc.runs(control_plane) else None) as github:
        if github:
            # ARC deletes no runner that has a job.
            real_arc.assign(github, {})
        rehearsal.pulumi("destroy", "--yes", "--skip-preview")


def _changes(change: str, applied: objects.Applied, removed: int) -> str:
    parts = [f"control plane {change}"] if change != "unchanged" else []
    for count, what in ((applied.created, "created"), (applied.changed, "changed"), (removed, "removed")):
        if count:
            parts.append(f"{count} object{'s' * (count > 1)} {what}")
    return ", ".join(parts) or "nothing changed"


def _write_jobs(control_plane: ControlPlane, mix: Mapping[str, int]) -> None:
    _jobs_file(control_plane).write_text(json.dumps(dict(mix), indent=1))


def _read_jobs(control_plane: ControlPlane) -> dict[str, int]:
    try:
        jobs: dict[str, int] = json.loads(_jobs_file(control_plane).read_text())
    except (OSError, ValueError):
        return {}
    return jobs


def _jobs_file(control_plane: ControlPlane) -> pathlib.Path:
    """Return the file with the jobs of the last `up`."""
    return control_plane.directory / "jobs.json"
