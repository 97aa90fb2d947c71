"""Listeners that do not stay up: the reason in their log, and its cure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpufleet_tools.doctor.declared import DeclaredScaleSet
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement.commands import replace_runner_set
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import RESTART_WINDOW, SCALE_SET_ID, View, identity, scale_set_id

Commands = Callable[[View, DeclaredScaleSet, Object], tuple[str, ...]]
"""Function that returns commands from a view, the declared scale set and its listener."""


@dataclass(frozen=True)
class Reason:
    """A reason why listeners end, as their log shows it."""

    name: str
    """Name of the finding."""
    pattern: str
    """Pattern of the log (client.go and session_client.go of actions/scaleset at 0.4.0)."""
    meaning: str
    """The fact."""
    consequence: str
    """Consequence and advice."""
    commands: Commands


def _register_again(view: View, scale_set: DeclaredScaleSet, listener: Object) -> tuple[str, ...]:
    """Return the commands that register a scale set again. Without the annotation, the controller registers it and
    writes the new ID; the EphemeralRunnerSet and the listener have the old one until they are replaced."""
    place, path = f"-n {scale_set.namespace} autoscalingrunnerset", f"{{.metadata.annotations.{SCALE_SET_ID}}}"
    return (
        view.target.kubectl(f"annotate {place} {scale_set.label} {SCALE_SET_ID}-"),
        view.target.kubectl(f"wait {place}/{scale_set.label} --for=jsonpath='{path}' --timeout=60s"),
        replace_runner_set(view, scale_set, listener["spec"]["ephemeralRunnerSetName"]),
    )


def _renew_credentials(view: View, _scale_set: DeclaredScaleSet, _listener: Object) -> tuple[str, ...]:
    return (f"gpufleet check {view.declared.stack}", f"pulumi up --stack {view.declared.stack}")


def _watch(view: View, _scale_set: DeclaredScaleSet, listener: Object) -> tuple[str, ...]:
    namespace, name = identity(listener)
    return (view.target.kubectl(f"get pods -n {namespace} --field-selector metadata.name={name} --watch"),)


REASONS = (
    Reason(
        name="unknown-scale-set",
        pattern=r"runnerscalesets/\d+(/sessions)?\S* failed\(status=\"404",
        meaning="GitHub has no scale set {id}; somebody deleted it",
        consequence="Jobs for the label queue. Register the scale set again; running jobs continue"
        " (actions/actions-runner-controller#4370).",
        commands=_register_again,
    ),
    Reason(
        name="invalid-credentials",
        pattern=r"\(401 |status=\"401",
        meaning="GitHub rejects the credentials in Secret {secret}",
        consequence="Jobs for the label queue, and runners cannot be removed. Write valid credentials: pulumi config"
        " set --secret, or into the existing Secret (docs/operations.md, Rotate a key).",
        commands=_renew_credentials,
    ),
    Reason(
        name="session-conflict",
        pattern=r"SessionConflictException|sessions\S* failed\(status=\"409",
        meaning="GitHub has another session of the scale set",
        consequence="Jobs for the label queue. If the previous listener was killed or its key revoked, GitHub closes"
        " its session after some minutes, and the listener stays up. Otherwise another cluster serves the label.",
        commands=_watch,
    ),
)
"""Reasons, the most specific first."""


def finding(view: View, scale_set: DeclaredScaleSet, found: Object, listener: Object) -> Finding:
    """Return the finding about a listener that does not stay up."""
    namespace, name = identity(listener)
    fact = f"the listener started {view.starts(listener)} times in {RESTART_WINDOW / 60:.0f} min"
    # Only the last error counts: the listener retries requests, and an earlier reason may have gone.
    log = view.snapshot.logs.get(name, "")
    last = next((line for line in reversed(log.splitlines()) if "error" in line.lower()), "")
    reason = next((each for each in REASONS if re.search(each.pattern, last)), None)
    if reason is None:
        return Finding(
            name="listener-restarts",
            severity="error",
            subject=scale_set.label,
            fact=fact,
            consequence="Jobs for the label queue. Its log has the reason, such as invalid credentials, a session of"
            " another listener, or a scale set that GitHub does not know.",
            commands=(view.target.kubectl(f"logs -n {namespace} {name} --follow"),),
        )
    meaning = reason.meaning.format(id=scale_set_id(found), secret=f"{scale_set.namespace}/{scale_set.secret}")
    return Finding(
        name=reason.name,
        severity="error",
        subject=scale_set.label,
        fact=f"{fact}: {meaning}",
        consequence=reason.consequence,
        commands=reason.commands(view, scale_set, listener),
    )
