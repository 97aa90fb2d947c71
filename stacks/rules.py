"""Rules across settings: what each setting allows by itself, but no cluster could keep together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

from components.amd_gpu_device_plugin import PARTITIONS_PER_GPU
from stacks import quantity
from stacks.fault import Path, nearest
from stacks.settings import NodePool, Runner, Settings, Taint

Breach = tuple[Path, str]
Rule = Callable[[Settings], Iterator[Breach]]


def broken(settings: Settings) -> Iterator[Breach]:
    """Every rule that the settings break: where, and what to do."""
    dangling = list(references_exist(settings))
    yield from dangling
    # The other rules follow references; a runner with a dangling one has been told so already.
    sound = settings.model_copy(
        update={"runners": {k: v for k, v in settings.runners.items() if not _dangles(settings, v)}}
    )
    for rule in RULES:
        yield from rule(sound)


def references_exist(settings: Settings) -> Iterator[Breach]:
    """Projects, profiles and pools that are named are declared."""
    for label, runner in settings.runners.items():
        if runner.project not in settings.projects:
            yield (
                ("runners", label, "project"),
                f"there is no project '{runner.project}'; {nearest(runner.project, settings.projects)}",
            )
        if runner.profile is not None and runner.profile not in settings.profiles:
            yield (
                ("runners", label, "profile"),
                f"there is no profile '{runner.profile}'; {nearest(runner.profile, settings.profiles)}",
            )
    pools = settings.cluster.node_pools
    for name, profile in settings.profiles.items():
        if profile.pool is not None and profile.pool not in pools:
            yield ("profiles", name, "pool"), f"there is no node pool '{profile.pool}'; {nearest(profile.pool, pools)}"


def _dangles(settings: Settings, runner: Runner) -> bool:
    if runner.project not in settings.projects:
        return True
    if runner.profile is not None and runner.profile not in settings.profiles:
        return True
    pool = settings.profile(runner).pool
    return pool is not None and pool not in settings.cluster.node_pools


def pool_is_chosen(settings: Settings) -> Iterator[Breach]:
    """Where a cluster has several pools, a runner's profile says which."""
    pools = settings.cluster.node_pools
    for label, runner in settings.runners.items():
        if len(pools) > 1 and settings.profile(runner).pool is None:
            yield (
                ("runners", label, "profile"),
                f"the cluster has {len(pools)} node pools; name one as 'pool' in a profile: {', '.join(sorted(pools))}",
            )


def min_is_at_most_max(settings: Settings) -> Iterator[Breach]:
    """A scale set keeps no more idle runners than it may have runners."""
    for label, runner in settings.runners.items():
        if runner.min > runner.max:
            yield (
                ("runners", label, "min"),
                f"{runner.min} is more than max, {runner.max}; lower min or raise max",
            )


def gpus_divide_a_node(settings: Settings) -> Iterator[Breach]:
    """GPUs of a runner leave no remainder on a node, so that a full node has no GPU that nobody can ask for."""
    for label, runner in settings.runners.items():
        devices = settings.pool(runner).accelerator.devices
        if runner.gpus and devices % runner.gpus:
            fitting = [str(count) for count in range(1, devices + 1) if devices % count == 0]
            yield (
                ("runners", label, "gpus"),
                f"{runner.gpus} does not divide a node of {devices} GPUs; "
                f"use {', '.join(fitting[:-1])} or {fitting[-1]}",
            )


def requests_fit_a_full_node(settings: Settings) -> Iterator[Breach]:
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
            yield where, _too_much(asked, share, fitting, runner, show)


def _too_much(asked: str, share: Decimal, fitting: int, runner: Runner, show: Callable[[Decimal], str]) -> str:
    if fitting == 1:
        return f"{asked} is more than a node has; at most {show(share)}"
    return (
        f"{asked} is more than the share of {runner.gpus} GPU{'s' * (runner.gpus > 1)}: "
        f"{fitting} such runners fill a node, and each has {show(share)}; at most {show(share)}"
    )


