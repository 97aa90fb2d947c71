"""Rules about a cluster on EKS and its node pools, and about runners there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gpufleet.aws.ec2.instance_types import InstanceType, instance_types, zones_of
from gpufleet.aws.ec2.requirements import matching
from gpufleet.aws.eks.cluster_args import NODE_MONITORING_AGENT
from gpufleet.aws.eks.cluster_rules import cluster_problems
from gpufleet.aws.eks.network_args import NetworkReference
from gpufleet.aws.eks.network_rules import network_problems
from gpufleet.aws.karpenter.node_pool_fit import fit, gpu_counts, paused, requirements, within_limits
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet.aws.karpenter.versions import version_problems
from gpufleet.nvidia.device_plugin import CONFIG_LABEL, GPU_LABEL, MPS_LABEL
from gpufleet.nvidia.sharing import GPU, Mig, largest_request, only_one_each
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.args.eks import cluster_args, network_args
from gpufleet_stacks.settings.args.node_pools import node_pool_args, pools_with_gpus, selected_types, zones
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.eks_cluster import SmokeWorkload
from gpufleet_stacks.settings.models.settings import Runner
from gpufleet_stacks.settings.problems import listed, near
from gpufleet_stacks.settings.rules.eks_places import CLUSTER, NETWORK, pool_places
from gpufleet_stacks.settings.system_requests import KARPENTER, system_node_room

NEEDED = ("name", "region", "account", "kubernetesVersion", "network", "addons")
"""Settings of the cluster that another stands in for while they have problems of their own."""


def problems(settings: EksSettings, placed: EksSettings, withheld: Collection[Path] = ()) -> Iterator[Problem]:
    """Yield problems of the cluster, and of those runners of which it is certain where they run.

    Of what is `withheld`, and of what follows from it, nothing is said: where nodes are bought, for one, follows from
    the network.
    """
    if any(("cluster", each) in withheld for each in NEEDED):
        return
    found = [problem for rule in RULES for problem in rule(settings)]
    yield from found
    paths = [problem.path for problem in found]
    doubtful = {path[2] for path in paths if path[:2] == _POOLS and _WHAT_IS_BOUGHT.intersection(path[3:4])}
    sure = {label: runner for label, runner in placed.runners.items() if placed.pool_name(runner) not in doubtful}
    for rule in RUNNER_RULES:
        yield from rule(placed.model_copy(update={"runners": sure}))
    smoke = settings.cluster.smoke_workload
    unsure = any(entry[:2] == _POOLS for entry in withheld)
    if smoke and smoke.pool not in doubtful and (smoke.pool in settings.cluster.node_pools or not unsure):
        yield from the_smoke_workload_has_a_place(settings, smoke)


_POOLS = ("cluster", "nodePools")
_WHAT_IS_BOUGHT = frozenset({"instances", "requirements", "zones"})
"""Settings of a pool that say which types it buys: with a problem in them, it is not known what its nodes hold."""


# -- the cluster ------------------------------------------------------------------------------------------------------


def karpenter_knows_the_kubernetes(settings: EksSettings) -> Iterator[Problem]:
    """Karpenter's version goes with that of Kubernetes."""
    cluster = settings.cluster
    yield from CLUSTER.placed(version_problems(cluster.kubernetes_version, cluster.karpenter.version))


def the_cluster_is_possible(settings: EksSettings) -> Iterator[Problem]:
    """What AWS would refuse of the cluster or its network, half way through an update."""
    cluster, network = settings.cluster, settings.cluster.network
    if network.kind == "own":
        yield from NETWORK.placed(network_problems(network_args(cluster, network)))
    subnets = {zone: zone for zone in zones(cluster)}
    cidr = network.cidr if network.kind == "own" else ""
    reference = NetworkReference(vpc_id="", private_subnets=subnets, cidr=cidr)
    found = cluster_problems(cluster_args(cluster, reference))
    # Zones of a network of its own have been judged already.
    yield from CLUSTER.placed(each for each in found if not (network.kind == "own" and each.path[0] == "network"))


