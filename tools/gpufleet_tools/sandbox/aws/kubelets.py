"""Kubelets, played: what the nodes that Karpenter has started say they have.

The simulated EC2 registers every node with the disk, the pods and the reserved amounts of a node class without
settings, and with GPUs. A real node has what its node class gives it, which Karpenter has worked out for the NodeClaim:
here the node says the same. And it has GPUs once a device plugin has registered, not before.

    python -m gpufleet_tools.sandbox.aws.kubelets KUBECONFIG OFFERS BUILT_IN

OFFERS is JSON: what the plugin's configurations make of GPUs (device_plugin.py), by name. BUILT_IN is what plugins in
images do, by pool.
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
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet.nvidia.device_plugin import CONFIG_LABEL
from gpufleet_tools.sandbox.aws.device_plugin import APP_LABEL, PLUGIN, Offer
from gpufleet_tools.sandbox.control_plane import api_server

STARTED = "gpufleet.dev/kubelet"
"""Annotation of a node whose kubelet has said what the node has: kwok makes none of Karpenter's ready without it
(tools/gpufleet_tools/sandbox/control_plane/stages.yaml)."""

_GPUS_LABEL = "karpenter.k8s.aws/instance-gpu-count"
"""Label that Karpenter gives to a node with the number of its GPUs. A plugin asks the driver."""
_DELAY = datetime.timedelta(seconds=1)
"""From a plugin that runs to GPUs that can be asked for."""
_INTERVAL = 0.3


def report(api: client.ApiClient, offers: Mapping[str, Offer], built_in: Mapping[str, Offer]) -> None:
    """One round: nodes that are new, and nodes on which a plugin is."""
    core = client.CoreV1Api(api)
    nodes = core.list_node(label_selector=NODE_POOL_LABEL).items
    new = [node for node in nodes if STARTED not in (node.metadata.annotations or {})]
    if new:
        found: Any = client.CustomObjectsApi(api).list_cluster_custom_object("karpenter.sh", "v1", "nodeclaims")
        claims = {claim["status"]["providerID"]: claim for claim in found["items"] if "providerID" in claim["status"]}
        for node in new:
            if claim := claims.get(node.spec.provider_id):
                _start(core, node, claim["status"])
    for node in nodes:
        pool = node.metadata.labels[NODE_POOL_LABEL]
        # The plugin of an image starts with its kubelet.
        if pool in built_in and STARTED in (node.metadata.annotations or {}):
            _offer(core, node, built_in[pool])
    if nodes and offers:
        pods = core.list_pod_for_all_namespaces(label_selector=f"{APP_LABEL}={PLUGIN}").items
        there = {pod.spec.node_name for pod in pods if _has_started(pod)}
        for node in nodes:
            if node.metadata.name in there:
                name = node.metadata.labels.get(CONFIG_LABEL, "default")
                # With a name that no configuration has, the plugin does not start.
                if name in offers:
                    _offer(core, node, offers[name])


def _start(core: client.CoreV1Api, node: Any, claim: Mapping[str, Any]) -> None:
    """A kubelet that has just started: it knows what it finds by itself, and of no device."""
    amounts = {
        part: dict.fromkeys(there or {}) | {name: amount for name, amount in claim[part].items() if "/" not in name}
        for part, there in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable))
    }
    core.patch_node_status(node.metadata.name, {"status": amounts})
    core.patch_node(node.metadata.name, {"metadata": {"annotations": {STARTED: "started"}}})


def _offer(core: client.CoreV1Api, node: Any, offer: Offer) -> None:
    """A plugin that has registered: its devices are the node's."""
    labels = node.metadata.labels
    kind = instance_types().get(labels.get("node.kubernetes.io/instance-type", ""))
    devices = str(int(labels.get(_GPUS_LABEL, 0)) * offer.of_a_gpu(kind.gpus if kind else None))
    there = [(part or {}).get(offer.resource) for part in (node.status.capacity, node.status.allocatable)]
    if there != [devices, devices]:
        amount = {offer.resource: devices}
        core.patch_node_status(node.metadata.name, {"status": {"capacity": amount, "allocatable": amount}})


def _has_started(pod: Any) -> bool:
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp:
        return False
    running: datetime.timedelta = datetime.datetime.now(datetime.UTC) - pod.status.start_time
    return running >= _DELAY


def main(kubeconfig: str, *told: str) -> None:
    """Rounds without end."""
    offers, built_in = ({name: Offer(**offer) for name, offer in json.loads(each).items()} for each in told)
    with client.ApiClient(api_server.configuration(pathlib.Path(kubeconfig))) as api:
        while True:
            # The API server restarts, or a node is gone meanwhile: the next round finds what is then there.
            with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
                report(api, offers, built_in)
            time.sleep(_INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
