"""Kubelets, played: what the nodes that Karpenter has started say they have.

The simulated EC2 registers every node with the disk, the pods and the reserved amounts of a node class without settings.
A real node has what its node class gives it, which Karpenter has worked out for the NodeClaim: here the node says the
same. And it has GPUs once a device plugin has registered, not before.

    python -m sandbox.aws.kubelets KUBECONFIG [RESOURCE REPLICAS]
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3.exceptions
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from sandbox.aws.device_plugin import APP_LABEL, PLUGIN, Offer

_GPUS_LABEL = "karpenter.k8s.aws/instance-gpu-count"
"""Label that Karpenter gives to a node with the number of its GPUs. A plugin asks the driver."""
_POOL_LABEL = "karpenter.sh/nodepool"
_DELAY = datetime.timedelta(seconds=1)
"""From a plugin that runs to GPUs that can be asked for."""
_INTERVAL = 0.3

Amounts = dict[str, dict[str, str]]
"""Of `capacity` and of `allocatable`, by resource."""


def report(api: client.ApiClient, offer: Offer | None) -> None:
    """One round: every node whose status is not what it should be."""
    core = client.CoreV1Api(api)
    nodes = core.list_node(label_selector=_POOL_LABEL).items
    if not nodes:
        return
    claims: Any = client.CustomObjectsApi(api).list_cluster_custom_object("karpenter.sh", "v1", "nodeclaims")
    of_nodes = {claim.get("status", {}).get("nodeName"): claim["status"] for claim in claims["items"]}
    pods = core.list_pod_for_all_namespaces(label_selector=f"{APP_LABEL}={PLUGIN}").items if offer else []
    with_plugin = {pod.spec.node_name for pod in pods if _has_started(pod)}
    for node in nodes:
        wanted = _own(of_nodes.get(node.metadata.name, {}))
        if offer and node.metadata.name in with_plugin:
            _add_gpus(wanted, node.metadata.labels, offer)
        missing = _missing(wanted, node.status)
        if missing:
            core.patch_node_status(node.metadata.name, {"status": missing})


def _own(claim: Mapping[str, Any]) -> Amounts:
    """What a kubelet finds by itself: everything but devices."""
    return {
        part: {resource: amount for resource, amount in claim.get(part, {}).items() if "/" not in resource}
        for part in ("capacity", "allocatable")
    }


def _add_gpus(wanted: Amounts, labels: Mapping[str, str], offer: Offer) -> None:
    if physical := int(labels.get(_GPUS_LABEL, 0)):
        for amounts in wanted.values():
            amounts[offer.resource] = str(physical * offer.replicas)


def _missing(wanted: Amounts, status: Any) -> Amounts:
    """Of the wanted amounts those that are not there."""
    parts = {"capacity": status.capacity or {}, "allocatable": status.allocatable or {}}
    missing = {part: dict(wanted[part].items() - there.items()) for part, there in parts.items()}
    return {part: amounts for part, amounts in missing.items() if amounts}


def _has_started(pod: Any) -> bool:
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp:
        return False
    running: datetime.timedelta = datetime.datetime.now(datetime.UTC) - pod.status.start_time
    return running >= _DELAY


def main(kubeconfig: str, resource: str = "", replicas: str = "0") -> None:
    """Rounds without end."""
    settings = client.Configuration()
    load: Callable[..., None] = config.load_kube_config
    load(config_file=kubeconfig, client_configuration=settings)
    settings.proxy = None
    offer = Offer(resource, int(replicas)) if resource else None
    with client.ApiClient(settings) as api:
        while True:
            # The API server restarts, or a node is gone meanwhile: the next round finds what is then there.
            with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
                report(api, offer)
            time.sleep(_INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
