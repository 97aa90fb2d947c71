"""Commands on machines in a plan: their descriptions, their payloads and kubespray's files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.plan.plan import UNKNOWN, Plan, Resource
from gpufleet_tools.plan.readable_yaml import dumped

_CLUSTER, _TOOLKIT = "gpu-runners:index:KubesprayCluster", "gpu-runners:index:NvidiaContainerToolkit"

_COMMANDS = frozenset({"command:local:Command", "command:remote:Command"})

_DRIVER = re.compile(r"exec (?P<folder>\S+)/run (?P<step>[\w-]+)$")
"""Call of the driver, which runs kubespray and has one folder for each cluster."""

_STEPS = {
    "enroll": "deletion resets the cluster",
    "adopt": "takes over kubespray's journal; deletion resets the cluster",
    "hand-over": "seals kubespray's journal, and passes it to the machine that runs kubespray now",
    "entrust": "writes the secrets: SSH key, secret variables",
    "kubeconfig": "reads the administrator's kubeconfig",
}
"""Descriptions of the driver's steps that do not depend on a payload."""


def completed(plan: Plan, settings: Settings) -> Plan:
    """Return the plan with kubespray's payloads, in which only values known at run time are `<unknown>`. In the
    recorded plan, one such value makes the whole payload unknown."""
    clusters = {each.urn: each.name for each in plan.resources if each.type == _CLUSTER}
    if settings.cluster.name not in clusters.values():
        return plan
    # Imported here: stacks without machines do not need these modules.
    from gpufleet.bare_metal.kubespray.cluster import converge_input, kubeconfig_input
    from gpufleet_stacks.settings.args.machines import cluster_args
    from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
    from gpufleet_stacks.settings.rules.machines import STAND_IN_KEY

    # The payloads below do not contain the key.
    args = cluster_args(settings.cluster, STAND_IN_KEY) if isinstance(settings, BareMetalSettings) else None
    if args is None:
        return plan
    payloads = {
        "converge": converge_input(args, repr(UNKNOWN), repr(UNKNOWN)),
        "kubeconfig": kubeconfig_input(args, repr(UNKNOWN)),
    }

    def payload(resource: Resource) -> Resource:
        is_step = clusters.get(resource.parent or "") == settings.cluster.name
        stdin = payloads.get(_step(resource)[1]) if is_step and resource.inputs.get("stdin") is UNKNOWN else None
        return resource if stdin is None else replace(resource, inputs={**resource.inputs, "stdin": stdin})

    return replace(plan, resources=tuple(map(payload, plan.resources)))


def effect(resource: Resource) -> str | None:
    """Return a description of a command on a machine; None for other resources."""
    if resource.type not in _COMMANDS:
        return None
    payload, (_, step) = _payload(resource), _step(resource)
    if f"{_CLUSTER}$" in resource.urn:
        if "source" in payload:
            return f"installs kubespray {payload['source']['version']}"
        if step == "remove" and payload:
            return f"{', '.join(payload['roles'])}; deletion removes it"
        if step == "converge" and payload:
            desired = payload["desired"]
            return f"runs kubespray: {_machine_count(desired['nodes'])}, Kubernetes {desired['kubernetes']}"
        return _STEPS.get(step)
    if f"{_TOOLKIT}$" in resource.urn:
        version = re.search(r"^version=(\S+)$", str(resource.inputs.get("stdin")), re.MULTILINE)
        return f"installs nvidia-container-toolkit {version[1]}" if version else None
    return None


def files(plan: Plan) -> dict[str, str]:
    """Return kubespray's inventory and group variables as YAML, by path: `CLUSTER/inventory/...`. Files with secret
    variables are omitted."""
    return {f"{name}/{path}": text for name, _, found in _kubespray_files(plan) for path, text in found.items()}


def summary(plan: Plan) -> Iterator[str]:
    """Yield lines that list kubespray's files and their folder on the machine that runs kubespray."""
    for name, folder, found in _kubespray_files(plan):
        yield f"kubespray files of {name} in {folder}, on the machine that runs kubespray (--format yaml shows them):"
        yield from (f"  {path}" for path in found)


def _kubespray_files(plan: Plan) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the name, the folder and the files of each cluster."""
    names = {each.urn: each.name for each in plan.resources if each.type == _CLUSTER}
    for resource in plan.resources:
        folder, step = _step(resource)
        desired = _payload(resource).get("desired")
        if step == "converge" and desired and resource.parent in names:
            from gpufleet.bare_metal.kubespray.driver.steps import hosts

            found = {"inventory/hosts.yaml": dumped(hosts(desired["nodes"]))}
            for group, variables in sorted(desired["variables"].items()):
                found[f"inventory/group_vars/{group}/kubespray.yml"] = dumped(variables)
            yield names[resource.parent], folder, found


def _step(resource: Resource) -> tuple[str, str]:
    """Return the driver's folder and the step of a command. The only step of a node is its removal."""
    if resource.type not in _COMMANDS:
        return "", ""
    call = resource.inputs.get("create") or resource.inputs.get("delete")
    found = _DRIVER.search(call) if isinstance(call, str) else None
    return (found["folder"], found["step"]) if found else ("", "")


def _payload(resource: Resource) -> dict[str, Any]:
    """Return the payload of a kubespray command; an empty one if it is secret, unknown or a script."""
    stdin = resource.inputs.get("stdin")
    if not isinstance(stdin, str):
        return {}
    try:
        payload = json.loads(stdin)
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _machine_count(nodes: dict[str, Any]) -> str:
    return f"{len(nodes)} machine{'s' * (len(nodes) != 1)}"
