"""Up, status and down: a stack on this machine, from its plan to the table."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.plan import Plan, revealed
from fleet.stack import Stack
from sandbox import binaries, job_driver, nodes, objects, report
from sandbox.control_plane import ControlPlane
from sandbox.errors import SandboxError

PATIENCE = 60.0
"""Seconds that runner pods get to run or to be refused before the table is printed as it is."""


def up(stack: Stack, plan: Plan, source: str | None, jobs: Sequence[str]) -> tuple[report.State, dict[str, int], str]:
    """Brings the stack up, or up to date. Returns what runs, the jobs by label, and one line on what changed.

    Safe to interrupt at any point and to call again. Raises SandboxError.
    """
    mix = job_driver.job_mix(jobs, stack.settings)
    control_plane = ControlPlane.of(stack.root, stack.name, binaries.find(source))
    change = control_plane.up()
    wanted = manifests(stack, plan, mix)
    kept = {objects.identity(manifest) for manifest in wanted}
    # What is no longer wanted goes first: new pods may need its room.
    removed = [] if change == "created" else objects.prune(control_plane.kubeconfig, kept, stack.name)
    applied = objects.apply(control_plane.kubeconfig, wanted, stack.name)
    _remember(control_plane, mix)
    state = report.settled(control_plane.kubeconfig, runner_counts(plan, mix), node_count(stack), PATIENCE)
    return state, mix, _what_changed(change, applied, len(removed))


def manifests(stack: Stack, plan: Plan, mix: Mapping[str, int]) -> list[dict[str, Any]]:
    """Everything that the API server is given: the stack's own objects as recorded, what it expects to find, simulated
    nodes, and the runners that its jobs call for."""
    return [
        *plan.expected_objects(),
        *(revealed(manifest) for manifest in plan.objects()),
        *nodes.nodes(stack.settings),
        *job_driver.runner_jobs(plan.releases(), mix),
    ]


def runner_counts(plan: Plan, mix: Mapping[str, int]) -> dict[str, int]:
    """Runner pods that each scale set should have."""
    return {
        release.name: job_driver.runner_count(
            release.values.get("minRunners", 0), release.values["maxRunners"], mix.get(release.name, 0)
        )
        for release in plan.releases()
        if release.is_scale_set
    }


def node_count(stack: Stack) -> int:
    """Nodes that the stack declares."""
    return sum(len(pool.nodes) for pool in stack.settings.cluster.node_pools.values())


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
    """Ends the sandbox and removes it; returns whether there was one. Needs no stack file: it may be gone."""
    return ControlPlane.of(root, stack, binaries.Binaries(binaries.build_directory())).down()


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
