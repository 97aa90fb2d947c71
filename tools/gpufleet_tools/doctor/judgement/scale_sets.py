"""Judgement of scale sets: registration, settings as applied, and the runner's version."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from gpufleet.arc import runner_releases
from gpufleet_tools.doctor import crds
from gpufleet_tools.doctor.declared import DeclaredScaleSet
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement.commands import controller_log, reinstall
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import (
    SETTLED,
    View,
    identity,
    is_outdated,
    is_terminating,
    runner_container,
    scale_set_id,
)

VERSION_LABEL = "app.kubernetes.io/version"
"""Label of a runner set with the version of its chart. The controller compares it with its own."""

WARN_DAYS = 14
"""Days of warning before GitHub assigns no more jobs."""


def findings(view: View) -> Iterator[Finding]:
    """Yield findings about each declared scale set."""
    if not view.snapshot.knows("runner sets"):
        return
    for scale_set in view.declared.scale_sets:
        found = view.runner_set(scale_set)
        if found is None:
            yield _missing(view, scale_set)
        elif is_terminating(found):
            yield _terminating(view, scale_set, found)
        else:
            yield from _version(view, scale_set, found)
            yield from _registration(view, scale_set, found)
            yield from _outdated(view, scale_set, found)
            yield from _size(view, scale_set, found)
            yield from _image(view, scale_set, found)
            yield from _expiry(view, scale_set, found)


def _missing(view: View, scale_set: DeclaredScaleSet) -> Finding:
    return Finding(
        name="scale-set-missing",
        severity="error",
        subject=scale_set.label,
        fact=f"AutoscalingRunnerSet {scale_set.namespace}/{scale_set.label} does not exist",
        consequence="Jobs for the label queue. Create it again. An apply while its predecessor is terminating is lost:"
        " Helm records it, and the scale set disappears.",
        commands=(reinstall(view, scale_set.label, scale_set.namespace),),
    )


def _terminating(view: View, scale_set: DeclaredScaleSet, found: Object) -> Finding:
    busy = [each for each in view.runners(found) if each.get("status", {}).get("jobId")]
    wait = f"It waits for {len(busy)} running jobs." if busy else "Its finalizers wait for the controller."
    if not view.controller_runs and view.snapshot.knows("controllers"):
        wait = "The controller, which removes its finalizers, does not run: see the finding about the controller."
    name = f"-n {scale_set.namespace} autoscalingrunnerset/{scale_set.label}"
    return Finding(
        name="scale-set-terminating",
        severity="error",
        subject=scale_set.label,
        fact=f"the scale set has been terminating for {view.terminating(found):.0f} s, but the stack declares it",
        consequence=f"{wait} A change that is applied meanwhile is lost: wait, then create it again.",
        commands=(
            view.target.kubectl(f"wait {name} --for=delete --timeout=600s"),
            reinstall(view, scale_set.label, scale_set.namespace),
        ),
    )


def _version(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    version = found["metadata"].get("labels", {}).get(VERSION_LABEL, "")
    running = view.controller_version
    if running and crds.minor(version) != crds.minor(running):
        yield Finding(
            name="scale-set-version",
            severity="error",
            subject=scale_set.label,
            fact=f"the scale set has version {version or 'none'}, but the controller {running}",
            consequence="The controller deletes scale sets of another minor version. Apply the stack file, with the"
            " controller stopped, in the order of docs/operations.md.",
            commands=(f"pulumi preview --stack {view.declared.stack} --diff",),
        )
    elif version != view.declared.controller.version:
        yield Finding(
            name="scale-set-version",
            severity="warning",
            subject=scale_set.label,
            fact=f"the scale set has version {version}, but the stack declares {view.declared.controller.version}",
            consequence="Apply the stack file.",
            commands=(f"pulumi up --stack {view.declared.stack}",),
        )


def _registration(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    if scale_set_id(found) is not None or view.age(found) < SETTLED or is_outdated(found):
        return
    yield Finding(
        name="not-registered",
        severity="error",
        subject=scale_set.label,
        fact="the scale set has no ID: it is not registered at GitHub",
        consequence="Jobs for the label queue. Usual reasons: the credentials are invalid or lack permissions, the"
        " runner group does not exist, GitHub cannot be reached. The controller's log has the reason.",
        commands=(controller_log(view, scale_set.label),),
    )


def _outdated(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    if not is_outdated(found):
        return
    live = live_image(found)
    newest = runner_releases.known().newest.version
    fresh = scale_set.image != live
    advice = (
        f"Apply the stack file, which declares {scale_set.image}."
        if fresh
        else f"Set the profile's image to runner {newest} or newer in Pulumi.{view.declared.stack}.yaml, and apply it."
    )
    yield Finding(
        name="outdated",
        severity="error",
        subject=scale_set.label,
        fact=f"GitHub rejected a runner as too old, so ARC has switched the label off (phase Outdated, image {live})",
        consequence=f"Jobs for the label queue. {advice}",
        commands=(f"pulumi up --stack {view.declared.stack}",),
    )


def _size(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    spec = found["spec"]
    live, wanted = (spec.get("minRunners", 0), spec.get("maxRunners")), (scale_set.min, scale_set.max)
    if live != wanted:
        yield Finding(
            name="size-differs",
            severity="warning",
            subject=scale_set.label,
            fact=f"min {live[0]} and max {live[1]} are applied, but the stack declares {wanted[0]} and {wanted[1]}",
            consequence="Apply the stack file; with --refresh if somebody changed the object by hand.",
            commands=(f"pulumi up --stack {view.declared.stack} --refresh",),
        )


def live_image(found: Object) -> str:
    """Return the runner image of a runner set."""
    return str(runner_container(found["spec"]["template"].get("spec", {})).get("image", ""))


def live_version(scale_set: DeclaredScaleSet, found: Object) -> str | None:
    """Return the runner version of a runner set; None if unknown."""
    live = live_image(found)
    return scale_set.runner_version if live == scale_set.image else runner_releases.known().version_of(live)


def _image(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    live = live_image(found)
    if live != scale_set.image:
        yield Finding(
            name="image-differs",
            severity="warning",
            subject=scale_set.label,
            fact=f"runners use image {live}, but the stack declares {scale_set.image}",
            consequence="Apply the stack file; with --refresh if somebody changed the object by hand.",
            commands=(f"pulumi up --stack {view.declared.stack} --refresh",),
        )


def no_jobs_from(scale_set: DeclaredScaleSet, found: Object) -> datetime.date | None:
    """Return the first day on which GitHub assigns no jobs to the live runner version; None if there is none yet, or
    unknown."""
    version = live_version(scale_set, found)
    return runner_releases.known().no_jobs_from(version) if version and scale_set.expires else None


def _expiry(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    day, today = no_jobs_from(scale_set, found), view.snapshot.now.date()
    if day is None or is_outdated(found) or today < day - datetime.timedelta(days=WARN_DAYS):
        return
    version, newest = live_version(scale_set, found), runner_releases.known().newest.version
    fact = f"GitHub assigns no jobs to runner {version} from {day} on"
    if today >= day:
        fact = f"GitHub has assigned no jobs to runner {version} since {day}"
    yield Finding(
        name="runner-expires",
        severity="error" if today >= day else "warning",
        subject=scale_set.label,
        fact=fact,
        consequence=f"Use runner {newest} or newer, and apply the stack file.",
        commands=(f"gpufleet check {view.declared.stack}", f"pulumi up --stack {view.declared.stack}"),
    )


def phase(found: Object | None) -> str:
    """Return the phase for the table: that of ARC, `Terminating` or `missing`."""
    if found is None:
        return "missing"
    return "Terminating" if is_terminating(found) else str(found.get("status", {}).get("phase", "") or "unknown")


def name_of(found: Object) -> str:
    """Return `namespace/name`."""
    return "/".join(identity(found))
