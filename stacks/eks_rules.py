"""Rules about a cluster on EKS and its node pools, and about runners there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from components.eks_cluster_rules import cluster_violations
from components.eks_network_args import NetworkReference
from components.eks_network_rules import network_violations
from components.gpu_sharing import GPU, largest_request
from components.karpenter_versions import kubernetes_refusal
from components.node_pool_fit import fit, gpu_counts
from components.node_pool_rules import violations
from stacks.eks_cluster import cluster_args, network_args
from stacks.eks_settings import EksSettings
from stacks.fault import Breach, Path, listed
from stacks.node_pools import node_pool_args, time_slicing, zones
from stacks.settings import Runner


def broken(settings: EksSettings, placed: EksSettings) -> Iterator[Breach]:
    """What is wrong with the cluster, and with those runners of which it is certain where they run."""
    for rule in RULES:
        yield from rule(settings)
    for rule in RUNNER_RULES:
        yield from rule(placed)


def karpenter_knows_the_kubernetes(settings: EksSettings) -> Iterator[Breach]:
    """Karpenter's version goes with that of Kubernetes."""
    cluster = settings.cluster
    refusal = kubernetes_refusal(cluster.kubernetes_version, cluster.karpenter.version)
    if refusal:
        yield ("cluster", "kubernetesVersion"), refusal


def zones_are_the_networks(settings: EksSettings) -> Iterator[Breach]:
    """Zones of a pool are of the cluster's network."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        for zone in pool.zones:
            if zone not in zones(cluster):
                there = listed(zones(cluster), "and")
                yield ("cluster", "nodePools", name, "zones"), f"the network has no zone {zone}; it has {there}"


def the_cluster_is_possible(settings: EksSettings) -> Iterator[Breach]:
    """What AWS would refuse of the cluster or its network, half way through an update."""
    cluster, network = settings.cluster, settings.cluster.network
    if network.kind == "own":
        for violation in network_violations(network_args(cluster, network)):
            yield _place(("cluster", "network"), violation, _OF_THE_NETWORK), violation
    subnets = {zone: zone for zone in zones(cluster)}
    for violation in cluster_violations(cluster_args(cluster, NetworkReference(vpc_id="", private_subnets=subnets))):
        # Of zones the network has spoken already.
        if not (network.kind == "own" and violation.startswith("zone")):
            yield _place(("cluster",), violation, _OF_THE_CLUSTER), violation


def pools_are_possible(settings: EksSettings) -> Iterator[Breach]:
    """What Karpenter would refuse, or accept though no node came of it."""
    for name in settings.cluster.node_pools:
        for violation in violations(node_pool_args(name, settings.cluster)):
            yield _place(("cluster", "nodePools", name), violation.removeprefix("node class: "), _OF_A_POOL), violation


def _place(section: Path, violation: str, spoken_of: Mapping[str, str]) -> Path:
    """The setting that a component's violation speaks of, told by how it begins; else the section."""
    field = next((setting for words, setting in spoken_of.items() if violation.startswith(words)), None)
    return (*section, field) if field else section


_OF_THE_NETWORK = {
    "zone": "zones",
    "CIDR": "cidr",
    "NAT": "natGateways",
    "interface endpoint": "interfaceEndpoints",
}

_OF_THE_CLUSTER = {
    "cluster name": "name",
    "account": "account",
    "zone": "network",
    "Kubernetes version": "kubernetesVersion",
    "addon": "addons",
    "endpoint": "endpoint",
    "system nodes": "systemNodes",
    "admin": "administrators",
}

_OF_A_POOL = {
    "requirement": "instances",
    "zones": "zones",
    "limit": "limits",
    "disruption": "disruption",
    "expire after": "expireAfter",
    "termination grace period": "terminationGracePeriod",
    "taint": "taints",
    "label": "labels",
    "sharing": "sharing",
    "timeSlicing": "sharing",
    "AMI family": "amiFamily",
    "AMI": "amis",
    "alias": "amis",
    "root volume": "rootVolume",
    "metadata": "metadataHopLimit",
    "capacity reservation": "reservations",
    "weight": "weight",
}


def gpus_are_shared_alike(settings: EksSettings) -> Iterator[Breach]:
    """One device plugin has one configuration, so that all pools with GPUs share them alike."""
    cluster = settings.cluster
    pools = [name for name in cluster.node_pools if gpu_counts(node_pool_args(name, cluster))]
    for name in pools[1:]:
        if cluster.node_pools[name].sharing != cluster.node_pools[pools[0]].sharing:
            yield (
                ("cluster", "nodePools", name, "sharing"),
                f"differs from that of the pool '{pools[0]}', and one device plugin serves both; share GPUs alike",
            )


