"""DaemonSets of EKS's addons, simulated: pods that take their part of every node, as on EKS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpufleet_stacks.settings.daemon_requests import ADDONS, Daemon
from gpufleet_tools.plan.plan import Plan

ADDON_LABEL = "gpufleet.dev/addon"
"""Label of the pods, with the addon's name."""

_ADDON = "aws:eks/addon:Addon"


def daemon_sets(plan: Plan) -> Iterator[dict[str, Any]]:
    """A DaemonSet for each recorded addon that runs on every node, with the requests that `capacity` takes off."""
    for resource in plan.owned():
        daemon = ADDONS.get(resource.inputs["addonName"]) if resource.type == _ADDON else None
        if daemon:
            yield _daemon_set(resource.inputs["addonName"], resource.inputs["addonVersion"], daemon)


def _daemon_set(addon: str, version: str, daemon: Daemon) -> dict[str, Any]:
    labels = {ADDON_LABEL: addon}
    requests = {name: text for name, text in (("cpu", daemon.cpu), ("memory", daemon.memory)) if text != "0"}
    spec = {
        "priorityClassName": "system-node-critical",
        # Whatever the taints: a node without its network is never ready.
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": addon, "image": f"eks/{addon}:{version}", "resources": {"requests": requests}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": addon, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
