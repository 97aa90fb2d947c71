"""Image references: the registry of an image, and its name in ECR's pull-through cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PREFIX = r"(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*"
"""Pattern of a prefix (CreatePullThroughCacheRule in ECR's API)."""

DOCKER_HUB = "docker.io"


class Registry(NamedTuple):
    """A registry that ECR can cache."""

    url: str
    """Its address for ECR."""
    needs_credentials: bool
    """Whether ECR requires credentials, even for public images."""


REGISTRIES: Mapping[str, Registry] = {
    DOCKER_HUB: Registry("registry-1.docker.io", True),
    "ghcr.io": Registry("ghcr.io", True),
    "public.ecr.aws": Registry("public.ecr.aws", False),
    "quay.io": Registry("quay.io", False),
    "registry.gitlab.com": Registry("registry.gitlab.com", True),
    "registry.k8s.io": Registry("registry.k8s.io", False),
}
"""Registries by host (https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache-creating-rule.html)."""


def registry_host(account: str, region: str, partition: str = "aws") -> str:
    """Return the host of an account's private ECR registry."""
    suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{suffix}"


def split(image: str) -> tuple[str, str]:
    """Return the registry's host and the rest of an image reference, as container engines read it: without a host, it
    is of Docker Hub, and without a namespace, of its namespace `library`."""
    first, slash, rest = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, path = ("docker.io", rest) if first in ("index.docker.io", "registry-1.docker.io") else (first, rest)
    else:
        host, path = DOCKER_HUB, image
    return host, path if host != DOCKER_HUB or "/" in path else f"library/{path}"


def cached(image: str, prefixes: Mapping[str, str], host: str) -> str:
    """Return the reference of an image in the cache; unchanged if its registry is not cached. `prefixes` are the
    cache's, by registry."""
    registry, path = split(image)
    return f"{host}/{prefixes[registry]}/{path}" if registry in prefixes else image
