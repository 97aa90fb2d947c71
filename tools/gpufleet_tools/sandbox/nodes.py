"""The stack's machines as simulated nodes: kwok says they are ready, nothing runs on them."""

from __future__ import annotations

from typing import Any

from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool, NodeSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.models.taints import TaintSettings

POOL_LABEL = "gpufleet.dev/pool"
"""Label of a simulated node with the name of its pool."""


def nodes(settings: Settings) -> list[dict[str, Any]]:
    """Node objects with what the stack file says of each machine. What a kubelet and a device plugin would report is
    their status here.

    They have no address: the API server dials a node's address for logs and exec, and the declared one belongs to a
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
    # What a kubelet on such a machine would set by itself.
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
