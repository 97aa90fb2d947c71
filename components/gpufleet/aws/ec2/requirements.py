"""Selection of instance types by requirements, with Karpenter's semantics (pkg/scheduling/requirement.go and
requirements.go of kubernetes-sigs/karpenter at v1.14.1)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet.aws.ec2.instance_types import CAPACITY_TYPE, LABELS, ZONE, InstanceType, instance_types, label, offered
from gpufleet.aws.karpenter.node_pool_args import Requirement

_OLD_NAMES: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""Labels that Karpenter treats as aliases of others (`NormalizedLabels` in pkg/apis/v1/labels.go)."""


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Allowed values of a label after all requirements on it."""

    values: frozenset[str]
    """Allowed values or, with `others`, excluded values."""
    others: bool
    """Whether all other values are allowed."""
    least: int | None = None
    """Smallest allowed whole number."""
    most: int | None = None
    """Largest allowed whole number."""

    def has(self, value: str) -> bool:
        """Return whether a value is allowed."""
        return (value in self.values) != self.others and self._within(value)

    def takes(self, found: Sequence[str]) -> bool:
        """Return whether a type with these values of the label, or without the label, is allowed.

        A type without the label passes if all requirements are `NotIn`, or if they leave no value at all. That includes
        contradictions: `In [a]` and `In [b]` together mean `DoesNotExist` to Karpenter.
        """
        if not found:
            return bool(self.values) if self.others else not self.values
        return any(self.has(value) for value in found)

    def meeting(self, other: Allowed) -> Allowed:
        """Return what both allow (`Intersection`)."""
        least = max((bound for bound in (self.least, other.least) if bound is not None), default=None)
        most = min((bound for bound in (self.most, other.most) if bound is not None), default=None)
        if least is not None and most is not None and least > most:
            return Allowed(values=frozenset(), others=False)
        bounds = Allowed(values=frozenset(), others=True, least=least, most=most)
        if self.others and other.others:
            values = self.values | other.values
        elif self.others:
            values = other.values - self.values
        elif other.others:
            values = self.values - other.values
        else:
            values = self.values & other.values
        within = frozenset(value for value in values if bounds._within(value))
        if self.others and other.others:
            return Allowed(values=within, others=True, least=least, most=most)
        return Allowed(values=within, others=False)

    def _within(self, value: str) -> bool:
        if self.least is None and self.most is None:
            return True
        if not re.fullmatch(r"[+-]?[0-9]+", value):
            return False
        return (self.least is None or int(value) >= self.least) and (self.most is None or int(value) <= self.most)


def allowed(requirement: Requirement) -> Allowed:
    """Return the values that a requirement allows (`NewRequirementWithFlexibility`)."""
    values = frozenset(requirement.values)
    match requirement.operator:
        case "In":
            return Allowed(values=values, others=False)
        case "NotIn":
            return Allowed(values=values, others=True)
        case "DoesNotExist":
            return Allowed(values=frozenset(), others=False)
        case "Exists":
            return Allowed(values=frozenset(), others=True)
    bound = int(requirement.values[0])
    least = {"Gt": bound + 1, "Gte": bound}.get(requirement.operator)
    most = {"Lt": bound - 1, "Lte": bound}.get(requirement.operator)
    return Allowed(values=frozenset(), others=True, least=least, most=most)


def intersected(requirements: Iterable[Requirement]) -> dict[str, Allowed]:
    """Return the allowed values of each label, by its key as normalised by Karpenter."""
    found: dict[str, Allowed] = {}
    for requirement in requirements:
        key = _OLD_NAMES.get(requirement.key, requirement.key)
        one = allowed(requirement)
        found[key] = one.meeting(found[key]) if key in found else one
    return found


def matching(
    requirements: Iterable[Requirement], zones: Iterable[str] = (), *, reserved: bool = False
) -> list[InstanceType]:
    """Return the types that meet all requirements and are offered in at least one of the zones, by name. Without zones,
    all zones count.

    Requirements on labels outside `LABELS` are ignored: your own labels, and Karpenter's labels for zone ID, network
    bandwidth, capacity reservations and placement groups. With `reserved`, capacity reservations of unknown types
    exist, so capacity type `reserved` matches all types.
    """
    wanted = {key: each for key, each in intersected(requirements).items() if key in LABELS}
    if reserved and CAPACITY_TYPE in wanted and wanted[CAPACITY_TYPE].has("reserved"):
        del wanted[CAPACITY_TYPE]
    return [*_matching(frozenset(wanted.items()), frozenset(zones))]


# Every rule about a pool, and every runner of it, needs the pool's types.
@functools.lru_cache(maxsize=256)
def _matching(wanted: frozenset[tuple[str, Allowed]], zones: frozenset[str]) -> tuple[InstanceType, ...]:
    return tuple(
        instance_type
        for instance_type in instance_types().values()
        if all(each.takes(label(instance_type, key, zones)) for key, each in wanted)
        and (not zones or offered(instance_type, zones))
    )
