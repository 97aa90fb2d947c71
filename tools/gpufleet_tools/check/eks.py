"""Findings about stacks on EKS: settings that cost money or jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from gpufleet import quantity
from gpufleet.aws.ebs.volume import THROUGHPUT
from gpufleet.aws.ec2.instance_types import instance_types, zones_of
from gpufleet.aws.eks.access import READS_NO_SECRETS
from gpufleet.aws.eks.cluster_rules import WIDEST_PREFIX
from gpufleet.aws.karpenter.node_disk import (
    FAST_IMAGE_PULL_CPUS,
    FAST_IMAGE_PULL_MEMORY,
    FAST_IMAGE_PULL_THROUGHPUT,
    ignores_fast_image_pull,
)
from gpufleet.aws.karpenter.node_pool_fit import gpu_counts, instance_types_of
from gpufleet.nvidia.sharing import GPU
from gpufleet.problem import Path
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.karpenter import KarpenterPool, Sharing
from gpufleet_stacks.settings.models.profiles.docker import KubernetesPods
from gpufleet_stacks.settings.models.profiles.profile import Profile
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import near
from gpufleet_stacks.settings.system_requests import KARPENTER, system_node_room, system_requests
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.policy.pods import moves


def _pools(settings: EksSettings) -> Iterator[tuple[str, Path, KarpenterPool]]:
    for name, pool in settings.cluster.node_pools.items():
        yield name, ("cluster", "nodePools", name), pool


def disturbed_jobs(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        policy = pool.disruption.consolidation_policy
        if policy != "WhenEmpty":
            yield Finding(
                "disturbed-jobs",
                "warning",
                (*where, "disruption", "consolidationPolicy"),
                f"{policy} evicts running pods to consolidate nodes; only runner pods are marked do-not-disrupt; use"
                " WhenEmpty",
            )


def mutable_smoke_images(settings: EksSettings) -> Iterator[Finding]:
    smoke = settings.cluster.smoke_workload
    if smoke and moves(smoke.image):
        yield Finding(
            "mutable-image",
            "warning",
            ("cluster", "smokeWorkload", "image"),
            f"{smoke.image} can change at any time; use a version or a digest",
        )


def hasty_removal(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.disruption.consolidate_after in ("0s", "0m", "0h"):
            yield Finding(
                "hasty-removal",
                "warning",
                (*where, "disruption", "consolidateAfter"),
                "an empty node is removed at once, and the next job waits for a new one; use 30s or more",
            )


def endless_drain(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.termination_grace_period is None and pool.expire_after != "Never":
            yield Finding(
                "endless-drain",
                "warning",
                where,
                f"nodes expire after {pool.expire_after}, but without a terminationGracePeriod they wait indefinitely"
                " for pods marked do-not-disrupt; set it to the duration of the longest job",
            )


_LONGEST_JOB = Decimal(6 * 3600)
"""Seconds that GitHub lets a job run unless its workflow says otherwise: the default of `timeout-minutes` is 360
(GitHub's "Workflow syntax for GitHub Actions")."""

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def short_grace_periods(settings: EksSettings) -> Iterator[Finding]:
    """Karpenter kills what still runs when the period is over."""
    for name, where, pool in _pools(settings):
        used = any(settings.pool_name(runner) == name for runner in settings.runners.values())
        period = pool.termination_grace_period
        if used and period is not None and _seconds(period) < _LONGEST_JOB:
            yield Finding(
                "short-grace-period",
                "warning",
                (*where, "terminationGracePeriod"),
                f"{period} is shorter than 6h, the default of a job's timeout-minutes; jobs on an expired or replaced"
                " node are killed after it; set at least the length of the longest job",
            )


def _seconds(period: str) -> Decimal:
    return sum(
        (Decimal(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([smh])", period)), Decimal(0)
    )


_UNPINNED_ADDONS = ("metrics-server", "snapshot-controller")
"""Add-ons with Deployments whose configuration values have no published schema, so that the program sets none."""


def addons_on_any_node(settings: EksSettings) -> Iterator[Finding]:
    for addon in _UNPINNED_ADDONS:
        given = settings.cluster.addon_configuration.get(addon, {})
        if addon in settings.cluster.addons and not {"nodeSelector", "affinity"} & given.keys():
            yield Finding(
                "addon-on-any-node",
                "note",
                ("cluster", "addons", addon),
                "runs on any node, and a node of Karpenter is kept for as long as it does; set"
                f" addonConfiguration.{addon}.nodeSelector to {{gpu-runners/nodes: system}}",
            )


def jobs_on_spot(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        used = any(settings.pool_name(runner) == name for runner in settings.runners.values())
        if used and "spot" in pool.capacity:
            fallback = "" if "on-demand" in pool.capacity else "; there is no on-demand capacity as a fallback"
            yield Finding(
                "jobs-on-spot",
                "note" if not fallback else "warning",
                (*where, "capacity"),
                "AWS interrupts spot instances with two minutes' notice, and their jobs are lost" + fallback,
            )


_SMALL_DISK = Decimal(1024) ** 3 * 50


def small_disks(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.instance_store is None and quantity.parsed(pool.root_volume) < _SMALL_DISK:
            yield Finding(
                "small-disk",
                "warning",
                (*where, "rootVolume"),
                f"{pool.root_volume} is shared by the system, container images and the files of jobs; a CUDA image"
                " alone takes 10 GB or more; use 200Gi",
            )


def fruitless_fast_pulls(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
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


def undivided_requests(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        sliced = pool.sharing.time_slicing if pool.sharing else None
        if sliced and not sliced.fail_requests_greater_than_one:
            yield Finding(
                "several-shares",
                "warning",
                (*where, "sharing", "timeSlicing", "failRequestsGreaterThanOne"),
                "a pod that requests two shares may get both on one GPU, without more time on it; set it to true",
            )


def shared_gpus(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        if pool.sharing:
            jobs = f"up to {settings.shares(name)} jobs share one GPU"
            yield Finding("shared-gpu", "note", (*where, "sharing"), f"{jobs}{_isolation(pool.sharing)}")


def _isolation(sharing: Sharing) -> str:
    """Return the isolation between jobs on one GPU, as the end of a message."""
    if sharing.mig:
        return (
            ", each with its own GPU instance: memory and faults are isolated; userData or the AMI must create the"
            f" {sharing.mig.profile} instances before the kubelet starts, or nodes offer whole GPUs"
        )
    if sharing.mps:
        return ", each with an equal part of its memory; a fault of one can end all; NVIDIA calls MPS experimental"
    return " without isolation: one can use all of its memory, and a fault of one can end all"


def untainted_gpus(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        taken = any(taint.effect != "PreferNoSchedule" for taint in pool.taints)
        if not taken and gpu_counts(node_pool_args(name, settings.cluster)):
            yield Finding(
                "untainted-gpus",
                "warning",
                where,
                "any pod may run on the GPU nodes, such as a listener of ARC, and keeps its node from being removed;"
                f" add taints: [{{key: {GPU}, effect: NoSchedule}}], and tolerate it in profiles",
            )


def reachable_node_role(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.metadata_hop_limit > 1:
            yield Finding(
                "reachable-node-role",
                "warning",
                (*where, "metadataHopLimit"),
                "jobs can reach the instance metadata, which has the credentials of the node's role; use 1",
            )


def roles_of_others(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        setting = "role" if pool.role else "instanceProfile"
        if pool.role or pool.instance_profile:
            yield Finding(
                "role-of-others",
                "warning",
                (*where, setting),
                "is not managed by this stack: no node joins unless Karpenter's controller may pass the role"
                " (iam:PassRole), and the cluster has an access entry of type EC2_LINUX for it",
            )


def idle_reservations(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.reservations and "reserved" not in pool.capacity:
            yield Finding(
                "idle-reservations",
                "warning",
                (*where, "reservations"),
                "are paid for but never used, because capacity does not include reserved; add it",
            )


def unknown_reservations(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        for index, reservation in enumerate(pool.reservations):
            if "reserved" in pool.capacity and reservation.holds is None:
                yield Finding(
                    "unknown-reservation",
                    "note",
                    (*where, "reservations", index),
                    "its instances are unknown: gpufleet capacity assumes that it holds any instance type of the pool,"
                    " and the sandbox does not simulate it; set holds",
                )


def minimum_beyond_limits(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        runners = [each for each in settings.runners.values() if settings.pool_name(each) == name]
        for resource, limit in (("cpu", pool.limits.cpu), ("memory", pool.limits.memory)):
            idle = sum(each.min * quantity.parsed(getattr(each, resource)) for each in runners)
            if limit is not None and idle > quantity.parsed(limit):
                yield Finding(
                    "minimum-beyond-limits",
                    "error",
                    (*where, "limits", resource),
                    f"idle runners request more than {limit}: some stay pending indefinitely; lower 'min' of the pool's"
                    " runners, or raise the limit",
                )


def paused_pools(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        waiting = sorted(label for label, runner in settings.runners.items() if settings.pool_name(runner) == name)
        if pool.paused:
            yield Finding(
                "paused-pool",
                "note",
                (*where, "limits"),
                f"a limit of zero: Karpenter provisions no node, and jobs wait ({', '.join(waiting) or 'no label'})",
            )


def unknown_region(settings: EksSettings) -> Iterator[Finding]:
    region = settings.cluster.region
    known = {zone[:-1] for zone in zones_of(instance_types()["m5.large"])}
    if settings.cluster.partition == "aws" and region not in known:
        meant = f"; did you mean '{found}'?" if (found := near(region, known)) else ""
        yield Finding(
            "unknown-region",
            "warning",
            ("cluster", "region"),
            f"{region} is not in the table of instance types; correct it, or set gpuCounts in every pool if the region"
            f" is newer than the table{meant}",
        )


def idle_smoke(settings: EksSettings) -> Iterator[Finding]:
    if settings.cluster.smoke_workload:
        yield Finding(
            "smoke-holds-node",
            "note",
            ("cluster", "smokeWorkload"),
            "its pods keep a GPU node even if there are no jobs; remove it after the test",
        )


def open_endpoint(settings: EksSettings) -> Iterator[Finding]:
    endpoint = settings.cluster.endpoint
    for index, cidr in enumerate(endpoint.public_access_from):
        if int(cidr.partition("/")[2]) < WIDEST_PREFIX:
            yield Finding(
                "open-endpoint",
                "warning",
                ("cluster", "endpoint", "publicAccessFrom", index),
                f"{cidr} admits nearly every address, so that only authentication protects the API server; use your own"
                " networks",
            )


def readers_of_credentials(settings: EksSettings) -> Iterator[Finding]:
    """Yield teams that may read the projects' GitHub credentials. ARC copies these Secrets to its own namespace for the
    listeners."""
    namespaces = {settings.arc.namespace, *(project.namespace for project in settings.projects.values())}
    for name, access in settings.cluster.access.items():
        for index, each in enumerate(access.policies):
            seen = sorted(
                namespace
                for namespace in namespaces
                if not each.namespaces or any(fnmatchcase(namespace, pattern) for pattern in each.namespaces)
            )
            if seen and each.policy not in READS_NO_SECRETS:
                yield Finding(
                    "reads-credentials",
                    "warning",
                    ("cluster", "access", name, "policies", index),
                    f"{each.policy} allows reading the Secrets in {', '.join(seen)}, including the projects' GitHub"
                    " credentials; restrict it to other namespaces, or use AmazonEKSViewPolicy",
                )


def useless_prefixes(settings: EksSettings) -> Iterator[Finding]:
    """Yield pools without `maxPods`: Karpenter and the kubelet then compute the number of pods from network interfaces
    (`pods` in pkg/providers/instancetype/types.go of aws/karpenter-provider-aws at v1.14.1)."""
    environment = settings.cluster.addon_configuration.get("vpc-cni", {}).get("env")
    if not isinstance(environment, dict) or environment.get("ENABLE_PREFIX_DELEGATION") != "true":
        return
    for _, where, pool in _pools(settings):
        if pool.kubelet.max_pods is None:
            yield Finding(
                "useless-prefixes",
                "note",
                (*where, "kubelet"),
                "ENABLE_PREFIX_DELEGATION gives nodes more addresses, but no more pods, because Karpenter computes"
                " their number from network interfaces; set maxPods, for example to 110",
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


def unprotected_cluster(settings: EksSettings) -> Iterator[Finding]:
    if not settings.cluster.deletion_protection:
        yield Finding(
            "unprotected-cluster",
            "warning",
            ("cluster", "deletionProtection"),
            "`pulumi destroy` or a changed name deletes the cluster without confirmation; keep it on until you want to"
            " delete the cluster",
        )


def full_system_nodes(settings: EksSettings) -> Iterator[Finding]:
    nodes, room = settings.cluster.system_nodes, system_node_room(settings)
    if room is None:
        return
    requested = system_requests(settings)
    for resource, show in (("cpu", quantity.cores), ("memory", quantity.gibibytes), ("pods", str)):
        # While a node is replaced, it runs nothing, and Karpenter's second replica can wait.
        spared = Decimal(1) if resource == "pods" else quantity.parsed(KARPENTER.requests[resource])
        available, wanted = room[resource] * (nodes.count - 1), requested[resource] - spared
        if wanted > available:
            what = "pods" if resource == "pods" else resource
            yield Finding(
                "full-system-nodes",
                "error" if requested[resource] > room[resource] * nodes.count else "warning",
                ("cluster", "systemNodes"),
                f"Karpenter, ARC, add-ons and the listeners of {len(settings.runners)} labels request {show(wanted)}"
                f" {what}, but while a node is replaced, {nodes.count - 1} of {nodes.instance_type} have"
                f" {show(available)}; raise count, or use a larger instanceType",
            )


RULES: Mapping[str, Callable[[EksSettings], Iterator[Finding]]] = {
    "disturbed-jobs": disturbed_jobs,
    "hasty-removal": hasty_removal,
    "endless-drain": endless_drain,
    "short-grace-period": short_grace_periods,
    "addon-on-any-node": addons_on_any_node,
    "jobs-on-spot": jobs_on_spot,
    "small-disk": small_disks,
    "fruitless-fast-pull": fruitless_fast_pulls,
    "several-shares": undivided_requests,
    "shared-gpu": shared_gpus,
    "untainted-gpus": untainted_gpus,
    "reachable-node-role": reachable_node_role,
    "role-of-others": roles_of_others,
    "idle-reservations": idle_reservations,
    "unknown-reservation": unknown_reservations,
    "minimum-beyond-limits": minimum_beyond_limits,
    "paused-pool": paused_pools,
    "unknown-region": unknown_region,
    "smoke-holds-node": idle_smoke,
    "open-endpoint": open_endpoint,
    "claim-without-class": claims_without_class,
    "reads-credentials": readers_of_credentials,
    "useless-prefixes": useless_prefixes,
    "unprotected-cluster": unprotected_cluster,
    "full-system-nodes": full_system_nodes,
}
"""Rules, by the name of their findings."""


def findings(settings: Settings) -> Iterator[Finding]:
    """Yield the findings of a stack on EKS; none for other stacks."""
    if isinstance(settings, EksSettings):
        for rule in RULES.values():
            yield from rule(settings)
        # Not among RULES: the finding has the name of that about other images.
        yield from mutable_smoke_images(settings)


NAMES = frozenset(RULES)
"""Names that an acknowledgement can give."""
