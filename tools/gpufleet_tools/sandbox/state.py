"""State of the sandbox: nodes and their GPUs, scale sets and their pods, and Karpenter's node pools."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpufleet import quantity
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet_tools.sandbox.arc_stand_in import COMPONENT, LISTENER
from gpufleet_tools.sandbox.control_plane.api_server import Listing, listing
from gpufleet_tools.sandbox.job_driver import SCALE_SET_LABEL
from gpufleet_tools.sandbox.nodes import POOL_LABEL

Object = Mapping[str, Any]
"""A Kubernetes object, as the API server returns it."""

_POOL_LABELS = (POOL_LABEL, NODE_POOL_LABEL, "eks.amazonaws.com/nodegroup")
"""Labels of a node with the name of its pool, or of its managed node group."""


@dataclass(frozen=True)
class ScaleSetState:
    """The pods of one scale set."""

    running: int
    """Number of running pods."""
    pending: int
    """Number of pending pods."""
    reasons: tuple[str, ...]
    """Messages of the scheduler about pending pods."""


@dataclass(frozen=True)
class NodeState:
    """One node."""

    name: str
    pool: str
    ready: bool
    allocatable: Mapping[str, Decimal]
    """Allocatable resources, in cores and bytes."""
    used: Mapping[str, Decimal]
    """Requests of the pods on it."""
    runners: int
    """Number of runner pods on it."""
    labels: Mapping[str, str]
    """Labels of the node."""


@dataclass(frozen=True)
class PoolState:
    """One of Karpenter's node pools."""

    not_ready: str
    """Reason why Karpenter cannot provision nodes for it; empty if it can."""
    nodes: int
    """Nodes that it has or is about to have."""
    used: Mapping[str, Decimal]
    """Total resources of its nodes."""
    limits: Mapping[str, Decimal]
    """Limits of the total resources."""
    exhausted: str = ""
    """Karpenter's reason why no instance type is available; empty if there is one, or if unknown."""


@dataclass(frozen=True)
class CloudState:
    """State of node pools and instances on EKS."""

    pools: Mapping[str, PoolState]
    """Node pools by name."""
    starting: int
    """Instances that are not nodes yet, or whose GPUs are not registered yet."""
    undecided: int
    """Pods without a node for which Karpenter has reported no error: undecided yet, or a node is starting."""
    deployments: Mapping[str, ScaleSetState]
    """Pods of each Deployment, by its name."""
    prices: Mapping[str, float]
    """US dollars per hour, by instance type."""


@dataclass(frozen=True)
class State:
    """State of the sandbox at one time."""

    nodes: tuple[NodeState, ...]
    scale_sets: Mapping[str, ScaleSetState]
    """Scale sets by label."""
    daemon_sets: Mapping[str, tuple[int, int]]
    """Ready and desired pods, by name."""
    cloud: CloudState | None = None
    """State of node pools and instances on EKS; None on bare metal."""

    @property
    def running(self) -> int:
        return sum(state.running for state in self.scale_sets.values())

    @property
    def pending(self) -> int:
        return sum(state.pending for state in self.scale_sets.values())

    @property
    def waits(self) -> bool:
        """Whether any pod has no node."""
        others = self.cloud.deployments if self.cloud else {}
        return any(state.pending for state in (*self.scale_sets.values(), *others.values()))


Observer = Callable[[Listing], State]
"""Function that derives the state from listed objects."""


def observe(kubeconfig: pathlib.Path, observer: Observer) -> State:
    """Return the state of the sandbox."""
    with listing(kubeconfig) as listed:
        return observer(listed)


def on_declared_nodes(listed: Listing) -> State:
    """Return the state of a sandbox with declared nodes."""
    pods, nodes, daemon_sets = listed(("v1", "Pod"), ("v1", "Node"), ("apps/v1", "DaemonSet"))
    return state_of(pods, nodes, daemon_sets, unscheduled)