def system_nodes_hold_karpenter(settings: EksSettings) -> Iterator[Problem]:
    """The table has their type, a zone of the network offers it, and one node has room for one replica of Karpenter."""
    name, where = settings.cluster.system_nodes.instance_type, ("cluster", "systemNodes", "instanceType")
    kind = instance_types().get(name)
    if kind is None:
        meant = near(name, instance_types())
        another = f"did you mean '{meant}'?" if meant else "name another, for example m6i.large"
        yield Problem(where, "unknown-instance-type", f"the table of EC2's instance types has no {name}; {another}")
        return
    covered = any(zone.startswith(settings.cluster.region) for zone in zones_of(instance_types()["m5.large"]))
    if covered and not set(zones_of(kind)).intersection(zones(settings.cluster)):
        there = listed(zones(settings.cluster), "and")
        message = f"{name} is not offered in the zones of the network ({there}); choose another type"
        yield Problem(where, "not-offered-here", message)
    room, asked = system_node_room(settings) or {}, KARPENTER.requests
    if any(quantity.parse(amount) > room.get(resource, 0) for resource, amount in asked.items()):
        message = (
            f"{name} has no room for a replica of Karpenter ({asked['cpu']} core, {asked['memory']}) and the"
            " DaemonSets of the addons; use a larger type, for example m6i.large"
        )
        yield Problem(where, "no-room-for-karpenter", message)


def repair_has_the_agent(settings: EksSettings) -> Iterator[Problem]:
    """Karpenter repairs what conditions of a node report: without the agent, only the kubelet's own (`RepairPolicies`
    in pkg/cloudprovider/cloudprovider.go of aws/karpenter-provider-aws at v1.14.1)."""
    if settings.cluster.karpenter.node_repair and NODE_MONITORING_AGENT not in settings.cluster.addons:
        message = (
            f"requires the add-on {NODE_MONITORING_AGENT}, which reports faults of GPUs, kernel, network and disks; add"
            " it to addons with its version"
        )
        yield Problem(("cluster", "karpenter", "nodeRepair"), "repair-without-agent", message)


def the_plugin_has_a_namespace_of_its_own(settings: EksSettings) -> Iterator[Problem]:
    """It goes with the stack."""
    if settings.nvidia_plugin.namespace == "default":
        message = "default exists in every cluster, and would be deleted with the stack; use another"
        yield Problem(("nvidiaPlugin", "namespace"), "namespace-of-kubernetes", message)


# -- node pools -------------------------------------------------------------------------------------------------------


def zones_are_the_networks(settings: EksSettings) -> Iterator[Problem]:
    """Zones of a pool are of the cluster's network."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        for index, zone in enumerate(pool.zones):
            if zone not in zones(cluster):
                there = listed(zones(cluster), "and")
                message = f"the network has no zone {zone}; it has {there}"
                yield Problem((*_POOLS, name, "zones", index), "zone-of-no-network", message)


def reservations_are_of_the_pool(settings: EksSettings) -> Iterator[Problem]:
    """Reserved instances are of a type and in a zone that the pool allows: Karpenter would never use others."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        args = node_pool_args(name, cluster)
        for index, reservation in enumerate(pool.reservations):
            where: Path = (*_POOLS, name, "reservations", index, "holds")
            if not (holds := reservation.holds):
                continue
            if holds.instance_type not in instance_types():
                if args.gpu_counts is None:
                    message = f"the table of EC2's instance types has no {holds.instance_type}; correct it"
                    yield Problem((*where, "instanceType"), "unknown-instance-type", message)
            elif not any(each.name == holds.instance_type for each in matching(requirements(args), reserved=True)):
                message = f"the pool's instances exclude {holds.instance_type}; allow it, or remove the reservation"
                yield Problem((*where, "instanceType"), "reserved-type-excluded", message)
            if holds.zone not in (there := pool.zones or zones(cluster)):
                message = (
                    f"the pool has no nodes in {holds.zone}, but in {listed(there, 'and')}; add that zone, or remove"
                    " the reservation"
                )
                yield Problem((*where, "zone"), "reserved-zone-excluded", message)


