"""Simulation of NVIDIA's device plugin: the nodes on which it runs, and the resources that it registers there.

Its pods belong to a DaemonSet with the chart's values, so that Kubernetes schedules them. On their nodes the simulated
kubelets (tools/gpufleet_tools/sandbox/aws/kubelets.py) report the GPUs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpufleet.aws.ec2.instance_types import Devices
from gpufleet.aws.efa.device_plugin import EFA_DEVICE_PLUGIN_CHART
from gpufleet.aws.karpenter.node_pool_args import ALIAS_FAMILIES
from gpufleet.nvidia.sharing import mig_instances
from gpufleet_tools.plan.plan import Plan, Release, revealed

GPU = "nvidia.com/gpu"
APP_LABEL = "gpufleet.dev/simulated"
"""Label of the plugin's pods."""

PLUGIN = "nvidia-device-plugin"


@dataclass(frozen=True)
class Offer:
    """Resources that a plugin registers for the GPUs of a node."""

    resource: str
    """Name of the resource."""
    replicas: int
    """Number for each GPU, or for each MIG instance."""
    profile: str = ""
    """MIG profile of the node's GPUs; empty for whole GPUs."""

    def of_a_gpu(self, gpus: Devices | None) -> int:
        """Return the number for one GPU."""
        if not (self.profile and gpus):
            return self.replicas
        return self.replicas * (mig_instances(gpus.name, gpus.memory, self.profile) or 1)


def release_of(plan: Plan) -> Release | None:
    """Return the plugin's release; None if the stack has none."""
    return next((each for each in plan.releases() if each.chart_name == PLUGIN), None)


def offers_of(release: Release) -> dict[str, Offer]:
    """Return the offers of the configurations in the chart's values (api/config/v1 of NVIDIA/k8s-device-plugin), by
    name: `default`, and the values of the nodes' label."""
    files: Mapping[str, Any] = revealed(release.values).get("config", {}).get("map", {})
    return {
        "default": Offer(GPU, 1),
        **{name: _offer(name, yaml.safe_load(text) or {}) for name, text in files.items()},
    }


def _offer(name: str, config: Mapping[str, Any]) -> Offer:
    """Return the offer of a configuration. With MIG, its name is assumed to be that of the MIG profile."""
    profile = name.removeprefix("mig-") if config.get("flags", {}).get("migStrategy") == "single" else ""
    for shared in config.get("sharing", {}).values():
        for resource in shared.get("resources", []):
            if resource["name"] == GPU:
                renamed = resource.get("rename") or (f"{GPU}.shared" if shared.get("renameByDefault") else GPU)
                return Offer(renamed, resource["replicas"], profile)
    return Offer(GPU, 1, profile)


def built_in(plan: Plan) -> dict[str, Offer]:
    """Return the offers of the plugin in Bottlerocket's images, by pool. Its configuration is in user data."""
    objects = [
        (each["kind"], each["metadata"]["name"], revealed(each["spec"])) for each in plan.objects() if "spec" in each
    ]
    classes = {name: spec for kind, name, spec in objects if kind == "EC2NodeClass"}
    pools = {
        name: classes[spec["template"]["spec"]["nodeClassRef"]["name"]]
        for kind, name, spec in objects
        if kind == "NodePool"
    }
    return {name: _configured(spec) for name, spec in pools.items() if _family(spec) == "Bottlerocket"}


def _family(node_class: Mapping[str, Any]) -> str:
    aliases = [term.get("alias", "").partition("@")[0] for term in node_class["amiSelectorTerms"]]
    return str(node_class.get("amiFamily") or ALIAS_FAMILIES.get(aliases[0], ""))


def _configured(node_class: Mapping[str, Any]) -> Offer:
    """Return the offer of a node class. Bottlerocket renames shared GPUs by default."""
    settings = tomllib.loads(node_class.get("userData", "")).get("settings", {})
    plugin = settings.get("kubelet-device-plugins", {}).get("nvidia", {})
    if plugin.get("device-sharing-strategy") != "time-slicing":
        return Offer(GPU, 1)
    sliced = plugin.get("time-slicing", {})
    return Offer(f"{GPU}.shared" if sliced.get("rename-by-default", True) else GPU, sliced.get("replicas", 2))


def efa_daemon_set(plan: Plan) -> dict[str, Any] | None:
    """Return the DaemonSet of the EFA device plugin, with what its chart makes of the values; None without it."""
    release = next((each for each in plan.releases() if each.chart_name == EFA_DEVICE_PLUGIN_CHART), None)
    if release is None:
        return None
    values = revealed(release.values)
    selected = values["supportedInstanceLabels"]
    requests = {"cpu": "10m", "memory": "20Mi"}
    spec = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": dict(zip(selected["keys"], selected["values"], strict=True)),
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}, *values.get("tolerations", [])],
        "containers": [{"name": "plugin", "image": f"eks/{release.name}:v1", "resources": {"requests": requests}}],
    }
    return _daemon_set(release, release.name, spec)


def daemon_set(release: Release) -> dict[str, Any]:
    """Return the chart's DaemonSet, reduced to the fields that determine its nodes. `affinity` and `tolerations` are
    those of the values: the component always sets them."""
    values = revealed(release.values)
    spec = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": values.get("nodeSelector", {}),
        "affinity": values.get("affinity", {}),
        "tolerations": values.get("tolerations", []),
        "containers": [{"name": "plugin", "image": f"nvcr.io/nvidia/k8s-device-plugin:v{release.version}"}],
    }
    return _daemon_set(release, f"{release.name}-{PLUGIN}", spec, PLUGIN)


def _daemon_set(release: Release, name: str, spec: Mapping[str, Any], app: str | None = None) -> dict[str, Any]:
    labels = {APP_LABEL: app or name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": release.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
