"""Rules across settings: what each setting allows by itself, but no cluster could keep together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal

from components.amd_gpu_device_plugin import PARTITIONS_PER_GPU
from stacks import quantity
from stacks.fault import Path, listed, near
from stacks.settings import NodePool, Runner, Settings, Taint

Breach = tuple[Path, str]
Rule = Callable[[Settings], Iterator[Breach]]


def broken(settings: Settings, withheld: Collection[Path] = ()) -> Iterator[Breach]:
    """Every rule that the settings break: where, and what to do.

    `withheld` are entries and sections that were left out of the settings, since they have mistakes of their own: they
    are declared all the same.
    """
    yield from references_exist(settings, withheld)
    for rule in RULES:
        yield from rule(settings)
    placed = {label: runner for label, runner in settings.runners.items() if _is_placed(settings, runner, withheld)}
    for rule in NODE_RULES:
        yield from rule(settings.model_copy(update={"runners": placed}))


def _is_placed(settings: Settings, runner: Runner, withheld: Collection[Path]) -> bool:
    """Whether it is certain which pool's nodes a runner has to fit; of the others, another rule has told."""
    if runner.profile is not None and runner.profile not in settings.profiles:
        return False
    pools, name = settings.cluster.node_pools, settings.profile(runner).pool
    if name is None:
        unknown = any(entry[:2] == ("cluster", "nodePools") or entry == ("cluster",) for entry in withheld)
        return len(pools) == 1 and not unknown
    return name in pools


def references_exist(settings: Settings, withheld: Collection[Path] = ()) -> Iterator[Breach]:
    """Projects, profiles and pools that are named are declared."""
    projects = _declared(settings.projects, ("projects",), withheld)
    profiles = _declared(settings.profiles, ("profiles",), withheld)
    pools = _declared(settings.cluster.node_pools, ("cluster", "nodePools"), withheld)
    for label, runner in settings.runners.items():
        if projects is not None and runner.project not in projects:
            yield ("runners", label, "project"), _undeclared("project", runner.project, projects, "projects")
        if profiles is not None and runner.profile is not None and runner.profile not in profiles:
            yield ("runners", label, "profile"), _undeclared("profile", runner.profile, profiles, "profiles")
    for name, profile in settings.profiles.items():
        if pools is not None and profile.pool is not None and profile.pool not in pools:
            yield ("profiles", name, "pool"), _undeclared("node pool", profile.pool, pools, "cluster.nodePools")


def _declared(sound: Iterable[str], section: Path, withheld: Collection[Path]) -> set[str] | None:
    """Names that a section declares; None when the section itself cannot be read."""
    if any(section[: len(entry)] == entry for entry in withheld):
        return None
    return {*sound, *(str(entry[-1]) for entry in withheld if entry[:-1] == section)}


def _undeclared(what: str, name: str, declared: Collection[str], section: str) -> str:
    wanted = near(name, declared)
    if wanted:
        return f"there is no {what} '{name}'; did you mean '{wanted}'?"
    there = f"there are: {', '.join(sorted(declared))}" if declared else "there are none"
    return f"there is no {what} '{name}', {there}; name another, or declare it under '{section}'"


def pool_is_chosen(settings: Settings) -> Iterator[Breach]:
    """Where a cluster has several pools, a runner's profile says which."""
    pools = settings.cluster.node_pools
    for label, runner in settings.runners.items():
        if runner.profile is not None and runner.profile not in settings.profiles:
            continue
        if len(pools) > 1 and settings.profile(runner).pool is None:
            where = f"profile '{runner.profile}'" if runner.profile else "a profile, and name that here"
            there = listed(sorted(pools), "and")
            yield ("runners", label, "profile"), f"no node pool is chosen among {there}; write one as 'pool' in {where}"


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
                f"{runner.gpus} does not divide a node of {devices} GPU{'s' * (devices > 1)}; use {listed(fitting)}",
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
        return f"{asked} is more than a node has; ask for at most {show(share)}"
    gpus = f"{runner.gpus} GPU{'s' * (runner.gpus > 1)}"
    return (
        f"{asked} is more than the share that goes with {gpus}: {fitting} such runners fill a node; "
        f"ask for at most {show(share)}"
    )


