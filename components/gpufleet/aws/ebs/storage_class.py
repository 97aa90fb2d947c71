"""StorageClass of EBS volumes, for volume claims of pods."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.storage.v1 import StorageClass

from gpufleet.aws.ebs.storage_class_args import EbsStorageClassArgs, storage_class_problems
from gpufleet.problem import refuse

PROVISIONER = "ebs.csi.aws.com"
"""Name of the EBS CSI driver."""

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""Annotation of the default class, for claims without a class."""


class EbsStorageClass(pulumi.ComponentResource):
    """A StorageClass of encrypted gp3 volumes, which the add-on `aws-ebs-csi-driver` creates.

    A volume is created in the zone of its first pod, and can grow. The parameters of a StorageClass are immutable:
    Pulumi replaces the class, and existing volumes do not change.
    """

    ready: pulumi.Resource
    """The StorageClass."""
    storage_class: str
    """Name of the StorageClass in the cluster."""

    def __init__(self, name: str, args: EbsStorageClassArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, storage_class_problems(args))
        super().__init__("gpu-runners:index:EbsStorageClass", name, None, opts)
        # docs/parameters.md of kubernetes-sigs/aws-ebs-csi-driver at 038816d.
        parameters: dict[str, pulumi.Input[str]] = {"type": "gp3", "encrypted": "true"}
        if args.iops is not None:
            parameters["iops"] = str(args.iops)
        if args.throughput is not None:
            parameters["throughput"] = str(args.throughput)
        if args.key_arn is not None:
            parameters["kmsKeyId"] = args.key_arn
        self.storage_class = args.storage_class
        self.ready = StorageClass(
            name,
            metadata={
                "name": args.storage_class,
                **({"annotations": {DEFAULT_CLASS: "true"}} if args.default else {}),
            },
            provisioner=PROVISIONER,
            parameters=parameters,
            reclaim_policy=args.reclaim_policy,
            # The zone is unknown until the pod has a node.
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.needs]),
        )
        self.register_outputs({"storage_class": self.storage_class})
