"""Rules for an EKS cluster and its node pools, and for runners on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gpufleet import quantity
from gpufleet.aws.ebs.storage_class_args import storage_class_problems
from gpufleet.aws.ec2.instance_types import InstanceType, instance_types, zones_of
from gpufleet.aws.ec2.requirements import matching
from gpufleet.aws.ecr.image_cache_args import image_cache_problems
from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.eks.cluster_args import EBS_CSI_DRIVER, NODE_MONITORING_AGENT
from gpufleet.aws.eks.cluster_rules import cluster_problems
from gpufleet.aws.eks.network_args import NetworkReference
from gpufleet.aws.eks.network_rules import network_problems
from gpufleet.aws.karpenter.node_pool_fit import fit, gpu_counts, paused, requirements, within_limits
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet.aws.karpenter.versions import version_problems
from gpufleet.nvidia.device_plugin import CONFIG_LABEL, GPU_LABEL, MPS_LABEL
from gpufleet.nvidia.sharing import GPU, Mig, largest_request, only_one_each
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings.args.eks import cluster_args, image_cache_args, network_args, storage_class_args
from gpufleet_stacks.settings.args.node_pools import (
    node_pool_args,
    plugin_pools,
    pools_with_gpus,
    selected_types,
    zones,
)
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.eks_cluster import SmokeWorkload
from gpufleet_stacks.settings.models.settings import Runner
from gpufleet_stacks.settings.problems import listed, near
from gpufleet_stacks.settings.rules.eks_efa import (
    efa_request,
    efas_are_of_a_pool_with_efa,
    pools_with_efa_are_possible,
)
from gpufleet_stacks.settings.rules.eks_places import (
    CLUSTER,
    NETWORK,
    image_cache_places,
    pool_places,
    storage_class_places,
)
from gpufleet_stacks.settings.system_requests import KARPENTER, system_node_room

REQUIRED = ("name", "region", "account", "kubernetesVersion", "network", "addons")
"""Settings of the cluster that are replaced by stand-ins while they have problems themselves."""


def problems(settings: EksSettings, placed: EksSettings, withheld: Collection[Path] = ()) -> Iterator[Problem]:
    """Yield problems of the cluster, and of the runners in `placed`, whose pool is known.

    Nothing is reported about settings that are `withheld`, or that depend on those: the zones of nodes, for example,
    depend on the network.
    """
    if any(("cluster", each) in withheld for each in REQUIRED):
        return
    found = [problem for rule in RULES for problem in rule(settings)]
    yield from found
    paths = [problem.path for problem in found]
    unknown = {path[2] for path in paths if path[:2] == _POOLS and _TYPE_SETTINGS.intersection(path[3:4])}
    certain = {label: runner for label, runner in placed.runners.items() if placed.pool_name(runner) not in unknown}
    for rule in RUNNER_RULES:
        yield from rule(placed.model_copy(update={"runners": certain}))
    smoke = settings.cluster.smoke_workload
    withheld_pools = any(entry[:2] == _POOLS for entry in withheld)
    if smoke and smoke.pool not in unknown and (smoke.pool in settings.cluster.node_pools or not withheld_pools):
        yield from the_smoke_workload_has_a_place(settings, smoke)


_POOLS = ("cluster", "nodePools")
_TYPE_SETTINGS = frozenset({"instances", "requirements", "zones"})
"""Settings that determine a pool's instance types. If one has a problem, the capacity of its nodes is unknown."""


# -- the cluster ------------------------------------------------------------------------------------------------------


def karpenter_knows_the_kubernetes(settings: EksSettings) -> Iterator[Problem]:
    """Require a Karpenter version that supports the Kubernetes version."""
    cluster = settings.cluster
    yield from CLUSTER.placed(version_problems(cluster.kubernetes_version, cluster.karpenter.version))


def the_cluster_is_possible(settings: EksSettings) -> Iterator[Problem]:
    """Yield problems that AWS would only report in the middle of an update."""
    cluster, network = settings.cluster, settings.cluster.network
    if network.kind == "own":
        yield from NETWORK.placed(network_problems(network_args(cluster, network)))
    subnets = {zone: zone for zone in zones(cluster)}
    cidr = network.cidr if network.kind == "own" else ""
    reference = NetworkReference(
        vpc_id="", private_subnets=subnets, control_plane_zones=network.control_plane_zones, cidr=cidr
    )
    found = cluster_problems(cluster_args(cluster, reference))
    # The zones of an own network have been checked above.
    yield from CLUSTER.placed(each for each in found if not (network.kind == "own" and each.path[0] == "network"))


