"""Findings about machines that somebody owns: what works today, and wears out or falls behind."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

from components.kubespray_cluster import folder_of
from components.kubespray_folder import Cluster
from components.kubespray_inventory import desired
from components.kubespray_rules import site_findings
from components.kubespray_steps import refusals
from components.nvidia_container_toolkit import ADVISORIES_REVIEWED, JIT_CDI_SINCE, advisories_of
from fleet.finding import Finding, names
from stacks.bare_metal_settings import BareMetalSettings
from stacks.kubespray_cluster import cluster_args
from stacks.kubespray_rules import STAND_IN_KEY, placed
from stacks.settings import Settings

_KUBESPRAY = ("cluster", "kubespray")


def clusters_across_sites(settings: BareMetalSettings) -> Iterator[Finding]:
    """`spans-sites`"""
    args = cluster_args(settings.cluster, STAND_IN_KEY)
    for text in site_findings(args) if args else ():
        yield Finding("spans-sites", "warning", *placed(text, settings.cluster, _KUBESPRAY))


def impossible_changes(settings: BareMetalSettings) -> Iterator[Finding]:
    """`impossible-change`: where this machine runs kubespray, its journal says what is in the cluster."""
    args = cluster_args(settings.cluster, STAND_IN_KEY)
    if args is None or args.runner is not None:
        return
    for text in refusals(Cluster(pathlib.Path(folder_of(args)).expanduser()).journal(), desired(args)):
        yield Finding("impossible-change", "error", *placed(text, settings.cluster, _KUBESPRAY))


def toolkit_advisories(settings: BareMetalSettings) -> Iterator[Finding]:
    """`toolkit-advisory`"""
    toolkit = settings.cluster.nvidia_container_toolkit
    if toolkit is None:
        return
    for advisory in advisories_of(toolkit.version):
        rated = f", which is {advisory.severity}" if advisory.severity else ""
        fixed = ".".join(map(str, advisory.fixed))
        too_new = toolkit.nvkind and advisory.fixed >= JIT_CDI_SINCE
        remedy = f"{fixed} is without it, and too new for nvkind" if too_new else f"use {fixed} or newer"
        yield Finding(
            "toolkit-advisory",
            "warning",
            ("cluster", "nvidiaContainerToolkit", "version"),
            f"{toolkit.version} has {advisory.identifier}{rated}; {remedy} (list of {ADVISORIES_REVIEWED:%Y-%m-%d})",
        )


RULES: tuple[Callable[[BareMetalSettings], Iterator[Finding]], ...] = (
    clusters_across_sites,
    impossible_changes,
    toolkit_advisories,
)


def findings(settings: Settings) -> Iterator[Finding]:
    """Every finding of a stack on machines that somebody owns; none of another."""
    if isinstance(settings, BareMetalSettings):
        for rule in RULES:
            yield from rule(settings)


NAMES = names(RULES)
"""Names that an acknowledgement can give."""
