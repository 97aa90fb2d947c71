"""The rules that every program has to keep, whoever wrote it: used by `gpufleet` on the recorded program, and by the
policy pack in the engine. Only the standard library, as there."""

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
    """Name of the finding, which an acknowledgement gives."""
    severity: Literal["error", "warning"]
    """`error`: the policy pack refuses the update."""
    description: str
    """What it asks for, in one line."""
    judge: Callable[[str, str, Properties], Iterator[str]]
    """What one resource does against it, from its type token, its name and its inputs."""


RULES = (
    Rule(
        name="privileged-pod",
        severity="error",
        description="Only declared containers have the rights of their node.",
        judge=pod_policy.privileged_pods,
    ),
    Rule(
        name="host-path",
        severity="error",
        description="Pods mount folders of their node that the stack file allows, and none that gives them the node.",
        judge=pod_policy.host_paths,
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
        description="Pulumi knows every secret as one.",
        judge=pod_policy.plain_secrets,
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
        name="open-ports",
        severity="error",
        description="Security groups admit the internet to no port that administers a machine.",
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
"""The rules of a stack that allows pods no folder of their node."""


def rules(host_paths: Collection[str] = ()) -> tuple[Rule, ...]:
    """Return the rules of a stack. `host_paths` are the folders of nodes that its file allows pods to mount."""
    judge = functools.partial(pod_policy.host_paths, allowed=host_paths)
    return tuple(dataclasses.replace(rule, judge=judge) if rule.name == "host-path" else rule for rule in RULES)


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
