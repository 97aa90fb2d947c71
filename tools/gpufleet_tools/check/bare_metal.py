"""Findings about stacks on bare metal."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable, Iterator, Mapping

from gpufleet import quantity
from gpufleet.bare_metal.container_toolkit import ADVISORIES_REVIEWED, JIT_CDI_SINCE, advisories_of
from gpufleet.bare_metal.kubespray.cluster import folder_of
from gpufleet.bare_metal.kubespray.driver.folder import Cluster
from gpufleet.bare_metal.kubespray.rules import change_problems, site_findings
from gpufleet_stacks.settings.args.machines import cluster_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, NodePool
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.models.taints import repelling
from gpufleet_stacks.settings.problems import listed
from gpufleet_stacks.settings.rules.machine_places import kubespray_places
from gpufleet_stacks.settings.rules.machines import STAND_IN_KEY
from gpufleet_tools.check.finding import Finding


def clusters_across_sites(settings: BareMetalSettings) -> Iterator[Finding]:
    args = cluster_args(settings.cluster, STAND_IN_KEY)
    for found in kubespray_places(settings.cluster).placed(site_findings(args)) if args else ():
        yield Finding("spans-sites", "warning", found.path, found.message)


def impossible_changes(settings: BareMetalSettings) -> Iterator[Finding]:
    """Yield changes that kubespray cannot make. The journal, which is compared with, is on kubespray's machine only."""
    args = cluster_args(settings.cluster, STAND_IN_KEY)
    if args is None or args.runner is not None:
        return
    journal = Cluster(pathlib.Path(folder_of(args)).expanduser()).journal()
    for problem in kubespray_places(settings.cluster).placed(change_problems(args, journal)):
        yield Finding("impossible-change", "error", problem.path, problem.message)


def toolkit_advisories(settings: BareMetalSettings) -> Iterator[Finding]:
    toolkit = settings.cluster.nvidia_container_toolkit
    if toolkit is None:
        return
    for advisory in advisories_of(toolkit.version):
        severity = f" ({advisory.severity})" if advisory.severity else ""
        fixed = ".".join(map(str, advisory.fixed))
        too_new = toolkit.nvkind and advisory.fixed >= JIT_CDI_SINCE
        remedy = f"{fixed} fixes it, but is too new for nvkind" if too_new else f"use {fixed} or newer"
        yield Finding(
            "toolkit-advisory",
            "warning",
            ("cluster", "nvidiaContainerToolkit", "version"),
            f"{toolkit.version} is affected by {advisory.identifier}{severity}; {remedy} (advisories reviewed on"
            f" {ADVISORIES_REVIEWED:%Y-%m-%d})",
        )


def runners_of_several_pools(settings: BareMetalSettings) -> Iterator[Finding]:
    """Yield runners whose pods the scheduler may also place on nodes of other pools. Capacity counts them in their own
    pool only."""
    for label, runner in settings.runners.items():
        pools = settings.cluster.node_pools
        others = [name for name in pools if name != settings.pool_name(runner) and _may_run_in(settings, runner, name)]
        if others:
            pool = settings.pool_name(runner)
            path = ("profiles", runner.profile, "nodeSelector") if runner.profile else ("runners", label)
            yield Finding(
                "several-pools",
                "error",
                path,
                f"pods of {label} can also run on nodes of pool {listed(others, 'and')}, where they take the place of"
                f" its jobs; select labels that only nodes of {pool} have",
            )


def _may_run_in(settings: BareMetalSettings, runner: Runner, name: str) -> bool:
    """Return whether a node of the pool would accept the runner. Affinities and patches of a profile are assumed to
    keep it out."""
    profile, pool = settings.profile(runner), settings.cluster.node_pools[name]
    if profile.affinity or profile.pod_template:
        return False
    if runner.gpus and settings.gpu_resource(name) != settings.gpu_resource(settings.pool_name(runner)):
        return False
    is_selected = bool(pool.selected_by(profile.node_selector))
    return is_selected and not repelling(pool.taints, profile.tolerations) and _holds(pool, runner)


def _holds(pool: NodePool, runner: Runner) -> bool:
    has = pool.allocatable
    amounts = ((runner.cpu, has.cpu), (runner.memory, has.memory))
    fits = all(quantity.parsed(asked) <= quantity.parsed(there) for asked, there in amounts)
    return fits and runner.gpus <= pool.accelerator.devices


def maintenance(settings: BareMetalSettings, today: datetime.date) -> Iterator[Finding]:
    """Yield maintenance whose expected last day is over, and the labels whose `max` a maintenance reduces."""
    for path, entry in settings.cluster.maintenance():
        if entry.until < today:
            message = (
                f"the maintenance was expected to end on {entry.until}, but still reduces capacity; remove the entry,"
                " or set a later date"
            )
            yield Finding("expired-maintenance", "warning", (*path, "until"), message)
    for label, runner in settings.runners.items():
        now, reason = settings.effective(label), settings.reduced_by(label)
        if reason and now.max < runner.max:
            message = f"reduced from {runner.max} to {now.max} until {reason.until}: {reason.why}"
            yield Finding("reduced-capacity", "note", ("runners", label, "max"), message)


RULES: Mapping[str, Callable[[BareMetalSettings], Iterator[Finding]]] = {
    "spans-sites": clusters_across_sites,
    "impossible-change": impossible_changes,
    "toolkit-advisory": toolkit_advisories,
    "several-pools": runners_of_several_pools,
}
"""Rules, by the name of their findings."""


def findings(settings: Settings, today: datetime.date) -> Iterator[Finding]:
    """Yield the findings of a stack on bare metal; none for other stacks."""
    if isinstance(settings, BareMetalSettings):
        for rule in RULES.values():
            yield from rule(settings)
        yield from maintenance(settings, today)


NAMES = frozenset(RULES) | {"expired-maintenance", "reduced-capacity"}
"""Names that an acknowledgement can give."""