def system_nodes_hold_karpenter(settings: EksSettings) -> Iterator[Problem]:
    """Require a known instance type that is offered in the network's zones, and that holds one replica of Karpenter."""
    name, where = settings.cluster.system_nodes.instance_type, ("cluster", "systemNodes", "instanceType")
    kind = instance_types().get(name)
    if kind is None:
        meant = near(name, instance_types())
        another = f"did you mean '{meant}'?" if meant else "use another, for example m6i.large"
        yield Problem(where, "unknown-instance-type", f"the table of EC2 instance types has no {name}; {another}")
        return
    covered = any(zone.startswith(settings.cluster.region) for zone in zones_of(instance_types()["m5.large"]))
    if covered and not set(zones_of(kind)).intersection(zones(settings.cluster)):
        there = listed(zones(settings.cluster), "and")
        message = f"{name} is not offered in the zones of the network ({there}); choose another type"
        yield Problem(where, "not-offered-here", message)
    room, requested = system_node_room(settings) or {}, KARPENTER.requests
    if any(quantity.parsed(amount) > room.get(resource, 0) for resource, amount in requested.items()):
        message = (
            f"{name} has no room for a replica of Karpenter ({requested['cpu']} core, {requested['memory']}) and the"
            " DaemonSets of the addons; use a larger type, for example m6i.large"
        )
        yield Problem(where, "no-room-for-karpenter", message)


def repair_has_the_agent(settings: EksSettings) -> Iterator[Problem]:
    """Require the monitoring agent for node repair. Without it, Karpenter only sees the kubelet's own node conditions
    (`RepairPolicies` in pkg/cloudprovider/cloudprovider.go of aws/karpenter-provider-aws at v1.14.1)."""
    if settings.cluster.karpenter.node_repair and NODE_MONITORING_AGENT not in settings.cluster.addons:
        message = (
            f"requires the add-on {NODE_MONITORING_AGENT}, which reports faults of GPUs, kernel, network and disks; add"
            " it to addons with its version"
        )
        yield Problem(("cluster", "karpenter", "nodeRepair"), "repair-without-agent", message)


def the_image_cache_is_possible(settings: EksSettings) -> Iterator[Problem]:
    """Yield problems of the pull-through cache."""
    if settings.cluster.image_cache:
        found = image_cache_problems(image_cache_args(settings.cluster))
        yield from image_cache_places(settings.cluster).placed(found)


def storage_classes_are_possible(settings: EksSettings) -> Iterator[Problem]:
    """Require the EBS CSI driver, performance that AWS allows, and at most one default class."""
    classes, where = settings.cluster.storage_classes, ("cluster", "storageClasses")
    if classes and EBS_CSI_DRIVER not in settings.cluster.addons:
        message = f"requires the add-on {EBS_CSI_DRIVER}, which creates the volumes; add it to addons with its version"
        yield Problem(where, "storage-class-without-driver", message)
    for name, storage_class in classes.items():
        problems = storage_class_problems(storage_class_args(name, storage_class))
        yield from storage_class_places(name).placed(problems)
    first, *others = [name for name, each in classes.items() if each.default] or [""]
    for name in others:
        message = f"'{first}' is already the default class; only one is allowed; write false"
        yield Problem((*where, name, "default"), "two-default-classes", message)


def the_plugin_has_a_namespace_of_its_own(settings: EksSettings) -> Iterator[Problem]:
    """Reject the namespace `default` for the plugin, because the stack deletes the plugin's namespace."""
    if settings.nvidia_plugin.namespace == "default":
        message = "default exists in every cluster, and would be deleted with the stack; use another"
        yield Problem(("nvidiaPlugin", "namespace"), "namespace-of-kubernetes", message)


# -- node pools -------------------------------------------------------------------------------------------------------


