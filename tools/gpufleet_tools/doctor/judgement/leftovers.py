"""Judgement of what applies, removals and kills leave: undeclared scale sets, Helm's records, finalizers."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import SETTLED, View, identity, is_terminating, scale_set_of, set_of_listener

_FINALIZED = (
    ("runners", "ephemeralrunner"),
    ("ephemeral runner sets", "ephemeralrunnerset"),
    ("listeners", "autoscalinglistener"),
    ("runner sets", "autoscalingrunnerset"),
    ("role bindings", "rolebinding"),
    ("roles", "role"),
    ("service accounts", "serviceaccount"),
)
"""Lists of objects whose finalizers ARC's controller removes, and kubectl's names of their kinds. An owner comes after
the objects that are deleted with it."""


def findings(view: View) -> Iterator[Finding]:
    """Yield findings about leftovers."""
    yield from _undeclared(view)
    yield from _orphaned_listeners(view)
    yield from _interrupted(view)
    yield from _finalizers(view)
    yield from _namespaces(view)


def _undeclared(view: View) -> Iterator[Finding]:
    namespaces = {*view.declared.namespaces, view.declared.controller.namespace}
    for each in view.undeclared():
        namespace, name = identity(each)
        if is_terminating(each):
            continue
        ours = namespace in namespaces
        yield Finding(
            name="undeclared-scale-set",
            severity="warning" if ours else "note",
            subject=f"AutoscalingRunnerSet {namespace}/{name}",
            fact="the stack does not declare this scale set",
            consequence="It serves jobs and uses GPUs beside the declared labels. If it is a leftover, delete it;"
            " running jobs end first." + ("" if ours else " It may belong to another team."),
            commands=(view.target.kubectl(f"delete autoscalingrunnerset -n {namespace} --wait=false {name}"),),
        )


def _orphaned_listeners(view: View) -> Iterator[Finding]:
    if not view.snapshot.knows("runner sets"):
        return
    known = {identity(each) for each in view.snapshot["runner sets"]}
    for each in view.snapshot["listeners"]:
        namespace, name = identity(each)
        if set_of_listener(each) not in known and view.age(each) > SETTLED:
            yield Finding(
                name="orphaned-listener",
                severity="warning",
                subject=f"AutoscalingListener {namespace}/{name}",
                fact=f"its AutoscalingRunnerSet {'/'.join(set_of_listener(each))} does not exist",
                consequence="Its pod keeps running or restarting, and may hold the session of a label at GitHub.",
                commands=(view.target.kubectl(f"delete autoscalinglistener -n {namespace} --wait=false {name}"),),
            )


def _interrupted(view: View) -> Iterator[Finding]:
    """Yield findings about records of Helm operations that did not end: the next operation on the release fails."""
    for each in view.snapshot["releases"]:
        labels, (namespace, name) = each["metadata"].get("labels", {}), identity(each)
        status = str(labels.get("status", ""))
        if status.startswith("pending-") and view.age(each) > SETTLED:
            yield Finding(
                name="interrupted-release",
                severity="error",
                subject=f"Helm release {namespace}/{labels.get('name')}",
                fact=f"its record is {status} since {each['metadata']['creationTimestamp']}",
                consequence="Unless an operation is still running, the next `pulumi up` fails. Delete only this record;"
                " Helm adopts the objects.",
                commands=(
                    view.target.kubectl(f"delete secret -n {namespace} {name}"),
                    f"pulumi up --stack {view.declared.stack}",
                ),
            )


def _finalizers(view: View) -> Iterator[Finding]:
    """Yield a finding about objects that wait for a controller that does not exist any more. If its Deployment exists,
    the controller is the cure."""
    if view.controller is not None or not view.snapshot.knows("controllers"):
        return
    ending = {identity(each) for each in view.snapshot["runner sets"] if is_terminating(each)}
    objects = [(kind, each) for name, kind in _FINALIZED for each in view.snapshot[name]]
    held = [(kind, each) for kind, each in objects if each["metadata"].get("finalizers")]
    # Those of a scale set are deleted with it, and would wait next.
    held = [(kind, each) for kind, each in held if is_terminating(each) or scale_set_of(each) in ending]
    if any(view.terminating(each) > SETTLED for _, each in held):
        names = [f"{kind} {identity(each)[1]}" for kind, each in held]
        yield Finding(
            name="waiting-finalizers",
            severity="error",
            subject="leftovers",
            fact=f"{len(held)} objects wait for the controller to remove their finalizers: {', '.join(names[:3])}"
            + (", …" if len(names) > 3 else ""),
            consequence="Their deletion never ends without a controller. If it shall not be installed again, remove the"
            " finalizers; scale sets and runners then stay registered at GitHub until they are removed there.",
            commands=tuple(command for kind, each in held for command in _released(view, kind, each)),
        )


def _released(view: View, kind: str, found: Object) -> Iterator[str]:
    """Yield the commands that remove an object's finalizers. A listener has no owner, and is deleted too."""
    namespace, name = identity(found)
    patch = '{"metadata":{"finalizers":null}}'
    yield view.target.kubectl(f"patch {kind} -n {namespace} {name} --type merge -p '{patch}'")
    if kind == "autoscalinglistener" and not is_terminating(found):
        yield view.target.kubectl(f"delete {kind} -n {namespace} {name}")


def _namespaces(view: View) -> Iterator[Finding]:
    ours = {*view.declared.namespaces, view.declared.controller.namespace, *view.declared.device_namespaces}
    kinds = "autoscalingrunnersets,ephemeralrunnersets,ephemeralrunners,rolebindings,roles"
    for each in view.snapshot["namespaces"]:
        name = identity(each)[1]
        if name not in ours or view.terminating(each) < SETTLED:
            continue
        conditions = each.get("status", {}).get("conditions", ())
        remaining = [
            str(condition.get("message", ""))
            for condition in conditions
            if condition["status"] == "True"
            and condition["type"] in ("NamespaceContentRemaining", "NamespaceFinalizersRemaining")
        ]
        yield Finding(
            name="terminating-namespace",
            severity="error",
            subject=f"namespace {name}",
            fact=f"it has been terminating for {view.terminating(each):.0f} s:"
            f" {' '.join(remaining) or 'no reason reported'}",
            consequence="Nothing new can be created in it. Its remaining objects wait for their finalizers; those of"
            " ARC need a running controller.",
            commands=(view.target.kubectl(f"get {kinds} -n {name}"),),
        )
