"""Findings about clusters on EKS: what only shows on a bill, or when a job is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

from fleet.finding import Finding
from stacks import quantity
from stacks.eks_settings import EksSettings, KarpenterPool
from stacks.fault import Path
from stacks.settings import Settings


def _pools(settings: EksSettings) -> Iterator[tuple[str, Path, KarpenterPool]]:
    for name, pool in settings.cluster.node_pools.items():
        yield name, ("cluster", "nodePools", name), pool


def disturbed_jobs(settings: EksSettings) -> Iterator[Finding]:
    """`disturbed-jobs`"""
    for _, where, pool in _pools(settings):
        policy = pool.disruption.consolidation_policy
        if policy != "WhenEmpty":
            yield Finding(
                "disturbed-jobs",
                "warning",
                (*where, "disruption", "consolidationPolicy"),
                f"{policy} evicts what runs on a node to save on it; runner pods are marked do-not-disrupt, whatever"
                " else runs there is not; write WhenEmpty",
            )


def hasty_removal(settings: EksSettings) -> Iterator[Finding]:
    """`hasty-removal`"""
    for _, where, pool in _pools(settings):
        if pool.disruption.consolidate_after in ("0s", "0m", "0h"):
            yield Finding(
                "hasty-removal",
                "warning",
                (*where, "disruption", "consolidateAfter"),
                "a node goes the moment it is empty, and the next job waits for another to start; write 30s or more",
            )


def endless_drain(settings: EksSettings) -> Iterator[Finding]:
    """`endless-drain`"""
    for _, where, pool in _pools(settings):
        if pool.termination_grace_period is None and pool.expire_after != "Never":
            yield Finding(
                "endless-drain",
                "warning",
                where,
                f"nodes expire after {pool.expire_after}, and wait for ever for a pod that is not to be disturbed;"
                " set terminationGracePeriod to the longest job",
            )


def jobs_on_spot(settings: EksSettings) -> Iterator[Finding]:
    """`jobs-on-spot`"""
    for name, where, pool in _pools(settings):
        used = any(settings.pool_name(runner) == name for runner in settings.runners.values())
        if used and "spot" in pool.capacity:
            fallback = "" if "on-demand" in pool.capacity else ", and there is no on-demand to fall back on"
            yield Finding(
                "jobs-on-spot",
                "note" if not fallback else "warning",
                (*where, "capacity"),
                "AWS takes a spot instance back at two minutes' notice, and its jobs are lost" + fallback,
            )


_SMALL_DISK = Decimal(1024) ** 3 * 50


def small_disks(settings: EksSettings) -> Iterator[Finding]:
    """`small-disk`"""
    for _, where, pool in _pools(settings):
        if pool.instance_store is None and quantity.parse(pool.root_volume) < _SMALL_DISK:
            yield Finding(
                "small-disk",
                "warning",
                (*where, "rootVolume"),
                f"{pool.root_volume} holds the system, images of runners and what jobs write: one image for CUDA is"
                " 10 GB and more; write 200Gi",
            )


def undivided_requests(settings: EksSettings) -> Iterator[Finding]:
    """`several-shares`"""
    for _, where, pool in _pools(settings):
        if pool.sharing and not pool.sharing.time_slicing.fail_requests_greater_than_one:
            yield Finding(
                "several-shares",
                "warning",
                (*where, "sharing", "timeSlicing", "failRequestsGreaterThanOne"),
                "a pod that asks for two shares may get two of one GPU, and no more of its time; write true",
            )


def idle_smoke(settings: EksSettings) -> Iterator[Finding]:
    """`smoke-holds-node`"""
    if settings.cluster.smoke_workload:
        yield Finding(
            "smoke-holds-node",
            "note",
            ("cluster", "smokeWorkload"),
            "its pods keep a GPU node for as long as they are here, jobs or none; remove it once it has run",
        )


def mutable_smoke_image(settings: EksSettings) -> Iterator[Finding]:
    """`mutable-smoke-image`"""
    smoke = settings.cluster.smoke_workload
    if smoke and "@sha256:" not in smoke.image and "latest" in smoke.image.rpartition(":")[2]:
        yield Finding(
            "mutable-smoke-image",
            "warning",
            ("cluster", "smokeWorkload", "image"),
            f"{smoke.image} is another image from one day to the next; name a version or a digest",
        )


def open_endpoint(settings: EksSettings) -> Iterator[Finding]:
    """`open-endpoint`"""
    endpoint = settings.cluster.endpoint
    for index, cidr in enumerate(endpoint.public_access_from):
        if int(cidr.partition("/")[2]) < 8:
            yield Finding(
                "open-endpoint",
                "warning",
                ("cluster", "endpoint", "publicAccessFrom", index),
                f"{cidr} is nearly everybody: the API server's own authentication is all that is left; name networks",
            )


def unprotected_cluster(settings: EksSettings) -> Iterator[Finding]:
    """`unprotected-cluster`"""
    if not settings.cluster.deletion_protection:
        yield Finding(
            "unprotected-cluster",
            "warning",
            ("cluster", "deletionProtection"),
            "`pulumi destroy` and a renamed cluster delete it without a word; leave it on until the day you mean it",
        )


RULES: tuple[Callable[[EksSettings], Iterator[Finding]], ...] = (
    disturbed_jobs,
    hasty_removal,
    endless_drain,
    jobs_on_spot,
    small_disks,
    undivided_requests,
    idle_smoke,
    mutable_smoke_image,
    open_endpoint,
    unprotected_cluster,
)


def findings(settings: Settings) -> Iterator[Finding]:
    """Every finding of a stack on EKS; none of another."""
    if isinstance(settings, EksSettings):
        for rule in RULES:
            yield from rule(settings)


NAMES = frozenset(rule.__doc__.strip("`") for rule in RULES if rule.__doc__)
"""Names that an acknowledgement can give."""
