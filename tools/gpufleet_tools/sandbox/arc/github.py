"""Simulated GitHub: scale sets, runners, jobs, and the session of each listener.

It makes GitHub's decisions: which listener gets a job, which runner runs it, and which credentials are valid. HTTP is
in github_api.py, pods are in runners.py.
"""

from __future__ import annotations

import collections
import itertools
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

SESSION_SECONDS = 80.0
"""Seconds without a poll after which another listener may open a session. GitHub does not publish its value; a listener
polls at least every 50 seconds."""

JobState = Literal["queued", "assigned", "running", "completed"]

STATES: tuple[JobState, ...] = ("queued", "assigned", "running", "completed")
"""States in the order of a job's life."""


@dataclass(eq=False)
class Job:
    """One job of a workflow."""

    id: int
    label: str
    """Value of its `runs-on`."""
    seconds: float | None
    """Run time in seconds; None if it runs until a command ends it."""
    state: JobState = "queued"
    result: str = ""
    runner: str = ""
    """Name of its runner."""
    times: dict[str, float] = field(default_factory=dict)
    """Unix times at which it was queued, assigned, started and finished."""


@dataclass(eq=False)
class Runner:
    """A registered runner, which runs one job."""

    id: int
    name: str
    scale_set: int
    online: bool = False
    job: Job | None = None


@dataclass(eq=False)
class Session:
    """The session of a scale set, in which its listener receives messages."""

    id: str
    owner: str
    credential: str
    """Fingerprint of the credentials that opened it."""
    token: str
    polled: float
    capacity: int = 0
    """Maximum number of runners, as reported by the listener."""
    messages: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)


@dataclass(eq=False)
class ScaleSet:
    """A runner scale set."""

    id: int
    body: dict[str, Any]
    """The client's object with the fields that GitHub adds."""
    session: Session | None = None
    last_message: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    """Jobs that its listener has acquired and that are not completed, by ID."""
    runners: dict[int, Runner] = field(default_factory=dict)

    @property
    def labels(self) -> set[str]:
        return {self.body["name"], *(each["name"] for each in self.body.get("labels", ()))}


