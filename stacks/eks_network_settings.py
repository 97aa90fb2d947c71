"""The part of a stack file that describes the VPC of a cluster on EKS: one of its own, or one that exists."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stacks.aws_value_types import Cidr, ResourceId, Zone
from stacks.value_types import Filled, Model


class OwnNetwork(Model):
    """A VPC that this stack makes, with a public and a private subnet in every zone."""

    kind: Literal["own"]
    """A VPC of the stack's own."""
    cidr: Cidr = "10.0.0.0/16"
    """Addresses of the VPC."""
    zones: Annotated[tuple[Zone, ...], Field(min_length=2)]
    """Availability zones; three are usual. The more there are, the more often a GPU type can be had."""
    nat_gateways: Literal["single", "perZone", "none"] = "single"
    """NAT gateways. `single` costs least, and all zones are cut off with its own; `perZone` has no such dependence.
    With `none` nodes reach registries and GitHub by a way of your own."""
    interface_endpoints: tuple[Filled, ...] = ()
    """AWS services that are reached without leaving the VPC. Without NAT gateways: `ec2`, `ecr.api`, `ecr.dkr`, `eks`,
    `eks-auth`, `sts`, and for Karpenter `ssm` and `sqs`."""


class ExistingNetwork(Model):
    """A VPC that exists already. Only its discovery tags are this stack's."""

    kind: Literal["existing"]
    """A VPC that exists."""
    vpc_id: ResourceId
    """Id of the VPC."""
    private_subnets: Annotated[dict[Zone, ResourceId], Field(min_length=2)]
    """Subnets of the nodes, by zone."""


Network = Annotated[OwnNetwork | ExistingNetwork, Field(discriminator="kind")]
