"""Rules for every kind of stack that involve several settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, cast

from gpufleet import quantity
from gpufleet.arc import runner_releases
from gpufleet.arc.versions import minor_steps
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.models.taints import repelling
from gpufleet_stacks.settings.problems import listed, near
from gpufleet_stacks.settings.rules import profiles

Rule = Callable[[Settings], Iterator[Problem]]

STAND_IN = "stand-in"
"""Name of the valid pool or project that replaces all of a section's entries if all of them have problems."""


def problems(settings: Settings, withheld: Collection[Path] = ()) -> Iterator[Problem]:
    """Yield every problem of the settings.

    `withheld` are the entries and sections that are missing from the settings because they have problems themselves.
    They count as declared.
    """
    yield from references_exist(settings, withheld)
    for rule in RULES:
        yield from rule(settings)
    placed = {label: runner for label, runner in settings.runners.items() if _is_placed(settings, runner, withheld)}
    certain = settings.model_copy(update={"runners": placed})
    yield from taints_are_tolerated(certain)
    yield from _of_its_kind(settings, certain, withheld)


def _of_its_kind(settings: Settings, placed: Settings, withheld: Collection[Path]) -> Iterator[Problem]:
    """Yield problems by the rules for this kind of cluster. The other kind's rules are not imported."""
    if settings.cluster.kind == "eks":
        from gpufleet_stacks.settings.rules import eks as eks_rules

        return eks_rules.problems(cast(Any, settings), cast(Any, placed), withheld)
    from gpufleet_stacks.settings.rules import bare_metal as bare_metal_rules

    return bare_metal_rules.problems(cast(Any, settings), cast(Any, placed), withheld)


def _is_placed(settings: Settings, runner: Runner, withheld: Collection[Path]) -> bool:
    """Return whether a runner's pool is known. Another rule reports the runners whose pool is not."""
    if runner.profile is not None and runner.profile not in settings.profiles:
        return False
    pools, name = settings.cluster.node_pools, settings.profile(runner).pool
    if name is None:
        unknown = any(entry[:2] == ("cluster", "nodePools") or entry == ("cluster",) for entry in withheld)
        return len(pools) == 1 and not unknown
    return name in pools


def references_exist(settings: Settings, withheld: Collection[Path] = ()) -> Iterator[Problem]:
    """Require that referenced projects, profiles and pools exist."""
    projects = _declared(settings.projects, ("projects",), withheld)
    profiles = _declared(settings.profiles, ("profiles",), withheld)
    pools = _declared(settings.cluster.node_pools, ("cluster", "nodePools"), withheld)
    for label, runner in settings.runners.items():
        if projects is not None and runner.project not in projects:
            message = _undeclared("project", runner.project, projects, "projects")
            yield Problem(("runners", label, "project"), "unknown-project", message)
        if profiles is not None and runner.profile is not None and runner.profile not in profiles:
            message = _undeclared("profile", runner.profile, profiles, "profiles")
            yield Problem(("runners", label, "profile"), "unknown-profile", message)
    for name, profile in settings.profiles.items():
        if pools is not None and profile.pool is not None and profile.pool not in pools:
            message = _undeclared("node pool", profile.pool, pools, "cluster.nodePools")
            yield Problem(("profiles", name, "pool"), "unknown-pool", message)


def _declared(sound: Iterable[str], section: Path, withheld: Collection[Path]) -> set[str] | None:
    """Return the names that a section declares; None if the section itself has problems."""
    if any(section[: len(entry)] == entry for entry in withheld):
        return None
    return {*sound, *(str(entry[-1]) for entry in withheld if entry[:-1] == section)} - {STAND_IN}


def _undeclared(what: str, name: str, declared: Collection[str], section: str) -> str:
    wanted = near(name, declared)
    if wanted:
        return f"there is no {what} '{name}'; did you mean '{wanted}'?"
    another = f"use {listed(sorted(declared))}, or " if declared else ""
    return f"there is no {what} '{name}'; {another}declare it under '{section}'"


def pool_is_chosen(settings: Settings) -> Iterator[Problem]:
    """Require that a runner's profile names the pool if the cluster has several."""
    pools = settings.cluster.node_pools
    for label, runner in settings.runners.items():
        if runner.profile is not None and runner.profile not in settings.profiles:
            continue
        if len(pools) > 1 and settings.profile(runner).pool is None:
            where = f"profile '{runner.profile}'" if runner.profile else "a profile, and set that profile here"
            there = listed(sorted(pools))
            message = f"no node pool is chosen; set 'pool' to {there} in {where}"
            yield Problem(("runners", label, "profile"), "no-pool-chosen", message)


