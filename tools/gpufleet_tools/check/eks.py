"""Findings about clusters on EKS: what only shows on a bill, or when a job is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

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
from gpufleet_stacks.settings import quantity
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
                f"{policy} evicts what runs on a node to save on it; runner pods are marked do-not-disrupt, whatever"
                " else runs there is not; write WhenEmpty",
            )


def mutable_smoke_images(settings: EksSettings) -> Iterator[Finding]:
    smoke = settings.cluster.smoke_workload
    if smoke and moves(smoke.image):
        yield Finding(
            "mutable-image",
            "warning",
            ("cluster", "smokeWorkload", "image"),
            f"{smoke.image} is another image from one day to the next; name a version or a digest",
        )


def hasty_removal(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.disruption.consolidate_after in ("0s", "0m", "0h"):
            yield Finding(
                "hasty-removal",
                "warning",
                (*where, "disruption", "consolidateAfter"),
                "a node goes the moment it is empty, and the next job waits for another to start; write 30s or more",
            )


def endless_drain(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.termination_grace_period is None and pool.expire_after != "Never":
            yield Finding(
                "endless-drain",
                "warning",
                where,
                f"nodes expire after {pool.expire_after}, and wait for ever for a pod that is not to be disturbed;"
                " set terminationGracePeriod to the longest job",
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
            fallback = "" if "on-demand" in pool.capacity else ", and there is no on-demand to fall back on"
            yield Finding(
                "jobs-on-spot",
                "note" if not fallback else "warning",
                (*where, "capacity"),
                "AWS takes a spot instance back at two minutes' notice, and its jobs are lost" + fallback,
            )


_SMALL_DISK = Decimal(1024) ** 3 * 50


def small_disks(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.instance_store is None and quantity.parse(pool.root_volume) < _SMALL_DISK:
            yield Finding(
                "small-disk",
                "warning",
                (*where, "rootVolume"),
                f"{pool.root_volume} holds the system, images of runners and what jobs write: one image for CUDA is"
                " 10 GB and more; write 200Gi",
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
                f"{throughput} MiB/s: images are unpacked no faster than the volume writes, and below"
                f" {FAST_IMAGE_PULL_THROUGHPUT} MiB/s parallel pulls can take longer; raise it",
            )
        types = instance_types_of(node_pool_args(name, settings.cluster))
        small = [each.name for each in types if ignores_fast_image_pull(each)]
        if small:
            yield Finding(
                "fruitless-fast-pull",
                "warning",
                (*where, "fastImagePull"),
                f"nodes of {', '.join(small[:3])}{' and others' * (len(small) > 3)} ignore it: it takes"
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
                "a pod that asks for two shares may get two of one GPU, and no more of its time; write true",
            )


def shared_gpus(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        if pool.sharing:
            jobs = f"up to {settings.shares(name)} jobs are on one GPU"
            yield Finding("shared-gpu", "note", (*where, "sharing"), f"{jobs}{_isolation(pool.sharing)}")


def _isolation(sharing: Sharing) -> str:
    """What keeps jobs on one GPU apart, and what does not."""
    if sharing.mig:
        return (
            ", each with an instance of its own: memory and faults are kept apart; userData or the AMI must create the"
            f" {sharing.mig.profile} instances before the kubelet starts, or whole GPUs are offered"
        )
    if sharing.mps:
        return ", each with an equal part of its memory; a fault of one can end all, and NVIDIA calls MPS experimental"
    return ", and nothing keeps one from taking all of its memory, or a fault of one from ending them all"


def untainted_gpus(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        taken = any(taint.effect != "PreferNoSchedule" for taint in pool.taints)
        if not taken and gpu_counts(node_pool_args(name, settings.cluster)):
            yield Finding(
                "untainted-gpus",
                "warning",
                where,
                "any pod may run there, such as a listener of ARC, and a GPU node is kept for as long as it does;"
                f" write taints: [{{key: {GPU}, effect: NoSchedule}}], and tolerate it in profiles",
            )


def reachable_node_role(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.metadata_hop_limit > 1:
            yield Finding(
                "reachable-node-role",
                "warning",
                (*where, "metadataHopLimit"),
                "jobs reach the instance's metadata, and with it the credentials of the node's role; write 1",
            )


def roles_of_others(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        setting = "role" if pool.role else "instanceProfile"
        if pool.role or pool.instance_profile:
            yield Finding(
                "role-of-others",
                "warning",
                (*where, setting),
                "is not made here: see to it that Karpenter's controller may pass the role (iam:PassRole), and that the"
                " cluster has an access entry of type EC2_LINUX for it, or no node joins",
            )


def idle_reservations(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        if pool.reservations and "reserved" not in pool.capacity:
            yield Finding(
                "idle-reservations",
                "warning",
                (*where, "reservations"),
                "are paid for and never used, since capacity does not name reserved; add it",
            )


def unknown_reservations(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in _pools(settings):
        for index, reservation in enumerate(pool.reservations):
            if "reserved" in pool.capacity and reservation.holds is None:
                yield Finding(
                    "unknown-reservation",
                    "note",
                    (*where, "reservations", index),
                    "what it holds is not known: capacity takes any instance type of the pool to be reserved, and the"
                    " sandbox has no such reservation; write holds",
                )


def minimum_beyond_limits(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in _pools(settings):
        runners = [each for each in settings.runners.values() if settings.pool_name(each) == name]
        for resource, limit in (("cpu", pool.limits.cpu), ("memory", pool.limits.memory)):
            idle = sum(each.min * quantity.parse(getattr(each, resource)) for each in runners)
            if limit is not None and idle > quantity.parse(limit):
                yield Finding(
                    "minimum-beyond-limits",
                    "error",
                    (*where, "limits", resource),
                    f"idle runners ask for more than {limit}: some stay pending for ever; lower 'min' of the pool's"
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
            f"{region} is not in the table of instance types: it is misspelt, or newer than the table, where every pool"
            f" needs gpuCounts{meant}",
        )


def idle_smoke(settings: EksSettings) -> Iterator[Finding]:
    if settings.cluster.smoke_workload:
        yield Finding(
            "smoke-holds-node",
            "note",
            ("cluster", "smokeWorkload"),
            "its pods keep a GPU node for as long as they are here, jobs or none; remove it once it has run",
        )


def open_endpoint(settings: EksSettings) -> Iterator[Finding]:
    endpoint = settings.cluster.endpoint
    for index, cidr in enumerate(endpoint.public_access_from):
        if int(cidr.partition("/")[2]) < WIDEST_PREFIX:
            yield Finding(
                "open-endpoint",
                "warning",
                ("cluster", "endpoint", "publicAccessFrom", index),
                f"{cidr} is nearly everybody: the API server's own authentication is all that is left; name networks",
            )


def readers_of_credentials(settings: EksSettings) -> Iterator[Finding]:
    """Teams that may read the Secrets with the projects' credentials at GitHub. ARC copies them to its own namespace
    for the listeners."""
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
                    f"{each.policy} reads the Secrets of {', '.join(seen)}, and with them the credentials of projects"
                    " at GitHub; name other namespaces, or use AmazonEKSViewPolicy",
                )


def useless_prefixes(settings: EksSettings) -> Iterator[Finding]:
    """Karpenter and the kubelet take the number of pods from network interfaces, unless `maxPods` says otherwise
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
                "ENABLE_PREFIX_DELEGATION gives nodes more addresses, but no more pods, since Karpenter still counts"
                " network interfaces; set maxPods, for example to 110",
            )


