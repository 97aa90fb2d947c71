"""Up, status and down: a stack on this machine, from its plan to the table."""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.plan import Plan, revealed
from fleet.stack import STAND_IN, Stack
from sandbox import arc_stand_in, binaries, job_driver, nodes, objects, report
from sandbox.control_plane import ControlPlane
from sandbox.errors import SandboxError
from sandbox.rehearsal import Rehearsal, require_cli
from stacks.settings import ExistingSecretCredentials, Settings

PATIENCE = 60.0
"""Seconds that runner pods get to run or to be refused before the table is printed as it is."""

_REHEARSAL = "-rehearsal"


@dataclass(frozen=True)
class Outcome:
    """What an `up` came to."""

    state: report.State
    """What runs."""
    jobs: Mapping[str, int]
    """Jobs by label."""
    changed: str
    """One line on what is different from before."""


def up(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str]) -> Outcome:
    """Brings the stack up, or up to date. Safe to interrupt at any point and to call again. Raises SandboxError."""
    mix = job_driver.job_mix(jobs, stack.settings)
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.find(source))
    change = control_plane.up()
    wanted = [*surroundings(stack, plan), *own_objects(plan), *job_driver.runner_jobs(plan.releases(), mix)]
    return _applied(stack, plan, control_plane, change, wanted, mix)


def rehearse(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str]) -> Outcome:
    """Brings the stack up through a real `pulumi up`, in a sandbox apart from that of `up`. Raises SandboxError."""
    require_cli()
    mix = job_driver.job_mix(jobs, stack.settings)
    rehearsal = Rehearsal(stack, rehearsal_control_plane(stack, binaries.find(source)))
    with rehearsal.alone():
        change = rehearsal.control_plane.up()
        surrounding = surroundings(stack, plan)
        objects.apply(rehearsal.control_plane.kubeconfig, surrounding, stack.name)
        rehearsal.prepare()
        with arc_stand_in.played(rehearsal.control_plane.kubeconfig):
            rehearsal.pulumi("up", "--yes", "--skip-preview")
        wanted = [*surrounding, *job_driver.runner_jobs(plan.releases(), mix)]
        return _applied(stack, plan, rehearsal.control_plane, change, wanted, mix)


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
    state = report.settled(control_plane.kubeconfig, counts, node_count(stack), PATIENCE)
    return Outcome(state, mix, _what_changed(change, applied, len(removed)))


def surroundings(stack: Stack, plan: Plan) -> list[dict[str, Any]]:
    """What the stack expects to find: its nodes, objects that it only looks up, and secrets that it only names."""
    return [*plan.expected_objects(), *nodes.nodes(stack.settings), *existing_secrets(stack.settings)]


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


def node_count(stack: Stack) -> int:
    """Nodes that the stack declares."""
    return len(nodes.nodes(stack.settings))


def status(stack: Stack) -> tuple[report.State, dict[str, int]]:
    """What runs now, and the jobs by label. Raises SandboxError when the sandbox is not up."""
    control_plane = running(stack)
    return report.observe(control_plane.kubeconfig), _remembered(control_plane)


def running(stack: Stack) -> ControlPlane:
    """The stack's control plane. Raises SandboxError when it is not running."""
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.Binaries(binaries.build_directory()))
    if not control_plane.running():
        raise SandboxError(f"the sandbox of {stack.name} is not up; bring it up: gpufleet sandbox up {stack.name}")
    return control_plane


def down(root: pathlib.Path, stack: str) -> bool:
    """Ends the stack's sandboxes, that of rehearsals among them, and removes them; returns whether there was one. Needs
    no stack file: it may be gone."""
    programs = binaries.Binaries(binaries.build_directory())
    names = (stack, f"{stack}{_REHEARSAL}")
    ended = [ControlPlane.of(root, name, programs).down() for name in names]
    return any(ended)


def destroy(stack: Stack) -> bool:
    """A real `pulumi destroy` of what `rehearse` brought up, then `down`. Raises SandboxError."""
    require_cli()
    rehearsal = Rehearsal(stack, rehearsal_control_plane(stack, binaries.Binaries(binaries.build_directory())))
    with rehearsal.alone():
        if rehearsal.control_plane.running():
            rehearsal.prepare()
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
