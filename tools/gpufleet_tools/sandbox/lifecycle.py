"""Up, status and down: a stack on this machine, from its plan to the table."""

from __future__ import annotations

import base64
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpufleet_stacks.settings.models.settings import ExistingSecretCredentials, Settings
from gpufleet_tools.plan.plan import Plan, revealed
from gpufleet_tools.plan.stack import STAND_IN, Stack
from gpufleet_tools.sandbox import arc_stand_in, helm_releases, job_driver, nodes, real_arc, state
from gpufleet_tools.sandbox.arc import control, programs
from gpufleet_tools.sandbox.aws import observation, prices
from gpufleet_tools.sandbox.aws.account import reservations_of
from gpufleet_tools.sandbox.aws.cloud import cloud_of, running_build
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.control_plane import objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.rehearsal import Rehearsal, require_cli
from gpufleet_tools.sandbox.state import Look, State

PATIENCE = 60.0
"""Seconds that runner pods get to run or to be refused before the table is printed as it is."""

PATIENCE_FOR_INSTANCES = 120.0
"""The same where instances have to be started first, which takes half a minute."""

_REHEARSAL = "-rehearsal"


@dataclass(frozen=True)
class Outcome:
    """What an `up` came to."""

    state: State
    """What runs."""
    jobs: Mapping[str, int]
    """Jobs by label."""
    changed: str
    """One line on what is different from before."""


def up_with_arc(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str]) -> Outcome:
    """Brings the stack up with ARC's own controller and listeners; only GitHub is simulated. Raises SandboxError."""
    if on_eks(stack):
        raise SandboxError(f"{stack.name}: --arc real runs stacks on bare metal only; leave --arc out")
    mix = job_driver.job_mix(jobs, stack.settings)
    programs.find(real_arc.arc_version(plan))
    installed = real_arc.objects(plan)
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.find(source), runs_arc=True)
    change = control_plane.up()
    own = real_arc.with_app_keys(own_objects(plan), real_arc.folder_of(control_plane))
    github = real_arc.start(control_plane, plan)
    for label, count in mix.items():
        github.call("assign", label=label, count=count)
    return _applied(stack, plan, control_plane, change, [*surroundings(stack, plan), *own, *installed], mix)


def refuse_engine(engine: str | None) -> None:
    """Raises SandboxError where ARC is to be real in a rehearsal."""
    if engine:
        raise SandboxError("--arc real: Helm renders the charts itself, without an engine; leave out --engine or --arc")


def arc_runs(stack: Stack) -> bool:
    """Whether ARC's own programs run in the sandbox of a stack."""
    return control.control_file(ControlPlane.of(stack.root, stack.name, binaries.without_building())).exists()


def up(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str]) -> Outcome:
    """Brings the stack up, or up to date. Safe to interrupt at any point and to call again. Raises SandboxError."""
    mix = job_driver.job_mix(jobs, stack.settings)
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.find(source))
    karpenter = build.find(source) if on_eks(stack) else None
    change = control_plane.up()
    cloud = cloud_of(plan, control_plane, karpenter, reservations_of(stack.settings)) if karpenter else None
    wanted = [*surroundings(stack, plan), *own_objects(plan), *job_driver.service_accounts(plan.releases())]
    wanted += job_driver.runner_jobs(plan.releases(), mix)
    if cloud:
        # Karpenter looks for its own kinds when it starts.
        objects.apply(control_plane.kubeconfig, cloud.definitions(), stack.name)
        cloud.start()
        wanted += [*cloud.definitions(), *cloud.played_objects()]
    outcome = _applied(stack, plan, control_plane, change, wanted, mix)
    if cloud:
        # A Karpenter that has ended meanwhile starts nothing, and nobody would say why.
        running_build(control_plane)
    return outcome


def rehearse(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str]) -> Outcome:
    """Brings the stack up through a real `pulumi up`, in a sandbox apart from that of `up`. Raises SandboxError."""
    refuse_eks(stack)
    require_cli()
    mix = job_driver.job_mix(jobs, stack.settings)
    rehearsal = Rehearsal(stack, rehearsal_control_plane(stack, binaries.find(source)))
    with rehearsal.alone():
        change = rehearsal.control_plane.up()
        surrounding = surroundings(stack, plan)
        objects.apply(rehearsal.control_plane.kubeconfig, surrounding, stack.name)
        rehearsal.prepare()
        with arc_stand_in.played(rehearsal.control_plane.kubeconfig):
            for line in helm_releases.forget_interrupted(rehearsal.control_plane.kubeconfig, rehearsal.releases()):
                print(line, flush=True)
            rehearsal.pulumi("up", "--yes", "--skip-preview")
        wanted = [*surrounding, *job_driver.runner_jobs(plan.releases(), mix)]
        return _applied(stack, plan, rehearsal.control_plane, change, wanted, mix)


def on_eks(stack: Stack) -> bool:
    """Whether the stack's nodes are instances that Karpenter starts."""
    return stack.settings.cluster.kind == "eks"


def refuse_eks(stack: Stack) -> None:
    """Raises SandboxError for a stack that the engine would need AWS for."""
    if on_eks(stack):
        raise SandboxError(
            f"{stack.name}: `pulumi up` would make the cluster itself, and there is no EKS on this machine; leave out "
            "--engine"
        )