def zones_are_the_networks(settings: EksSettings) -> Iterator[Problem]:
    """Require that a pool's zones are zones of the cluster's network."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        for index, zone in enumerate(pool.zones):
            if zone not in zones(cluster):
                message = f"the network has no zone {zone}; use {listed(zones(cluster))}"
                yield Problem((*_POOLS, name, "zones", index), "zone-of-no-network", message)


def reservations_are_of_the_pool(settings: EksSettings) -> Iterator[Problem]:
    """Require that the pool allows the type and zone of reserved instances. Karpenter would never use others."""
    cluster = settings.cluster
    for name, pool in cluster.node_pools.items():
        args = node_pool_args(name, cluster)
        for index, reservation in enumerate(pool.reservations):
            where: Path = (*_POOLS, name, "reservations", index, "holds")
            if not (holds := reservation.holds):
                continue
            if holds.instance_type not in instance_types():
                if args.gpu_counts is None:
                    message = f"the table of EC2 instance types has no {holds.instance_type}; correct it"
                    yield Problem((*where, "instanceType"), "unknown-instance-type", message)
            elif not any(each.name == holds.instance_type for each in matching(requirements(args), reserved=True)):
                message = f"the pool's instances exclude {holds.instance_type}; allow it, or remove the reservation"
                yield Problem((*where, "instanceType"), "reserved-type-excluded", message)
            if holds.zone not in (there := pool.zones or zones(cluster)):
                message = (
                    f"the pool uses {listed(there, 'and')}, not {holds.zone}; add that zone, or remove the reservation"
                )
                yield Problem((*where, "zone"), "reserved-zone-excluded", message)


def pools_are_possible(settings: EksSettings) -> Iterator[Problem]:
    """Yield problems that Karpenter would reject, or accept although no node could start."""
    cluster = settings.cluster
    for name in cluster.node_pools:
        yield from pool_places(name, cluster).placed(node_pool_problems(node_pool_args(name, cluster)))


def labels_of_the_plugin_are_free(settings: EksSettings) -> Iterator[Problem]:
    """Reject labels that select a configuration of GPU sharing; the program sets them itself."""
    for name, pool in settings.cluster.node_pools.items():
        for key in (CONFIG_LABEL, MPS_LABEL):
            if key in pool.labels:
                message = f"{key} is set by 'sharing'; remove it"
                yield Problem((*_POOLS, name, "labels", key), "label-of-sharing", message)


def the_plugin_finds_its_nodes(settings: EksSettings) -> Iterator[Problem]:
    """Require the label by which the device plugin selects nodes with GPUs. Nothing else sets it: the plugin's feature
    discovery only runs on nodes that already have it (templates/daemonset-gfd.yml of its chart at 0.20.0)."""
    for name in plugin_pools(settings.cluster):
        if settings.cluster.node_pools[name].labels.get(GPU_LABEL) != "true":
            message = (
                f"the label {GPU_LABEL} is missing; the device plugin runs only on nodes with it, and others offer no"
                f' GPUs; add: {GPU_LABEL}: "true"'
            )
            yield Problem((*_POOLS, name, "labels"), "plugin-label-missing", message)


def bottlerocket_has_a_plugin_of_its_own(settings: EksSettings) -> Iterator[Problem]:
    """Keep the device plugin's DaemonSet off Bottlerocket nodes with GPUs, whose images include the plugin."""
    served = plugin_pools(settings.cluster)
    for name in (each for each in pools_with_gpus(settings.cluster) if each not in served):
        if settings.cluster.node_pools[name].labels.get(GPU_LABEL) == "true":
            message = (
                "selects nodes for the device plugin of this stack, which conflicts with the one in Bottlerocket's GPU"
                " images; remove the label"
            )
            yield Problem((*_POOLS, name, "labels", GPU_LABEL), "two-device-plugins", message)


# -- workloads --------------------------------------------------------------------------------------------------------


def _too_many_gpus(settings: EksSettings, pool: str, gpus: int) -> str | None:
    """Return why no pod can get this number of GPUs in a pool with GPUs; None if it can."""
    args = node_pool_args(pool, settings.cluster)
    most = largest_request(max(gpu_counts(args)), args.sharing)
    if gpus <= most:
        return None
    if isinstance(args.sharing, Mig):
        return f"{gpus} exceeds 1; a job can use only one MIG instance, even if it gets several; request 1"
    if only_one_each(args.sharing):
        return f"{gpus} exceeds 1; further shares of the same GPU give no more GPU time; request 1"
    return f"{gpus} is more than the largest node of the pool '{pool}' has; request at most {most}"


