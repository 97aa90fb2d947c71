"""Judgement of listeners: their references, their pods, their credentials."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_tools.doctor.declared import DeclaredScaleSet
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement import restarts
from gpufleet_tools.doctor.judgement.commands import replace_runner_set, restart_controller, restart_listener
from gpufleet_tools.doctor.judgement.controller import eventual_argument
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import (
    SETTLED,
    View,
    changed,
    identity,
    is_outdated,
    is_terminating,
    scale_set_id,
    waiting_reason,
)


def findings(view: View) -> Iterator[Finding]:
    """Yield findings about the listener of each declared scale set that should have one."""
    if not view.snapshot.knows("runner sets", "listeners"):
        return
    for scale_set in view.declared.scale_sets:
        found = view.runner_set(scale_set)
        if found is None or is_terminating(found) or scale_set_id(found) is None or is_outdated(found):
            continue
        listener = view.listener(found)
        if listener is None:
            yield from _missing(view, scale_set, found)
        else:
            yield from _of_listener(view, scale_set, found, listener)


def _of_listener(view: View, scale_set: DeclaredScaleSet, found: Object, listener: Object) -> Iterator[Finding]:
    references = [*_references(view, scale_set, found, listener)]
    yield from references
    yield from _size(view, scale_set, found, listener)
    yield from _credentials(view, scale_set, listener)
    if view.snapshot.knows("ARC's pods") and not references:
        yield from _pod(view, scale_set, found, listener)


def _missing(view: View, scale_set: DeclaredScaleSet, found: Object) -> Iterator[Finding]:
    """Yield a finding about a runner set without a listener. With the update strategy `eventual`, a change of min or
    max deletes the listener, and idle runners keep ARC from creating it again (actions/actions-runner-controller#4432,
    drainingJobs in autoscalingrunnerset_controller.go at 0.14.2)."""
    controller, argument = view.declared.controller, eventual_argument(view)
    runners = [each for each in view.runners(found) if not is_terminating(each)]
    if argument is not None and runners:
        patch = (
            f'[{{"op":"replace","path":"/spec/template/spec/containers/0/args/{argument}",'
            '"value":"--update-strategy=immediate"}]'
        )
        deployment = f"-n {controller.namespace} {controller.deployment}"
        yield Finding(
            name="eventual-update",
            severity="error",
            subject=scale_set.label,
            fact=f"the scale set has no listener, and {len(runners)} runners",
            consequence="Jobs for the label queue. The controller's update strategy is `eventual`: a change of min or"
            " max deletes the listener, and idle runners prevent a new one (actions/actions-runner-controller#4432)."
            " Use `immediate`, also in the chart values.",
            commands=(view.target.kubectl(f"patch deployment {deployment} --type json -p '{patch}'"),),
        )
    elif view.controller_runs and _is_settled(view, found):
        yield Finding(
            name="listener-missing",
            severity="error",
            subject=scale_set.label,
            fact="the scale set has no listener",
            consequence="Jobs for the label queue. A restarted controller creates the listener, or logs the reason.",
            commands=(restart_controller(view),),
        )


def _is_settled(view: View, found: Object) -> bool:
    """Return whether the controller must have applied the last change of a runner set."""
    written = changed(found, "f:spec")
    return ((view.snapshot.now - written).total_seconds() if written else view.age(found)) > SETTLED


def _references(view: View, scale_set: DeclaredScaleSet, found: Object, listener: Object) -> Iterator[Finding]:
    """Yield findings about names and IDs in the listener that are not those of the scale set. Seen with ARC 0.14.2
    after an EphemeralRunnerSet was deleted by hand: the controller creates another one, but keeps the listener."""
    restart = restart_listener(view, listener)
    wanted, own = listener["spec"]["ephemeralRunnerSetName"], scale_set_id(found)
    sets = {identity(each)[1]: each for each in view.ephemeral_runner_sets(found)}
    if view.snapshot.knows("ephemeral runner sets") and wanted not in sets:
        yield Finding(
            name="stale-listener",
            severity="error",
            subject=scale_set.label,
            fact=f"the listener refers to EphemeralRunnerSet {wanted}, which does not exist",
            consequence="It ends as soon as it wants a runner, so jobs for the label queue. The controller creates a"
            " new listener; no job is touched.",
            commands=(restart,),
        )
    elif wanted in sets and is_terminating(sets[wanted]):
        yield Finding(
            name="stale-listener",
            severity="error",
            subject=scale_set.label,
            fact=f"the listener refers to EphemeralRunnerSet {wanted}, which is being deleted",
            consequence="It gets no new runners, so jobs for the label queue. An annotation in the runners' template"
            " replaces it at once; running jobs end first.",
            commands=(replace_runner_set(view, scale_set, wanted),),
        )
    elif listener["spec"].get("runnerScaleSetId") != own:
        yield Finding(
            name="stale-listener",
            severity="error",
            subject=scale_set.label,
            fact=f"the listener serves scale set {listener['spec'].get('runnerScaleSetId')}, but ARC registered {own}",
            consequence="Jobs for the label queue. The controller creates a new listener; no job is touched.",
            commands=(restart,),
        )


def _size(view: View, scale_set: DeclaredScaleSet, found: Object, listener: Object) -> Iterator[Finding]:
    spec, applied = listener["spec"], found["spec"]
    live = (spec.get("minRunners", 0), spec.get("maxRunners"))
    wanted = (applied.get("minRunners", 0), applied.get("maxRunners"))
    if live != wanted and None not in wanted and _is_settled(view, found):
        yield Finding(
            name="listener-size",
            severity="warning",
            subject=scale_set.label,
            fact=f"the listener keeps min {live[0]} and max {live[1]}, but min {wanted[0]} and max {wanted[1]} are"
            " applied",
            consequence="The controller has not replaced the listener. It creates a new one; no job is touched.",
            commands=(restart_listener(view, listener),),
        )


def _credentials(view: View, scale_set: DeclaredScaleSet, listener: Object) -> Iterator[Finding]:
    """Yield findings about the Secret. The controller does not watch Secrets, and a listener reads its credentials only
    when it starts."""
    key = (scale_set.namespace, scale_set.secret)
    if key not in view.snapshot.secrets:
        return
    secret, pod = view.snapshot.secrets[key], view.listener_pod(listener)
    if secret is None:
        yield Finding(
            name="secret-missing",
            severity="error",
            subject=scale_set.label,
            fact=f"Secret {key[0]}/{key[1]} does not exist",
            consequence="No runner can be registered or removed. Create the Secret again: Pulumi does it for its own;"
            " for an existingSecret see docs/operations.md.",
            commands=(f"pulumi up --stack {view.declared.stack} --refresh",),
        )
        return
    written = changed(secret, "f:data")
    if pod is not None and written is not None and (view.snapshot.now - written).total_seconds() < view.age(pod):
        namespace, name = identity(listener)
        yield Finding(
            name="rotated-key",
            severity="warning",
            subject=scale_set.label,
            fact=f"Secret {key[0]}/{key[1]} was written at {written:%Y-%m-%d %H:%M:%S} UTC, after the listener started",
            consequence="The listener still uses the previous credentials, and ends once they are revoked. Restart it;"
            " no job is touched.",
            commands=(view.target.kubectl(f"delete pod -n {namespace} {name}"),),
        )


def _pod(view: View, scale_set: DeclaredScaleSet, found: Object, listener: Object) -> Iterator[Finding]:
    pod, (namespace, name) = view.listener_pod(listener), identity(listener)
    if view.restless(listener):
        yield restarts.finding(view, scale_set, found, listener)
    elif pod is None and view.age(listener) > SETTLED:
        yield Finding(
            name="listener-pod-missing",
            severity="error",
            subject=scale_set.label,
            fact=f"the listener has no pod {namespace}/{name}",
            consequence="Jobs for the label queue. A restarted controller creates the pod, or logs the reason.",
            commands=(restart_controller(view),),
        )
    elif pod is not None and pod.get("status", {}).get("phase") == "Pending" and view.age(pod) > SETTLED:
        yield Finding(
            name="listener-pending",
            severity="error",
            subject=scale_set.label,
            fact=f"the listener's pod {namespace}/{name} does not start: {waiting_reason(pod)}",
            consequence="Jobs for the label queue.",
            commands=(view.target.kubectl(f"describe pod -n {namespace} {name}"),),
        )
