"""Commands on the simulated GitHub of a sandbox that runs the real ARC: jobs, runners, keys and scale sets."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gpufleet_stacks.settings.problems import nearest
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.sandbox import job_driver, lifecycle, real_arc
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.terminal import table

_ALL = -1
"""Number of jobs in an entry without a number: all that are running."""

RESULTS = {"finish": "succeeded", "fail": "failed"}
"""Results of jobs, by the command that ends them."""


def connected(stack: Stack) -> Control:
    """Return the connection to the simulated GitHub of a stack's sandbox, else to that of its rehearsal. Raises
    SandboxError if ARC is simulated."""
    programs = binaries.without_building()
    rehearsal = lifecycle.rehearsal_control_plane(stack, programs)
    control_plane = ControlPlane.of(stack.root, stack.name, programs)
    if real_arc.runs(rehearsal) and not real_arc.runs(control_plane):
        control_plane = rehearsal
    return Control.of(control_plane, stack.name)


def queue_jobs(stack: Stack, entries: Sequence[str], seconds: float) -> list[str]:
    """Queue jobs from `LABEL=N` entries, and return a line. Raises SandboxError."""
    if not 0 < seconds < math.inf:
        raise SandboxError(f"--seconds {seconds:g}: must be a positive number; omit it for jobs of 30 seconds")
    counts = job_driver.job_counts(entries, job_labels(stack))
    github = connected(stack)
    for label, count in counts.items():
        github.call("queue", label=label, count=count, seconds=seconds)
    return [f"{_jobs(sum(counts.values()))} queued"] if counts else []


def end_jobs(stack: Stack, action: str, entries: Sequence[str]) -> list[str]:
    """End running jobs: N of `LABEL=N`, all of `LABEL`, all of every label without entries. `action` is finish or fail.
    Return a line. Raises SandboxError if fewer jobs are running."""
    counts = job_driver.job_counts(entries, job_labels(stack), default=_ALL)
    github = connected(stack)
    running = collections.Counter(job["label"] for job in github.call("state")["jobs"] if job["state"] == "running")
    problems = [
        f"{action} {label}: running jobs: {running[label]}; see gpufleet sandbox jobs {stack.name}"
        for label, count in counts.items()
        if running[label] < max(count, 1)
    ]
    if not (counts or running):
        problems.append(f"{action}: no job is running; see gpufleet sandbox jobs {stack.name}")
    if problems:
        raise SandboxError(*problems)
    ended = sum(
        github.call("end", label=label, count=None if count == _ALL else count, result=RESULTS[action])
        for label, count in (counts or dict.fromkeys(running, _ALL)).items()
    )
    return [f"{_jobs(ended)} {RESULTS[action]}"]


def deprecate_runners(stack: Stack, labels: Sequence[str]) -> list[str]:
    """Make GitHub reject the runners of these labels, by default of all, as too old. Return a line for each label.
    Raises SandboxError."""
    wanted = _known(labels, stack.settings.runners)
    github = connected(stack)
    rejected: dict[str, str] = {}
    for label in wanted or (None,):
        rejected |= github.call("deprecate-runners", label=label)
    if missing := [label for label in wanted if label not in rejected]:
        raise SandboxError(*(f"deprecate-runners {label}: its scale set is not installed" for label in missing))
    return [f"{label}: new runners of the image {image} are rejected" for label, image in sorted(rejected.items())]


def revoke_key(stack: Stack, project: str, *, replaced: bool) -> list[str]:
    """Revoke the key of a project, or those that were `replaced` by it. Return a line. Raises SandboxError."""
    projects = stack.settings.projects
    if project not in projects:
        raise SandboxError(f"revoke-key {project}: there is no project '{project}'; {nearest(project, projects)}")
    found = projects[project]
    github = connected(stack)
    revoked = github.call(
        "revoke-key",
        namespace=found.namespace,
        secret=found.credentials.secret_name,
        owner=urlsplit(found.config_url).path.strip("/").removeprefix("enterprises/"),
        current=not replaced,
    )
    if not revoked:
        which = "has no replaced key" if replaced else "has no key that GitHub knows"
        raise SandboxError(f"revoke-key {project}: the project {which}")
    which = f"{len(revoked)} replaced key{'s' * (len(revoked) > 1)}" if replaced else "the current key"
    return [f"{which} of project {project} revoked ({', '.join(revoked)})"]


def delete_scale_set(stack: Stack, label: str) -> list[str]:
    """Delete the scale set of a label at GitHub, but not in the cluster. Return a line. Raises SandboxError."""
    _known([label], stack.settings.runners)
    if not connected(stack).call("delete-scale-set", label=label):
        raise SandboxError(f"delete-scale-set {label}: GitHub has no such scale set; ARC has not registered it")
    return [f"scale set {label} deleted at GitHub; ARC's objects are unchanged"]


# -- tables -----------------------------------------------------------------------------------------------------------

Job = Mapping[str, Any]
"""A job as the simulated GitHub describes it."""

COUNTS = ("queued", "assigned", "running", "done", "failed")
"""Columns of the table with numbers of jobs."""

_PAUSE = 0.5


def jobs_table(stack: Stack, jobs: Sequence[Job]) -> Table:
    """Return the jobs of each label by state, and the seconds from queued to running."""
    result = table("runs-on", *COUNTS, "seconds to start: median", "max", left=("runs-on",))
    runners = stack.settings.runners
    labels = [label for label in job_labels(stack) if label in runners or any(job["label"] == label for job in jobs)]
    for label in sorted(labels):
        own = [job for job in jobs if job["label"] == label]
        counts = _counts(own)
        waits = sorted(job["times"]["started"] - job["times"]["queued"] for job in own if "started" in job["times"])
        result.add_row(
            label,
            *(str(counts[each]) for each in COUNTS),
            f"{waits[len(waits) // 2]:.1f}" if waits else "",
            f"{waits[-1]:.1f}" if waits else "",
        )
    return result


def watch(stack: Stack, console: Console) -> None:
    """Show the table until every job with a run time has ended: those of `up` run until a command ends them. Without a
    terminal, print a line for each change, then the table. Raises SandboxError."""
    github = connected(stack)
    began, printed = time.monotonic(), ""
    jobs = github.call("state")["jobs"]
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(jobs_table(stack, jobs), refresh=console.is_terminal)
            counts = _counts(jobs)
            line = ", ".join(f"{counts[each]} {each}" for each in COUNTS)
            if line != printed and not console.is_terminal:
                print(f"after {time.monotonic() - began:.1f} s: {line}", flush=True)
                printed = line
            if not any(job["seconds"] and job["state"] != "completed" for job in jobs):
                break
            time.sleep(_PAUSE)
            jobs = github.call("state")["jobs"]


def _counts(jobs: Sequence[Job]) -> collections.Counter[str]:
    """Return the number of jobs in each column. A cancelled job is in none."""
    ended = {"succeeded": "done", "failed": "failed"}
    return collections.Counter(ended.get(job["result"], "") or job["state"] for job in jobs)


def job_labels(stack: Stack) -> list[str]:
    """Return the labels that jobs may have: those of runners, and their additional labels."""
    runners = stack.settings.runners
    return [*runners, *sorted({label for runner in runners.values() for label in runner.additional_labels})]


def _known(labels: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the labels without repetitions. Raises SandboxError with a line for each unknown one."""
    if problems := [f"there is no label '{label}'; {nearest(label, known)}" for label in labels if label not in known]:
        raise SandboxError(*problems)
    return list(dict.fromkeys(labels))


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"
