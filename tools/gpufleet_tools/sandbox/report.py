"""Tables of the sandbox's state: nodes and their GPUs, scale sets and their pods."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpufleet import quantity
from gpufleet.arc.charts import CONTROLLER_CHART, SCALE_SET_CHART
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
    runs_arc: bool = False,
) -> RenderableType:
    """Return all tables. `installed`: Helm has installed the charts, as in a rehearsal. `runs_arc`: ARC's own programs
    run."""
    cloud = state.cloud
    nodes = [NodesTable(state, cloud), Text(), pools_table(cloud)] if cloud else [_nodes_table(state, settings)]
    return Group(
        *nodes,
        Text(),
        _scale_sets_table(state, settings, mix),
        Text(),
        _others_table(state, plan, installed, runs_arc),
    )


def _nodes_table(state: State, settings: Settings) -> Table:
    result = table("node", "pool", "ready", "GPUs", "CPU", "memory", "runners", left=("node", "pool", "ready"))
    for node in state.nodes:
        gpu = settings.gpu_resource(node.pool) if node.pool in settings.cluster.node_pools else ""
        result.add_row(
            node.name,
            node.pool,
            "yes" if node.ready else "[red]no[/]",
            share(node.used, node.allocatable, gpu, quantity.cores),
            share(node.used, node.allocatable, "cpu", quantity.cores),
            share(node.used, node.allocatable, "memory", quantity.gibibytes),
            str(node.runners),
        )
    return result


def _scale_sets_table(state: State, settings: Settings, mix: Mapping[str, int]) -> Table:
    columns = ("runs-on", "GPUs", "min", "max", "jobs", "running", "pending", "reason")
    result = table(*columns, left=("runs-on", "reason"))
    for label, runner in sorted(settings.runners.items()):
        pods = state.scale_sets.get(label, ScaleSetState(0, 0, ()))
        result.add_row(
            label,
            str(runner.gpus),
            str(runner.min),
            str(runner.max),
            str(mix.get(label, 0)),
            str(pods.running),
            f"[yellow]{pods.pending}[/]" if pods.pending else "0",
            # Plain text instead of markup: Karpenter's messages have lists in brackets.
            Text("\n".join(pods.reasons)),
        )
    return result


def _others_table(state: State, plan: Plan, installed: bool, runs_arc: bool) -> Table:
    result = table("other", "state", left=("other", "state"))
    for name, pods in sorted(state.cloud.deployments.items()) if state.cloud else ():
        running = f"{pods.running} of {pods.running + pods.pending} pods running"
        result.add_row(f"Deployment {name}", Text("\n".join([running, *pods.reasons])))
    for name, (ready, desired) in sorted(state.daemon_sets.items()):
        result.add_row(f"DaemonSet {name}", f"{ready} of {desired} pods ready")
    for resource in plan.resources:
        kind = resource.type.rpartition(":")[2]
        if kind in _ON_MACHINES:
            result.add_row(f"{kind} {resource.name}", f"not run: {_ON_MACHINES[kind]}")
    for release in plan.releases():
        chart = "installed" if installed else (runs_arc and _REAL_ARC.get(release.chart_name)) or _substitute(release)
        result.add_row(f"Helm release {release.name}", chart)
    return result


_ON_MACHINES = {
    "KubesprayCluster": "the sandbox is the cluster",
    "NvidiaContainerToolkit": "the sandbox's nodes run no containers",
}
"""Components that run commands on machines, with the reason why the sandbox does not need them."""

_SUBSTITUTES = {
    "karpenter": "runs outside the cluster, with these values",
    "karpenter-crd": "its CRDs are installed",
    "gpu-operator": "simulated: GPUs as in the stack file",
    "nvidia-device-plugin": "simulated: GPUs as in its configuration",
    SCALE_SET_CHART: "not installed: GitHub and its listener are simulated",
}
"""Substitutes for charts, by the chart's name."""

_REAL_ARC = {
    CONTROLLER_CHART: "rendered by Helm; ARC's own controller runs",
    SCALE_SET_CHART: "rendered by Helm; ARC's own listener runs, and GitHub is simulated",
}
"""State of ARC's charts if its own programs run."""


def _substitute(release: Release) -> str:
    return _SUBSTITUTES.get(release.chart_name, "not installed: it would connect to GitHub")
