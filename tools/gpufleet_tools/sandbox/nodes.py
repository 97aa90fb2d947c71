"""Simulated nodes for the machines of a stack: kwok reports them as ready, and nothing runs on them."""

from __future__ import annotations

from typing import Any

from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool, NodeSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.models.taints import TaintSettings

POOL_LABEL = "gpufleet.dev/pool"
"""Label of a simulated node with the name of its pool."""


def nodes(settings: Settings) -> list[dict[str, Any]]:
    """Return a Node for each machine in the stack file. Its status has what a kubelet and a device plugin would report.

    Nodes have no address: the API server would connect to it for logs and exec, and the declared address is that of a
    real machine.
    """
    if not isinstance(settings, BareMetalSettings):
        return []
    return [
        _node(name, node, pool_name, pool, settings.gpu_resource(pool_name))
        for pool_name, pool in settings.cluster.node_pools.items()
        for name, node in pool.nodes.items()
    ]


def _node(name: str, node: NodeSettings, pool_name: str, pool: NodePool, gpu_resource: str) -> dict[str, Any]:
    allocatable = {
        "cpu": pool.allocatable.cpu,
        "memory": pool.allocatable.memory,
        "ephemeral-storage": pool.allocatable.ephemeral_storage,
        "pods": str(pool.allocatable.pods),
        gpu_resource: str(pool.accelerator.devices),
    }
    # Labels that the kubelet of such a machine sets.
    own = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": own | pool.node_labels(node) | {POOL_LABEL: pool_name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [_taint(taint) for taint in pool.taints]} if pool.taints else {},
        "status": {"capacity": allocatable, "allocatable": allocatable},
    }


def _taint(taint: TaintSettings) -> dict[str, str]:
    return taint.model_dump()
