"""Findings about disks, images and volume claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from gpufleet import quantity
from gpufleet.aws.ebs.volume import THROUGHPUT
from gpufleet.aws.karpenter.node_disk import (
    FAST_IMAGE_PULL_CPUS,
    FAST_IMAGE_PULL_MEMORY,
    FAST_IMAGE_PULL_THROUGHPUT,
    ignores_fast_image_pull,
)
from gpufleet.aws.karpenter.node_pool_fit import instance_types_of
from gpufleet.problem import Path
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.profiles.docker import KubernetesPods
from gpufleet_stacks.settings.models.profiles.profile import Profile
from gpufleet_tools.check.eks.pools import pools
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.policy.pods import moves


def mutable_smoke_images(settings: EksSettings) -> Iterator[Finding]:
    smoke = settings.cluster.smoke_workload
    if smoke and moves(smoke.image):
        yield Finding(
            "mutable-image",
            "warning",
            ("cluster", "smokeWorkload", "image"),
            f"{smoke.image} can change at any time; use a version or a digest",
        )


_SMALL_DISK = Decimal(1024) ** 3 * 50


def small_disks(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        if pool.instance_store is None and quantity.parsed(pool.root_volume) < _SMALL_DISK:
            yield Finding(
                "small-disk",
                "warning",
                (*where, "rootVolume"),
                f"{pool.root_volume} is shared by the system, container images and the files of jobs; a CUDA image"
                " alone takes 10 GB or more; use 200Gi",
            )


def fruitless_fast_pulls(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in pools(settings):
        if not pool.fast_image_pull:
            continue
        throughput = pool.root_volume_throughput or THROUGHPUT[0]
        if pool.instance_store is None and throughput < FAST_IMAGE_PULL_THROUGHPUT:
            yield Finding(
                "fruitless-fast-pull",
                "warning",
                (*where, "rootVolumeThroughput"),
                f"{throughput} MiB/s limits the unpacking of images; below {FAST_IMAGE_PULL_THROUGHPUT} MiB/s parallel"
                " pulls can be slower than sequential ones; raise it",
            )
        types = instance_types_of(node_pool_args(name, settings.cluster))
        small = [each.name for each in types if ignores_fast_image_pull(each)]
        if small:
            yield Finding(
                "fruitless-fast-pull",
                "warning",
                (*where, "fastImagePull"),
                f"nodes of {', '.join(small[:3])}{' and others' * (len(small) > 3)} ignore it: it requires"
                f" {FAST_IMAGE_PULL_CPUS} vCPUs and {FAST_IMAGE_PULL_MEMORY // 1024} GiB; exclude smaller types",
            )


def first_pulls_without_nat(settings: EksSettings) -> Iterator[Finding]:
    """ECR fetches an image for the first time over the internet route of the VPC that pulls it
    (https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache.html)."""
    network = settings.cluster.network
    if settings.cluster.image_cache and network.kind == "own" and network.nat_gateways == "none":
        yield Finding(
            "first-pull-without-nat",
            "warning",
            ("cluster", "imageCache"),
            "without NAT gateways, nodes can pull an image only after it is in the cache; pull each new image once from"
            " a network with internet access",
        )


def claims_without_class(settings: EksSettings) -> Iterator[Finding]:
    """Yield volume claims without a class. Since Kubernetes 1.30, a new EKS cluster has no default StorageClass
    (kubernetes-versions-standard.adoc of awsdocs/amazon-eks-user-guide at 4d52b4d)."""
    if any(each.default for each in settings.cluster.storage_classes.values()):
        return
    for name, profile in settings.profiles.items():
        for where, claim in _claims(profile):
            if claim.get("storageClassName") is None:
                known = " or ".join(settings.cluster.storage_classes) or "a class of cluster.storageClasses"
                yield Finding(
                    "claim-without-class",
                    "warning",
                    ("profiles", name, *where),
                    "has no storageClassName, and no StorageClass is the default: its volume is never created, and"
                    f" runners stay pending; set {known}, or make one the default",
                )


def _claims(profile: Profile) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the volume claims of a profile's pods, with their paths."""
    if isinstance(profile.docker, KubernetesPods):
        yield ("docker", "workVolumeClaim"), profile.docker.work_volume_claim
    sources: list[tuple[Path, Mapping[str, Any]]] = [
        *((("volumes", name, "source"), volume.source) for name, volume in profile.volumes.items()),
        (("workVolume",), profile.work_volume or {}),
    ]
    for where, source in sources:
        claim = source.get("ephemeral", {}).get("volumeClaimTemplate", {}).get("spec")
        if claim is not None:
            yield (*where, "ephemeral", "volumeClaimTemplate", "spec"), claim
