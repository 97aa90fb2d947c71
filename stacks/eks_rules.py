"""Rules about a cluster on EKS and its node pools, and about runners there."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from components.eks_cluster_rules import cluster_violations
from components.eks_network_args import NetworkReference
from components.eks_network_rules import network_violations
from components.gpu_sharing import GPU, largest_request
from components.karpenter_versions import kubernetes_refusal
from components.node_pool_fit import fit, gpu_counts
from components.node_pool_rules import violations
from components.nvidia_device_plugin import GPU_LABEL
from stacks import quantity
from stacks.eks_cluster import cluster_args, network_args
from stacks.eks_settings import EksSettings, SmokeWorkload
from stacks.eks_wording import cluster_breach, network_breach, pool_breach
from stacks.fault import Breach, Path, listed
from stacks.node_pools import node_pool_args, pools_with_gpus, zones
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
    breaches = [breach for rule in RULES for breach in rule(settings)]
    yield from breaches
    doubtful = {path[2] for path, _ in breaches if path[:2] == _POOLS and _WHAT_IS_BOUGHT.intersection(path[3:4])}
    sure = {label: runner for label, runner in placed.runners.items() if placed.pool_name(runner) not in doubtful}
    for rule in RUNNER_RULES:
        yield from rule(placed.model_copy(update={"runners": sure}))
    smoke = settings.cluster.smoke_workload
    unsure = any(entry[:2] == _POOLS for entry in withheld)
    if smoke and smoke.pool not in doubtful and (smoke.pool in settings.cluster.node_pools or not unsure):
        yield from the_smoke_workload_has_a_place(settings, smoke)


_POOLS = ("cluster", "nodePools")
_WHAT_IS_BOUGHT = frozenset({"instances", "requirements", "zones"})
"""Settings of a pool that say which types it buys: with a mistake in them, it is not known what its nodes hold."""


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


def gpus_are_shared_alike(settings: EksSettings) -> Iterator[Breach]:
    """One device plugin has one configuration, so that all pools with GPUs share them alike."""
    first, *others = pools_with_gpus(settings.cluster) or [""]
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
    for name in pools_with_gpus(settings.cluster):
        if settings.cluster.node_pools[name].labels.get(GPU_LABEL) != "true":
            yield (
                ("cluster", "nodePools", name, "labels"),
                f"the device plugin runs on nodes with the label {GPU_LABEL}, and no other has GPUs to ask for;"
                f' add to them: {GPU_LABEL}: "true"',
            )


def bottlerocket_has_a_plugin_of_its_own(settings: EksSettings) -> Iterator[Breach]:
    """Bottlerocket's images for NVIDIA ship the device plugin; a second one would offer the same GPUs again."""
    for name in pools_with_gpus(settings.cluster):
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
    """Why no pod is given so many GPUs on a node of that pool, which has some."""
    args = node_pool_args(pool, settings.cluster)
    most = largest_request(max(gpu_counts(args)), args.sharing)
    if gpus <= most:
        return None
    if args.sharing and args.sharing.fail_requests_greater_than_one:
        return f"{gpus} is more than one: two shares can be of one GPU, and no more of its time; ask for 1"
    return f"{gpus} is more than the largest node of the pool '{pool}' has; ask for at most {most}"


def _short(settings: EksSettings, pool: str, asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What no node of the pool has room for: a resource, and why; no resource where it is all of them together.

    Nothing is known of types that are newer than the table.
    """
    if settings.cluster.node_pools[pool].instances.gpu_counts is not None:
        return
    reason = fit(asked, node_pool_args(pool, settings.cluster)).reason
    larger = "or let the pool buy larger types"
    found = re.findall(r"([a-z./-]+): \S+ asked for, and the largest type, (\S+), has ([^\s,]+)", reason)
    for resource, largest, has in found:
        most = quantity.gibibytes(quantity.parse(has)) if has.endswith("i") else quantity.cores(quantity.parse(has))
        yield (
            resource,
            f"{asked[resource]} is more than a node of the pool '{pool}' has room for: the largest that it buys,"
            f" {largest}, has {most}; ask for at most that, {larger}",
        )
    if reason and not found:
        each = listed([f"{resource} {amount}" for resource, amount in asked.items()], "and")
        yield (
            "",
            f"no node of the pool '{pool}' has room for {each} at once, though for each alone; ask for less, {larger}",
        )


def the_smoke_workload_has_a_place(settings: EksSettings, smoke: SmokeWorkload) -> Iterator[Breach]:
    """Its pods fit the pool they are meant for."""
    pools, where = settings.cluster.node_pools, ("cluster", "smokeWorkload")
    with_gpus = pools_with_gpus(settings.cluster)
    if smoke.pool not in pools:
        there = listed(sorted(with_gpus or pools))
        yield (*where, "pool"), f"there is no node pool '{smoke.pool}'; name {there}"
    elif smoke.pool not in with_gpus:
        another = f"name {listed(with_gpus)}" if with_gpus else "remove it, since no pool has any"
        yield (*where, "pool"), f"the pool '{smoke.pool}' has no GPUs; {another}"
    elif refusal := _too_many_gpus(settings, smoke.pool, smoke.gpus):
        yield (*where, "gpus"), refusal
    else:
        for _, why in _short(settings, smoke.pool, {GPU: str(smoke.gpus)}):
            yield (*where, "gpus"), why


def gpus_are_of_a_pool_with_gpus(settings: EksSettings) -> Iterator[Breach]:
    """A runner asks for no more GPUs than the plugin gives to one pod."""
    with_gpus = pools_with_gpus(settings.cluster)
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        if runner.gpus and pool not in with_gpus:
            another = f", or choose a pool that has: {listed(with_gpus)}" if with_gpus else ""
            yield ("runners", label, "gpus"), f"the pool '{pool}' has no GPUs; ask for 0{another}"
        elif runner.gpus and (refusal := _too_many_gpus(settings, pool, runner.gpus)):
            yield ("runners", label, "gpus"), refusal


def runners_fit_a_node(settings: EksSettings) -> Iterator[Breach]:
    """Some instance type of the pool has room for the runner."""
    with_gpus = pools_with_gpus(settings.cluster)
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        asked = requests_of(settings, runner)
        if runner.gpus and (pool not in with_gpus or _too_many_gpus(settings, pool, runner.gpus)):
            # Of them it has been told.
            del asked[GPU]
        places: dict[str, Path] = {
            "cpu": ("runners", label, "cpu"),
            "memory": ("runners", label, "memory"),
            "ephemeral-storage": ("profiles", str(runner.profile), "ephemeralStorage"),
            GPU: ("runners", label, "gpus"),
        }
        for resource, why in _short(settings, pool, asked):
            yield places.get(resource, ("runners", label)), why


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
)

RUNNER_RULES: tuple[Rule, ...] = (
    gpus_are_of_a_pool_with_gpus,
    runners_fit_a_node,
)
"""Rules about a runner and the nodes of its pool."""
