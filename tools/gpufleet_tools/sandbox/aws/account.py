"""The AWS account of a stack: what its program registers there, made in a simulated one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
"""What Karpenter looks at, by Pulumi type, in the order of making."""


@dataclass(frozen=True)
class Account:
    """What an account has to hold before Karpenter starts. Plain data: it is handed to another process as JSON."""

    region: str
    cluster: str
    """Name of the EKS cluster."""
    resources: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    """By order of making: `urn`, `type`, `name`, `inputs` without what only a provider could tell, and `depends_on`."""


def account_of(plan: Plan, cluster: str) -> Account:
    """The account that a stack's program would make, as far as Karpenter looks at it."""
    resources = [resource for kind in TYPES for resource in plan.owned() if resource.type == kind]
    return Account(region_of(plan), cluster, tuple(_plain(resource) for resource in resources))


def region_of(plan: Plan) -> str:
    """The region of the stack's account."""
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
    """The value without the leaves that only a provider could tell."""
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items() if item is not UNKNOWN}
    if isinstance(value, list):
        return [_known(item) for item in value if item is not UNKNOWN]
    return value
