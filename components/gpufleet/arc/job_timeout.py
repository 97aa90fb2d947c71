"""Time limit of jobs, which each runner enforces itself: a job that hangs does not keep its runner and its GPUs.

A process in the runner's container ends `Runner.Worker`, which runs exactly as long as a job does, once it has run for
too long. The runner then ends (`RunAsync` and `RunOnceAsync` in JobDispatcher.cs of actions/runner), GitHub fails the
job, and ARC replaces the runner. A runner without a job has no such process and is never ended. The pod's own
`activeDeadlineSeconds` would also count the time before the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.problem import Path

MOST_MINUTES = 5 * 24 * 60
"""GitHub's limit of a job on a self-hosted runner ("Limits", docs.github.com/actions)."""

SECONDS_TO_END = 60
"""Time for the runner to report the job, before its processes are killed."""


def start_hook(minutes: int) -> dict[str, Any]:
    """Return the `lifecycle` of the runner's container. It does not depend on the container's command."""
    return {"postStart": {"exec": {"command": ["/bin/bash", "-c", script(minutes * 60)]}}}


def conflicts(patch: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the places in a patch of the pod template that prevent a time limit, each with a message."""
    spec = patch.get("spec") or {}
    if spec.get("hostPID"):
        yield ("spec", "hostPID"), "a time limit would end jobs of other runners; remove hostPID or the time limit"
    for index, container in enumerate(spec.get("containers") or ()):
        if container.get("name") == "runner" and "postStart" in (container.get("lifecycle") or {}):
            path = ("spec", "containers", index, "lifecycle", "postStart")
            yield path, "it replaces the process that enforces the time limit of jobs; remove it or the time limit"


def script(limit: int, pause: int = 15, to_end: int = SECONDS_TO_END) -> str:
    """Return the script that starts the process. `limit` is the time limit, `pause` the time between two looks, and
    `to_end` the time between signals, in seconds.

    Field 22 of `/proc/PID/stat` is the start of a process, in ticks since the boot (proc_pid_stat(5)).
    """
    return f"""\
ticks=$(getconf CLK_TCK 2>/dev/null || echo 100)
pids() {{
  for process in /proc/[0-9]*; do
    read -r name <"$process/comm" && [ "$name" = "$1" ] && echo "${{process#/proc/}}"
  done
}}
seconds() {{
  read -r now _ </proc/uptime
  read -r stat <"/proc/$1/stat" || return
  set -- ${{stat##*) }}
  echo $((${{now%%.*}} - ${{20}} / ticks))
}}
watch() {{
  while sleep {pause}; do
    for worker in $(pids Runner.Worker); do
      [ "$(seconds "$worker")" -ge {limit} ] || continue
      echo "The job has run for more than {limit} seconds, its time limit: it is ended." >/proc/1/fd/1
      kill -TERM "$worker"
      sleep {to_end}
      kill -KILL "$worker"
      sleep {to_end}
      kill -KILL $(pids Runner.Listener)
    done
  done
}}
watch </dev/null >/dev/null 2>&1 &
"""
