"""Access of people and teams to an EKS cluster: IAM principals with EKS's access policies or Kubernetes groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gpufleet.problem import Path, Problem, under

AccessPolicyName = Literal[
    "AmazonEKSAdminPolicy",
    "AmazonEKSAdminViewPolicy",
    "AmazonEKSClusterAdminPolicy",
    "AmazonEKSEditPolicy",
    "AmazonEKSViewPolicy",
]
"""EKS's access policies for people (latest/ug/manage-access/k8s-access/access-policy-reference.adoc of
awsdocs/amazon-eks-user-guide at 4d52b4d). The other policies are for EKS services."""

ADMINISTRATOR: AccessPolicyName = "AmazonEKSClusterAdminPolicy"

READS_NO_SECRETS = frozenset[AccessPolicyName]({"AmazonEKSViewPolicy"})
"""Access policies without permission to read Secrets, according to the same page."""

NAMESPACE_PATTERN = r"[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?"
"""Pattern of a namespace in a scope. EKS allows the wildcard `*`
(https://docs.aws.amazon.com/eks/latest/userguide/access-policies.html)."""

_PRINCIPAL = re.compile(r"arn:([a-z-]+):iam::[0-9]{12}:(?:role|user)/[\w+=,.@/-]+", re.ASCII)
_KEY = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_RESERVED_GROUPS = ("system:", "eks:", "aws:", "amazon:", "iam:")
"""Prefixes of group names that EKS rejects (terraform-aws-modules/terraform-aws-eks#2915,
open-cluster-management-io/ocm#735)."""


@dataclass(frozen=True, kw_only=True)
class AccessPolicy:
    """An EKS access policy and its scope."""

    policy: AccessPolicyName
    """Name of the policy."""
    namespaces: Sequence[str] = ()
    """Namespaces in which the policy applies, with `*` as a wildcard; the whole cluster if empty."""


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """Access of one IAM role or user to a cluster."""

    principal: str
    """ARN of the IAM role or user. AWS allows one access entry for each."""
    policies: Sequence[AccessPolicy] = ()
    """Access policies; their permissions add up."""
    groups: Sequence[str] = ()
    """Kubernetes groups, to which you can bind roles."""


def access_problems(
    admins: Mapping[str, str], access: Mapping[str, ClusterAccess], partition: str
) -> Iterator[Problem]:
    """Yield problems of administrators and other access entries. Each principal may occur once in both together."""
    seen: dict[str, str] = {}
    for where, key, arn in (
        *((("admins", key), key, arn) for key, arn in admins.items()),
        *((("access", key, "principal"), key, entry.principal) for key, entry in access.items()),
    ):
        if not _KEY.fullmatch(key):
            message = f"{key!r} is not a valid name; use lower-case letters, digits and '-'"
            yield Problem(where[:2], "admin-name", message)
        yield from _principal(where, arn, partition)
        if arn in seen:
            message = f"{arn} is already listed as {seen[arn]!r}; remove one"
            yield Problem(where, "admin-twice", message)
        seen.setdefault(arn, key)
    for key, entry in access.items():
        yield from under(("access", key), _permissions(entry))


def _principal(where: Path, arn: str, partition: str) -> Iterator[Problem]:
    match = _PRINCIPAL.fullmatch(arn)
    if not match:
        message = f"{arn!r} is not the ARN of an IAM role or user; sessions and accounts are not allowed"
        yield Problem(where, "admin-arn", message)
    elif match[1] != partition:
        message = f"{arn!r} is in partition {match[1]!r}, but the cluster is in {partition!r}; correct the ARN"
        yield Problem(where, "admin-partition", message)


def _permissions(entry: ClusterAccess) -> Iterator[Problem]:
    if not entry.policies and not entry.groups:
        yield Problem((), "access-empty", "grants no permissions; add policies or groups")
    seen: set[str] = set()
    for index, each in enumerate(entry.policies):
        where: Path = ("policies", index)
        if each.policy not in get_args(AccessPolicyName):
            message = f"{each.policy!r} is not valid; allowed: {', '.join(get_args(AccessPolicyName))}"
            yield Problem((*where, "policy"), "access-policy", message)
        if each.policy in seen:
            message = f"{each.policy} is listed twice; list all namespaces in one entry"
            yield Problem((*where, "policy"), "access-policy-twice", message)
        seen.add(each.policy)
        for place, namespace in enumerate(each.namespaces):
            if not re.fullmatch(NAMESPACE_PATTERN, namespace):
                message = f"{namespace!r} is not a namespace; use lower-case letters, digits, '-' and '*'"
                yield Problem((*where, "namespaces", place), "access-namespace", message)
    for index, group in enumerate(entry.groups):
        if group.startswith(_RESERVED_GROUPS):
            message = (
                f"{group!r} is reserved, as are all groups that begin with {', '.join(_RESERVED_GROUPS)}; bind roles to"
                f" your own group, or use {ADMINISTRATOR}"
            )
            yield Problem(("groups", index), "access-group", message)
