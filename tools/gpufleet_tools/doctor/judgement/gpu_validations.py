"""Judgement of nodes whose GPUs have not passed their validation."""

from __future__ import annotations

from gpufleet.gpu_validation import CONTAINER as VALIDATION
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import View, identity, waiting_reason


def unfinished(pod: Object) -> Object | None:
    """Return the status of the validation of GPUs that has not passed; None for other pods."""
    statuses = {each["name"]: each for each in pod.get("status", {}).get("initContainerStatuses", ())}
    found: Object | None = statuses.get(VALIDATION)
    return None if found is None or found.get("state", {}).get("terminated", {}).get("exitCode") == 0 else found


def unvalidated(view: View, node: str, pod: Object) -> Finding:
    """Return the finding about a node whose GPUs have not passed their validation: the faults that the container left,
    or that it still runs, or why it does not start."""
    status, (namespace, name) = unfinished(pod) or {}, identity(pod)
    ended = (status.get(part, {}).get("terminated", {}) for part in ("state", "lastState"))
    faults = next((each.get("message", "") for each in ended if each.get("exitCode")), None)
    if faults is not None:
        lines = faults.split("\n")
        return Finding(
            name="gpu-validation-failed",
            severity="error",
            subject=f"node {node}",
            fact=f"its GPUs failed the validation: {' | '.join(filter(None, lines)) or 'it left no message'}",
            consequence="The node offers no GPUs. The validation is repeated at least every 5 minutes; after a repair,"
            " delete the pod to repeat it at once.",
            commands=(
                view.target.kubectl(f"logs -n {namespace} {name} -c {VALIDATION}"),
                view.target.kubectl(f"delete pod -n {namespace} {name}"),
            ),
        )
    if "running" in status.get("state", {}):
        return Finding(
            name="gpu-validation-running",
            severity="note",
            subject=f"node {node}",
            fact="its GPUs are being validated",
            consequence="The node offers no GPUs until they pass.",
            commands=(view.target.kubectl(f"logs -n {namespace} {name} -c {VALIDATION} --follow"),),
        )
    return Finding(
        name="gpu-validation-pending",
        severity="warning",
        subject=f"node {node}",
        fact=f"the validation of its GPUs has not started: {waiting_reason(pod)}",
        consequence="The node offers no GPUs until they pass.",
        commands=(view.target.kubectl(f"describe pod -n {namespace} {name}"),),
    )