Reasons = Callable[[Object], Iterable[str]]
"""Function that returns the reasons why a pod has no node."""


def state_of(pods: Sequence[Object], nodes: Sequence[Object], daemon_sets: Sequence[Object], reasons: Reasons) -> State:
    """Return the state that these objects describe."""
    return State(
        nodes=tuple(_node_state(node, pods) for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"]))),
        scale_sets=_scale_sets(pods, reasons),
        daemon_sets={
            item["metadata"]["name"]: (
                item["status"].get("numberReady", 0),
                item["status"].get("desiredNumberScheduled", 0),
            )
            for item in daemon_sets
        },
    )


PENDING_IS_STABLE = 5.0
"""Seconds without a change after which pending pods count as unschedulable. A pod that is created before its node is
ready is unschedulable at first; the scheduler tries again within a second or two after the node is ready."""

PENDING_IS_STABLE_ON_EKS = 20.0
"""The same with Karpenter, which tries again every 10 seconds, and reports errors until it knows its instance types."""


def settled(
    kubeconfig: pathlib.Path, observer: Observer, wanted: Mapping[str, int], nodes: int, timeout: float
) -> State:
    """Return the state once every wanted runner pod runs or is unschedulable, and nodes and DaemonSets are complete; at
    the latest after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with listing(kubeconfig) as listed:
        state, since = observer(listed), time.monotonic()
        while time.monotonic() < deadline:
            stable_after = PENDING_IS_STABLE_ON_EKS if state.cloud else PENDING_IS_STABLE
            is_stable = not state.waits or time.monotonic() - since > stable_after
            if is_stable and _is_complete(state, wanted, nodes):
                break
            time.sleep(0.2)
            now = observer(listed)
            if now != state:
                state, since = now, time.monotonic()
    return state


def _is_complete(state: State, wanted: Mapping[str, int], nodes: int) -> bool:
    """Return whether every pod runs or is unschedulable, and every node is ready."""
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
    """Return whether Karpenter has nothing left to do."""
    return not (cloud.starting or cloud.undecided or any(pool.not_ready for pool in cloud.pools.values()))


def _scale_sets(pods: Sequence[Object], reasons: Reasons) -> dict[str, ScaleSetState]:
    found: dict[str, list[Object]] = {}
    for pod in pods:
        if label := label_of(pod):
            found.setdefault(label, []).append(pod)
    return {label: pods_state(own, reasons) for label, own in found.items() if any(map(_stays, own))}


def label_of(pod: Object) -> str:
    """Return the label that a runner pod serves; empty for other pods, such as listeners, which ARC labels too."""
    labels = pod["metadata"].get("labels", {})
    return "" if labels.get(COMPONENT) == LISTENER else str(labels.get(SCALE_SET_LABEL, ""))


def pods_state(pods: Sequence[Object], reasons: Reasons) -> ScaleSetState:
    """Return the state of pods of one kind."""
    own = [pod for pod in pods if _stays(pod)]
    return ScaleSetState(
        running=sum(pod["status"].get("phase") == "Running" for pod in own),
        pending=sum(pod["status"].get("phase") == "Pending" for pod in own),
        reasons=tuple(sorted({reason for pod in own for reason in reasons(pod)})),
    )


def _stays(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def unscheduled(pod: Object) -> Iterator[str]:
    """Yield the scheduler's message about a pod without a node."""
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
        allocatable={key: quantity.parsed(text) for key, text in node["status"].get("allocatable", {}).items()},
        used=used,
        runners=sum(bool(label_of(pod)) for pod in here),
        labels=labels,
    )


def _requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the requests of a pod: the sum over its containers and sidecars."""
    sidecars = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    total: dict[str, Decimal] = {}
    for container in [*spec["containers"], *sidecars]:
        for resource, text in container.get("resources", {}).get("requests", {}).items():
            total[resource] = total.get(resource, Decimal()) + quantity.parsed(text)
    return total