def pools_are_possible(settings: EksSettings) -> Iterator[Problem]:
    """What Karpenter would refuse, or accept though no node came of it."""
    cluster = settings.cluster
    for name in cluster.node_pools:
        yield from pool_places(name, cluster).placed(node_pool_problems(node_pool_args(name, cluster)))


def labels_of_the_plugin_are_free(settings: EksSettings) -> Iterator[Problem]:
    """The program sets the labels that say how GPUs are shared."""
    for name, pool in settings.cluster.node_pools.items():
        for key in (CONFIG_LABEL, MPS_LABEL):
            if key in pool.labels:
                message = f"{key} follows from sharing; remove it"
                yield Problem((*_POOLS, name, "labels", key), "label-of-sharing", message)


def the_plugin_finds_its_nodes(settings: EksSettings) -> Iterator[Problem]:
    """The device plugin runs where a label says that there are GPUs. Nothing else sets it: the plugin's own feature
    discovery runs on the same nodes (templates/daemonset-gfd.yml of its chart at 0.20.0)."""
    for name in pools_with_gpus(settings.cluster):
        if settings.cluster.node_pools[name].labels.get(GPU_LABEL) != "true":
            message = (
                f"the device plugin runs on nodes with the label {GPU_LABEL}, and only there do nodes offer GPUs;"
                f' add: {GPU_LABEL}: "true"'
            )
            yield Problem((*_POOLS, name, "labels"), "plugin-label-missing", message)


def bottlerocket_has_a_plugin_of_its_own(settings: EksSettings) -> Iterator[Problem]:
    """Bottlerocket's images for NVIDIA ship the device plugin; a second one would offer the same GPUs again."""
    for name in pools_with_gpus(settings.cluster):
        pool = settings.cluster.node_pools[name]
        for index, ami in enumerate(pool.amis):
            if (ami.alias or "").startswith("bottlerocket") or pool.ami_family == "Bottlerocket":
                message = (
                    "Bottlerocket's images for GPUs contain a device plugin, in addition to the one that this stack"
                    " installs; use an alias of al2023"
                )
                yield Problem((*_POOLS, name, "amis", index), "two-device-plugins", message)


# -- what runs on them ------------------------------------------------------------------------------------------------


def _too_many_gpus(settings: EksSettings, pool: str, gpus: int) -> str | None:
    """Why no pod is given so many GPUs on a node of that pool, which has some."""
    args = node_pool_args(pool, settings.cluster)
    most = largest_request(max(gpu_counts(args)), args.sharing)
    if gpus <= most:
        return None
    if isinstance(args.sharing, Mig):
        return f"{gpus} is more than one: a job sees one MIG instance, however many it has; request 1"
    if only_one_each(args.sharing):
        return f"{gpus} is more than one share, but shares of the same GPU give no more GPU time; request 1"
    return f"{gpus} is more than the largest node of the pool '{pool}' has; request at most {most}"


def _short(
    settings: EksSettings, pool: str, asked: Mapping[str, str], types: Sequence[InstanceType] | None = None
) -> Iterator[tuple[str, str]]:
    """What no node of the pool has room for beside its DaemonSets: a resource, and why; no resource where it is all of
    them together.

    Nothing is known of types that are newer than the table.
    """
    if settings.cluster.node_pools[pool].instances.gpu_counts is not None:
        return
    found = fit(asked, node_pool_args(pool, settings.cluster), daemon_requests(settings, pool), types)
    larger = "or allow larger types in the pool"
    for short in found.shortages:
        in_bytes = short.resource in ("memory", "ephemeral-storage")
        most = quantity.gibibytes(short.room) if in_bytes else quantity.cores(short.room)
        yield (
            short.resource,
            f"{asked.get(short.resource, '1')} is more than a node of the pool '{pool}' has room for: its largest"
            f" type, {short.largest}, has {most}; request at most that, {larger}",
        )
    if found.reason and not found.shortages:
        each = listed([f"{resource} {amount}" for resource, amount in asked.items()], "and")
        yield (
            "",
            f"no node of the pool '{pool}' has room for {each} together, although each fits alone; request less,"
            f" {larger}",
        )


