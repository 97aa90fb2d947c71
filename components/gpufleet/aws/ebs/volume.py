"""Performance of gp3 volumes: AWS's limits, and rules for IOPS and throughput."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.problem import Path, Problem

IOPS = (3000, 16000)
"""Lowest and highest IOPS of a gp3 volume (pkg/apis/v1/ec2nodeclass.go of aws/karpenter-provider-aws at v1.14.1)."""

THROUGHPUT = (125, 1000)
"""Lowest and highest throughput of a gp3 volume in MiB/s, from the same file."""

IOPS_PER_GIB = 500
"""Maximum IOPS for each GiB of a gp3 volume (Amazon EBS user guide, "General Purpose SSD volumes")."""

IOPS_PER_MIB = 4
"""Minimum IOPS for each MiB/s of a gp3 volume's throughput, from the same page: 0.25 MiB/s per provisioned IOPS."""


def performance_problems(
    iops_at: Path, iops: int | None, throughput_at: Path, throughput: int | None
) -> Iterator[Problem]:
    """Yield problems of a volume's IOPS and throughput; None means the lowest value."""
    for where, number, (least, most), unit in (
        (iops_at, iops, IOPS, "IOPS"),
        (throughput_at, throughput, THROUGHPUT, "MiB/s"),
    ):
        if number is not None and not least <= number <= most:
            message = f"{number} is not between {least} and {most} {unit}; omit it for {least}"
            yield Problem(where, "volume-performance", message)
    provisioned = IOPS[0] if iops is None else iops
    if throughput is not None and throughput * IOPS_PER_MIB > max(provisioned, IOPS[0]):
        needed = throughput * IOPS_PER_MIB
        message = f"{throughput} MiB/s requires {needed} IOPS, but the volume has {provisioned}; raise its IOPS"
        yield Problem(throughput_at, "throughput-beyond-iops", message)
