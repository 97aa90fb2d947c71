"""The diagnosis as a JSON document. Its schema, `doctor.schema.json`, is a public interface."""

from __future__ import annotations

import collections
import datetime
from typing import Literal

from pydantic import Field

from gpufleet_stacks.settings.documented import Documented
from gpufleet_tools.doctor import crds
from gpufleet_tools.doctor.declared import DeclaredScaleSet
from gpufleet_tools.doctor.diagnosis import Diagnosis
from gpufleet_tools.doctor.judgement.runners import is_busy, status_of
from gpufleet_tools.doctor.judgement.scale_sets import live_image, live_version, no_jobs_from, phase
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import View, is_terminating, scale_set_id

ListenerState = Literal["running", "starting", "restarting", "missing", "unknown"]


class ControllerDocument(Documented):
    """ARC's controller and CRDs."""

    namespace: str
    """Namespace of the controller."""
    deployment: str
    """Name of its Deployment."""
    declared_version: str
    """Version in the stack file."""
    version: str | None
    """Version that runs; null if there is no controller, or if it may not be read."""
    ready: bool
    """Whether a pod of the controller is ready."""
    crds: str | None
    """Minor version whose fields the CRDs have; null if unknown."""


class RunnersDocument(Documented):
    """Numbers of runners by state."""

    idle: int
    """Registered, without a job."""
    busy: int
    """With a job."""
    pending: int
    """Not registered yet, or without a running pod."""
    failed: int
    """Rejected for good."""
    terminating: int
    """Being deleted."""


class ScaleSetDocument(Documented):
    """A declared scale set."""

    label: str
    """The `runs-on` label."""
    namespace: str
    """Namespace of the runners."""
    phase: str
    """ARC's phase (`Pending`, `Running`, `Outdated`), `Terminating`, or `missing`."""
    id: int | None
    """ID at GitHub; null if it is not registered."""
    listener: ListenerState
    """State of the listener; `restarting` if it does not stay up."""
    min: int | None
    """Minimum number of idle runners, as applied; null if the scale set is missing."""
    max: int | None
    """Maximum number of runners, as applied; null if the scale set is missing, or if it has no maximum."""
    runners: RunnersDocument
    """Runners by state."""
    image: str
    """Runner image, as applied; empty if the scale set is missing."""
    runner_version: str | None
    """Version of the runner in the image; null if unknown."""
    no_jobs_from: datetime.date | None
    """First day on which GitHub assigns no jobs to this version; null if it is not known yet."""


class FindingDocument(Documented):
    """A finding."""

    name: str
    """Kind of the finding."""
    severity: Literal["error", "warning", "note"]
    """`error`: jobs wait or are lost. `warning`: works now, but not as declared, or not for long."""
    subject: str
    """Object concerned: a label, a node, or `kind namespace/name`."""
    fact: str
    """The fact."""
    consequence: str
    """Consequence of the fact, and advice."""
    commands: list[str]
    """Commands that cure it, in order, or that show its cause."""


class UnreadDocument(Documented):
    """Objects that the user may not read."""

    verb: Literal["get", "list"]
    """Missing verb."""
    resource: str
    """Resource, as RBAC names it."""
    namespace: str
    """Namespace; empty for the whole cluster."""
    purpose: str
    """Checks that are missing therefore."""


class DiagnosisDocument(Documented):
    """Diagnosis of a stack's live cluster."""

    schema_version: Literal[1] = Field(default=1)
    """Version of the schema."""
    stack: str
    """Name of the stack."""
    server: str
    """Address of the API server."""
    kubernetes: str
    """Version of the API server."""
    time: datetime.datetime
    """Time of the examination."""
    controller: ControllerDocument
    """ARC's controller and CRDs."""
    scale_sets: list[ScaleSetDocument]
    """Declared scale sets, sorted by label."""
    findings: list[FindingDocument]
    """Findings, errors first."""
    unread: list[UnreadDocument]
    """Objects that the user may not read; checks of them are missing."""


def document(diagnosis: Diagnosis) -> DiagnosisDocument:
    """Return the diagnosis as a document."""
    view = diagnosis.view
    return DiagnosisDocument.model_construct(
        stack=view.declared.stack,
        server=diagnosis.server,
        kubernetes=view.snapshot.kubernetes,
        time=view.snapshot.now,
        controller=_controller(view),
        scale_sets=[_scale_set(view, each) for each in sorted(view.declared.scale_sets, key=lambda each: each.label)],
        findings=[
            FindingDocument.model_construct(**{**vars(each), "commands": [*each.commands]})
            for each in diagnosis.findings
        ],
        unread=[UnreadDocument.model_construct(**vars(each)) for each in view.snapshot.unread],
    )


def _controller(view: View) -> ControllerDocument:
    wanted, live = view.declared.controller, view.snapshot.crds
    return ControllerDocument.model_construct(
        namespace=wanted.namespace,
        deployment=wanted.deployment,
        declared_version=wanted.version,
        version=view.controller_version,
        ready=view.controller_runs,
        crds=crds.version_of(live) if live else None,
    )


def _scale_set(view: View, scale_set: DeclaredScaleSet) -> ScaleSetDocument:
    found = view.runner_set(scale_set)
    spec = found["spec"] if found else {}
    return ScaleSetDocument.model_construct(
        label=scale_set.label,
        namespace=scale_set.namespace,
        phase=phase(found),
        id=scale_set_id(found) if found else None,
        listener=_listener(view, scale_set),
        min=spec.get("minRunners", 0) if found else None,
        max=spec.get("maxRunners"),
        runners=_runners(view, scale_set),
        image=live_image(found) if found else "",
        runner_version=live_version(scale_set, found) if found else None,
        no_jobs_from=no_jobs_from(scale_set, found) if found else None,
    )


def _listener(view: View, scale_set: DeclaredScaleSet) -> ListenerState:
    if not view.snapshot.knows("runner sets", "listeners", "ARC's pods"):
        return "unknown"
    found = view.runner_set(scale_set)
    listener = view.listener(found) if found else None
    if listener is None:
        return "missing"
    if view.restless(listener):
        return "restarting"
    pod = view.listener_pod(listener)
    return "running" if pod and pod.get("status", {}).get("phase") == "Running" else "starting"


def _runners(view: View, scale_set: DeclaredScaleSet) -> RunnersDocument:
    found = view.runner_set(scale_set)
    states = collections.Counter(_state(each) for each in (view.runners(found) if found else ()))
    return RunnersDocument.model_validate({name: states[name] for name in RunnersDocument.model_fields})


def _state(runner: Object) -> str:
    """Return the state of a runner: the name of a field of RunnersDocument."""
    if is_terminating(runner):
        return "terminating"
    if is_busy(runner):
        return "busy"
    return _PHASES.get(status_of(runner).get("phase", ""), "pending")


_PHASES = {"Running": "idle", "Failed": "failed", "Outdated": "failed"}
