"""Simulated pods of EKS add-ons: they use a part of every node, or of the system nodes, as on EKS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpufleet import quantity
from gpufleet.aws.eks.cluster_args import EBS_CSI_DRIVER, NODE_MONITORING_AGENT
from gpufleet_stacks.settings.addon_pods import DAEMONS, DCGM, DEPLOYMENTS, AddonPod
from gpufleet_tools.plan.plan import Plan, revealed
from gpufleet_tools.sandbox.control_plane.idle_pods import idle_pods

ADDON_LABEL = "gpufleet.dev/addon"
"""Label of the pods with the add-on's name."""

_ADDON = "aws:eks/addon:Addon"


def daemon_sets(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield a DaemonSet for each add-on of the plan that runs on every node, with the requests that `capacity` uses."""
    for addon in _addons(plan):
        daemon = DAEMONS.get(addon.name)
        if daemon:
            yield _daemon_set(addon.name, addon, daemon)
        if daemon and addon.name == NODE_MONITORING_AGENT:
            yield _dcgm(addon)


def deployments(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the replicas of each add-on of the plan that runs on system nodes, with the requests that `check` uses."""
    for addon in _addons(plan):
        if deployment := DEPLOYMENTS.get(addon.name):
            part = addon.configuration.get("controller", {}) if addon.name == EBS_CSI_DRIVER else addon.configuration
            spec = {
                "nodeSelector": part.get("nodeSelector", {}),
                "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
                "containers": [_container(addon.name, addon, deployment)],
            }
            pod = {"metadata": {"labels": {ADDON_LABEL: addon.name}}, "spec": spec}
            yield idle_pods(addon.name, "kube-system", pod, deployment.count(addon.configuration))


class _Addon(NamedTuple):
    """An EKS add-on of a plan."""

    name: str
    version: str
    configuration: Mapping[str, Any]


def _addons(plan: Plan) -> Iterator[_Addon]:
    for resource in plan.owned():
        if resource.type == _ADDON:
            inputs = revealed(resource.inputs)
            configuration = json.loads(inputs.get("configurationValues") or "{}")
            yield _Addon(inputs["addonName"], inputs["addonVersion"], configuration)


def _dcgm(agent: _Addon) -> dict[str, Any]:
    """Return the agent's second DaemonSet. It tolerates only the taints that its configuration names."""
    tolerations = agent.configuration.get("dcgmAgent", {}).get("tolerations", [])
    found = _daemon_set("dcgm-server", agent, DCGM, tolerations)
    # The chart lists instance types; Karpenter sets this label on nodes of those types.
    found["spec"]["template"]["spec"]["nodeSelector"] = {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}
    return found


# All taints: a node without its network plugin is never ready.
_EVERY_TAINT: Sequence[Mapping[str, str]] = ({"operator": "Exists"},)


def _daemon_set(
    name: str, addon: _Addon, daemon: AddonPod, tolerations: Sequence[Mapping[str, str]] = _EVERY_TAINT
) -> dict[str, Any]:
    labels = {ADDON_LABEL: name}
    spec = {
        "priorityClassName": "system-node-critical",
        "tolerations": [*tolerations],
        "containers": [_container(name, addon, daemon)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def _container(name: str, addon: _Addon, pod: AddonPod) -> dict[str, Any]:
    """Return one container with the requests of all containers of the pod."""
    amounts = {resource: amount for resource, amount in pod.requests(addon.configuration).items() if amount}
    requests = {resource: quantity.canonical(amount) for resource, amount in amounts.items()}
    return {"name": name, "image": f"eks/{name}:{addon.version}", "resources": {"requests": requests}}
