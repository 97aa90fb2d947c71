"""Nodes that Karpenter buys and gives back on AWS."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from components.node_pool_args import NODE_CLASS_API, NODE_OVERLAY_API, NODE_POOL_API, KarpenterNodePoolArgs
from components.node_pool_rules import violations
from components.node_pool_specs import node_class_spec, node_overlay_specs, node_pool_spec, overlay_name


class KarpenterNodePool(pulumi.ComponentResource):
    """A NodePool, its EC2NodeClass and, where GPUs are shared, a NodeOverlay for each count of GPUs.

    Karpenter plans with the GPUs that EC2 tells of. Unless an overlay tells it what the device plugin will make of
    them, it buys one GPU for each pod. Overlays need Karpenter's feature gate `NodeOverlay`.
    """

    ready: pulumi.Resource
    """The NodePool: depend on it for "nodes are bought for pods that wait"."""
    pool: str
    """Name of the NodePool in the cluster."""

    def __init__(self, name: str, args: KarpenterNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        faults = violations(args)
        if faults:
            raise ValueError("\n".join(f"node pool {args.pool!r}: {fault}" for fault in faults))
        super().__init__("gpu-runners:index:KarpenterNodePool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=[*args.needs])
        node_class = CustomResource(
            f"{name}-node-class",
            api_version=NODE_CLASS_API,
            kind="EC2NodeClass",
            metadata=ObjectMetaArgs(name=args.node_class.name),
            spec=node_class_spec(args),
            opts=child,
        )
        overlays = [
            CustomResource(
                f"{name}-{count}-gpus",
                api_version=NODE_OVERLAY_API,
                kind="NodeOverlay",
                metadata=ObjectMetaArgs(name=overlay_name(args, count)),
                spec=spec,
                opts=child,
            )
            for count, spec in node_overlay_specs(args).items()
        ]
        self.pool = args.pool
        self.ready = CustomResource(
            name,
            api_version=NODE_POOL_API,
            kind="NodePool",
            metadata=ObjectMetaArgs(name=args.pool),
            spec=node_pool_spec(args),
            # Overlays come first and go last: a pool without them buys a GPU for each pod.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.needs, node_class, *overlays]),
        )
        self.register_outputs({"pool": self.pool})
