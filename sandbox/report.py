"""What runs in the sandbox, as tables: nodes and their GPUs, scale sets and their pods."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleet.plan import Plan
from sandbox.job_driver import SCALE_SET_LABEL
from sandbox.nodes import POOL_LABEL
from sandbox.objects import Listing, listing
from stacks import quantity
from stacks.settings import Settings


@dataclass(frozen=True)
class ScaleSetState:
    """The pods of one scale set."""

    running: int
    """Pods that run."""
    pending: int
    """Pods that do not."""
    reasons: tuple[str, ...]
    """Why they do not, in the scheduler's own words."""


@dataclass(frozen=True)
class NodeState:
    """One node."""

    name: str
    pool: str
    ready: bool
    allocatable: Mapping[str, Decimal]
    """What it has for pods, by resource, in cores and bytes."""
    used: Mapping[str, Decimal]
    """What the pods on it ask for."""
    runners: int
    """Runner pods on it."""


@dataclass(frozen=True)
class State:
    """The sandbox at one moment."""

    nodes: tuple[NodeState, ...]
    scale_sets: Mapping[str, ScaleSetState]
    """By label."""
    daemon_sets: Mapping[str, tuple[int, int]]
    """Pods ready and wanted, by name."""

    @property
    def running(self) -> int:
        return sum(state.running for state in self.scale_sets.values())

    @property
    def pending(self) -> int:
        return sum(state.pending for state in self.scale_sets.values())


def observe(kubeconfig: pathlib.Path) -> State:
    """The state of the sandbox, as its API server tells it."""
    with listing(kubeconfig) as listed:
        return _observed(listed)


def _observed(listed: Listing) -> State:
    pods, nodes, daemon_sets = listed(("v1", "Pod"), ("v1", "Node"), ("apps/v1", "DaemonSet"))
    return State(
        nodes=tuple(_node_state(node, pods) for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"]))),
        scale_sets=_scale_sets(pods),
        daemon_sets={
            item["metadata"]["name"]: (
                item["status"].get("numberReady", 0),
                item["status"].get("desiredNumberScheduled", 0),
            )
            for item in daemon_sets
        },
    )


REFUSAL_STANDS = 5.0
"""Seconds that a refusal of the scheduler has to stand before it is believed. A pod that is made before its node is
ready is refused at first; once the node is, the scheduler tries again within a second or two."""


def settled(kubeconfig: pathlib.Path, wanted: Mapping[str, int], nodes: int, patience: float) -> State:
    """The state once every wanted runner pod runs, or has been refused by the scheduler for good, and nodes and
    DaemonSets are complete; or what it is when patience (seconds) ends."""
    deadline = time.monotonic() + patience
    with listing(kubeconfig) as listed:
        state, since = _observed(listed), time.monotonic()
        while time.monotonic() < deadline:
            stands = not state.pending or time.monotonic() - since > REFUSAL_STANDS
            if stands and _is_complete(state, wanted, nodes):
                break
            time.sleep(0.2)
            now = _observed(listed)
            if now != state:
                state, since = now, time.monotonic()
    return state


def _is_complete(state: State, wanted: Mapping[str, int], nodes: int) -> bool:
    """Whether there is nothing left to come but what the scheduler refuses."""
    if sum(node.ready for node in state.nodes) < nodes:
        return False
    if any(ready < desired for ready, desired in state.daemon_sets.values()):
        return False
    for label, count in wanted.items():
        pods = state.scale_sets.get(label, ScaleSetState(0, 0, ()))
        if pods.running + pods.pending != count or (pods.pending and not pods.reasons):
            return False
    return True


def _scale_sets(pods: Sequence[Mapping[str, Any]]) -> dict[str, ScaleSetState]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        label = pod["metadata"].get("labels", {}).get(SCALE_SET_LABEL)
        if label and "deletionTimestamp" not in pod["metadata"]:
            found.setdefault(label, []).append(pod)
    return {
        label: ScaleSetState(
            running=sum(pod["status"].get("phase") == "Running" for pod in own),
            pending=sum(pod["status"].get("phase") == "Pending" for pod in own),
            reasons=tuple(sorted({reason for pod in own for reason in _unscheduled(pod)})),
        )
        for label, own in found.items()
    }


def _unscheduled(pod: Mapping[str, Any]) -> Iterator[str]:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield condition.get("message", condition.get("reason", ""))


def _node_state(node: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> NodeState:
    name = node["metadata"]["name"]
    here = [pod for pod in pods if pod["spec"].get("nodeName") == name and pod["status"].get("phase") == "Running"]
    used: dict[str, Decimal] = {}
    for pod in here:
        for resource, amount in _requests(pod["spec"]).items():
            used[resource] = used.get(resource, Decimal()) + amount
    return NodeState(
        name=name,
        pool=node["metadata"].get("labels", {}).get(POOL_LABEL, ""),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ())),
        allocatable={key: quantity.parse(text) for key, text in node["status"].get("allocatable", {}).items()},
        used=used,
        runners=sum(SCALE_SET_LABEL in pod["metadata"].get("labels", {}) for pod in here),
    )


