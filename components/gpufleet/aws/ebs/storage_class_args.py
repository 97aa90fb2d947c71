"""Arguments of a StorageClass of EBS volumes, and their rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi

from gpufleet.aws.ebs.volume import performance_problems
from gpufleet.problem import Problem

ReclaimPolicy = Literal["Delete", "Retain"]


@dataclass(frozen=True, kw_only=True)
class EbsStorageClassArgs:
    """Arguments of `EbsStorageClass`."""

    storage_class: str
    """Name of the StorageClass in the cluster."""
    default: bool = False
    """Whether claims without a class get this one. EKS's own class, `gp2`, is not a default."""
    iops: int | None = None
    """IOPS of each volume, 3,000 to 16,000; None for 3,000. AWS rejects volumes with more than 500 IOPS for each
    GiB."""
    throughput: int | None = None
    """Throughput of each volume in MiB/s, 125 to 1,000; None for 125."""
    key_arn: pulumi.Input[str] | None = None
    """ARN of the KMS key of the volumes; None for the account's default key. The role of the EBS CSI driver must be
    allowed to use it."""
    reclaim_policy: ReclaimPolicy = "Delete"
    """Whether a volume is deleted with its claim."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before the class and outlive it: the EBS CSI driver deletes the volumes."""


def storage_class_problems(args: EbsStorageClassArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    yield from performance_problems(("iops",), args.iops, ("throughput",), args.throughput)
