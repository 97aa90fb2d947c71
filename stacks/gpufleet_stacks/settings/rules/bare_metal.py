"""Rules for your own machines, and for runners on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from decimal import Decimal

from gpufleet import quantity
from gpufleet.amd.device_plugin import PARTITIONS_PER_GPU
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool
from gpufleet_stacks.settings.models.settings import Runner
from gpufleet_stacks.settings.problems import listed
from gpufleet_stacks.settings.rules import machines as machine_rules


def problems(
    settings: BareMetalSettings, placed: BareMetalSettings, withheld: Collection[Path] = ()
) -> Iterator[Problem]:
    """Yield problems of the cluster, and of the runners in `placed`, whose pool is known. Rules for all machines are
    skipped if the cluster has other problems, or if a part of it is withheld."""
    of_parts = [problem for rule in RULES for problem in rule(settings)]
    yield from of_parts
    if not of_parts and not any(entry[0] == "cluster" for entry in withheld):
        for of_all in machine_rules.MACHINE_RULES:
            yield from of_all(settings)
    for rule in NODE_RULES:
        yield from rule(placed)


def gpus_divide_a_node(settings: BareMetalSettings) -> Iterator[Problem]:
    """Require that a runner's GPUs divide a node evenly. Otherwise a full node keeps GPUs that no such runner can
    use."""
    for label, runner in settings.runners.items():
        devices = settings.pool(runner).accelerator.devices
        if runner.gpus and devices % runner.gpus:
            fitting = [str(count) for count in range(1, devices + 1) if devices % count == 0]
            message = (
                f"{runner.gpus} does not divide a node of {devices} GPU{'s' * (devices > 1)}; use {listed(fitting)}"
            )
            yield Problem(("runners", label, "gpus"), "gpus-do-not-divide", message)


def requests_fit_a_full_node(settings: BareMetalSettings) -> Iterator[Problem]:
    """Limit a runner's requests to the share of a node that goes with its GPUs. Otherwise GPUs would stay idle for lack
    of cores, memory or disk space. A runner without GPUs may request a whole node."""
    for label, runner in settings.runners.items():
        pool = settings.pool(runner)
        devices = pool.accelerator.devices
        if runner.gpus and devices % runner.gpus:
            continue
        storage = settings.profile(runner).ephemeral_storage
        for field, requested, allocatable, show in (
            ("cpu", runner.cpu, pool.allocatable.cpu, quantity.cores),
            ("memory", runner.memory, pool.allocatable.memory, quantity.gibibytes),
            ("ephemeralStorage", storage, pool.allocatable.ephemeral_storage, quantity.gibibytes),
        ):
            fitting = devices // runner.gpus if runner.gpus else 1
            share = quantity.parsed(allocatable) / fitting
            if requested is None or quantity.parsed(requested) <= share:
                continue
            where: Path = ("runners", label, field)
            if field == "ephemeralStorage" and runner.profile:
                where = ("profiles", runner.profile, field)
            yield Problem(where, "beyond-share", _too_much(requested, share, fitting, runner, show))


def _too_much(requested: str, share: Decimal, fitting: int, runner: Runner, show: Callable[[Decimal], str]) -> str:
    if fitting == 1:
        return f"{requested} is more than a node has; request at most {show(share)}"
    gpus = f"{runner.gpus} GPU{'s' * (runner.gpus > 1)}"
    return f"{requested} exceeds the share of {gpus}: {fitting} such runners fill a node; request at most {show(share)}"


def a_node_takes_the_runner(settings: BareMetalSettings) -> Iterator[Problem]:
    """Require that at least one node of the pool has the labels that a runner selects."""
    for runner in settings.runners.values():
        profile, pool = settings.profile(runner), settings.pool(runner)
        if not pool.selected_by(profile.node_selector):
            pairs = ", ".join(f"{key}={value}" for key, value in sorted(profile.node_selector.items()))
            message = f"no node of the pool has the labels {pairs}; add them to the pool's labels, or select fewer"
            yield Problem(("profiles", str(runner.profile), "nodeSelector"), "no-node-selected", message)


def partitions_are_possible(settings: BareMetalSettings) -> Iterator[Problem]:
    """Allow NPS4 with CPX only, and different partitioning only with `mixed` naming: with `single`, pods cannot tell
    the devices apart."""
    for name, pool in settings.cluster.node_pools.items():
        partition = pool.accelerator.partition
        if partition.memory == "NPS4" and partition.compute != "CPX":
            where: Path = ("cluster", "nodePools", name, "accelerator", "partition", "memory")
            message = f"NPS4 is not compatible with {partition.compute}; write compute: CPX, or memory: NPS1"
            yield Problem(where, "memory-partition", message)
    partitions = {_partitions_per_gpu(pool) for pool in settings.cluster.pools_of("amd").values()}
    if len(partitions) > 1 and settings.device_plugin.resource_naming == "single":
        message = "with 'single', all devices are amd.com/gpu, but the pools are partitioned differently; write mixed"
        yield Problem(("devicePlugin", "resourceNaming"), "partitions-of-one-name", message)


def _partitions_per_gpu(pool: NodePool) -> int:
    return PARTITIONS_PER_GPU[pool.accelerator.partition.compute]


def addresses_and_nodes_are_unique(settings: BareMetalSettings) -> Iterator[Problem]:
    """Allow each address and each node name once."""
    seen: dict[str, str] = {}
    names: dict[str, str] = {}
    for pool_name, pool in settings.cluster.node_pools.items():
        for name, node in pool.nodes.items():
            where: Path = ("cluster", "nodePools", pool_name, "nodes", name)
            if node.address in seen:
                message = f"{node.address} is already the address of {seen[node.address]}; correct one of them"
                yield Problem((*where, "address"), "address-twice", message)
            if name in names:
                message = f"the pool '{names[name]}' already has a node of this name; rename or remove one of them"
                yield Problem(where, "node-twice", message)
            seen.setdefault(node.address, name)
            names.setdefault(name, pool_name)


def maintenance_begins_before_it_ends(settings: BareMetalSettings) -> Iterator[Problem]:
    """Require that no maintenance ends before it begins."""
    for path, entry in settings.cluster.maintenance():
        if entry.from_ and entry.from_ > entry.until:
            message = f"{entry.until} is before its first day, {entry.from_}; correct one of the two"
            yield Problem((*path, "until"), "maintenance-ends-first", message)


Rule = Callable[[BareMetalSettings], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    partitions_are_possible,
    addresses_and_nodes_are_unique,
    maintenance_begins_before_it_ends,
    *machine_rules.RULES,
)

NODE_RULES: tuple[Rule, ...] = (
    gpus_divide_a_node,
    requests_fit_a_full_node,
    a_node_takes_the_runner,
)
"""Rules for a runner and its pool's nodes."""