def rehearsal_control_plane(stack: Stack, programs: binaries.Binaries) -> ControlPlane:
    """The control plane that rehearsals of the stack deploy into."""
    return ControlPlane.of(stack.root, f"{stack.name}{_REHEARSAL}", programs)


def _applied(
    stack: Stack,
    plan: Plan,
    control_plane: ControlPlane,
    change: str,
    wanted: list[dict[str, Any]],
    mix: Mapping[str, int],
) -> Outcome:
    kept = {objects.identity(manifest) for manifest in wanted}
    # What is no longer wanted goes first: new pods may need its room.
    removed = [] if change == "created" else objects.prune(control_plane.kubeconfig, kept, stack.name)
    applied = objects.apply(control_plane.kubeconfig, wanted, stack.name)
    _remember(control_plane, mix)
    counts = job_driver.runner_counts(plan.releases(), mix)
    patience = PATIENCE_FOR_INSTANCES if on_eks(stack) else PATIENCE
    look = looker(stack, control_plane)
    settled = state.settled(control_plane.kubeconfig, look, counts, node_count(stack), patience)
    return Outcome(settled, mix, _what_changed(change, applied, len(removed)))


def surroundings(stack: Stack, plan: Plan) -> list[dict[str, Any]]:
    """What the stack expects to find: its nodes, objects that it only looks up, and what it only names."""
    expected = [*plan.expected_objects(), *nodes.nodes(stack.settings)]
    return [*expected, *existing_secrets(stack.settings), *runtime_classes(stack.settings)]


def runtime_classes(settings: Settings) -> list[dict[str, Any]]:
    """Those that runners name: without them the API server refuses their pods."""
    names = {settings.profile(runner).runtime_class: None for runner in settings.runners.values()}
    return [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        for name in names
        if name
    ]


def existing_secrets(settings: Settings) -> list[dict[str, Any]]:
    """Stand-ins for the secrets that projects keep themselves."""
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
    """The stack's own objects, as its program registers them, with stand-ins for secrets."""
    return [revealed(manifest) for manifest in plan.objects()]


def looker(stack: Stack, control_plane: ControlPlane) -> Look:
    """How the sandbox of the stack is looked at."""
    if not on_eks(stack):
        return state.on_own_nodes
    known = prices.on_demand(running_build(control_plane))
    return functools.partial(observation.with_karpenter, prices=known)


def node_count(stack: Stack) -> int:
    """Nodes that the stack declares, and does not leave to Karpenter."""
    return len(nodes.nodes(stack.settings))


def status(stack: Stack) -> tuple[State, dict[str, int]]:
    """What runs now, and the jobs by label. Raises SandboxError when the sandbox is not up."""
    control_plane = running(stack)
    return state.observe(control_plane.kubeconfig, looker(stack, control_plane)), _remembered(control_plane)


def running(stack: Stack) -> ControlPlane:
    """The stack's control plane. Raises SandboxError when it is not running."""
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.without_building())
    if not control_plane.running():
        raise SandboxError(f"the sandbox of {stack.name} is not up; bring it up: gpufleet sandbox up {stack.name}")
    return control_plane


def down(root: pathlib.Path, stack: str) -> bool:
    """Ends the stack's sandboxes, that of rehearsals among them, and removes them; returns whether there was one. Needs
    no stack file: it may be gone."""
    programs = binaries.without_building()
    names = (stack, f"{stack}{_REHEARSAL}")
    ended = [ControlPlane.of(root, name, programs).down() for name in names]
    return any(ended)


def destroy(stack: Stack) -> bool:
    """A real `pulumi destroy` of what `rehearse` brought up, then `down`. Raises SandboxError."""
    refuse_eks(stack)
    require_cli()
    rehearsal = Rehearsal(stack, rehearsal_control_plane(stack, binaries.without_building()))
    with rehearsal.alone():
        if rehearsal.control_plane.running():
            rehearsal.prepare()
            helm_releases.refuse_interrupted(rehearsal.control_plane.kubeconfig, rehearsal.releases(), stack.name)
            with arc_stand_in.played(rehearsal.control_plane.kubeconfig):
                rehearsal.pulumi("destroy", "--yes", "--skip-preview")
    return down(stack.root, stack.name)


def _what_changed(change: str, applied: objects.Applied, removed: int) -> str:
    parts = [f"control plane {change}"] if change != "unchanged" else []
    for count, what in ((applied.created, "created"), (applied.changed, "changed"), (removed, "removed")):
        if count:
            parts.append(f"{count} object{'s' * (count > 1)} {what}")
    return ", ".join(parts) or "nothing changed"


def _remember(control_plane: ControlPlane, mix: Mapping[str, int]) -> None:
    _jobs_file(control_plane).write_text(json.dumps(dict(mix), indent=1))


def _remembered(control_plane: ControlPlane) -> dict[str, int]:
    try:
        jobs: dict[str, int] = json.loads(_jobs_file(control_plane).read_text())
    except (OSError, ValueError):
        return {}
    return jobs


def _jobs_file(control_plane: ControlPlane) -> pathlib.Path:
    """The jobs of the last `up`, beside the control plane's own files."""
    return control_plane.directory / "jobs.json"
