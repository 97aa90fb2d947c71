"""Rules for EFA interfaces of node pools, and for the runners that request them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.karpenter.node_pool_fit import instance_types_of
from gpufleet.problem import Path, Problem
from gpufleet_stacks.settings.args.node_pools import node_class, node_pool_args
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Runner


def pools_with_efa_are_possible(settings: EksSettings) -> Iterator[Problem]:
    """Require instance types with EFA interfaces, with `always` the same number of all."""
    for name, pool in settings.cluster.node_pools.items():
        if pool.efa is None:
            continue
        args, where = node_pool_args(name, settings.cluster), ("cluster", "nodePools", name, "efa")
        if args.gpu_counts is not None:
            if pool.efa == "always":
                message = (
                    "requires instance types of the built-in table, which instances.gpuCounts leaves; use onRequest"
                )
                yield Problem(where, "efa-unknown", message)
            continue
        types = instance_types_of(dataclasses.replace(args, node_class=node_class(name, settings.cluster)))
        counts = {each.efa.interfaces if each.efa else 0: each.name for each in reversed(types)}
        if types and not max(counts):
            message = "no instance type of the pool supports EFA; p4d, p5 and p5en do; choose other types, or remove it"
            yield Problem(where, "no-efa", message)
        elif pool.efa == "always" and len(counts) > 1:
            found = " and ".join(f"{number} ({example})" for number, example in sorted(counts.items()))
            message = (
                f"the pool's instance types have {found} EFA interfaces; restrict them to one number, or use onRequest"
            )
            yield Problem(where, "different-efas", message)


def efa_request(runner: Runner) -> Path:
    """Return the setting with a runner's EFA interfaces."""
    return ("profiles", str(runner.profile), "extendedResources", EFA)


def efas_are_of_a_pool_with_efa(settings: EksSettings) -> Iterator[Problem]:
    """Require EFA interfaces of the pool for runners that request some."""
    for runner in settings.runners.values():
        pool = settings.pool_name(runner)
        requested = settings.profile(runner).extended_resources.get(EFA)
        if requested and not settings.cluster.node_pools[pool].efa:
            message = f"the pool '{pool}' has no EFA interfaces; set its efa to onRequest or always"
            yield Problem(efa_request(runner), "pool-without-efa", message)
