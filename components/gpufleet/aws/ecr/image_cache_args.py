"""Arguments of `EcrImageCache`, and their rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from gpufleet.aws.ecr.references import PREFIX, REGISTRIES
from gpufleet.aws.karpenter.policies import Partition
from gpufleet.problem import Path, Problem

_SECRET = re.compile(r"arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:ecr-pullthroughcache/[A-Za-z0-9/_+=.@-]+")


@dataclass(frozen=True, kw_only=True)
class CachedRegistry:
    """A registry whose images are cached."""

    registry: str
    """Host of the registry: `docker.io`, `ghcr.io`."""
    credentials_arn: str | None = None
    """ARN of the Secrets Manager secret with the registry's credentials; its name begins with `ecr-pullthroughcache/`.
    None for a registry that needs none."""


@dataclass(frozen=True, kw_only=True)
class EcrImageCacheArgs:
    """Arguments of `EcrImageCache`."""

    region: str
    """AWS region of the cache."""
    account_id: str
    """AWS account ID, twelve digits."""
    partition: Partition = "aws"
    """Partition of the region."""
    policy_name: str
    """Name of the IAM policy that lets nodes create repositories."""
    registries: Mapping[str, CachedRegistry]
    """Registries, by the first part of their repositories' names in ECR. An account has one rule for each such prefix
    in a region."""
    expire_untagged_days: int = 14
    """Days after which an image that a moving tag left is deleted."""
    node_roles: Sequence[str] = ()
    """Names of the nodes' IAM roles, which must already have `AmazonEC2ContainerRegistryPullOnly`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the policy."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before: the roles."""


def image_cache_problems(args: EcrImageCacheArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    hosts = [cached.registry for cached in args.registries.values()]
    for prefix, cached in args.registries.items():
        where: Path = ("registries", prefix)
        if not re.fullmatch(PREFIX, prefix) or not 2 <= len(prefix) <= 30:
            message = f"{prefix!r} is not a prefix; write 2 to 30 lower-case letters, digits, '.', '_', '-' and '/'"
            yield Problem(where, "cache-prefix", message)
        if cached.registry not in REGISTRIES:
            message = f"ECR does not cache {cached.registry}; supported: {', '.join(REGISTRIES)}"
            yield Problem((*where, "registry"), "registry-not-cached", message)
            continue
        if hosts.count(cached.registry) > 1:
            message = f"{cached.registry} is cached twice; remove one"
            yield Problem((*where, "registry"), "cached-twice", message)
        if REGISTRIES[cached.registry].needs_credentials and cached.credentials_arn is None:
            message = f"is missing; {cached.registry} requires credentials, in a secret named ecr-pullthroughcache/…"
            yield Problem((*where, "credentials_arn"), "cache-credentials", message)
        if cached.credentials_arn is not None and not _SECRET.fullmatch(cached.credentials_arn):
            message = "is not the ARN of a secret whose name begins with ecr-pullthroughcache/"
            yield Problem((*where, "credentials_arn"), "cache-secret", message)
    if args.expire_untagged_days < 1:
        message = f"{args.expire_untagged_days} is too few; use at least 1"
        yield Problem(("expire_untagged_days",), "cache-expiry", message)
