"""Findings about instances that pools may or may not buy: reservations, limits and regions."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet import quantity
from gpufleet.aws.ec2.instance_types import instance_types, zones_of
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.problems import near
from gpufleet_tools.check.eks.pools import pools
from gpufleet_tools.check.finding import Finding


def idle_reservations(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        if pool.reservations and "reserved" not in pool.capacity:
            yield Finding(
                "idle-reservations",
                "warning",
                (*where, "reservations"),
                "are paid for but never used, because capacity does not include reserved; add it",
            )


def unknown_reservations(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        for index, reservation in enumerate(pool.reservations):
            if "reserved" in pool.capacity and reservation.holds is None:
                yield Finding(
                    "unknown-reservation",
                    "note",
                    (*where, "reservations", index),
                    "its instances are unknown: gpufleet capacity assumes that it holds any instance type of the pool,"
                    " and the sandbox does not simulate it; set holds",
                )


def minimum_beyond_limits(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in pools(settings):
        runners = [each for each in settings.runners.values() if settings.pool_name(each) == name]
        for resource, limit in (("cpu", pool.limits.cpu), ("memory", pool.limits.memory)):
            idle = sum(each.min * quantity.parsed(getattr(each, resource)) for each in runners)
            if limit is not None and idle > quantity.parsed(limit):
                yield Finding(
                    "minimum-beyond-limits",
                    "error",
                    (*where, "limits", resource),
                    f"idle runners request more than {limit}: some stay pending indefinitely; lower 'min' of the pool's"
                    " runners, or raise the limit",
                )


def paused_pools(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in pools(settings):
        waiting = sorted(label for label, runner in settings.runners.items() if settings.pool_name(runner) == name)
        if pool.paused:
            yield Finding(
                "paused-pool",
                "note",
                (*where, "limits"),
                f"a limit of zero: Karpenter provisions no node, and jobs wait ({', '.join(waiting) or 'no label'})",
            )


def unknown_region(settings: EksSettings) -> Iterator[Finding]:
    region = settings.cluster.region
    known = {zone[:-1] for zone in zones_of(instance_types()["m5.large"])}
    if settings.cluster.partition == "aws" and region not in known:
        meant = f"; did you mean '{found}'?" if (found := near(region, known)) else ""
        yield Finding(
            "unknown-region",
            "warning",
            ("cluster", "region"),
            f"{region} is not in the table of instance types; correct it, or set gpuCounts in every pool if the region"
            f" is newer than the table{meant}",
        )


def idle_smoke(settings: EksSettings) -> Iterator[Finding]:
    if settings.cluster.smoke_workload:
        yield Finding(
            "smoke-holds-node",
            "note",
            ("cluster", "smokeWorkload"),
            "its pods keep a GPU node even if there are no jobs; remove it after the test",
        )
