"""AWS account of a stack: the resources of its program that Karpenter requires, for a simulated account."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.karpenter import Reservation, ReservedInstancesSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_tools.plan.plan import UNKNOWN, Plan, Resource, revealed

_PROVIDER = "pulumi:providers:aws"
_DEFAULT_REGION = "us-east-1"

TYPES = (
    "aws:ec2/vpc:Vpc",
    "aws:ec2/subnet:Subnet",
    "aws:ec2/tag:Tag",
    "aws:ec2/securityGroup:SecurityGroup",
    "aws:iam/role:Role",
    "aws:iam/instanceProfile:InstanceProfile",
    "aws:sqs/queue:Queue",
)
"""Pulumi types of the resources that Karpenter reads, in the order of creation."""


@dataclass(frozen=True)
class CapacityReservation:
    """A capacity reservation or capacity block, as the stack file describes it."""

    id: str
    """ID of the reservation."""
    instance_type: str
    """Type of its instances."""
    zone: str
    """Zone of its instances."""
    instances: int
    """Number of instances."""
    block: bool
    """Whether it is a capacity block."""
    owner: str
    """ID of the owner's account."""
    match_criteria: str
    """`open` or `targeted`."""
    tags: Mapping[str, str]
    """Tags of the reservation."""


@dataclass(frozen=True)
class Account:
    """Content of an account before Karpenter starts. Plain data, which is passed to another process as JSON."""

    region: str
    cluster: str
    """Name of the EKS cluster."""
    resources: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    """Resources in the order of creation: `urn`, `type`, `name`, `inputs` without unknown values, and `depends_on`."""
    reservations: tuple[CapacityReservation, ...] = ()
    """Capacity reservations, which exist outside the program."""


def account_of(plan: Plan, cluster: str, reservations: Iterable[CapacityReservation] = ()) -> Account:
    """Return the part of a stack's account that Karpenter reads, with its capacity reservations."""
    resources = [resource for kind in TYPES for resource in plan.owned() if resource.type == kind]
    return Account(region_of(plan), cluster, tuple(_plain(resource) for resource in resources), tuple(reservations))


def read(text: str) -> Account:
    """Return the account in a JSON document."""
    found = json.loads(text)
    return Account(**found | {"reservations": tuple(CapacityReservation(**each) for each in found["reservations"])})


def reservations_of(settings: Settings) -> list[CapacityReservation]:
    """Return the capacity reservations whose instances the stack file declares. Those that are selected by tags get
    these tags."""
    if not isinstance(settings, EksSettings):
        return []
    found = {}
    for name, pool in settings.cluster.node_pools.items():
        for index, reservation in enumerate(pool.reservations):
            if reservation.holds:
                each = _reservation(f"{name}/{index}", reservation, reservation.holds, settings.cluster.account)
                found[each.id] = each
    return list(found.values())


def _reservation(
    name: str, reservation: Reservation, holds: ReservedInstancesSettings, account: str
) -> CapacityReservation:
    return CapacityReservation(
        id=reservation.id or f"cr-{hashlib.sha256(name.encode()).hexdigest()[:17]}",
        instance_type=holds.instance_type,
        zone=holds.zone,
        instances=holds.instances,
        block=holds.block,
        owner=reservation.owner_id or account,
        match_criteria=reservation.match_criteria or "targeted",
        # A term may select only by key.
        tags={key: "sandbox" if value == "*" else value for key, value in reservation.tags.items()},
    )


def region_of(plan: Plan) -> str:
    """Return the region of the stack's account."""
    regions = (resource.inputs.get("region") for resource in plan.owned() if resource.type == _PROVIDER)
    return next((region for region in regions if isinstance(region, str)), _DEFAULT_REGION)


def _plain(resource: Resource) -> dict[str, Any]:
    return {
        "urn": resource.urn,
        "type": resource.type,
        "name": resource.name,
        "inputs": _known(revealed(resource.inputs)),
        "depends_on": list(resource.depends_on),
    }


def _known(value: Any) -> Any:
    """Return the value without unknown leaves."""
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items() if item is not UNKNOWN}
    if isinstance(value, list):
        return [_known(item) for item in value if item is not UNKNOWN]
    return value
