"""Simulated kubelets: report the resources of nodes that Karpenter has started.

The simulated EC2 registers every node with disk, pods and reserved resources of a node class without settings, and with
GPUs. A real node has the resources of its node class, which Karpenter has computed for the NodeClaim; the simulated
kubelet reports those. A node gets its GPUs only after a device plugin has registered.

    python -m gpufleet_tools.sandbox.aws.kubelets KUBECONFIG OFFERS BUILT_IN

OFFERS is JSON with the offers of the plugin's configurations (device_plugin.py), by name. BUILT_IN has the offers of
plugins in images, by pool.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import urllib3.exceptions
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.aws.efa.interfaces import EFA, EFA_LABEL
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet.nvidia.device_plugin import CONFIG_LABEL
from gpufleet_tools.sandbox.aws.device_plugin import APP_LABEL, PLUGIN, Offer
from gpufleet_tools.sandbox.control_plane import api_server

STARTED = "gpufleet.dev/kubelet"
"""Annotation of a node whose kubelet has reported its resources. Without it, kwok does not make Karpenter's nodes ready
(tools/gpufleet_tools/sandbox/control_plane/stages.yaml)."""

_GPUS_LABEL = "karpenter.k8s.aws/instance-gpu-count"
"""Label with the number of a node's GPUs, set by Karpenter. A real plugin gets the number from the driver."""
_DELAY = datetime.timedelta(seconds=1)
"""Time from the start of a plugin to the registration of its GPUs."""
_INTERVAL = 0.3


def report(api: client.ApiClient, offers: Mapping[str, Offer], built_in: Mapping[str, Offer]) -> None:
    """Report the resources of new nodes, and the GPUs of nodes with a plugin."""
    core = client.CoreV1Api(api)
    nodes = core.list_node(label_selector=NODE_POOL_LABEL).items
    new = [node for node in nodes if STARTED not in (node.metadata.annotations or {})]
    # The EFA device plugin is not waited for.
    with_efa = [node for node in nodes if EFA_LABEL in node.metadata.labels and node not in new]
    if new or with_efa:
        found: Any = client.CustomObjectsApi(api).list_cluster_custom_object("karpenter.sh", "v1", "nodeclaims")
        claims = {claim["status"]["providerID"]: claim for claim in found["items"] if "providerID" in claim["status"]}
        for node in new:
            if claim := claims.get(node.spec.provider_id):
                _start(core, node, claim["status"])
        for node in with_efa:
            if interfaces := claims.get(node.spec.provider_id, {}).get("status", {}).get("capacity", {}).get(EFA):
                _register(core, node, EFA, interfaces)
    for node in nodes:
        pool = node.metadata.labels[NODE_POOL_LABEL]
        # The plugin of an image starts with its kubelet.
        if pool in built_in and STARTED in (node.metadata.annotations or {}):
            _offer(core, node, built_in[pool])
    if nodes and offers:
        pods = core.list_pod_for_all_namespaces(label_selector=f"{APP_LABEL}={PLUGIN}").items
        with_plugin = {pod.spec.node_name for pod in pods if _has_started(pod)}
        for node in nodes:
            if node.metadata.name in with_plugin:
                name = node.metadata.labels.get(CONFIG_LABEL, "default")
                # The plugin does not start with the name of an unknown configuration.
                if name in offers:
                    _offer(core, node, offers[name])


def _start(core: client.CoreV1Api, node: Any, claim: Mapping[str, Any]) -> None:
    """Report the resources of a kubelet that has just started, which has no devices yet."""
    amounts = {
        part: dict.fromkeys(before or {}) | {name: amount for name, amount in claim[part].items() if "/" not in name}
        for part, before in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable))
    }
    core.patch_node_status(node.metadata.name, {"status": amounts})
    core.patch_node(node.metadata.name, {"metadata": {"annotations": {STARTED: "started"}}})


def _offer(core: client.CoreV1Api, node: Any, offer: Offer) -> None:
    """Report the devices of a registered plugin."""
    labels = node.metadata.labels
    kind = instance_types().get(labels.get("node.kubernetes.io/instance-type", ""))
    devices = str(int(labels.get(_GPUS_LABEL, 0)) * offer.of_a_gpu(kind.gpus if kind else None))
    _register(core, node, offer.resource, devices)


def _register(core: client.CoreV1Api, node: Any, resource: str, number: str) -> None:
    """Report the number of devices of a resource."""
    reported = [(part or {}).get(resource) for part in (node.status.capacity, node.status.allocatable)]
    if reported != [number, number]:
        amount = {resource: number}
        core.patch_node_status(node.metadata.name, {"status": {"capacity": amount, "allocatable": amount}})


def _has_started(pod: Any) -> bool:
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp:
        return False
    running: datetime.timedelta = datetime.datetime.now(datetime.UTC) - pod.status.start_time
    return running >= _DELAY


def main(kubeconfig: str, *documents: str) -> None:
    """Report indefinitely."""
    offers, built_in = ({name: Offer(**offer) for name, offer in json.loads(each).items()} for each in documents)
    with client.ApiClient(api_server.configuration(pathlib.Path(kubeconfig))) as api:
        while True:
            # If the API server restarts, or a node is deleted meanwhile, the next round tries again.
            with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
                report(api, offers, built_in)
            time.sleep(_INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
