"""Rules about a cluster on EKS and its node pools, and about runners there."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from components.eks_cluster_rules import cluster_violations
from components.eks_network_args import NetworkReference
from components.eks_network_rules import network_violations
from components.gpu_sharing import GPU, largest_request
from components.karpenter_versions import kubernetes_refusal
from components.node_pool_fit import fit, gpu_counts
from components.node_pool_rules import violations
from components.nvidia_device_plugin import GPU_LABEL
from stacks.eks_cluster import cluster_args, network_args
from stacks.eks_settings import EksSettings
from stacks.eks_wording import cluster_breach, network_breach, pool_breach
from stacks.fault import Breach, Path, listed
from stacks.node_pools import node_pool_args, zones
from stacks.settings import Runner

NEEDED = ("name", "region", "account", "kubernetesVersion", "network", "addons")
"""Settings of the cluster that another stands in for while they have mistakes of their own."""


def broken(settings: EksSettings, placed: EksSettings, withheld: Collection[Path] = ()) -> Iterator[Breach]:
    """What is wrong with the cluster, and with those runners of which it is certain where they run.

    Of what is `withheld`, and of what follows from it, nothing is said: where nodes are bought, for one, follows from
    the network.
    """
    if any(("cluster", each) in withheld for each in NEEDED):
        return
    smoke = settings.cluster.smoke_workload
    if smoke and ("cluster", "nodePools", smoke.pool) in withheld:
        cluster = settings.cluster.model_copy(update={"smoke_workload": None})
        settings = settings.model_copy(update={"cluster": cluster})
    for rule in RULES:
        yield from rule(settings)
    for rule in RUNNER_RULES:
        yield from rule(placed)


# -- the cluster ------------------------------------------------------------------------------------------------------


def karpenter_knows_the_kubernetes(settings: EksSettings) -> Iterator[Breach]:
    """Karpenter's version goes with that of Kubernetes."""
    cluster = settings.cluster
    refusal = kubernetes_refusal(cluster.kubernetes_version, cluster.karpenter.version)
    if refusal:
        yield ("cluster", "kubernetesVersion"), refusal


def the_cluster_is_possible(settings: EksSettings) -> Iterator[Breach]:
    """What AWS would refuse of the cluster or its network, half way through an update."""
    cluster, network = settings.cluster, settings.cluster.network
    if network.kind == "own":
        yield from map(network_breach, network_violations(network_args(cluster, network)))
    subnets = {zone: zone for zone in zones(cluster)}
    for violation in cluster_violations(cluster_args(cluster, NetworkReference(vpc_id="", private_subnets=subnets))):
        # Of zones the network has spoken already.
        if not (network.kind == "own" and violation.startswith("zone")):
            yield cluster_breach(violation)


def the_plugin_has_a_namespace_of_its_own(settings: EksSettings) -> Iterator[Breach]:
    """It goes with the stack."""
    if settings.nvidia_plugin.namespace == "default":
        yield (
            ("nvidiaPlugin", "namespace"),
            "default is in every cluster, and would be removed with the stack; use another",
        )


# -- node pools -------------------------------------------------------------------------------------------------------


def zones_are_the_networks(settings: EksSettings) -> Iterator[Breach]:
    """Zones of a pool are of the cluster's network."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        for index, zone in enumerate(pool.zones):
            if zone not in zones(cluster):
                there = listed(zones(cluster), "and")
                yield ("cluster", "nodePools", name, "zones", index), f"the network has no zone {zone}; it has {there}"


def pools_are_possible(settings: EksSettings) -> Iterator[Breach]:
    """What Karpenter would refuse, or accept though no node came of it."""
    cluster = settings.cluster
    for name in cluster.node_pools:
        for violation in violations(node_pool_args(name, cluster)):
            yield pool_breach(name, cluster, violation)


def _with_gpus(settings: EksSettings) -> list[str]:
    """Names of the pools that have GPUs."""
    cluster = settings.cluster
    return [name for name in cluster.node_pools if gpu_counts(node_pool_args(name, cluster))]


def gpus_are_shared_alike(settings: EksSettings) -> Iterator[Breach]:
    """One device plugin has one configuration, so that all pools with GPUs share them alike."""
    first, *others = _with_gpus(settings) or [""]
    pools = settings.cluster.node_pools
    for name in others:
        if pools[name].sharing != pools[first].sharing:
            yield (
                ("cluster", "nodePools", name, "sharing"),
                f"differs from that of the pool '{first}', and one device plugin serves both; share GPUs alike",
            )


def the_plugin_finds_its_nodes(settings: EksSettings) -> Iterator[Breach]:
    """The device plugin runs where a label says that there are GPUs. Nothing else sets it: the plugin's own feature
    discovery runs on the same nodes (templates/daemonset-gfd.yml of its chart at 0.20.0)."""
    for name in _with_gpus(settings):
        if settings.cluster.node_pools[name].labels.get(GPU_LABEL) != "true":
            yield (
                ("cluster", "nodePools", name, "labels"),
                f"the device plugin runs on nodes with the label {GPU_LABEL}, and no other has GPUs to ask for;"
                f' add to them: {GPU_LABEL}: "true"',
            )


def bottlerocket_has_a_plugin_of_its_own(settings: EksSettings) -> Iterator[Breach]:
    """Bottlerocket's images for NVIDIA ship the device plugin; a second one would offer the same GPUs again."""
    for name in _with_gpus(settings):
        pool = settings.cluster.node_pools[name]
        for index, ami in enumerate(pool.amis):
            if (ami.alias or "").startswith("bottlerocket") or pool.ami_family == "Bottlerocket":
                yield (
                    ("cluster", "nodePools", name, "amis", index),
                    "Bottlerocket's images for GPUs have a device plugin of their own, beside the one that this stack"
                    " installs; use an alias of al2023",
                )


