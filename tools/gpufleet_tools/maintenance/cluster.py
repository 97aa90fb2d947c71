"""The node under maintenance as the cluster shows it, and the few changes that maintenance makes there."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpufleet import quantity
from gpufleet_tools.api_server import ApiError, ApiServer
from gpufleet_tools.doctor.judgement.runners import is_busy
from gpufleet_tools.doctor.view import identity, is_terminating, scale_set_of

Object = Mapping[str, Any]

FIELD_MANAGER = "gpufleet-maintenance"
"""Owner of the cordon and the mark. The API server removes a field when its last owner gives it up. So a node that
somebody else cordoned too stays cordoned."""

MARK = "gpufleet.dev/maintenance-run"
"""Annotation of a node under maintenance: who began it, when and why, and the boot ID at its begin."""

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
"""Label of kubeadm for machines of the control plane."""

_RUNNERS = "/apis/actions.github.com/v1alpha1"
RUNNER_POD = "actions-ephemeral-runner"
"""Label of runner pods (constants.go of actions/actions-runner-controller at 0.14.2)."""


class NoNode(Exception):
    """The cluster has no such node. `str()` is one line."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Record of a maintenance that has begun; an annotation of the node, so that any machine can continue it."""

    by: str
    """User and host."""
    since: str
    """Time of the begin, ISO 8601."""
    why: str
    """Reason."""
    boot_id: str
    """Boot ID of the machine at that time."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A runner on the node."""

    namespace: str
    name: str
    label: str
    """Label of its scale set."""
    path: str
    """Path of its EphemeralRunner."""
    preconditions: Mapping[str, str]
    """UID and version of the object that was read."""
    state: str
    """`idle`, `busy`, or `ending`: ARC deletes it as soon as GitHub says that it has no job."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A node at one time."""

    uid: str
    boot_id: str
    is_ready: bool
    is_cordoned: bool
    owners: Sequence[str]
    """Other field managers that cordoned the node."""
    mark: Mark | None
    """Record of the maintenance; None if none has begun."""
    allocatable: Mapping[str, str]
    runners: Sequence[Runner]
    evictable: Sequence[Object]
    """Other pods, which a controller starts again elsewhere."""
    lasting: Sequence[Object]
    """Other pods, which nobody would start again."""
    away: Collection[str]
    """Other nodes that are cordoned or not ready."""
    unready: Collection[str]
    """Other nodes that are not ready."""
    control_plane: Collection[str]
    """Nodes of the control plane, including this one."""

    def runners_that_are(self, state: str) -> list[Runner]:
        """Return the runners in a state."""
        return [each for each in self.runners if each.state == state]

    def devices(self, resource: str) -> int:
        """Return the number of allocatable devices."""
        return int(quantity.parsed(str(self.allocatable.get(resource, "0"))))


