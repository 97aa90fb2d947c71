"""Findings about nodes that go away while jobs run on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.check.eks.pools import pools
from gpufleet_tools.check.finding import Finding


def disturbed_jobs(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        policy = pool.disruption.consolidation_policy
        if policy != "WhenEmpty":
            yield Finding(
                "disturbed-jobs",
                "warning",
                (*where, "disruption", "consolidationPolicy"),
                f"{policy} evicts running pods to consolidate nodes; only runner pods are marked do-not-disrupt; use"
                " WhenEmpty",
            )


def hasty_removal(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        if pool.disruption.consolidate_after in ("0s", "0m", "0h"):
            yield Finding(
                "hasty-removal",
                "warning",
                (*where, "disruption", "consolidateAfter"),
                "an empty node is removed at once, and the next job waits for a new one; use 30s or more",
            )


def endless_drain(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        if pool.termination_grace_period is None and pool.expire_after != "Never":
            yield Finding(
                "endless-drain",
                "warning",
                where,
                f"nodes expire after {pool.expire_after}, but without a terminationGracePeriod they wait indefinitely"
                " for pods marked do-not-disrupt; set it to the duration of the longest job",
            )


_LONGEST_JOB = Decimal(6 * 3600)
"""Seconds that GitHub lets a job run unless its workflow says otherwise: the default of `timeout-minutes` is 360
(GitHub's "Workflow syntax for GitHub Actions")."""


_SECONDS = {"s": 1, "m": 60, "h": 3600}


def short_grace_periods(settings: EksSettings) -> Iterator[Finding]:
    """Karpenter kills what still runs when the period is over."""
    for name, where, pool in pools(settings):
        used = any(settings.pool_name(runner) == name for runner in settings.runners.values())
        period = pool.termination_grace_period
        if used and period is not None and _seconds(period) < _LONGEST_JOB:
            yield Finding(
                "short-grace-period",
                "warning",
                (*where, "terminationGracePeriod"),
                f"{period} is shorter than 6h, the default of a job's timeout-minutes; jobs on an expired or replaced"
                " node are killed after it; set at least the length of the longest job",
            )


def _seconds(period: str) -> Decimal:
    return sum(
        (Decimal(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([smh])", period)), Decimal(0)
    )


def jobs_on_spot(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in pools(settings):
        used = any(settings.pool_name(runner) == name for runner in settings.runners.values())
        if used and "spot" in pool.capacity:
            fallback = "" if "on-demand" in pool.capacity else "; there is no on-demand capacity as a fallback"
            yield Finding(
                "jobs-on-spot",
                "note" if not fallback else "warning",
                (*where, "capacity"),
                "AWS interrupts spot instances with two minutes' notice, and their jobs are lost" + fallback,
            )
