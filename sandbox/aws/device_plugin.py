"""NVIDIA's device plugin, played: its pods are where its chart's values put them, and what they offer is what its
configuration says.

The pods are of a DaemonSet, so that Kubernetes itself says on which nodes they run. For each that runs, the node gets
its GPUs, as the kubelet does it once the plugin has registered: as a process, because a running pod cannot change its
node here.

    python -m sandbox.aws.device_plugin KUBECONFIG OFFER
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3.exceptions
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from fleet.plan import Plan, Release, revealed

GPU = "nvidia.com/gpu"
_PHYSICAL_LABEL = "karpenter.k8s.aws/instance-gpu-count"
"""Label that Karpenter gives to a node with the number of its GPUs. A plugin asks the driver."""
_APP_LABEL = "gpufleet.dev/played"
_PLUGIN = "nvidia-device-plugin"
_DELAY = datetime.timedelta(seconds=1)
"""From a pod that runs to GPUs that can be asked for."""
_INTERVAL = 0.5


@dataclass(frozen=True)
class Offer:
    """What a plugin makes of a node's GPUs."""

    resource: str
    """Name of the resource."""
    replicas: int
    """How many of it for each GPU."""


def release_of(plan: Plan) -> Release | None:
    """The plugin's release; None in a stack that has none."""
    return next((each for each in plan.releases() if each.chart_name == _PLUGIN), None)


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
    labels = {_APP_LABEL: _PLUGIN}
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
        "metadata": {"name": f"{release.name}-{_PLUGIN}", "namespace": release.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


# -- the process ------------------------------------------------------------------------------------------------------


def play(core: client.CoreV1Api, offer: Offer) -> None:
    """One round: every node on which the plugin has been running for a moment offers its GPUs."""
    selector = f"{_APP_LABEL}={_PLUGIN}"
    pods = core.list_pod_for_all_namespaces(label_selector=selector).items
    there = {pod.spec.node_name for pod in pods if _has_started(pod)}
    for node in core.list_node(label_selector=_PHYSICAL_LABEL).items if there else ():
        if node.metadata.name not in there:
            continue
        wanted = str(int(node.metadata.labels[_PHYSICAL_LABEL]) * offer.replicas)
        offered = [(part or {}).get(offer.resource) for part in (node.status.capacity, node.status.allocatable)]
        if offered != [wanted, wanted]:
            amount = {offer.resource: wanted}
            core.patch_node_status(node.metadata.name, {"status": {"capacity": amount, "allocatable": amount}})


def _has_started(pod: Any) -> bool:
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp:
        return False
    running: datetime.timedelta = datetime.datetime.now(datetime.UTC) - pod.status.start_time
    return running >= _DELAY


def main(kubeconfig: str, offer: str) -> None:
    """Rounds without end."""
    settings = client.Configuration()
    load: Callable[..., None] = config.load_kube_config
    load(config_file=kubeconfig, client_configuration=settings)
    settings.proxy = None
    wanted = Offer(**json.loads(offer))
    with client.ApiClient(settings) as api:
        while True:
            # The API server restarts, or a node is gone meanwhile: the next round finds what is then there.
            with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
                play(client.CoreV1Api(api), wanted)
            time.sleep(_INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
