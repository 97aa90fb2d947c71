"""Judgement of nodes: declared machines, their GPUs, and device plugins."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from gpufleet import quantity
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.judgement.gpu_validations import unfinished, unvalidated
from gpufleet_tools.doctor.reading import Object
from gpufleet_tools.doctor.view import View, identity, owned_by, waiting_reason

STARTING = 300.0
"""Seconds during which a new node may lack its GPUs: the device plugin starts after the node is ready."""


def findings(view: View) -> Iterator[Finding]:
    """Yield findings about nodes and device plugins."""
    if view.snapshot.knows("nodes"):
        names = {identity(each)[1] for each in view.snapshot["nodes"]}
        for machine in view.declared.devices.machines:
            if machine not in names:
                yield _missing(view, machine)
        for node in view.snapshot["nodes"]:
            yield from _node(view, node)
    for daemon_set in view.snapshot["daemon sets"]:
        yield from _plugin(view, daemon_set)


def _missing(view: View, machine: str) -> Finding:
    return Finding(
        name="node-missing",
        severity="error",
        subject=f"node {machine}",
        fact="the stack declares the machine, but the cluster has no such node",
        consequence="Its GPUs serve no jobs. `gpufleet hosts` shows the state of the machine; `pulumi up` adds it to a"
        " cluster of kubespray.",
        commands=(view.target.kubectl("get nodes -o wide"),),
    )


def _node(view: View, node: Object) -> Iterator[Finding]:
    expected, name = view.declared.devices.of(node), identity(node)[1]
    if expected is None or view.age(node) < STARTING:
        return
    conditions = {each["type"]: each for each in node.get("status", {}).get("conditions", ())}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        yield Finding(
            name="node-not-ready",
            severity="error",
            subject=f"node {name}",
            fact=f"the node is not ready: {ready.get('message') or 'its kubelet has reported nothing'}",
            consequence="Its GPUs serve no jobs.",
            commands=(view.target.kubectl(f"describe node {name}"),),
        )
        return
    resource, count = expected
    live = quantity.parsed(str(node["status"].get("allocatable", {}).get(resource, "0")))
    pods = [each for each in view.snapshot["device pods"] if each["spec"].get("nodeName") == name]
    if validations := [each for each in pods if unfinished(each)]:
        yield unvalidated(view, name, validations[0])
    elif live < Decimal(count):
        at_least = "at least " if name not in view.declared.devices.machines else ""
        yield Finding(
            name="missing-devices",
            severity="error",
            subject=f"node {name}",
            fact=f"the node offers {live.normalize():f} {resource}; the stack declares {at_least}{count}",
            consequence="Runners cannot use the missing GPUs. The device plugin's pod there, or the driver, fails.",
            commands=(
                view.target.kubectl(f"get pods -A -o wide --field-selector spec.nodeName={name}"),
                view.target.kubectl(f"describe node {name}"),
            ),
        )
    if node["spec"].get("unschedulable"):
        yield Finding(
            name="node-cordoned",
            severity="note",
            subject=f"node {name}",
            fact="the node is cordoned",
            consequence="It gets no further runners.",
            commands=(view.target.kubectl(f"uncordon {name}"),),
        )


def _plugin(view: View, daemon_set: Object) -> Iterator[Finding]:
    """Yield a finding about a device plugin whose pods are not ready, with the reason of one of them. Other DaemonSets
    of the same namespace, such as those of kube-system, do not count."""
    status, (namespace, name) = daemon_set.get("status", {}), identity(daemon_set)
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    if not _is_plugin(name) or ready >= wanted or view.age(daemon_set) < STARTING:
        return
    pods = [each for each in view.snapshot["device pods"] if owned_by(each, daemon_set) and not _is_ready(each)]
    if pods and all(map(unfinished, pods)):
        # Their nodes have findings of their own.
        return
    pods = [each for each in pods if not unfinished(each)]
    reason = f": {identity(pods[0])[1]}: {waiting_reason(pods[0])}" if pods else ""
    yield Finding(
        name="device-plugin",
        severity="error",
        subject=f"DaemonSet {namespace}/{name}",
        fact=f"{ready} of {wanted} pods are ready{reason}",
        consequence="Nodes without a ready pod offer no GPUs.",
        commands=(
            view.target.kubectl(f"describe daemonset -n {namespace} {name}"),
            *(view.target.kubectl(f"logs -n {namespace} {identity(each)[1]}") for each in pods[:1]),
        ),
    )


def _is_plugin(name: str) -> bool:
    return any(word in name for word in ("device-plugin", "gpu", "nvidia", "mps"))


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