@dataclass(frozen=True)
class Node:
    """A node of the cluster, and requests about it."""

    api: ApiServer
    name: str

    def state(self) -> State:
        """Return the state of the node. Raises NoNode, and ApiError."""
        nodes = {identity(each)[1]: each for each in self._list("/api/v1/nodes")}
        if self.name not in nodes:
            raise NoNode(f"the cluster has no node {self.name}; `pulumi up` adds declared machines")
        node = nodes[self.name]
        pods = self._list("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")
        runner_pods = {identity(each) for each in pods if RUNNER_POD in each["metadata"].get("labels", {})}
        others = [each for each in pods if identity(each) not in runner_pods and _holds_the_node(each)]
        unready = {name for name, each in nodes.items() if name != self.name and not _is_ready(each)}
        spec, status = node["spec"], node.get("status", {})
        return State(
            uid=node["metadata"]["uid"],
            boot_id=status.get("nodeInfo", {}).get("bootID", ""),
            is_ready=_is_ready(node),
            is_cordoned=bool(spec.get("unschedulable")),
            owners=[*_owners_of_cordon(node)],
            mark=_mark(node),
            allocatable=status.get("allocatable", {}),
            runners=[*self._runners(runner_pods)],
            evictable=[each for each in others if _controller(each)],
            lasting=[each for each in others if not _controller(each)],
            away=unready | {name for name, each in nodes.items() if name != self.name and _is_cordoned(each)},
            unready=unready,
            control_plane={name for name, each in nodes.items() if CONTROL_PLANE in each["metadata"].get("labels", {})},
        )

    def _list(self, path: str, **query: str) -> list[Object]:
        try:
            return list(self.api.call("GET", path, query=query)[1].get("items") or ())
        except ApiError as error:
            # ARC's kinds do not exist before its charts are installed.
            if error.status == 404 and path.startswith(_RUNNERS):
                return []
            raise

    def _runners(self, pods: Collection[tuple[str, str]]) -> Iterator[Runner]:
        """Yield the runners with a pod on this node. ARC names both alike."""
        found = {identity(each): each for each in self._list(f"{_RUNNERS}/ephemeralrunners")}
        for namespace, name in sorted(pods):
            runner = found.get((namespace, name))
            metadata = runner["metadata"] if runner else {"uid": "", "resourceVersion": ""}
            # A pod whose EphemeralRunner is gone ends with it.
            is_ending = runner is None or is_terminating(runner)
            yield Runner(
                namespace=namespace,
                name=name,
                label=scale_set_of(runner)[1] if runner else "",
                path=f"{_RUNNERS}/namespaces/{namespace}/ephemeralrunners/{name}",
                preconditions={key: metadata[key] for key in ("uid", "resourceVersion")},
                state="ending" if is_ending else "busy" if runner and is_busy(runner) else "idle",
            )

    def cordon(self, uid: str, mark: Mark) -> None:
        """Cordon the node, and record the maintenance there. Raises ApiError."""
        text = json.dumps({"by": mark.by, "since": mark.since, "why": mark.why, "bootId": mark.boot_id})
        self._apply({"uid": uid, "annotations": {MARK: text}}, {"unschedulable": True})

    def uncordon(self, uid: str) -> None:
        """Give up cordon and mark. Raises ApiError."""
        self._apply({"uid": uid}, {})

    def _apply(self, metadata: Object, spec: Object) -> None:
        # With the UID, the API server rejects a node that was deleted meanwhile, instead of creating it.
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, **metadata}, "spec": spec}
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self.api.call("PATCH", f"/api/v1/nodes/{self.name}", query=query, body=body)

    def delete(self, runner: Runner) -> None:
        """Ask ARC to delete a runner, unless it has changed since it was read. ARC first removes the runner at GitHub,
        which refuses while it has a job; then ARC waits for the job's end (deleteRunnerFromService in
        ephemeralrunner_controller.go at 0.14.2). Raises ApiError."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": runner.preconditions}
        self._unless_changed("DELETE", runner.path, body)

    def evict(self, pod: Object) -> None:
        """Evict a pod, unless its disruption budget forbids that now. Raises ApiError."""
        namespace, name = identity(pod)
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
        self._unless_changed("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)

    def _unless_changed(self, method: str, path: str, body: Object) -> None:
        try:
            self.api.call(method, path, body=body)
        except ApiError as error:
            # Gone or changed meanwhile, or held by a disruption budget: the next look at the node shows which.
            if error.status not in (404, 409, 429):
                raise


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_cordoned(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable"))


def _mark(node: Object) -> Mark | None:
    text = node["metadata"].get("annotations", {}).get(MARK)
    if text is None:
        return None
    found = json.loads(text)
    return Mark(by=found["by"], since=found["since"], why=found["why"], boot_id=found["bootId"])


def _owners_of_cordon(node: Object) -> Iterator[str]:
    for entry in node["metadata"].get("managedFields", ()):
        if "f:unschedulable" in entry.get("fieldsV1", {}).get("f:spec", {}) and entry["manager"] != FIELD_MANAGER:
            yield entry["manager"]


def _controller(pod: Object) -> str:
    """Return the kind of the pod's controller; empty without one."""
    owners = pod["metadata"].get("ownerReferences", ())
    return next((each["kind"] for each in owners if each.get("controller")), "")


def _holds_the_node(pod: Object) -> bool:
    """Return whether a pod ends for good when its machine stops: not one of a DaemonSet, of the kubelet itself, or one
    that has ended."""
    is_static = "kubernetes.io/config.mirror" in pod["metadata"].get("annotations", {})
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not (is_static or has_ended or _controller(pod) == "DaemonSet")
