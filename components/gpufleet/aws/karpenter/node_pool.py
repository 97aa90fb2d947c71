"""Nodes that Karpenter provisions and deprovisions on AWS."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from gpufleet.aws.karpenter._node_pool_specs import node_class_spec, node_overlay_specs, node_pool_spec, overlay_name
from gpufleet.aws.karpenter.node_pool_args import NODE_CLASS_API, NODE_OVERLAY_API, NODE_POOL_API, KarpenterNodePoolArgs
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet.problem import refuse


class KarpenterNodePool(pulumi.ComponentResource):
    """A Karpenter NodePool with its EC2NodeClass and, for shared GPUs, one NodeOverlay per GPU count.

    Karpenter counts the physical GPUs that EC2 reports. Without an overlay for sharing, it provisions one GPU for each
    pod. Overlays require Karpenter's feature gate `NodeOverlay`.
    """

    ready: pulumi.Resource
    """The NodePool; depend on it to wait until nodes can be provisioned for pending pods."""
    pool: str
    """Name of the NodePool in the cluster."""

    def __init__(self, name: str, args: KarpenterNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, node_pool_problems(args))
        super().__init__("gpu-runners:index:KarpenterNodePool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=[*args.needs])
        groups = self._placement_group(name, args)
        node_class = CustomResource(
            f"{name}-node-class",
            api_version=NODE_CLASS_API,
            kind="EC2NodeClass",
            metadata=ObjectMetaArgs(name=args.node_class.name),
            spec=node_class_spec(args),
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=groups)),
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
            # Overlays are created first and deleted last: without them, the pool provisions a GPU for each pod.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.needs, node_class, *overlays]),
        )
        self.register_outputs({"pool": self.pool})

    def _placement_group(self, name: str, args: KarpenterNodePoolArgs) -> list[pulumi.Resource]:
        """Create the placement group. It outlives the node class, whose instances Karpenter terminates first."""
        group = args.node_class.placement_group
        if group is None or group.strategy is None:
            return []
        # Imported on demand: few pools have a placement group.
        from pulumi_aws.ec2 import PlacementGroup

        return [
            PlacementGroup(
                f"{name}-placement-group",
                name=group.name,
                strategy=group.strategy,
                tags=dict(args.node_class.tags),
                opts=pulumi.ResourceOptions(parent=self),
            )
        ]
