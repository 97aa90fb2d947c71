"""Snapshot of a cluster beside what its stack declares: which object belongs to which."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpufleet_tools.doctor.declared import Declared, DeclaredScaleSet
from gpufleet_tools.doctor.reading import Object, Snapshot
from gpufleet_tools.doctor.target import Target

SETTLED = 30.0
"""Seconds after which a controller must have reacted to a change. ARC needs two on an idle cluster."""

RESTART_WINDOW = 600.0
"""Seconds in which starts of a listener are counted."""

RESTARTS = 3
"""Starts in this window from which a listener counts as one that does not stay up."""

SCALE_SET_ID = "runner-scale-set-id"
"""Annotation of an AutoscalingRunnerSet with its ID at GitHub (autoscalingrunnerset_controller.go at 0.14.2)."""

RECOVERED = 60.0
"""Seconds after which a running listener counts as one that stays up. It polls GitHub at least every 50 seconds."""

_SET_NAME = "actions.github.com/scale-set-name"
_SET_NAMESPACE = "actions.github.com/scale-set-namespace"


@dataclass(frozen=True)
class View:
    """A stack and a snapshot of its cluster."""

    declared: Declared
    snapshot: Snapshot
    target: Target
    """The cluster, for commands."""

    @property
    def controller(self) -> Object | None:
        """The Deployment of the stack's controller."""
        wanted = (self.declared.controller.namespace, self.declared.controller.deployment)
        return next((each for each in self.snapshot["controllers"] if identity(each) == wanted), None)

    @property
    def controller_version(self) -> str | None:
        """Version of the running controller, from the tag of its image; None without a controller."""
        if self.controller is None:
            return None
        image = str(self.controller["spec"]["template"]["spec"]["containers"][0]["image"])
        return image.partition("@")[0].rpartition(":")[2]

    @property
    def controller_runs(self) -> bool:
        """Whether a pod of the controller is ready."""
        return bool(self.controller and self.controller.get("status", {}).get("readyReplicas"))

    def runner_set(self, scale_set: DeclaredScaleSet) -> Object | None:
        """Return the AutoscalingRunnerSet of a declared scale set."""
        wanted = (scale_set.namespace, scale_set.label)
        return next((each for each in self.snapshot["runner sets"] if identity(each) == wanted), None)

    def undeclared(self) -> list[Object]:
        """Return the AutoscalingRunnerSets that the stack's controller would manage and the stack does not declare."""
        own = {(each.namespace, each.label) for each in self.declared.scale_sets}
        return [each for each in self.snapshot["runner sets"] if identity(each) not in own]

    def listener(self, runner_set: Object) -> Object | None:
        """Return the AutoscalingListener of a runner set."""
        wanted = identity(runner_set)
        return next((each for each in self.snapshot["listeners"] if set_of_listener(each) == wanted), None)

    def listener_pod(self, listener: Object) -> Object | None:
        """Return the pod of a listener."""
        return next((each for each in self.snapshot["ARC's pods"] if identity(each) == identity(listener)), None)

    def starts(self, listener: Object) -> int:
        """Return how often the listener's pod was started recently. ARC creates a new pod for each start."""
        namespace, name = identity(listener)
        return len(
            {
                each["involvedObject"].get("uid")
                for each in self.snapshot["events"]
                if (each["involvedObject"].get("namespace"), each["involvedObject"].get("name")) == (namespace, name)
                and self.age(each) < min(RESTART_WINDOW, self.age(listener))
            }
        )

    def restless(self, listener: Object) -> bool:
        """Return whether a listener does not stay up: it was started often, the last time just now."""
        pod = self.listener_pod(listener)
        stays = pod is not None and pod.get("status", {}).get("phase") == "Running" and self.age(pod) > RECOVERED
        return self.starts(listener) >= RESTARTS and not stays

    def ephemeral_runner_sets(self, runner_set: Object) -> list[Object]:
        """Return the EphemeralRunnerSets of a runner set, the newest first."""
        owned = [each for each in self.snapshot["ephemeral runner sets"] if owned_by(each, runner_set)]
        return sorted(owned, key=lambda each: str(each["metadata"]["creationTimestamp"]), reverse=True)

    def runners(self, runner_set: Object) -> list[Object]:
        """Return the EphemeralRunners of a runner set."""
        return [each for each in self.snapshot["runners"] if scale_set_of(each) == identity(runner_set)]

    def pod_of(self, runner: Object) -> Object | None:
        """Return the pod of a runner."""
        return next((each for each in self.snapshot["runner pods"] if identity(each) == identity(runner)), None)

    def age(self, found: Object) -> float:
        """Return the seconds since an object was created."""
        return self.snapshot.age(found["metadata"].get("creationTimestamp"))

    def terminating(self, found: Object) -> float:
        """Return the seconds since the deletion of an object was requested; 0 if it was not."""
        return self.snapshot.age(found["metadata"].get("deletionTimestamp"))


def identity(found: Object) -> tuple[str, str]:
    """Return namespace and name of an object."""
    metadata = found["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def is_terminating(found: Object) -> bool:
    """Return whether an object is being deleted."""
    return "deletionTimestamp" in found["metadata"]


def is_outdated(runner_set: Object) -> bool:
    """Return whether ARC has switched a scale set off, since GitHub rejected a runner as too old."""
    return bool(runner_set.get("status", {}).get("phase") == "Outdated")


def set_of_listener(listener: Object) -> tuple[str, str]:
    """Return namespace and name of the runner set that an AutoscalingListener serves."""
    return listener["spec"]["autoscalingRunnerSetNamespace"], listener["spec"]["autoscalingRunnerSetName"]


def scale_set_of(found: Object) -> tuple[str, str]:
    """Return namespace and name of the scale set in an object's labels; empty if it has none."""
    labels: Mapping[str, str] = found["metadata"].get("labels", {})
    return labels.get(_SET_NAMESPACE, ""), labels.get(_SET_NAME, "")


def scale_set_id(runner_set: Object) -> int | None:
    """Return the ID at GitHub; None if the scale set is not registered."""
    text = runner_set["metadata"].get("annotations", {}).get(SCALE_SET_ID, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def runner_container(pod_spec: Object) -> Object:
    """Return the runner container of a pod's spec; an empty object if it has none."""
    empty: Object = {}
    return next((each for each in pod_spec.get("containers", ()) if each["name"] == "runner"), empty)


def changed(found: Object, *path: str) -> datetime.datetime | None:
    """Return when a field of an object was last written, from its managed fields: `changed(secret, "f:data")`. A
    manager has one time for all of its fields, so the field itself may be older."""
    times = [
        datetime.datetime.fromisoformat(entry["time"])
        for entry in found["metadata"].get("managedFields", ())
        if "time" in entry and _has(entry.get("fieldsV1", {}), path)
    ]
    return max(times, default=None)


def _has(fields: Object, path: Sequence[str]) -> bool:
    return not path or (path[0] in fields and _has(fields[path[0]], path[1:]))


def owned_by(found: Object, owner: Object) -> bool:
    """Return whether an object names another one as its owner."""
    return any(each.get("uid") == owner["metadata"]["uid"] for each in found["metadata"].get("ownerReferences", ()))


def waiting_reason(pod: Object) -> str:
    """Return why a pod does not run: the scheduler's message, or the state of a container."""
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "not scheduled")
    for part in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(part, ()):
            waiting = each.get("state", {}).get("waiting")
            if waiting:
                return f"{each['name']}: {waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
    return "no reason reported"
