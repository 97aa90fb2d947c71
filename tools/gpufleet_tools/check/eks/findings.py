"""Findings of a stack on EKS, by name."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.check.eks.access import (
    open_endpoint,
    reachable_node_role,
    readers_of_credentials,
    roles_of_others,
    unprotected_cluster,
)
from gpufleet_tools.check.eks.disks import (
    claims_without_class,
    first_pulls_without_nat,
    fruitless_fast_pulls,
    mutable_smoke_images,
    small_disks,
)
from gpufleet_tools.check.eks.disruption import (
    disturbed_jobs,
    endless_drain,
    hasty_removal,
    jobs_on_spot,
    short_grace_periods,
)
from gpufleet_tools.check.eks.gpus import efas_on_some_nodes, shared_gpus, undivided_requests, untainted_gpus
from gpufleet_tools.check.eks.purchases import (
    idle_reservations,
    idle_smoke,
    minimum_beyond_limits,
    paused_pools,
    unknown_region,
    unknown_reservations,
)
from gpufleet_tools.check.eks.system_nodes import addons_on_any_node, full_system_nodes, useless_prefixes
from gpufleet_tools.check.finding import Finding

RULES: Mapping[str, Callable[[EksSettings], Iterator[Finding]]] = {
    "disturbed-jobs": disturbed_jobs,
    "hasty-removal": hasty_removal,
    "endless-drain": endless_drain,
    "short-grace-period": short_grace_periods,
    "addon-on-any-node": addons_on_any_node,
    "jobs-on-spot": jobs_on_spot,
    "small-disk": small_disks,
    "fruitless-fast-pull": fruitless_fast_pulls,
    "several-shares": undivided_requests,
    "shared-gpu": shared_gpus,
    "efa-on-some-nodes": efas_on_some_nodes,
    "untainted-gpus": untainted_gpus,
    "reachable-node-role": reachable_node_role,
    "role-of-others": roles_of_others,
    "idle-reservations": idle_reservations,
    "unknown-reservation": unknown_reservations,
    "minimum-beyond-limits": minimum_beyond_limits,
    "paused-pool": paused_pools,
    "unknown-region": unknown_region,
    "smoke-holds-node": idle_smoke,
    "first-pull-without-nat": first_pulls_without_nat,
    "open-endpoint": open_endpoint,
    "claim-without-class": claims_without_class,
    "reads-credentials": readers_of_credentials,
    "useless-prefixes": useless_prefixes,
    "unprotected-cluster": unprotected_cluster,
    "full-system-nodes": full_system_nodes,
}
"""Rules, by the name of their findings."""


def findings(settings: Settings, today: datetime.date) -> Iterator[Finding]:
    """Yield the findings of a stack on EKS; none for other stacks."""
    if isinstance(settings, EksSettings):
        for rule in RULES.values():
            yield from rule(settings)
        # Not among RULES: the finding has the name of that about other images.
        yield from mutable_smoke_images(settings)


NAMES = frozenset(RULES)
"""Names that an acknowledgement can give."""
