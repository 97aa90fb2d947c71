"""Findings about access to the cluster, its credentials and its nodes' role."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from gpufleet.aws.eks.access import READS_NO_SECRETS
from gpufleet.aws.eks.cluster_rules import WIDEST_PREFIX
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.check.eks.pools import pools
from gpufleet_tools.check.finding import Finding


def reachable_node_role(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        if pool.metadata_hop_limit > 1:
            yield Finding(
                "reachable-node-role",
                "warning",
                (*where, "metadataHopLimit"),
                "jobs can reach the instance metadata, which has the credentials of the node's role; use 1",
            )


def roles_of_others(settings: EksSettings) -> Iterator[Finding]:
    for _, where, pool in pools(settings):
        setting = "role" if pool.role else "instanceProfile"
        if pool.role or pool.instance_profile:
            yield Finding(
                "role-of-others",
                "warning",
                (*where, setting),
                "is not managed by this stack: no node joins unless Karpenter's controller may pass the role"
                " (iam:PassRole), and the cluster has an access entry of type EC2_LINUX for it",
            )


def open_endpoint(settings: EksSettings) -> Iterator[Finding]:
    endpoint = settings.cluster.endpoint
    for index, cidr in enumerate(endpoint.public_access_from):
        if int(cidr.partition("/")[2]) < WIDEST_PREFIX:
            yield Finding(
                "open-endpoint",
                "warning",
                ("cluster", "endpoint", "publicAccessFrom", index),
                f"{cidr} admits nearly every address, so that only authentication protects the API server; use your own"
                " networks",
            )


def readers_of_credentials(settings: EksSettings) -> Iterator[Finding]:
    """Yield teams that may read the projects' GitHub credentials. ARC copies these Secrets to its own namespace for the
    listeners."""
    namespaces = {settings.arc.namespace, *(project.namespace for project in settings.projects.values())}
    for name, access in settings.cluster.access.items():
        for index, each in enumerate(access.policies):
            seen = sorted(
                namespace
                for namespace in namespaces
                if not each.namespaces or any(fnmatchcase(namespace, pattern) for pattern in each.namespaces)
            )
            if seen and each.policy not in READS_NO_SECRETS:
                yield Finding(
                    "reads-credentials",
                    "warning",
                    ("cluster", "access", name, "policies", index),
                    f"{each.policy} allows reading the Secrets in {', '.join(seen)}, including the projects' GitHub"
                    " credentials; restrict it to other namespaces, or use AmazonEKSViewPolicy",
                )


def unprotected_cluster(settings: EksSettings) -> Iterator[Finding]:
    if not settings.cluster.deletion_protection:
        yield Finding(
            "unprotected-cluster",
            "warning",
            ("cluster", "deletionProtection"),
            "`pulumi destroy` or a changed name deletes the cluster without confirmation; keep it on until you want to"
            " delete the cluster",
        )