def min_is_at_most_max(settings: Settings) -> Iterator[Problem]:
    """Require that `min` is not greater than `max`."""
    for label, runner in settings.runners.items():
        if runner.min > runner.max:
            message = f"{runner.min} exceeds max ({runner.max}); lower min, or raise max"
            yield Problem(("runners", label, "min"), "min-above-max", message)


def taints_are_tolerated(settings: Settings) -> Iterator[Problem]:
    """Require that runners tolerate every taint of their pool."""
    for label, runner in settings.runners.items():
        for taint in repelling(settings.pool(runner).taints, settings.profile(runner).tolerations):
            toleration = f"tolerations: [{{key: {taint.key}, operator: Exists}}]"
            where: Path = (
                ("profiles", runner.profile, "tolerations") if runner.profile else ("runners", label, "profile")
            )
            add = "add:" if runner.profile else "add to a profile, and set that profile here:"
            message = f"the pool's taint {taint} is not tolerated; {add} {toleration}"
            yield Problem(where, "taint-not-tolerated", message)


def namespaces_are_apart(settings: Settings) -> Iterator[Problem]:
    """Require separate namespaces for the controller and for every project, because they contain credentials and are
    deleted with the stack."""
    seen: dict[str, str] = {}
    # Device plugins come first: their namespace is often a default without a line in the file, and conflicts are
    # reported at the later setting.
    owners: list[tuple[Path, str, str]] = [
        *settings.device_plugin_namespaces(),
        (("arc", "namespace"), settings.arc.namespace, "the ARC controller"),
        *((("projects", k, "namespace"), p.namespace, f"project '{k}'") for k, p in settings.projects.items()),
    ]
    for where, namespace, owner in owners:
        if namespace in seen:
            message = f"{namespace} is already the namespace of {seen[namespace]}; use another"
            yield Problem(where, "namespace-shared", message)
        elif namespace.startswith("kube-") and where[0] != "devicePlugin":
            message = f"{namespace} is reserved: names that begin with kube- belong to Kubernetes; use another"
            yield Problem(where, "namespace-of-kubernetes", message)
        seen.setdefault(namespace, owner)


def limits_cover_requests(settings: Settings) -> Iterator[Problem]:
    """Require limits of at least the requests; otherwise the API server rejects the pods."""
    for label, runner in settings.runners.items():
        for name, request in (("cpu", runner.cpu), ("memory", runner.memory)):
            limit = getattr(runner.limits, name)
            if limit is not None and quantity.parsed(limit) < quantity.parsed(request):
                message = f"{limit} is less than the {name} request ({request}); raise it, or lower the request"
                yield Problem(("runners", label, "limits", name), "limit-below-request", message)


def runner_versions_agree(settings: Settings) -> Iterator[Problem]:
    """Require that a declared runner version matches the one in the image reference."""
    for name, profile in settings.profiles.items():
        shown = runner_releases.known().version_of(profile.image)
        if profile.runner_version is not None and shown not in (None, profile.runner_version):
            message = f"is {profile.runner_version}, but {profile.image} contains runner {shown}; remove runnerVersion"
            yield Problem(("profiles", name, "runnerVersion"), "runner-version", message)


def upgrade_is_one_step(settings: Settings) -> Iterator[Problem]:
    """Require that an upgrade of ARC leads to another version, and spans at most one minor version."""
    installed, version = settings.arc.upgrade_from, settings.arc.version
    if installed is None:
        return
    if installed == version:
        message = f"{installed} is also arc.version; set it to the version that the cluster has, or remove it"
        yield Problem(("arc", "upgradeFrom"), "upgrade-to-itself", message)
    elif minor_steps(installed, version) > 1:
        message = f"{installed} → {version} spans several minor versions; upgrade to one after the other"
        yield Problem(("arc", "upgradeFrom"), "upgrade-of-several-minors", message)


RULES: tuple[Rule, ...] = (
    pool_is_chosen,
    min_is_at_most_max,
    namespaces_are_apart,
    limits_cover_requests,
    runner_versions_agree,
    upgrade_is_one_step,
    *profiles.RULES,
)
