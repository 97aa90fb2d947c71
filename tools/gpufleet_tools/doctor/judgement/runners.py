"""Judgement of runners: those that failed, do not start, or do not end."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from gpufleet.arc.job_timeout import MOST_MINUTES
from gpufleet_tools.doctor.declared import DeclaredScaleSet
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement.commands import controller_log
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import SETTLED, View, changed, identity, is_terminating, waiting_reason

SLOW_START = 120.0
"""Seconds after which a runner should have registered and its pod should run, once it has a node and its image."""

JOB_LIMIT = datetime.timedelta(minutes=MOST_MINUTES)
"""GitHub's limit of a job on a self-hosted runner."""

TIMEOUT_DELAY = datetime.timedelta(minutes=10)
"""Time in which a runner that has passed its time limit must have ended."""

_ENDED = ("Failed", "Outdated")
"""Phases that ARC does not leave."""

HUNG_DELETION = 300.0
"""Seconds after which the deletion of a runner without a job counts as hung."""


def findings(view: View) -> Iterator[Finding]:
    """Yield findings about the runners of each declared scale set: one for each kind."""
    for scale_set in view.declared.scale_sets:
        found = view.runner_set(scale_set)
        if found is None:
            continue
        runners = view.runners(found)
        yield from _failed(view, scale_set, runners)
        yield from _failing(view, scale_set, runners)
        yield from _unregistered(view, scale_set, runners)
        yield from _pending(view, scale_set, runners)
        yield from _hung_jobs(view, scale_set, runners)
        yield from _hung_deletions(view, scale_set, runners)


def status_of(runner: Object) -> Object:
    """Return the status of a runner; an empty one before ARC has written it."""
    status: Object = runner.get("status", {})
    return status


def is_busy(runner: Object) -> bool:
    """Return whether a runner has a job."""
    return bool(status_of(runner).get("jobId"))


def _names(runners: Sequence[Object]) -> str:
    names = [identity(each)[1] for each in runners]
    return names[0] if len(names) == 1 else f"{len(names)} runners, such as {names[0]},"


def _deletion(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> tuple[str, ...]:
    names = " ".join(identity(each)[1] for each in runners)
    return (view.target.kubectl(f"delete ephemeralrunner -n {scale_set.namespace} --wait=false {names}"),)


def _failed(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> Iterator[Finding]:
    """Yield a finding about runners in the phase Failed, whose pod the API server rejected: ARC does not retry them."""
    failed = [each for each in runners if status_of(each).get("phase") == "Failed" and not is_terminating(each)]
    if failed:
        status = status_of(failed[0])
        message = " ".join(str(status.get("message") or status.get("reason") or "no message").split())
        yield Finding(
            name="failed-runners",
            severity="error",
            subject=scale_set.label,
            fact=f"{_names(failed)} failed: {message}",
            consequence="ARC does not retry them, and each takes one of the label's runners. Correct the cause in the"
            " stack file, then delete them.",
            commands=_deletion(view, scale_set, failed),
        )


def _failing(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> Iterator[Finding]:
    failing = [each for each in runners if status_of(each).get("failures") and not is_busy(each)]
    failing = [each for each in failing if status_of(each).get("phase") not in _ENDED]
    if failing:
        worst = max(failing, key=lambda each: len(status_of(each)["failures"]))
        yield Finding(
            name="failing-runners",
            severity="warning",
            subject=scale_set.label,
            fact=f"{_names(failing)} ended without a job; {identity(worst)[1]}"
            f" {len(status_of(worst)['failures'])} times, at last: {status_of(worst).get('message') or 'no message'}",
            consequence="ARC starts each again after a growing pause, and replaces it after the sixth time. The log of"
            " the container `runner` has the reason.",
            commands=(view.target.kubectl(f"logs -n {scale_set.namespace} {identity(worst)[1]} -c runner"),),
        )


def _unregistered(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> Iterator[Finding]:
    waiting = [
        each
        for each in runners
        if not status_of(each).get("runnerId")
        and status_of(each).get("phase") not in _ENDED
        and not is_terminating(each)
        and view.age(each) > SETTLED
    ]
    if waiting and view.controller_runs:
        yield Finding(
            name="unregistered-runners",
            severity="error",
            subject=scale_set.label,
            fact=f"{_names(waiting)} cannot be registered at GitHub",
            consequence="They have no pod. Usual reasons: invalid credentials, a scale set that GitHub does not know,"
            " or GitHub cannot be reached. The controller's log has the reason.",
            commands=(controller_log(view, identity(waiting[0])[1]),),
        )


def _pending(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> Iterator[Finding]:
    """Yield a finding for each reason why pods do not start. Pods without a node are reported at once: whether they fit
    is decided in seconds. Those with a node first pull their image."""
    reasons: dict[str, list[Object]] = {}
    for runner in runners:
        pod = view.pod_of(runner)
        if pod is None or is_terminating(pod) or pod.get("status", {}).get("phase") != "Pending":
            continue
        limit = SLOW_START if pod["spec"].get("nodeName") else SETTLED
        if view.age(pod) > limit:
            reasons.setdefault(waiting_reason(pod), []).append(pod)
    for reason, pods in reasons.items():
        yield Finding(
            name="pending-runners",
            severity="warning",
            subject=scale_set.label,
            fact=f"{len(pods)} runner pods do not start: {reason}",
            consequence="Their jobs wait. `gpufleet capacity` shows how many runners the pools hold.",
            commands=(view.target.kubectl(f"describe pod -n {scale_set.namespace} {identity(pods[0])[1]}"),),
        )


def _hung_jobs(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> Iterator[Finding]:
    """Yield a finding about runners that have had their job for longer than the profile or GitHub allows. A runner
    whose job was completed elsewhere keeps its place (actions/actions-runner-controller#4603)."""
    timeout = scale_set.job_timeout
    limit, whose = (timeout, "their time limit") if timeout else (JOB_LIMIT, "GitHub's limit")
    hung = []
    for runner in runners:
        since = changed(runner, "f:status", "f:jobId") if is_busy(runner) else None
        if since and view.snapshot.now - since > limit + TIMEOUT_DELAY:
            hung.append(runner)
    if hung:
        hours = limit / datetime.timedelta(hours=1)
        yield Finding(
            name="hung-runners",
            severity="warning",
            subject=scale_set.label,
            fact=f"{_names(hung)} have had the same job for more than {hours:g} hours, {whose}",
            consequence="Each takes one of the label's runners. Delete them; a job that still runs is lost.",
            commands=_deletion(view, scale_set, hung),
        )


def _hung_deletions(view: View, scale_set: DeclaredScaleSet, runners: Sequence[Object]) -> Iterator[Finding]:
    hung = [each for each in runners if not is_busy(each) and view.terminating(each) > HUNG_DELETION]
    if hung:
        yield Finding(
            name="hung-deletions",
            severity="warning",
            subject=scale_set.label,
            fact=f"{_names(hung)} have been terminating for more than {HUNG_DELETION / 60:.0f} min",
            consequence="Each takes one of the label's runners. ARC removes a runner at GitHub first, with the Secret"
            " that its runner set names. The controller's log has the reason.",
            commands=(controller_log(view, identity(hung[0])[1]),),
        )