def a_node_takes_the_runner(settings: Settings) -> Iterator[Breach]:
    """Some node of the pool has the labels that a runner selects, and no taint that it does not tolerate."""
    for label, runner in settings.runners.items():
        profile, pool = settings.profile(runner), settings.pool(runner)
        owner: Path = ("profiles", runner.profile) if runner.profile else ("runners", label)
        selected = [
            name for name, node in pool.nodes.items() if profile.node_selector.items() <= pool.node_labels(node).items()
        ]
        if not selected:
            pairs = ", ".join(f"{key}={value}" for key, value in sorted(profile.node_selector.items()))
            yield (*owner, "nodeSelector"), f"no node of the pool has the labels {pairs}; label a node, or select less"
        for taint in pool.taints:
            if not _harmless(taint) and not any(toleration.tolerates(taint) for toleration in profile.tolerations):
                yield (
                    (*owner, "tolerations"),
                    f"nothing tolerates the pool's taint {_written(taint)}; "
                    f"add {{key: {taint.key}, operator: Exists}} to a profile",
                )


def _harmless(taint: Taint) -> bool:
    return taint.effect == "PreferNoSchedule"


def _written(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def partitions_are_possible(settings: Settings) -> Iterator[Breach]:
    """NPS4 goes with CPX only; under `single` naming all GPUs of the cluster's nodes look alike to a pod."""
    for name, pool in settings.cluster.node_pools.items():
        partition = pool.accelerator.partition
        if partition.memory == "NPS4" and partition.compute != "CPX":
            yield (
                ("cluster", "nodePools", name, "accelerator", "partition", "memory"),
                f"NPS4 does not go with {partition.compute}; use CPX, or NPS1",
            )
    partitions = {_devices_alike(pool) for pool in settings.cluster.node_pools.values()}
    if len(partitions) > 1 and settings.device_plugin.resource_naming == "single":
        yield (
            ("devicePlugin", "resourceNaming"),
            "'single' names devices of every size amd.com/gpu, and the pools are partitioned differently; use mixed",
        )


def _devices_alike(pool: NodePool) -> int:
    return PARTITIONS_PER_GPU[pool.accelerator.partition.compute]


def addresses_and_nodes_are_unique(settings: Settings) -> Iterator[Breach]:
    """A machine stands in one place only."""
    seen: dict[str, str] = {}
    names: dict[str, str] = {}
    for pool_name, pool in settings.cluster.node_pools.items():
        for name, node in pool.nodes.items():
            where: Path = ("cluster", "nodePools", pool_name, "nodes", name)
            if node.address in seen:
                yield (*where, "address"), f"{node.address} is already the address of {seen[node.address]}"
            if name in names:
                yield where, f"a node of that name is already in the pool {names[name]}"
            seen.setdefault(node.address, name)
            names.setdefault(name, pool_name)


def namespaces_are_apart(settings: Settings) -> Iterator[Breach]:
    """Every project has a namespace of its own, away from the controller's: credentials lie in it."""
    seen = {settings.arc.namespace: "the ARC controller"}
    for name, project in settings.projects.items():
        if project.namespace in seen:
            yield (
                ("projects", name, "namespace"),
                f"{project.namespace} is already the namespace of {seen[project.namespace]}; use another",
            )
        seen.setdefault(project.namespace, f"project '{name}'")


def volume_names_are_free(settings: Settings) -> Iterator[Breach]:
    """Volumes of a profile have names that the runner's pod does not use itself."""
    taken = ("work", "dind-sock", "dind-externals", "docker-data", "podinfo")
    for name, profile in settings.profiles.items():
        for volume in profile.volumes:
            if volume in taken:
                yield ("profiles", name, "volumes", volume), "the runner's pod has a volume of that name; use another"


RULES: tuple[Rule, ...] = (
    pool_is_chosen,
    min_is_at_most_max,
    gpus_divide_a_node,
    requests_fit_a_full_node,
    a_node_takes_the_runner,
    partitions_are_possible,
    addresses_and_nodes_are_unique,
    namespaces_are_apart,
    volume_names_are_free,
)
