"""What is known of a type of AWS resource, and the account and region that all of it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Part:
    """One API call, or one resource of CloudFormation, that comes of a Pulumi resource."""

    of: str
    """`ec2.CreateVpc` or `AWS::EC2::VPC`."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Places of Pulumi's keys that are called otherwise: `LaunchTemplateData.ImageId`. `id` is the resource itself."""
    when: str | None = None
    """Key without which there is no such part."""
    each: str | None = None
    """Key of a list: one part for each of its items."""
    into: tuple[str, str, str] | None = None
    """Not a resource of its own but part of another: the other's kind, the key that leads to it, and the key of the
    other that has the same value where that is no reference."""
    within: str | None = None
    """Where keys go that have no place otherwise: `LaunchTemplateData`."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One type of resource."""

    calls: tuple[Part, ...]
    """What the provider says to AWS's API when it makes one."""
    template: tuple[Part, ...]
    """What a CloudFormation template says in its place."""
    named: str | None = None
    """Key of the name that Pulumi makes up where none is given."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Outputs, in the shape that AWS gives them; `{name}` is the resource's name, `{hex}` seventeen digits of its
    own."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Outputs as CloudFormation's attributes; `Ref` for what a plain reference gives. The others are inputs."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Outputs as the first call answers them, by path."""
    provider: frozenset[str] = frozenset()
    """Keys that only Pulumi's provider reads, or that it says in a call that is not modelled here."""


ACCOUNT, REGION = "111122223333", "eu-west-1"
