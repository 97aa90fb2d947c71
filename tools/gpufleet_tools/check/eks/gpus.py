"""Findings about GPUs that several jobs or any pod may use."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.aws.efa.interfaces import EFA
from gpufleet.aws.karpenter.node_pool_fit import gpu_counts
from gpufleet.nvidia.sharing import GPU
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.karpenter import Sharing
from gpufleet_tools.check.eks.pools import pools
from gpufleet_tools.check.finding import Finding


def undivided_requests(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        sliced = pool.sharing.time_slicing if pool.sharing else None
        if sliced and not sliced.fail_requests_greater_than_one:
            yield Finding(
                "several-shares",
                "warning",
                (*where, "sharing", "timeSlicing", "failRequestsGreaterThanOne"),
                "a pod that requests two shares may get both on one GPU, without more time on it; set it to true",
            )


def shared_gpus(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in pools(settings):
        if pool.sharing:
            jobs = f"up to {settings.shares(name)} jobs share one GPU"
            yield Finding("shared-gpu", "note", (*where, "sharing"), f"{jobs}{_isolation(pool.sharing)}")


def _isolation(sharing: Sharing) -> str:
    """Return the isolation between jobs on one GPU, as the end of a message."""
    if sharing.mig:
        return (
            ", each with its own GPU instance: memory and faults are isolated; userData or the AMI must create the"
            f" {sharing.mig.profile} instances before the kubelet starts, or nodes offer whole GPUs"
        )
    if sharing.mps:
        return ", each with an equal part of its memory; a fault of one can end all; NVIDIA calls MPS experimental"
    return " without isolation: one can use all of its memory, and a fault of one can end all"


def efas_on_some_nodes(settings: EksSettings) -> Iterator[Finding]:
    """Karpenter attaches EFA interfaces to nodes that it starts for pods which request some
    (`getEFACountForInstance` in pkg/providers/instance/instance.go of aws/karpenter-provider-aws at v1.14.1)."""
    for name, where, pool in pools(settings):
        labels = {label: each for label, each in settings.runners.items() if settings.pool_name(each) == name}
        without = [label for label, each in labels.items() if not settings.profile(each).extended_resources.get(EFA)]
        if pool.efa == "onRequest" and without:
            message = (
                f"nodes that start for {', '.join(without)} have no EFA interfaces, so that other labels cannot use"
                " them; set it to always, use a pool of their own, or have them request vpc.amazonaws.com/efa"
            )
            yield Finding("efa-on-some-nodes", "warning", (*where, "efa"), message)


def untainted_gpus(settings: EksSettings) -> Iterator[Finding]:
    for name, where, pool in pools(settings):
        taken = any(taint.effect != "PreferNoSchedule" for taint in pool.taints)
        if not taken and gpu_counts(node_pool_args(name, settings.cluster)):
            yield Finding(
                "untainted-gpus",
                "warning",
                where,
                "any pod may run on the GPU nodes, such as a listener of ARC, and keeps its node from being removed;"
                f" add taints: [{{key: {GPU}, effect: NoSchedule}}], and tolerate it in profiles",
            )
