"""The rules that every program has to keep, whoever wrote it: used by `gpufleet` on the recorded program, and by the
policy pack in the engine. Only the standard library, as there."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fleet import cloud_policy, pod_policy
from fleet.pod_policy import Properties


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule."""

    name: str
    """Name of the finding, which an acknowledgement gives."""
    severity: Literal["error", "warning"]
    """`error`: the policy pack refuses the update."""
    description: str
    """What it asks for, in one line."""
    judge: Callable[[str, str, Properties], Iterator[str]]
    """What one resource does against it, from its type token, its name and its inputs."""
    needs_secrets: bool = False
    """Whether it has to know which values are secret: the policy SDK hands them on as plain text, so that only the
    recorded program can be judged (deserialize_properties in policy.py of pulumi-policy 1.21.0)."""


RULES = (
    Rule(
        name="privileged-pod",
        severity="error",
        description="Only declared containers have the rights of their node.",
        judge=pod_policy.privileged_pods,
    ),
    Rule(
        name="mutable-image",
        severity="warning",
        description="An image is the same one tomorrow.",
        judge=pod_policy.mutable_images,
    ),
    Rule(
        name="plain-secret",
        severity="error",
        description="What is secret is told to be.",
        judge=pod_policy.plain_secrets,
        needs_secrets=True,
    ),
    Rule(
        name="reachable-metadata",
        severity="error",
        description="Pods do not reach the credentials of their node.",
        judge=cloud_policy.reachable_metadata,
    ),
    Rule(
        name="open-endpoint",
        severity="warning",
        description="The API server answers to named networks.",
        judge=cloud_policy.open_endpoints,
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
        description="Nobody is given a whole account or cluster.",
        judge=cloud_policy.admin_policies,
    ),
    Rule(
        name="unheld-toolkit",
        severity="error",
        description="A host's container toolkit keeps its version.",
        judge=cloud_policy.unheld_toolkits,
    ),
)

NAMES = frozenset(rule.name for rule in RULES)
"""Names that an acknowledgement can give."""


def is_borne(rule: str, resource: str, acknowledged: Sequence[Mapping[str, Any]], today: datetime.date) -> bool:
    """Whether a stack's own acknowledgements, as its configuration has them, bear what a resource does.

    Settings are not known to the engine, so an entry with a path bears resources that are named after its last part.
    """
    return any(
        entry.get("finding") == rule
        and datetime.date.fromisoformat(str(entry["until"])[:10]) >= today
        and _is_of(resource, str(entry.get("path") or "").split("."))
        for entry in acknowledged
    )


def _is_of(resource: str, path: Sequence[str]) -> bool:
    return len(path) < 2 or any(resource == part or resource.startswith(f"{part}-") for part in path[1:])
