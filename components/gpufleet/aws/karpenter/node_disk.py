"""Root volume of a node, and parallel image pulls: limits of EBS and nodeadm, and nodeadm's user data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from gpufleet import quantity
from gpufleet.aws.ebs.volume import IOPS, IOPS_PER_GIB, performance_problems
from gpufleet.aws.ec2.instance_types import InstanceType
from gpufleet.aws.karpenter.node_pool_args import AmiTerm, NodeClass
from gpufleet.problem import Problem

FAST_IMAGE_PULL_SINCE = "v20250821"
"""First release of EKS's AMIs whose nodeadm has the feature gate `FastImagePull`. Earlier releases silently ignore
unknown gates (CHANGELOG.md and nodeadm/internal/api/bridge/decode.go of awslabs/amazon-eks-ami)."""

FAST_IMAGE_PULL_THROUGHPUT = 600
"""Throughput of the root volume in MiB/s below which pulling in parallel can take longer (nodeadm/doc/examples.md)."""

FAST_IMAGE_PULL_CPUS = 4
FAST_IMAGE_PULL_MEMORY = 8192
"""Minimum vCPUs and MiB of an instance type; nodeadm ignores the gate on smaller ones. It requires 7 GiB of the memory
that the kernel sees (`UseSOCISnapshotter` in nodeadm/internal/containerd/config.go)."""

_NODE_CONFIG = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  featureGates:
    FastImagePull: true
"""
_MIME = re.compile(r"\s*(?:MIME-Version|Content-Type):")
_BOUNDARY = "//"


def root_volume(node_class: NodeClass) -> dict[str, Any]:
    """Return `ebs` of the root volume's block device mapping."""
    volume: dict[str, Any] = {
        "volumeSize": node_class.root_volume_size,
        "volumeType": "gp3",
        "encrypted": True,
        "deleteOnTermination": True,
        "iops": node_class.root_volume_iops,
        "throughput": node_class.root_volume_throughput,
        "kmsKeyID": node_class.root_volume_key,
        "snapshotID": node_class.image_snapshot,
    }
    if node_class.image_snapshot:
        # EC2 rejects an encryption value together with a snapshot, which determines the volume's encryption.
        del volume["encrypted"]
    return {name: value for name, value in volume.items() if value is not None}


def user_data(node_class: NodeClass) -> str | None:
    """Return the additional user data, with nodeadm's gate for parallel image pulls if it is enabled."""
    own = node_class.user_data
    if not node_class.fast_image_pull:
        return own
    if own is None:
        return _NODE_CONFIG
    kind = "application/node.eks.aws" if "kind: NodeConfig" in own else 'text/x-shellscript; charset="us-ascii"'
    parts = (("application/node.eks.aws", _NODE_CONFIG), (kind, own))
    body = "".join(f"--{_BOUNDARY}\nContent-Type: {kind}\n\n{text.rstrip()}\n\n" for kind, text in parts)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n{body}--{_BOUNDARY}--\n'


def ignores_fast_image_pull(instance_type: InstanceType) -> bool:
    """Return whether nodes of the type ignore the gate, because they are too small."""
    return instance_type.cpus < FAST_IMAGE_PULL_CPUS or instance_type.memory < FAST_IMAGE_PULL_MEMORY


def disk_problems(node_class: NodeClass, family: str) -> Iterator[Problem]:
    """Yield problems of the root volume and of image pulls; `family` is the AMI family."""
    yield from _performance(node_class)
    if node_class.image_snapshot is not None:
        yield from _snapshot(node_class, family)
    if node_class.fast_image_pull:
        yield from _fast_image_pull(node_class, family)


def _performance(node_class: NodeClass) -> Iterator[Problem]:
    iops, throughput = node_class.root_volume_iops, node_class.root_volume_throughput
    yield from performance_problems(("root_volume_iops",), iops, ("root_volume_throughput",), throughput)
    try:
        size = quantity.parsed(node_class.root_volume_size) / Decimal(1024) ** 3
    except ValueError:
        return
    if iops is not None and iops > IOPS[0] and iops > size * IOPS_PER_GIB:
        message = f"{iops} IOPS exceeds {IOPS_PER_GIB} for each GiB of the volume; lower it, or enlarge the volume"
        yield Problem(("root_volume_iops",), "iops-beyond-size", message)


def _snapshot(node_class: NodeClass, family: str) -> Iterator[Problem]:
    where = ("image_snapshot",)
    if isinstance(node_class.image_snapshot, str) and not re.fullmatch("snap-[0-9a-z]+", node_class.image_snapshot):
        message = (
            f"{node_class.image_snapshot!r} is not a snapshot ID; write 'snap-' followed by digits and lower-case"
            " letters"
        )
        yield Problem(where, "resource-id", message)
    if family != "Bottlerocket":
        message = (
            f"requires Bottlerocket, which stores images on a separate volume; {family} stores them on the system's;"
            " put the images into your own AMI instead"
        )
        yield Problem(where, "snapshot-of-the-system", message)
    if node_class.root_volume_key is not None:
        message = (
            "is not allowed together with a snapshot, which determines the encryption; copy the snapshot with that key"
            " instead"
        )
        yield Problem(("root_volume_key",), "key-beside-a-snapshot", message)


def _fast_image_pull(node_class: NodeClass, family: str) -> Iterator[Problem]:
    where = ("fast_image_pull",)
    if family != "AL2023":
        yield Problem(where, "fast-pull-family", f"requires AL2023, but the AMI family is {family}; remove it")
        return
    for index, term in enumerate(node_class.ami_terms):
        if old := _too_old(term):
            message = f"{old} does not support parallel image pulls; use {FAST_IMAGE_PULL_SINCE} or later"
            yield Problem(("ami_terms", index, "alias"), "fast-pull-version", message)
    if node_class.user_data and _MIME.match(node_class.user_data):
        message = (
            "is not supported with user data in MIME parts; add a part with nodeadm's NodeConfig that sets the gate,"
            " and remove this"
        )
        yield Problem(where, "fast-pull-user-data", message)


def _too_old(term: AmiTerm) -> str | None:
    version = (term.alias or "").partition("@")[2]
    return term.alias if re.fullmatch(r"v[0-9]{8}", version) and version < FAST_IMAGE_PULL_SINCE else None