def bottlerocket_has_a_plugin_of_its_own(settings: EksSettings) -> Iterator[Breach]:
    """Bottlerocket's images for NVIDIA ship the device plugin; a second one would offer the same GPUs again."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        if not gpu_counts(node_pool_args(name, cluster)):
            continue
        for index, ami in enumerate(pool.amis):
            if (ami.alias or "").startswith("bottlerocket") or pool.ami_family == "Bottlerocket":
                yield (
                    ("cluster", "nodePools", name, "amis", index),
                    "Bottlerocket's images for GPUs have a device plugin of their own, beside the one that this stack"
                    " installs; use an alias of al2023",
                )


def the_smoke_workload_has_a_place(settings: EksSettings) -> Iterator[Breach]:
    """Its pods fit the pool they are meant for."""
    cluster, smoke = settings.cluster, settings.cluster.smoke_workload
    if smoke is None:
        return
    if smoke.pool not in cluster.node_pools:
        there = listed(sorted(cluster.node_pools))
        yield ("cluster", "smokeWorkload", "pool"), f"there is no node pool '{smoke.pool}'; name {there}"
        return
    reason = fit({GPU: str(smoke.gpus)}, node_pool_args(smoke.pool, cluster)).reason
    if reason:
        yield ("cluster", "smokeWorkload", "gpus"), f"no node of the pool '{smoke.pool}' has room: {reason}"


def gpus_are_of_a_pool_with_gpus(settings: EksSettings) -> Iterator[Breach]:
    """A runner asks for no more GPUs than the plugin gives to one pod."""
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        args = node_pool_args(pool, settings.cluster)
        counts = gpu_counts(args)
        if runner.gpus and not counts:
            with_gpus = [
                name for name in settings.cluster.node_pools if gpu_counts(node_pool_args(name, settings.cluster))
            ]
            there = f"; {listed(with_gpus)} has" if with_gpus else ""
            yield ("runners", label, "gpus"), f"the pool '{pool}' has no GPUs{there}; ask for 0, or choose another pool"
        elif runner.gpus and largest_request(max(counts), args.sharing) < runner.gpus:
            shared = (
                " of time slices, since two can be of one GPU" if time_slicing(settings.pool(runner).sharing) else ""
            )
            most = largest_request(max(counts), args.sharing)
            yield ("runners", label, "gpus"), f"{runner.gpus} is more than one pod is given{shared}; ask for {most}"


def runners_fit_a_node(settings: EksSettings) -> Iterator[Breach]:
    """Some instance type of the pool has room for the runner."""
    for label, runner in settings.runners.items():
        args = node_pool_args(settings.pool_name(runner), settings.cluster)
        requests = requests_of(settings, runner)
        if runner.gpus and not gpu_counts(args):
            continue
        reason = fit(requests, args).reason
        if reason:
            where: Path = ("runners", label, "memory" if reason.startswith("memory") else "cpu")
            if reason.startswith("ephemeral-storage") and runner.profile:
                where = ("profiles", runner.profile, "ephemeralStorage")
            elif reason.startswith(GPU):
                continue
            yield where, f"no node of the pool '{args.pool}' has room: {reason}"


def requests_of(settings: EksSettings, runner: Runner) -> dict[str, str]:
    """What one runner asks of its node."""
    asked = {
        "cpu": runner.cpu,
        "memory": runner.memory,
        "ephemeral-storage": settings.profile(runner).ephemeral_storage,
        GPU: str(runner.gpus) if runner.gpus else None,
    }
    return {resource: amount for resource, amount in asked.items() if amount is not None}


Rule = Callable[[EksSettings], Iterator[Breach]]

RULES: tuple[Rule, ...] = (
    karpenter_knows_the_kubernetes,
    the_cluster_is_possible,
    zones_are_the_networks,
    pools_are_possible,
    gpus_are_shared_alike,
    bottlerocket_has_a_plugin_of_its_own,
    the_smoke_workload_has_a_place,
)

RUNNER_RULES: tuple[Rule, ...] = (
    gpus_are_of_a_pool_with_gpus,
    runners_fit_a_node,
)
"""Rules about a runner and the nodes of its pool."""
