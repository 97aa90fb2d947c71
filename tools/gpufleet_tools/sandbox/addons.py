"""Simulated DaemonSets of EKS add-ons: their pods use a part of every node, as on EKS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpufleet.aws.eks.cluster_args import NODE_MONITORING_AGENT
from gpufleet_stacks.settings.daemon_requests import ADDONS, DCGM, Daemon
from gpufleet_tools.plan.plan import Plan, Resource, revealed

ADDON_LABEL = "gpufleet.dev/addon"
"""Label of the pods with the add-on's name."""

_ADDON = "aws:eks/addon:Addon"


def daemon_sets(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield a DaemonSet for each add-on of the plan that runs on every node, with the requests that `capacity` uses."""
    for resource in plan.owned():
        daemon = ADDONS.get(resource.inputs["addonName"]) if resource.type == _ADDON else None
        if daemon:
            yield _daemon_set(resource.inputs["addonName"], resource.inputs["addonVersion"], daemon)
        if daemon and resource.inputs["addonName"] == NODE_MONITORING_AGENT:
            yield _dcgm(resource)


def _dcgm(agent: Resource) -> dict[str, Any]:
    """Return the agent's second DaemonSet. It tolerates only the taints that its configuration names."""
    configured = json.loads(revealed(agent.inputs).get("configurationValues") or "{}")
    tolerations = configured.get("dcgmAgent", {}).get("tolerations", [])
    found = _daemon_set("dcgm-server", agent.inputs["addonVersion"], DCGM, tolerations)
    # The chart lists instance types; Karpenter sets this label on nodes of those types.
    found["spec"]["template"]["spec"]["nodeSelector"] = {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}
    return found


# All taints: a node without its network plugin is never ready.
_EVERY_TAINT: Sequence[Mapping[str, str]] = ({"operator": "Exists"},)


def _daemon_set(
    addon: str, version: str, daemon: Daemon, tolerations: Sequence[Mapping[str, str]] = _EVERY_TAINT
) -> dict[str, Any]:
    labels = {ADDON_LABEL: addon}
    requests = {name: text for name, text in (("cpu", daemon.cpu), ("memory", daemon.memory)) if text != "0"}
    spec = {
        "priorityClassName": "system-node-critical",
        "tolerations": [*tolerations],
        "containers": [{"name": addon, "image": f"eks/{addon}:{version}", "resources": {"requests": requests}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": addon, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
