"""NVIDIA's device plugin, played: its pods are where its chart's values put them, and what they offer is what its
configuration says.

The pods are of a DaemonSet, so that Kubernetes itself says on which nodes they run. On those nodes the kubelets, which
are played too (tools/gpufleet_tools/sandbox/aws/kubelets.py), report the GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpufleet_tools.plan.plan import Plan, Release, revealed

GPU = "nvidia.com/gpu"
APP_LABEL = "gpufleet.dev/played"
"""Label of the plugin's pods."""

PLUGIN = "nvidia-device-plugin"


@dataclass(frozen=True)
class Offer:
    """What a plugin makes of a node's GPUs."""

    resource: str
    """Name of the resource."""
    replicas: int
    """How many of it for each GPU."""


def release_of(plan: Plan) -> Release | None:
    """The plugin's release; None in a stack that has none."""
    return next((each for each in plan.releases() if each.chart_name == PLUGIN), None)


def offer_of(release: Release) -> Offer:
    """What the configuration among the chart's values says (api/config/v1 of NVIDIA/k8s-device-plugin)."""
    files: Mapping[str, Any] = revealed(release.values).get("config", {}).get("map", {})
    text = next(iter(files.values()), "{}")
    slicing = (yaml.safe_load(text) or {}).get("sharing", {}).get("timeSlicing", {})
    for resource in slicing.get("resources", []):
        if resource["name"] == GPU:
            renamed = resource.get("rename") or (f"{GPU}.shared" if slicing.get("renameByDefault") else GPU)
            return Offer(renamed, resource["replicas"])
    return Offer(GPU, 1)


def daemon_set(release: Release) -> dict[str, Any]:
    """The chart's DaemonSet, as far as it decides where the plugin runs. `affinity` and `tolerations` are as recorded:
    the component always gives them."""
    values = revealed(release.values)
    labels = {APP_LABEL: PLUGIN}
    spec = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": values.get("nodeSelector", {}),
        "affinity": values.get("affinity", {}),
        "tolerations": values.get("tolerations", []),
        "containers": [{"name": "plugin", "image": f"nvcr.io/nvidia/k8s-device-plugin:v{release.version}"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": f"{release.name}-{PLUGIN}", "namespace": release.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
