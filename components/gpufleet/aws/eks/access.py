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
awsdocs/amazon-eks-user-guide at 4d52b4d). The others are for services of EKS."""

ADMINISTRATOR: AccessPolicyName = "AmazonEKSClusterAdminPolicy"

READS_NO_SECRETS = frozenset[AccessPolicyName]({"AmazonEKSViewPolicy"})
"""Access policies without permission to read Secrets, by the same page."""

NAMESPACE_PATTERN = r"[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?"
"""Pattern of a namespace in a scope. EKS allows the wildcard `*`
(https://docs.aws.amazon.com/eks/latest/userguide/access-policies.html)."""

_PRINCIPAL = re.compile(r"arn:([a-z-]+):iam::[0-9]{12}:(?:role|user)/[\w+=,.@/-]+", re.ASCII)
_KEY = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_RESERVED_GROUPS = ("system:", "eks:", "aws:", "amazon:", "iam:")
"""Beginnings of group names that EKS rejects (terraform-aws-modules/terraform-aws-eks#2915,
open-cluster-management-io/ocm#735)."""


@dataclass(frozen=True, kw_only=True)
class AccessPolicy:
    """An EKS access policy and its scope."""

    policy: AccessPolicyName
    """Name of the policy."""
    namespaces: Sequence[str] = ()
    """Namespaces in which it holds, with `*` as a wildcard; the whole cluster if empty."""


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """Access of one IAM role or user to a cluster."""

    principal: str
    """ARN of the IAM role or user. AWS allows one access entry for each."""
    policies: Sequence[AccessPolicy] = ()
    """Access policies; their permissions add up."""
    groups: Sequence[str] = ()
    """Kubernetes groups, for RoleBindings of your own."""


def access_problems(
    admins: Mapping[str, str], access: Mapping[str, ClusterAccess], partition: str
) -> Iterator[Problem]:
    """Yield problems of administrators and other access entries. Together they name each principal once."""
    seen: dict[str, str] = {}
    for where, key, arn in (
        *((("admins", key), key, arn) for key, arn in admins.items()),
        *((("access", key, "principal"), key, entry.principal) for key, entry in access.items()),
    ):
        if not _KEY.fullmatch(key):
            message = f"{key!r} is no such name; lower-case letters, digits and - are allowed; rename it"
            yield Problem(where[:2], "admin-name", message)
        yield from _principal(where, arn, partition)
        if arn in seen:
            message = f"{arn} is that of {seen[arn]!r} too; each is allowed once; remove one"
            yield Problem(where, "admin-twice", message)
        seen.setdefault(arn, key)
    for key, entry in access.items():
        yield from under(("access", key), _permissions(entry))


def _principal(where: Path, arn: str, partition: str) -> Iterator[Problem]:
    match = _PRINCIPAL.fullmatch(arn)
    if not match:
        message = f"{arn!r}; the ARN of an IAM role or user is allowed; no session's, and no account's"
        yield Problem(where, "admin-arn", message)
    elif match[1] != partition:
        message = f"{arn!r} is of partition {match[1]!r}; {partition!r} is allowed; correct the ARN"
        yield Problem(where, "admin-partition", message)


def _permissions(entry: ClusterAccess) -> Iterator[Problem]:
    if not entry.policies and not entry.groups:
        yield Problem((), "access-empty", "gives no permissions; policies or groups are required; add one of them")
    seen: set[str] = set()
    for index, each in enumerate(entry.policies):
        where: Path = ("policies", index)
        if each.policy not in get_args(AccessPolicyName):
            message = f"{each.policy!r}; {', '.join(get_args(AccessPolicyName))} are allowed; choose one"
            yield Problem((*where, "policy"), "access-policy", message)
        if each.policy in seen:
            message = f"{each.policy} is there twice; AWS associates each once; name all namespaces in one of them"
            yield Problem((*where, "policy"), "access-policy-twice", message)
        seen.add(each.policy)
        for place, namespace in enumerate(each.namespaces):
            if not re.fullmatch(NAMESPACE_PATTERN, namespace):
                message = f"{namespace!r}; lower-case letters, digits, - and * are allowed; correct it"
                yield Problem((*where, "namespaces", place), "access-namespace", message)
    for index, group in enumerate(entry.groups):
        if group.startswith(_RESERVED_GROUPS):
            message = (
                f"{group!r}; EKS rejects groups that begin with {', '.join(_RESERVED_GROUPS)}; bind roles to a group"
                f" of your own, or use {ADMINISTRATOR}"
            )
            yield Problem(("groups", index), "access-group", message)
