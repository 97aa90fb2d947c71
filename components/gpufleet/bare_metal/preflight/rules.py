"""Preflight checks of one host."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpufleet.bare_metal.preflight import gpu_rules, machine_rules
from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet.bare_metal.preflight.needs import HostNeeds

CLOCK_SKEW_SECONDS = 1.0
"""Maximum clock difference: etcd warns about peers above one second (server/etcdserver/api/rafthttp/probing_status.go
of etcd-io/etcd)."""

Rule = Callable[[HostFacts, HostNeeds], Iterator[str]]

RULES: tuple[Rule, ...] = (
    machine_rules.sudo,
    machine_rules.operating_system,
    machine_rules.hostname,
    machine_rules.kubelet,
    machine_rules.docker,
    machine_rules.room,
    machine_rules.network,
    machine_rules.certificates,
    machine_rules.snapshots,
    gpu_rules.gpus,
)


def preflight_failures(facts: HostFacts, needs: HostNeeds, *, skew_seconds: float | None = None) -> list[str]:
    """Return unmet requirements: what was found, why it matters, what to do. Empty if all are met.

    `skew_seconds` is how far the host's clock is ahead of the right time, if known.
    """
    found = [failure for rule in RULES for failure in rule(facts, needs)]
    if skew_seconds is not None and abs(skew_seconds) > CLOCK_SKEW_SECONDS:
        found.append(
            f"clock: is {abs(skew_seconds):.1f} s {'ahead' if skew_seconds > 0 else 'behind'}; certificates and etcd"
            " require the same time on all hosts; start a time service: timedatectl set-ntp true"
        )
    return found