def the_smoke_workload_has_a_place(settings: EksSettings, smoke: SmokeWorkload) -> Iterator[Problem]:
    """Its pods fit the pool they are meant for."""
    pools, where = settings.cluster.node_pools, ("cluster", "smokeWorkload")
    with_gpus = pools_with_gpus(settings.cluster)
    if smoke.pool not in pools:
        there = listed(sorted(with_gpus or pools))
        message = f"there is no node pool '{smoke.pool}'; name {there}"
        yield Problem((*where, "pool"), "unknown-pool", message)
    elif smoke.pool not in with_gpus:
        another = f"name {listed(with_gpus)}" if with_gpus else "remove it, since no pool has any"
        message = f"the pool '{smoke.pool}' has no GPUs; {another}"
        yield Problem((*where, "pool"), "pool-without-gpus", message)
    elif reason := _too_many_gpus(settings, smoke.pool, smoke.gpus):
        yield Problem((*where, "gpus"), "too-many-gpus", reason)
    else:
        for _, why in _short(settings, smoke.pool, {GPU: str(smoke.gpus)}):
            yield Problem((*where, "gpus"), "no-room", why)


def gpus_are_of_a_pool_with_gpus(settings: EksSettings) -> Iterator[Problem]:
    """A runner asks for no more GPUs than the plugin gives to one pod."""
    with_gpus = pools_with_gpus(settings.cluster)
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        if runner.gpus and pool not in with_gpus:
            another = f", or choose a pool that has: {listed(with_gpus)}" if with_gpus else ""
            message = f"the pool '{pool}' has no GPUs; request 0{another}"
            yield Problem(("runners", label, "gpus"), "pool-without-gpus", message)
        elif runner.gpus and (reason := _too_many_gpus(settings, pool, runner.gpus)):
            yield Problem(("runners", label, "gpus"), "too-many-gpus", reason)


def runners_fit_a_node(settings: EksSettings) -> Iterator[Problem]:
    """Some instance type of the pool has room for the runner."""
    with_gpus = pools_with_gpus(settings.cluster)
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        asked = requests_of(settings, runner)
        if runner.gpus and (pool not in with_gpus or _too_many_gpus(settings, pool, runner.gpus)):
            # Another rule has told of them.
            del asked[GPU]
        places: dict[str, Path] = {
            "cpu": ("runners", label, "cpu"),
            "memory": ("runners", label, "memory"),
            "ephemeral-storage": ("profiles", str(runner.profile), "ephemeralStorage"),
            GPU: ("runners", label, "gpus"),
        }
        selector, args = settings.profile(runner).node_selector, node_pool_args(pool, settings.cluster)
        types = selected_types(selector, args) if selector and args.gpu_counts is None else None
        if types is not None and not paused(args) and not any(within_limits(each, args) for each in types):
            labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            message = (
                f"no instance type of the pool '{pool}' within its limits has the labels {labels}; select others"
                ", or allow such types in the pool"
            )
            yield Problem(("profiles", str(runner.profile), "nodeSelector"), "selects-no-type", message)
        for resource, why in _short(settings, pool, asked, types):
            yield Problem(places.get(resource, ("runners", label)), "no-room", why)


def requests_of(settings: EksSettings, runner: Runner) -> dict[str, str]:
    """What one runner asks of its node."""
    asked = {
        "cpu": runner.cpu,
        "memory": runner.memory,
        "ephemeral-storage": settings.profile(runner).ephemeral_storage,
        GPU: str(runner.gpus) if runner.gpus else None,
    }
    return {resource: amount for resource, amount in asked.items() if amount is not None}


Rule = Callable[[EksSettings], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    karpenter_knows_the_kubernetes,
    the_cluster_is_possible,
    system_nodes_hold_karpenter,
    repair_has_the_agent,
    the_plugin_has_a_namespace_of_its_own,
    zones_are_the_networks,
    reservations_are_of_the_pool,
    pools_are_possible,
    labels_of_the_plugin_are_free,
    the_plugin_finds_its_nodes,
    bottlerocket_has_a_plugin_of_its_own,
)

RUNNER_RULES: tuple[Rule, ...] = (
    gpus_are_of_a_pool_with_gpus,
    runners_fit_a_node,
)
"""Rules about a runner and the nodes of its pool."""