def _short(
    settings: EksSettings, pool: str, requested: Mapping[str, str], types: Sequence[InstanceType] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield each requested resource that fits no node of the pool besides its DaemonSets, with a message. The resource
    is empty if only the combination does not fit.

    Pools with types newer than the table are not checked.
    """
    if settings.cluster.node_pools[pool].instances.gpu_counts is not None:
        return
    found = fit(requested, node_pool_args(pool, settings.cluster), daemon_requests(settings, pool), types)
    larger = "or allow larger types in the pool"
    for short in found.shortages:
        in_bytes = short.resource in ("memory", "ephemeral-storage")
        most = quantity.gibibytes(short.room) if in_bytes else quantity.cores(short.room)
        yield (
            short.resource,
            f"{requested.get(short.resource, '1')} does not fit a node of the pool '{pool}': its largest type,"
            f" {short.largest}, has room for {most}; request at most that, {larger}",
        )
    if found.reason and not found.shortages:
        each = listed([f"{resource} {amount}" for resource, amount in requested.items()], "and")
        yield (
            "",
            f"no node of the pool '{pool}' has room for {each} together, although each fits alone; request less,"
            f" {larger}",
        )


def the_smoke_workload_has_a_place(settings: EksSettings, smoke: SmokeWorkload) -> Iterator[Problem]:
    """Require that the smoke workload's pods fit its pool."""
    pools, where = settings.cluster.node_pools, ("cluster", "smokeWorkload")
    with_gpus = pools_with_gpus(settings.cluster)
    if smoke.pool not in pools:
        there = listed(sorted(with_gpus or pools))
        message = f"there is no node pool '{smoke.pool}'; use {there}"
        yield Problem((*where, "pool"), "unknown-pool", message)
    elif smoke.pool not in with_gpus:
        another = f"use {listed(with_gpus)}" if with_gpus else "remove smokeWorkload, because no pool has any"
        message = f"the pool '{smoke.pool}' has no GPUs; {another}"
        yield Problem((*where, "pool"), "pool-without-gpus", message)
    elif reason := _too_many_gpus(settings, smoke.pool, smoke.gpus):
        yield Problem((*where, "gpus"), "too-many-gpus", reason)
    else:
        for _, why in _short(settings, smoke.pool, {GPU: str(smoke.gpus)}):
            yield Problem((*where, "gpus"), "no-room", why)


def gpus_are_of_a_pool_with_gpus(settings: EksSettings) -> Iterator[Problem]:
    """Limit a runner's GPUs to the number that the plugin gives to one pod."""
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
    """Require that at least one instance type of the pool holds the runner."""
    with_gpus = pools_with_gpus(settings.cluster)
    for label, runner in settings.runners.items():
        pool = settings.pool_name(runner)
        requested = requests_of(settings, runner)
        if runner.gpus and (pool not in with_gpus or _too_many_gpus(settings, pool, runner.gpus)):
            # Another rule reports these.
            del requested[GPU]
        places: dict[str, Path] = {
            "cpu": ("runners", label, "cpu"),
            "memory": ("runners", label, "memory"),
            "ephemeral-storage": ("profiles", str(runner.profile), "ephemeralStorage"),
            GPU: ("runners", label, "gpus"),
            EFA: efa_request(runner),
        }
        selector, args = settings.profile(runner).node_selector, node_pool_args(pool, settings.cluster)
        types = selected_types(selector, args) if selector and args.gpu_counts is None else None
        if types is not None and not paused(args) and not any(within_limits(each, args) for each in types):
            labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            message = (
                f"no instance type of the pool '{pool}' within its limits has the labels {labels}; select others,"
                " or allow such types in the pool"
            )
            yield Problem(("profiles", str(runner.profile), "nodeSelector"), "selects-no-type", message)
        for resource, why in _short(settings, pool, requested, types):
            yield Problem(places.get(resource, ("runners", label)), "no-room", why)


def requests_of(settings: EksSettings, runner: Runner) -> dict[str, str]:
    """Return the requests of one runner, by resource."""
    requests = {
        "cpu": runner.cpu,
        "memory": runner.memory,
        "ephemeral-storage": settings.profile(runner).ephemeral_storage,
        GPU: str(runner.gpus) if runner.gpus else None,
        EFA: str(efas) if (efas := settings.profile(runner).extended_resources.get(EFA)) else None,
    }
    return {resource: amount for resource, amount in requests.items() if amount is not None}


Rule = Callable[[EksSettings], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    karpenter_knows_the_kubernetes,
    the_cluster_is_possible,
    system_nodes_hold_karpenter,
    repair_has_the_agent,
    storage_classes_are_possible,
    the_image_cache_is_possible,
    the_plugin_has_a_namespace_of_its_own,
    zones_are_the_networks,
    reservations_are_of_the_pool,
    pools_are_possible,
    pools_with_efa_are_possible,
    labels_of_the_plugin_are_free,
    the_plugin_finds_its_nodes,
    bottlerocket_has_a_plugin_of_its_own,
)

RUNNER_RULES: tuple[Rule, ...] = (
    gpus_are_of_a_pool_with_gpus,
    efas_are_of_a_pool_with_efa,
    runners_fit_a_node,
)
"""Rules for a runner and the nodes of its pool."""
