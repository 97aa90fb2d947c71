"""What runs in the sandbox: nodes and their GPUs, scale sets and their pods, and what Karpenter has to say."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet_stacks.settings import quantity
from gpufleet_tools.sandbox.control_plane.api_server import Listing, listing
from gpufleet_tools.sandbox.job_driver import SCALE_SET_LABEL
from gpufleet_tools.sandbox.nodes import POOL_LABEL

Object = Mapping[str, Any]
"""A Kubernetes object, as the API server gives it."""

_POOL_LABELS = (POOL_LABEL, NODE_POOL_LABEL, "eks.amazonaws.com/nodegroup")
"""Labels of a node with the name of its pool, or of its managed node group."""


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
    labels: Mapping[str, str]
    """Its labels."""


@dataclass(frozen=True)
class PoolState:
    """One of Karpenter's node pools."""

    why_not: str
    """Why nothing can be started for it; empty where it can."""
    nodes: int
    """Nodes that it has or is about to have."""
    used: Mapping[str, Decimal]
    """What they have in all, by resource."""
    limits: Mapping[str, Decimal]
    """The most that they may have."""
    exhausted: str = ""
    """Karpenter's reason why it has no instance type to provision; empty where it has, or has not looked."""


@dataclass(frozen=True)
class CloudState:
    """What there is where Karpenter starts the nodes."""

    pools: Mapping[str, PoolState]
    """By name."""
    starting: int
    """Instances that are no nodes yet, or whose GPUs are not there yet."""
    undecided: int
    """Pods without a node that Karpenter has not refused: it has said nothing yet, or a node is on its way."""
    deployments: Mapping[str, ScaleSetState]
    """Pods of each Deployment, by its name."""
    prices: Mapping[str, float]
    """US dollars per hour, by instance type."""


@dataclass(frozen=True)
class State:
    """The sandbox at one moment."""

    nodes: tuple[NodeState, ...]
    scale_sets: Mapping[str, ScaleSetState]
    """By label."""
    daemon_sets: Mapping[str, tuple[int, int]]
    """Pods ready and wanted, by name."""
    cloud: CloudState | None = None
    """None where no node is Karpenter's."""

    @property
    def running(self) -> int:
        return sum(state.running for state in self.scale_sets.values())

    @property
    def pending(self) -> int:
        return sum(state.pending for state in self.scale_sets.values())

    @property
    def waits(self) -> bool:
        """Whether any pod is on no node."""
        others = self.cloud.deployments if self.cloud else {}
        return any(state.pending for state in (*self.scale_sets.values(), *others.values()))


Look = Callable[[Listing], State]
"""How a sandbox is looked at."""


def observe(kubeconfig: pathlib.Path, look: Look) -> State:
    """The state of the sandbox, as its API server tells it."""
    with listing(kubeconfig) as listed:
        return look(listed)


def on_own_nodes(listed: Listing) -> State:
    """The state of a sandbox whose nodes are declared."""
    pods, nodes, daemon_sets = listed(("v1", "Pod"), ("v1", "Node"), ("apps/v1", "DaemonSet"))
    return state_of(pods, nodes, daemon_sets, unscheduled)


Why = Callable[[Object], Iterable[str]]
"""Reasons why a pod is on no node."""


def state_of(pods: Sequence[Object], nodes: Sequence[Object], daemon_sets: Sequence[Object], why: Why) -> State:
    """What these objects say."""
    return State(
        nodes=tuple(_node_state(node, pods) for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"]))),
        scale_sets=_scale_sets(pods, why),
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

REFUSAL_OF_KARPENTER_STANDS = 20.0
"""The same for Karpenter. It tries again every 10 seconds, and refuses everything until it knows its instance types."""


def settled(kubeconfig: pathlib.Path, look: Look, wanted: Mapping[str, int], nodes: int, patience: float) -> State:
    """The state once every wanted runner pod runs, or has been refused for good, and nodes and DaemonSets are complete;
    or what it is when patience (seconds) ends."""
    deadline = time.monotonic() + patience
    with listing(kubeconfig) as listed:
        state, since = look(listed), time.monotonic()
        while time.monotonic() < deadline:
            long = REFUSAL_OF_KARPENTER_STANDS if state.cloud else REFUSAL_STANDS
            stands = not state.waits or time.monotonic() - since > long
            if stands and _is_complete(state, wanted, nodes):
                break
            time.sleep(0.2)
            now = look(listed)
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
    return state.cloud is None or _is_quiet(state.cloud)


def _is_quiet(cloud: CloudState) -> bool:
    """Whether Karpenter is about to do nothing."""
    return not (cloud.starting or cloud.undecided or any(pool.why_not for pool in cloud.pools.values()))


def _scale_sets(pods: Sequence[Object], why: Why) -> dict[str, ScaleSetState]:
    found: dict[str, list[Object]] = {}
    for pod in pods:
        label = pod["metadata"].get("labels", {}).get(SCALE_SET_LABEL)
        if label:
            found.setdefault(label, []).append(pod)
    return {label: pods_state(own, why) for label, own in found.items() if any(map(_stays, own))}


def pods_state(pods: Sequence[Object], why: Why) -> ScaleSetState:
    """What is to be said of pods of one kind."""
    own = [pod for pod in pods if _stays(pod)]
    return ScaleSetState(
        running=sum(pod["status"].get("phase") == "Running" for pod in own),
        pending=sum(pod["status"].get("phase") == "Pending" for pod in own),
        reasons=tuple(sorted({reason for pod in own for reason in why(pod)})),
    )


def _stays(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def unscheduled(pod: Object) -> Iterator[str]:
    """Why the scheduler finds no node for a pod, in its own words."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield condition.get("message", condition.get("reason", ""))


def _node_state(node: Object, pods: Sequence[Object]) -> NodeState:
    name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
    here = [pod for pod in pods if pod["spec"].get("nodeName") == name and pod["status"].get("phase") == "Running"]
    used: dict[str, Decimal] = {}
    for pod in here:
        for resource, amount in _requests(pod["spec"]).items():
            used[resource] = used.get(resource, Decimal()) + amount
    return NodeState(
        name=name,
        pool=next((labels[key] for key in _POOL_LABELS if key in labels), ""),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ())),
        allocatable={key: quantity.parse(text) for key, text in node["status"].get("allocatable", {}).items()},
        used=used,
        runners=sum(SCALE_SET_LABEL in pod["metadata"].get("labels", {}) for pod in here),
        labels=labels,
    )


def _requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod asks of its node: its containers' requests and those of its sidecars, added up."""
    sidecars = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    total: dict[str, Decimal] = {}
    for container in [*spec["containers"], *sidecars]:
        for resource, text in container.get("resources", {}).get("requests", {}).items():
            total[resource] = total.get(resource, Decimal()) + quantity.parse(text)
    return total
