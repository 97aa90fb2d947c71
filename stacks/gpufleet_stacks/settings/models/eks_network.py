"""Settings of an EKS cluster's VPC: created by the stack, or an existing one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpufleet.aws.eks.network_args import FEWEST_ZONES
from gpufleet_stacks.settings.models.aws_value_types import Cidr, ResourceId, Zone
from gpufleet_stacks.settings.models.value_types import Filled, Model


class OwnNetwork(Model):
    """A VPC that this stack creates, with a public and a private subnet in every zone."""

    kind: Literal["own"]
    """A VPC that this stack creates."""
    cidr: Cidr = "10.0.0.0/16"
    """Address range of the VPC."""
    zones: Annotated[tuple[Zone, ...], Field(min_length=FEWEST_ZONES)]
    """Availability zones; three are usual. More zones make scarce GPU types easier to obtain."""
    control_plane_zones: tuple[Zone, ...] = ()
    """Zones of the control plane and the system nodes; if omitted, all zones of the network. EKS keeps the zones that a
    cluster was created with. Before you add a zone for jobs, list here the zones that the cluster has."""
    nat_gateways: Literal["single", "perZone", "none"] = "single"
    """NAT gateways. `single` costs least, but all zones lose internet access if its zone fails; `perZone` avoids that.
    With `none`, you provide the nodes' route to registries and GitHub."""
    interface_endpoints: tuple[Filled, ...] = ()
    """AWS services reached through VPC interface endpoints. Without NAT gateways, required: `ec2`, `ecr.api`,
    `ecr.dkr`, `eks`, `eks-auth`, `sts`, and for Karpenter `ssm` and `sqs`."""


class ExistingNetwork(Model):
    """An existing VPC. This stack only manages its discovery tags."""

    kind: Literal["existing"]
    """An existing VPC."""
    vpc_id: ResourceId
    """ID of the VPC."""
    private_subnets: Annotated[dict[Zone, ResourceId], Field(min_length=FEWEST_ZONES)]
    """IDs of the nodes' subnets, by zone."""
    control_plane_zones: tuple[Zone, ...] = ()
    """Zones of the control plane and the system nodes; if omitted, all zones of the network. EKS keeps the zones that a
    cluster was created with. Before you add a zone for jobs, list here the zones that the cluster has."""


Network = Annotated[OwnNetwork | ExistingNetwork, Field(discriminator="kind")]
