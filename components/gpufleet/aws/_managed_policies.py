"""Attachments of AWS managed policies to a role."""

from __future__ import annotations

from collections.abc import Iterable

import pulumi
from pulumi_aws.iam import Role, RolePolicyAttachment


def attached_policies(
    name: str, role: Role, partition: str, policies: Iterable[str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Return one attachment resource for each policy, given by name, with prefixes such as `service-role/`."""
    return [
        RolePolicyAttachment(
            f"{name}-{policy.rpartition('/')[2]}",
            role=role.name,
            policy_arn=f"arn:{partition}:iam::aws:policy/{policy}",
            opts=opts,
        )
        for policy in policies
    ]
