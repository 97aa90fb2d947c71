"""Rules of the policy: `gpufleet` applies them to the recorded program, the policy pack to the engine's resources. Only
the standard library is imported, as in the policy pack."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpufleet_tools.policy import cloud as cloud_policy
from gpufleet_tools.policy import pods as pod_policy
from gpufleet_tools.policy.pods import Properties


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule."""

    name: str
    """Name of the finding; acknowledgements refer to it."""
    severity: Literal["error", "warning"]
    """`error`: the policy pack rejects the update."""
    description: str
    """Requirement in one line."""
    judge: Callable[[str, str, Properties], Iterator[str]]
    """Function that yields a resource's violations, from its type token, its name and its inputs."""


RULES = (
    Rule(
        name="privileged-pod",
        severity="error",
        description="Only declared containers are privileged or share namespaces of their node.",
        judge=pod_policy.privileged_pods,
    ),
    Rule(
        name="host-path",
        severity="error",
        description="Pods mount only folders of their node that the stack file allows, and none that exposes the node.",
        judge=pod_policy.host_paths,
    ),
    Rule(
        name="mutable-image",
        severity="warning",
        description="Images have a version or a digest.",
        judge=pod_policy.mutable_images,
    ),
    Rule(
        name="plain-secret",
        severity="error",
        description="Secrets are marked as secret in Pulumi.",
        judge=pod_policy.plain_secrets,
    ),
    Rule(
        name="reachable-metadata",
        severity="error",
        description="Pods cannot reach the credentials of their node.",
        judge=cloud_policy.reachable_metadata,
    ),
    Rule(
        name="open-endpoint",
        severity="warning",
        description="The API server is reachable from named networks only.",
        judge=cloud_policy.open_endpoints,
    ),
    Rule(
        name="open-ports",
        severity="error",
        description="Security groups do not open administration ports to the internet.",
        judge=cloud_policy.open_ports,
    ),
    Rule(
        name="unencrypted",
        severity="error",
        description="Disks, queues and Kubernetes secrets are encrypted.",
        judge=cloud_policy.unencrypted,
    ),
    Rule(
        name="admin-policy",
        severity="error",
        description="No identity gets all rights of an account or cluster.",
        judge=cloud_policy.admin_policies,
    ),
    Rule(
        name="unheld-toolkit",
        severity="error",
        description="The version of a host's container toolkit is pinned.",
        judge=cloud_policy.unheld_toolkits,
    ),
)
"""Rules of a stack that allows no hostPath."""


def rules(host_paths: Collection[str] = ()) -> tuple[Rule, ...]:
    """Return the rules of a stack. `host_paths` are the folders of nodes that its file allows pods to mount."""
    judge = functools.partial(pod_policy.host_paths, allowed=host_paths)
    return tuple(dataclasses.replace(rule, judge=judge) if rule.name == "host-path" else rule for rule in RULES)


NAMES = frozenset(rule.name for rule in RULES)
"""Names of the rules, for acknowledgements."""


def is_acknowledged(rule: str, resource: str, acknowledged: Sequence[Mapping[str, Any]], today: datetime.date) -> bool:
    """Return whether the acknowledgements in a stack's configuration cover a resource's violation.

    The engine does not know settings, so an entry with a path covers resources that are named after a part of it.
    """
    return any(
        entry.get("finding") == rule
        and datetime.date.fromisoformat(str(entry["until"])[:10]) >= today
        and _is_of(resource, str(entry.get("path") or "").split("."))
        for entry in acknowledged
    )


def _is_of(resource: str, path: Sequence[str]) -> bool:
    return len(path) < 2 or any(resource == part or resource.startswith(f"{part}-") for part in path[1:])
