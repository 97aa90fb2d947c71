"""What runs in the sandbox, as tables: nodes and their GPUs, scale sets and their pods."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.plan.plan import Plan, Release
from gpufleet_tools.sandbox.aws.tables import NodesTable, pools_table
from gpufleet_tools.sandbox.state import ScaleSetState, State
from gpufleet_tools.terminal import share, table


def tables(
    state: State,
    settings: Settings,
    plan: Plan,
    mix: Mapping[str, int],
    *,
    installed: bool = False,
    arc_runs: bool = False,
) -> RenderableType:
    """Everything there is to see. `installed` says whether Helm has installed the charts, as a rehearsal does;
    `arc_runs` whether ARC's own programs run."""
    cloud = state.cloud
    nodes = [NodesTable(state, cloud), Text(), pools_table(cloud)] if cloud else [_nodes_table(state, settings)]
    return Group(
        *nodes,
        Text(),
        _scale_sets_table(state, settings, mix),
        Text(),
        _others_table(state, plan, installed, arc_runs),
    )


def _nodes_table(state: State, settings: Settings) -> Table:
    made = table("node", "pool", "ready", "GPUs", "CPU", "memory", "runners", left=("node", "pool", "ready"))
    for node in state.nodes:
        gpu = settings.gpu_resource(node.pool) if node.pool in settings.cluster.node_pools else ""
        made.add_row(
            node.name,
            node.pool,
            "yes" if node.ready else "[red]no[/]",
            share(node.used, node.allocatable, gpu, quantity.cores),
            share(node.used, node.allocatable, "cpu", quantity.cores),
            share(node.used, node.allocatable, "memory", quantity.gibibytes),
            str(node.runners),
        )
    return made


def _scale_sets_table(state: State, settings: Settings, mix: Mapping[str, int]) -> Table:
    columns = ("runs-on", "GPUs", "min", "max", "jobs", "running", "pending", "why")
    made = table(*columns, left=("runs-on", "why"))
    for label, runner in sorted(settings.runners.items()):
        pods = state.scale_sets.get(label, ScaleSetState(0, 0, ()))
        made.add_row(
            label,
            str(runner.gpus),
            str(runner.min),
            str(runner.max),
            str(mix.get(label, 0)),
            str(pods.running),
            f"[yellow]{pods.pending}[/]" if pods.pending else "0",
            # Not as markup: Karpenter writes lists in brackets.
            Text("\n".join(pods.reasons)),
        )
    return made


def _others_table(state: State, plan: Plan, installed: bool, arc_runs: bool) -> Table:
    made = table("also", "", left=("also", ""))
    for name, pods in sorted(state.cloud.deployments.items()) if state.cloud else ():
        there = f"{pods.running} of {pods.running + pods.pending} pods running"
        made.add_row(f"Deployment {name}", Text("\n".join([there, *pods.reasons])))
    for name, (ready, desired) in sorted(state.daemon_sets.items()):
        made.add_row(f"DaemonSet {name}", f"{ready} of {desired} pods ready")
    for resource in plan.resources:
        kind = resource.type.rpartition(":")[2]
        if kind in _ON_MACHINES:
            made.add_row(f"{kind} {resource.name}", f"not run: {_ON_MACHINES[kind]}")
    for release in plan.releases():
        there = "installed" if installed else (arc_runs and _OF_ARC.get(release.chart_name)) or _instead(release)
        made.add_row(f"Helm release {release.name}", there)
    return made


_ON_MACHINES = {
    "KubesprayCluster": "the sandbox is the cluster",
    "NvidiaContainerToolkit": "the sandbox's nodes have no containers",
}
"""Components that run commands on machines, none of which is ever run here, and why each is needless."""

_INSTEAD = {
    "karpenter": "runs beside the cluster, with these values",
    "karpenter-crd": "its CRDs are there",
    "gpu-operator": "simulated: GPUs as the stack file declares them",
    "nvidia-device-plugin": "simulated: GPUs as its configuration says",
    "gha-runner-scale-set": "not installed: GitHub and its listener are simulated",
}
"""What there is in place of a chart, by its name."""

_OF_ARC = {
    "gha-runner-scale-set-controller": "rendered by Helm; ARC's own controller runs",
    "gha-runner-scale-set": "rendered by Helm; ARC's own listener runs, and GitHub is simulated",
}
"""What there is of ARC's charts where its own programs run."""


def _instead(release: Release) -> str:
    return _INSTEAD.get(release.chart_name, "not installed: it would ask GitHub for jobs")