def claims_without_class(settings: EksSettings) -> Iterator[Finding]:
    """Since Kubernetes 1.30, a new cluster of EKS has no default StorageClass (kubernetes-versions-standard.adoc of
    awsdocs/amazon-eks-user-guide at 4d52b4d)."""
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
                    "names no storageClassName, and no StorageClass is the default: its volume is never created, and"
                    f" runners wait; name {known}, or make one the default",
                )


def _claims(profile: Profile) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Volume claims that the pods of a profile make, with their places."""
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
            "`pulumi destroy` and a renamed cluster delete it without a word; leave it on until the day you mean it",
        )


def full_system_nodes(settings: EksSettings) -> Iterator[Finding]:
    nodes, room = settings.cluster.system_nodes, system_node_room(settings)
    if room is None:
        return
    asked = system_requests(settings)
    for resource, show in (("cpu", quantity.cores), ("memory", quantity.gibibytes), ("pods", str)):
        # A node that is being replaced holds nothing, and Karpenter's second replica can wait that long.
        spared = Decimal(1) if resource == "pods" else quantity.parse(KARPENTER.requests[resource])
        have, wanted = room[resource] * (nodes.count - 1), asked[resource] - spared
        if wanted > have:
            what = "pods" if resource == "pods" else resource
            yield Finding(
                "full-system-nodes",
                "error" if asked[resource] > room[resource] * nodes.count else "warning",
                ("cluster", "systemNodes"),
                f"Karpenter, ARC, addons and the listeners of {len(settings.runners)} labels ask for {show(wanted)}"
                f" {what} while a node is replaced, and {nodes.count - 1} of {nodes.instance_type} have {show(have)};"
                " raise count, or take a larger instanceType",
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
    """Every finding of a stack on EKS; none of another."""
    if isinstance(settings, EksSettings):
        for rule in RULES.values():
            yield from rule(settings)
        # Its name is that of the finding about any other image.
        yield from mutable_smoke_images(settings)


NAMES = frozenset(RULES)
"""Names that an acknowledgement can give."""