def a_node_takes_the_runner(settings: Settings) -> Iterator[Breach]:
    """Some node of the pool has the labels that a runner selects, and no taint that it does not tolerate."""
    for label, runner in settings.runners.items():
        profile, pool = settings.profile(runner), settings.pool(runner)
        selects = profile.node_selector.items()
        if not any(selects <= pool.node_labels(node).items() for node in pool.nodes.values()):
            pairs = ", ".join(f"{key}={value}" for key, value in sorted(profile.node_selector.items()))
            message = f"no node of the pool has the labels {pairs}; declare them in the pool's labels, or select less"
            yield ("profiles", str(runner.profile), "nodeSelector"), message
        for taint in pool.taints:
            if not _harmless(taint) and not any(toleration.tolerates(taint) for toleration in profile.tolerations):
                toleration = f"tolerations: [{{key: {taint.key}, operator: Exists}}]"
                yield (
                    ("profiles", runner.profile, "tolerations") if runner.profile else ("runners", label, "profile"),
                    f"nothing tolerates the pool's taint {_written(taint)}; "
                    f"add to {'it' if runner.profile else 'a profile, and name that here'}: {toleration}",
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
                f"NPS4 does not go with {partition.compute}; write compute: CPX, or memory: NPS1",
            )
    partitions = {_devices_alike(pool) for pool in settings.cluster.node_pools.values()}
    if len(partitions) > 1 and settings.device_plugin.resource_naming == "single":
        yield (
            ("devicePlugin", "resourceNaming"),
            "'single' names devices of every size amd.com/gpu, and the pools are partitioned differently; write mixed",
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
                yield (
                    (*where, "address"),
                    f"{node.address} is already the address of {seen[node.address]}; correct one of them",
                )
            if name in names:
                yield (
                    where,
                    f"a node of that name is already in the pool '{names[name]}'; a machine is in one pool only",
                )
            seen.setdefault(node.address, name)
            names.setdefault(name, pool_name)


def namespaces_are_apart(settings: Settings) -> Iterator[Breach]:
    """The controller and every project have namespaces of their own: credentials lie in them, and they go with the
    stack."""
    seen: dict[str, str] = {}
    # What is left out is not written anywhere, so that the device plugin's namespace comes first.
    owners: list[tuple[Path, str, str]] = [
        (("devicePlugin", "namespace"), settings.device_plugin.namespace, "the device plugin"),
        (("arc", "namespace"), settings.arc.namespace, "the ARC controller"),
        *((("projects", k, "namespace"), p.namespace, f"project '{k}'") for k, p in settings.projects.items()),
    ]
    for where, namespace, owner in owners:
        if namespace in seen:
            yield where, f"{namespace} is already the namespace of {seen[namespace]}; use another"
        elif namespace.startswith("kube-") and where[0] != "devicePlugin":
            yield where, f"{namespace} is Kubernetes' own, as all names with kube- are; use another"
        seen.setdefault(namespace, owner)


def volumes_are_free(settings: Settings) -> Iterator[Breach]:
    """Volumes of a profile have names and places that the runner's pod does not use itself, each its own."""
    names = ("work", "dind-sock", "dind-externals", "docker-data", "podinfo")
    for name, profile in settings.profiles.items():
        places = {"/home/runner/_work", "/home/runner/externals", "/var/run", "/etc/podinfo", profile.docker.data_root}
        for key, volume in profile.volumes.items():
            where: Path = ("profiles", name, "volumes", key)
            if key in names:
                yield where, f"the runner's pod has a volume '{key}' of its own; use another name"
            place = volume.mount_path.rstrip("/")
            if place in places:
                yield (*where, "mountPath"), f"{volume.mount_path} is mounted already; use another path"
            places.add(place)


RULES: tuple[Rule, ...] = (
    pool_is_chosen,
    min_is_at_most_max,
    partitions_are_possible,
    addresses_and_nodes_are_unique,
    namespaces_are_apart,
    volumes_are_free,
)

NODE_RULES: tuple[Rule, ...] = (
    gpus_divide_a_node,
    requests_fit_a_full_node,
    a_node_takes_the_runner,
)
"""Rules about a runner and its pool's nodes."""
