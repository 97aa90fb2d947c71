"""Rules about machines that somebody owns, and about runners on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from decimal import Decimal

from gpufleet.amd.device_plugin import PARTITIONS_PER_GPU
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool
from gpufleet_stacks.settings.models.settings import Runner
from gpufleet_stacks.settings.problems import listed
from gpufleet_stacks.settings.rules import machines as machine_rules


def problems(
    settings: BareMetalSettings, placed: BareMetalSettings, withheld: Collection[Path] = ()
) -> Iterator[Problem]:
    """Yield problems of the cluster, and of those runners of which it is certain where they run. Rules about all
    machines are silent where the cluster itself has problems, or a part of it is withheld."""
    of_parts = [problem for rule in RULES for problem in rule(settings)]
    yield from of_parts
    if not of_parts and not any(entry[0] == "cluster" for entry in withheld):
        for of_all in machine_rules.MACHINE_RULES:
            yield from of_all(settings)
    for rule in NODE_RULES:
        yield from rule(placed)


def gpus_divide_a_node(settings: BareMetalSettings) -> Iterator[Problem]:
    """GPUs of a runner leave no remainder on a node, so that a full node has no GPU that nobody can ask for."""
    for label, runner in settings.runners.items():
        devices = settings.pool(runner).accelerator.devices
        if runner.gpus and devices % runner.gpus:
            fitting = [str(count) for count in range(1, devices + 1) if devices % count == 0]
            message = (
                f"{runner.gpus} does not divide a node of {devices} GPU{'s' * (devices > 1)}; use {listed(fitting)}"
            )
            yield Problem(("runners", label, "gpus"), "gpus-do-not-divide", message)


def requests_fit_a_full_node(settings: BareMetalSettings) -> Iterator[Problem]:
    """A runner asks for no more of a node than goes with its GPUs, so that GPUs never lie idle for want of cores,
    memory or disk; a runner without GPUs asks for no more than a node has."""
    for label, runner in settings.runners.items():
        pool = settings.pool(runner)
        devices = pool.accelerator.devices
        if runner.gpus and devices % runner.gpus:
            continue
        storage = settings.profile(runner).ephemeral_storage
        for field, asked, has, show in (
            ("cpu", runner.cpu, pool.allocatable.cpu, quantity.cores),
            ("memory", runner.memory, pool.allocatable.memory, quantity.gibibytes),
            ("ephemeralStorage", storage, pool.allocatable.ephemeral_storage, quantity.gibibytes),
        ):
            fitting = devices // runner.gpus if runner.gpus else 1
            share = quantity.parse(has) / fitting
            if asked is None or quantity.parse(asked) <= share:
                continue
            where: Path = ("runners", label, field)
            if field == "ephemeralStorage" and runner.profile:
                where = ("profiles", runner.profile, field)
            yield Problem(where, "beyond-share", _too_much(asked, share, fitting, runner, show))


def _too_much(asked: str, share: Decimal, fitting: int, runner: Runner, show: Callable[[Decimal], str]) -> str:
    if fitting == 1:
        return f"{asked} is more than a node has; request at most {show(share)}"
    gpus = f"{runner.gpus} GPU{'s' * (runner.gpus > 1)}"
    return f"{asked} exceeds the share of {gpus}: {fitting} such runners fill a node; request at most {show(share)}"


def a_node_takes_the_runner(settings: BareMetalSettings) -> Iterator[Problem]:
    """Some node of the pool has the labels that a runner selects."""
    for runner in settings.runners.values():
        profile, pool = settings.profile(runner), settings.pool(runner)
        selects = profile.node_selector.items()
        if not any(selects <= pool.node_labels(node).items() for node in pool.nodes.values()):
            pairs = ", ".join(f"{key}={value}" for key, value in sorted(profile.node_selector.items()))
            message = f"no node of the pool has the labels {pairs}; declare them in the pool's labels, or select less"
            yield Problem(("profiles", str(runner.profile), "nodeSelector"), "no-node-selected", message)


def partitions_are_possible(settings: BareMetalSettings) -> Iterator[Problem]:
    """NPS4 goes with CPX only; under `single` naming all GPUs of the cluster's nodes look alike to a pod."""
    for name, pool in settings.cluster.node_pools.items():
        partition = pool.accelerator.partition
        if partition.memory == "NPS4" and partition.compute != "CPX":
            where: Path = ("cluster", "nodePools", name, "accelerator", "partition", "memory")
            message = f"NPS4 is not compatible with {partition.compute}; write compute: CPX, or memory: NPS1"
            yield Problem(where, "memory-partition", message)
    partitions = {_devices_alike(pool) for pool in settings.cluster.pools_of("amd").values()}
    if len(partitions) > 1 and settings.device_plugin.resource_naming == "single":
        message = (
            "'single' gives partitions of every size the name amd.com/gpu, but the pools are partitioned differently;"
            " write mixed"
        )
        yield Problem(("devicePlugin", "resourceNaming"), "partitions-of-one-name", message)


def _devices_alike(pool: NodePool) -> int:
    return PARTITIONS_PER_GPU[pool.accelerator.partition.compute]


def addresses_and_nodes_are_unique(settings: BareMetalSettings) -> Iterator[Problem]:
    """A machine stands in one place only."""
    seen: dict[str, str] = {}
    names: dict[str, str] = {}
    for pool_name, pool in settings.cluster.node_pools.items():
        for name, node in pool.nodes.items():
            where: Path = ("cluster", "nodePools", pool_name, "nodes", name)
            if node.address in seen:
                message = f"{node.address} is already the address of {seen[node.address]}; correct one of them"
                yield Problem((*where, "address"), "address-twice", message)
            if name in names:
                message = f"a node of that name is already in the pool '{names[name]}'; a machine belongs to one pool"
                yield Problem(where, "node-twice", message)
            seen.setdefault(node.address, name)
            names.setdefault(name, pool_name)


Rule = Callable[[BareMetalSettings], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    partitions_are_possible,
    addresses_and_nodes_are_unique,
    *machine_rules.RULES,
)

NODE_RULES: tuple[Rule, ...] = (
    gpus_divide_a_node,
    requests_fit_a_full_node,
    a_node_takes_the_runner,
)
"""Rules about a runner and its pool's nodes."""