# -- what runs on them ------------------------------------------------------------------------------------------------


def _too_many_gpus(settings: EksSettings, pool: str, gpus: int) -> str | None:
    """Why no pod is given so many GPUs on a node of that pool."""
    args = node_pool_args(pool, settings.cluster)
    counts = gpu_counts(args)
    if not counts:
        others = _with_gpus(settings)
        there = f", and {listed([repr(name) for name in others], 'and')} has" if others else ""
        return f"the pool '{pool}' has no GPUs{there}; ask for 0, or choose another pool"
    most = largest_request(max(counts), args.sharing)
    if gpus <= most:
        return None
    if args.sharing and args.sharing.fail_requests_greater_than_one:
        return f"{gpus} is more than one: two shares can be of one GPU, and no more of its time; ask for 1"
    return f"{gpus} is more than the largest node of the pool '{pool}' has; ask for at most {most}"


def _short(settings: EksSettings, pool: str, asked: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What no node of the pool has room for: a resource, and why; nothing of the resource where it is all together.

    Nothing is known of types that are newer than the table.
    """
    if settings.cluster.node_pools[pool].instances.gpu_counts is not None:
        return
    reason = fit(asked, node_pool_args(pool, settings.cluster)).reason
    for part in re.split(r", (?=[a-z./-]+: )", reason) if reason else ():
        match = re.fullmatch(r"([a-z./-]+): (.*)", part)
        why = f"no node of the pool '{pool}' has room: {match[2] if match else part}"
        yield match[1] if match else "", f"{why}; ask for at most that, or let the pool buy larger types"


def the_smoke_workload_has_a_place(settings: EksSettings) -> Iterator[Breach]:
    """Its pods fit the pool they are meant for."""
    cluster, smoke = settings.cluster, settings.cluster.smoke_workload
    if smoke is None:
        return
    where: Path = ("cluster", "smokeWorkload")
    if smoke.pool not in cluster.node_pools:
        there = listed(sorted(cluster.node_pools))
        yield (*where, "pool"), f"there is no node pool '{smoke.pool}'; name {there}"
    elif refusal := _too_many_gpus(settings, smoke.pool, smoke.gpus):
        yield (*where, "gpus"), refusal
    else:
        for _, why in _short(settings, smoke.pool, {GPU: str(smoke.gpus)}):
            yield (*where, "gpus"), why


def gpus_are_of_a_pool_with_gpus(settings: EksSettings) -> Iterator[Breach]:
    """A runner asks for no more GPUs than the plugin gives to one pod."""
    for label, runner in settings.runners.items():
        if runner.gpus and (refusal := _too_many_gpus(settings, settings.pool_name(runner), runner.gpus)):
            yield ("runners", label, "gpus"), refusal


def runners_fit_a_node(settings: EksSettings) -> Iterator[Breach]:
    """Some instance type of the pool has room for the runner."""
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        asked = requests_of(settings, runner)
        if runner.gpus and _too_many_gpus(settings, pool, runner.gpus):
            del asked[GPU]
        settings_of: dict[str, Path] = {
            "cpu": ("runners", label, "cpu"),
            "memory": ("runners", label, "memory"),
            "ephemeral-storage": ("profiles", str(runner.profile), "ephemeralStorage"),
            GPU: ("runners", label, "gpus"),
        }
        for resource, why in _short(settings, pool, asked):
            yield settings_of.get(resource, ("runners", label)), why


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
    the_plugin_has_a_namespace_of_its_own,
    zones_are_the_networks,
    pools_are_possible,
    gpus_are_shared_alike,
    the_plugin_finds_its_nodes,
    bottlerocket_has_a_plugin_of_its_own,
    the_smoke_workload_has_a_place,
)

RUNNER_RULES: tuple[Rule, ...] = (
    gpus_are_of_a_pool_with_gpus,
    runners_fit_a_node,
)
"""Rules about a runner and the nodes of its pool."""