class GitHub:
    """State and operations of the simulated GitHub. The caller of a method holds `lock`, except for `poll`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 0
        """Number of changes."""
        self.scale_sets: dict[int, ScaleSet] = {}
        self.runners: dict[str, Runner] = {}
        """Runners by name."""
        self.jobs: dict[int, Job] = {}
        self.revoked: set[str] = set()
        """Fingerprints of revoked credentials."""
        self.used: dict[str, str] = {}
        """Path of the organisation or repository, by fingerprint of the credentials used for it."""
        self.too_old: set[tuple[str, str]] = set()
        """Scale sets by name, with the image whose runner is too old to get jobs."""
        self._ids = itertools.count(1)

    # -- persistence --------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        kept = {key: value for key, value in vars(self).items() if key not in ("lock", "changed", "_ids")}
        return kept | {"next": next(self._ids)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._ids = itertools.count(state.pop("next"))
        vars(self).update(state)

    def touch(self) -> None:
        """Notify the threads that wait for a change."""
        self.version += 1
        self.changed.notify_all()

    # -- scale sets and sessions --------------------------------------------------------------------------------------

    def new_scale_set(self, body: dict[str, Any]) -> ScaleSet:
        """Create a scale set. Queued jobs for its labels are offered as soon as it has a listener."""
        scale_set = ScaleSet(next(self._ids), {})
        fields = {"id": scale_set.id, "createdOn": "2026-01-01T00:00:00Z"}
        scale_set.body = {"runnerGroupName": "Default", **body, **fields}
        self.scale_sets[scale_set.id] = scale_set
        self.touch()
        return scale_set

    def delete_scale_set(self, scale_set: ScaleSet) -> None:
        """Delete a scale set. Its jobs without a runner are queued again."""
        del self.scale_sets[scale_set.id]
        for job in scale_set.jobs.values():
            if job.state == "assigned":
                self._requeue(job)
        self.touch()

    def open_session(self, scale_set: ScaleSet, owner: str, credential: str, token: str) -> Session | None:
        """Open the session of a scale set. Return None while another listener has one."""
        now = time.time()
        if scale_set.session and now - scale_set.session.polled < SESSION_SECONDS:
            return None
        scale_set.session = Session(str(uuid.uuid4()), owner, credential, token, now)
        self.touch()
        return scale_set.session

    def close_session(self, scale_set: ScaleSet) -> None:
        """Close the session, so that the next listener can open one at once."""
        scale_set.session = None
        self.touch()

    def statistics(self, scale_set: ScaleSet) -> dict[str, int]:
        """Return the statistics from which a listener computes the number of runners."""
        states = collections.Counter(job.state for job in scale_set.jobs.values())
        busy = sum(runner.job is not None for runner in scale_set.runners.values())
        return {
            "totalAvailableJobs": sum(1 for _ in self._waiting(scale_set)),
            "totalAcquiredJobs": states["assigned"],
            "totalAssignedJobs": states["assigned"] + states["running"],
            "totalRunningJobs": states["running"],
            "totalRegisteredRunners": len(scale_set.runners),
            "totalBusyRunners": busy,
            "totalIdleRunners": sum(each.online and each.job is None for each in scale_set.runners.values()),
        }

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def queue(self, label: str, count: int, seconds: float | None) -> None:
        """Queue jobs for a label, which need not be served."""
        for _ in range(count):
            job = Job(next(self._ids), label, seconds, times={"queued": time.time()})
            self.jobs[job.id] = job
        for scale_set in self.scale_sets.values():
            if label in scale_set.labels:
                self.offer(scale_set)
        self.touch()

    def unfinished(self, label: str) -> list[Job]:
        """Return the uncompleted jobs of a label; running ones are last."""
        found = [job for job in self.jobs.values() if job.label == label and job.state != "completed"]
        return sorted(found, key=lambda job: (job.state == "running", -job.id))

    def offer(self, scale_set: ScaleSet) -> None:
        """Offer queued jobs to the listener, up to its capacity."""
        session = scale_set.session
        if session is None:
            return
        room = session.capacity - len(scale_set.jobs)
        if waiting := list(itertools.islice(self._waiting(scale_set), max(0, room))):
            self._send(scale_set, [_message(job, "JobAvailable", acquireJobUrl="") for job in waiting])

    def acquire(self, scale_set: ScaleSet, ids: list[int]) -> list[int]:
        """Assign jobs to a scale set. Return the IDs of those that were still queued."""
        taken = [job for each in ids if (job := self.jobs.get(each)) and job.state == "queued"]
        for job in taken:
            job.state, job.times["assigned"] = "assigned", time.time()
            scale_set.jobs[job.id] = job
        if taken:
            self._send(scale_set, [_message(job, "JobAssigned") for job in taken])
        self.dispatch(scale_set)
        return [job.id for job in taken]

    def dispatch(self, scale_set: ScaleSet) -> None:
        """Start assigned jobs on idle runners."""
        idle = [each for each in scale_set.runners.values() if each.online and each.job is None]
        ready = [job for job in scale_set.jobs.values() if job.state == "assigned"] if idle else []
        for runner, job in zip(idle, ready, strict=False):
            job.state, job.runner, job.times["started"] = "running", runner.name, time.time()
            runner.job = job
            self._send(scale_set, [_message(job, "JobStarted", runnerId=runner.id, runnerName=runner.name)])

    def end(self, job: Job, result: str) -> Runner | None:
        """Complete a job and unregister its runner. Return the runner; None for a job without one."""
        scale_set = next((each for each in self.scale_sets.values() if job.id in each.jobs), None)
        job.state, job.result, job.times["finished"] = "completed", result, time.time()
        runner = self.runners.pop(job.runner, None)
        if scale_set:
            del scale_set.jobs[job.id]
            if runner:
                scale_set.runners.pop(runner.id, None)
            details = {"result": result, "runnerId": runner.id if runner else 0, "runnerName": job.runner}
            self._send(scale_set, [_message(job, "JobCompleted", **details)])
            self.offer(scale_set)
        self.touch()
        return runner

    def _waiting(self, scale_set: ScaleSet) -> Iterator[Job]:
        labels = scale_set.labels
        return (job for job in self.jobs.values() if job.state == "queued" and job.label in labels)

    def _requeue(self, job: Job) -> None:
        job.state = "queued"
        job.times.pop("assigned", None)

    def _send(self, scale_set: ScaleSet, messages: list[dict[str, Any]]) -> None:
        """Add messages to the queue of a session. The next poll returns all of them as one."""
        if scale_set.session:
            scale_set.last_message += 1
            scale_set.session.messages.append((scale_set.last_message, messages))
        self.touch()

    # -- runners ------------------------------------------------------------------------------------------------------

    def register(self, scale_set: ScaleSet, name: str) -> Runner | None:
        """Register a runner. Return None if its name is taken."""
        if name in self.runners:
            return None
        runner = self.runners[name] = Runner(next(self._ids), name, scale_set.id)
        scale_set.runners[runner.id] = runner
        self.touch()
        return runner

    def unregister(self, runner: Runner) -> bool:
        """Remove a runner. Return False while it has a job."""
        if runner.job:
            return False
        del self.runners[runner.name]
        if scale_set := self.scale_sets.get(runner.scale_set):
            scale_set.runners.pop(runner.id, None)
        self.touch()
        return True

    def runner_starts(self, name: str, image: str) -> bool:
        """Bring a registered runner of an image online. Return False if it is too old to get jobs."""
        runner = self.runners.get(name)
        if runner is None or runner.online:
            return True
        scale_set = self.scale_sets.get(runner.scale_set)
        if scale_set and (scale_set.body["name"], image) in self.too_old:
            return False
        runner.online = True
        if scale_set:
            self.dispatch(scale_set)
        self.touch()
        return True

    def runner_is_lost(self, name: str) -> None:
        """Fail the job of a runner whose pod was deleted. A runner without a job may come back in another pod."""
        runner = self.runners.get(name)
        if runner and runner.job:
            self.end(runner.job, "failed")
        elif runner:
            runner.online = False
            self.touch()

    # -- messages -----------------------------------------------------------------------------------------------------

    def poll(self, scale_set: ScaleSet, session: Session, capacity: int, seconds: float) -> dict[str, Any] | None:
        """Wait for messages and return them as one. Return None after a timeout or the end of the session."""
        deadline = time.monotonic() + seconds
        with self.lock:
            session.polled = time.time()
            session.capacity = capacity
            # Jobs that were offered but not acquired are offered again.
            if not session.messages:
                self.offer(scale_set)
            while not session.messages:
                left = deadline - time.monotonic()
                if left <= 0 or scale_set.session is not session or session.credential in self.revoked:
                    return None
                self.changed.wait(left)
                session.polled = time.time()
            return {
                "messageId": session.messages[-1][0],
                "messageType": "RunnerScaleSetJobMessages",
                "body": json.dumps([each for _, messages in session.messages for each in messages]),
                "statistics": self.statistics(scale_set),
            }


def _message(job: Job, kind: str, **details: Any) -> dict[str, Any]:
    def at(name: str) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(job.times.get(name, 0)))

    return {
        "messageType": kind,
        "runnerRequestId": job.id,
        "repositoryName": "repository",
        "ownerName": "owner",
        "jobId": str(uuid.UUID(int=job.id)),
        "jobWorkflowRef": "owner/repository/.github/workflows/ci.yml@refs/heads/main",
        "jobDisplayName": f"job {job.id}",
        "workflowRunId": job.id,
        "eventName": "push",
        "requestLabels": [job.label],
        "queueTime": at("queued"),
        "scaleSetAssignTime": at("assigned"),
        "runnerAssignTime": at("started"),
        "finishTime": at("finished"),
        **details,
    }