def _requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod asks of its node: its containers' requests and those of its sidecars, added up."""
    sidecars = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    total: dict[str, Decimal] = {}
    for container in [*spec["containers"], *sidecars]:
        for resource, text in container.get("resources", {}).get("requests", {}).items():
            total[resource] = total.get(resource, Decimal()) + quantity.parse(text)
    return total


# -- tables -----------------------------------------------------------------------------------------------------------


def tables(
    state: State, settings: Settings, plan: Plan, mix: Mapping[str, int], *, installed: bool = False
) -> RenderableType:
    """Everything there is to see. `installed` says whether Helm has installed the charts, as a rehearsal does."""
    return Group(
        _nodes_table(state, settings),
        Text(),
        _scale_sets_table(state, settings, mix),
        Text(),
        _others_table(state, plan, installed),
    )


def _table(*columns: str, left: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return table


def _nodes_table(state: State, settings: Settings) -> Table:
    table = _table("node", "pool", "ready", "GPUs", "CPU", "memory", "runners", left=("node", "pool", "ready"))
    for node in state.nodes:
        gpu = settings.gpu_resource(node.pool) if node.pool in settings.cluster.node_pools else ""
        table.add_row(
            node.name,
            node.pool,
            "yes" if node.ready else "[red]no[/]",
            _share(node, gpu, quantity.cores),
            _share(node, "cpu", quantity.cores),
            _share(node, "memory", quantity.gibibytes),
            str(node.runners),
        )
    return table


def _share(node: NodeState, resource: str, show: Callable[[Decimal], str]) -> str:
    used, there = node.used.get(resource, Decimal()), node.allocatable.get(resource, Decimal())
    return f"{show(used)} of {show(there)}"


def _scale_sets_table(state: State, settings: Settings, mix: Mapping[str, int]) -> Table:
    columns = ("runs-on", "GPUs", "min", "max", "jobs", "running", "pending", "why")
    table = _table(*columns, left=("runs-on", "why"))
    for label, runner in sorted(settings.runners.items()):
        pods = state.scale_sets.get(label, ScaleSetState(0, 0, ()))
        table.add_row(
            label,
            str(runner.gpus),
            str(runner.min),
            str(runner.max),
            str(mix.get(label, 0)),
            str(pods.running),
            f"[yellow]{pods.pending}[/]" if pods.pending else "0",
            "\n".join(pods.reasons),
        )
    return table


def _others_table(state: State, plan: Plan, installed: bool) -> Table:
    table = _table("also", "", left=("also", ""))
    for name, (ready, desired) in sorted(state.daemon_sets.items()):
        table.add_row(f"DaemonSet {name}", f"{ready} of {desired} pods ready")
    for release in plan.releases():
        why = "GitHub and its listener are played" if release.is_scale_set else "it would ask GitHub for jobs"
        table.add_row(f"Helm release {release.name}", "installed" if installed else f"not installed: {why}")
    return table
