"""Simulated runners in runner pods: each comes online, runs one job, and ends."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import urllib3.exceptions

from gpufleet_tools.sandbox.arc.cluster import Cluster, Object, now
from gpufleet_tools.sandbox.arc.github import GitHub, Job

SELECTOR = "actions-ephemeral-runner=True"
"""Label of runner pods, set by ARC (resourcebuilder.go at 0.14.2)."""

TOO_OLD = 7
"""Exit code of a runner whose version GitHub rejects: ARC then marks the scale set as outdated
(ephemeralrunner_controller.go at 0.14.2)."""

_TICK = 0.1


class Runners:
    """Runner pods, which kwok sets to Running, and their jobs."""

    def __init__(self, cluster: Cluster, github: GitHub) -> None:
        self._cluster = cluster
        self._github = github
        self._pods: dict[str, Object] = {}
        """Running pods by UID."""
        self._seen: set[str] = set()

    def run(self) -> None:
        """Watch the pods indefinitely."""
        for event, pod in self._cluster.watch("/api/v1/pods", SELECTOR):
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            if event == "DELETED" or "deletionTimestamp" in pod["metadata"]:
                if self._pods.pop(uid, None):
                    with self._github.lock:
                        self._github.runner_is_lost(name)
            elif pod["status"].get("phase") == "Running" and uid not in self._seen:
                self._seen.add(uid)
                self._pods[uid] = pod
                with self._github.lock:
                    accepted = self._github.runner_starts(name, runner_image(pod["spec"]))
                if not accepted:
                    self._exit(pod, TOO_OLD)

    def work(self) -> None:
        """Complete each job after its run time, indefinitely."""
        while True:
            time.sleep(_TICK)
            with self._github.lock:
                due = [job for job in self._github.jobs.values() if _is_due(job)]
            for job in due:
                self.end(job, "succeeded")

    def end(self, job: Job, result: str) -> None:
        """End a job and its runner. A job without a runner is only cancelled."""
        with self._github.lock:
            if job.state == "completed":
                return
            self._github.end(job, result)
        for pod in [each for each in self._pods.values() if each["metadata"]["name"] == job.runner]:
            # In parallel: sequential requests would take seconds for hundreds of jobs.
            threading.Thread(target=self._exit, args=(pod, 0), daemon=True).start()

    def _exit(self, pod: Object, code: int) -> None:
        self._pods.pop(pod["metadata"]["uid"], None)
        terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}
        states: list[dict[str, Any]] = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"running": None, "terminated": terminated},
            }
            for each in pod["spec"]["containers"]
        ]
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": states}
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            self._cluster.patch_status(pod, status)


def runner_image(spec: Object) -> str:
    """Return the image of the runner in the spec of a pod; empty if it has none."""
    return next((str(each["image"]) for each in spec["containers"] if each["name"] == "runner"), "")


def _is_due(job: Job) -> bool:
    return job.state == "running" and job.seconds is not None and time.time() >= job.times["started"] + job.seconds
