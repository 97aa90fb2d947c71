"""Rules for the network between a pool's instances: EFA-only interfaces and placement groups."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import get_args

from gpufleet.aws.ec2.instance_types import ZONE
from gpufleet.aws.ec2.requirements import intersected
from gpufleet.aws.karpenter.node_pool_args import KarpenterNodePoolArgs, PlacementGroup, PlacementStrategy
from gpufleet.aws.karpenter.node_pool_fit import instance_types_of, requirements
from gpufleet.problem import Path, Problem, under

_EFA: Path = ("node_class", "efa_only_interfaces")
_GROUP: Path = ("node_class", "placement_group")

MOST_INTERFACES = 150
"""Maximum number of network interfaces of a node class, in its CRD."""


def interconnect_problems(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield every problem of EFA-only interfaces and the placement group that the arguments alone show."""
    count = args.node_class.efa_only_interfaces
    if not 0 <= count < MOST_INTERFACES:
        message = f"{count} is out of range; use 0 for none, or at most {MOST_INTERFACES - 1}"
        yield Problem(_EFA, "efa-interfaces", message)
    if group := args.node_class.placement_group:
        yield from under(_GROUP, _group(group))
        if group.strategy == "cluster":
            yield from _zones(args)


def efa_problems(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Yield problems of EFA-only interfaces that instance types cannot have. Requirements must be valid."""
    wanted = args.node_class.efa_only_interfaces
    if not wanted or args.gpu_counts is not None:
        return
    others = dataclasses.replace(args, node_class=dataclasses.replace(args.node_class, efa_only_interfaces=0))
    types = instance_types_of(args)
    for each in types:
        if each.efa and each.efa.cards != each.efa.interfaces:
            message = (
                f"{each.name} has {each.efa.cards} network cards, of which {each.efa.interfaces} support EFA; the table"
                " does not have which; exclude it"
            )
            yield Problem(_EFA, "efa-cards", message)
    possible = instance_types_of(others)
    if possible and not types:
        most = max(possible, key=lambda each: each.efa.interfaces if each.efa else 0)
        has = most.efa.interfaces if most.efa else 0
        message = f"no instance type of the pool has {wanted} EFA interfaces; {most.name} has {has}; use other types"
        yield Problem(_EFA, "too-few-efas", message)


def _group(group: PlacementGroup) -> Iterator[Problem]:
    if (group.name is None) == (group.id is None):
        message = "has " + ("both name and id" if group.id else "neither name nor id") + "; exactly one is required"
        yield Problem((), "placement-group-name", message)
    if group.id is not None and not re.fullmatch("pg-[0-9a-z]+", group.id):
        message = (
            f"{group.id!r} is not the ID of a placement group; write 'pg-' followed by digits and lower-case letters"
        )
        yield Problem(("id",), "resource-id", message)
    if group.strategy and group.id is not None:
        message = "is not allowed with id, which names an existing group; remove it"
        yield Problem(("strategy",), "strategy-of-existing", message)
    allowed = get_args(PlacementStrategy)
    if group.strategy is not None and group.strategy not in allowed:
        message = f"{group.strategy!r} is not valid; allowed: {', '.join(allowed)}"
        yield Problem(("strategy",), "placement-strategy", message)


def _zones(args: KarpenterNodePoolArgs) -> Iterator[Problem]:
    """Require one zone for a cluster placement group: EC2 refuses instances of another
    (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html)."""
    allowed = intersected(requirements(args)).get(ZONE)
    zones = [zone for zone in args.zones if allowed is None or allowed.has(zone)]
    if len(zones) > 1:
        message = f"a cluster placement group is in one zone, but the pool has {', '.join(zones)}; set zones to one"
        yield Problem((*_GROUP, "strategy"), "group-in-many-zones", message)
