"""Helm's own records of releases, where an `up` that was killed has left some that the next one would trip over.

Helm keeps a Secret for each revision of a release, and writes it before the chart's objects. Killed in between, the
release is pending for good: another install is refused ("cannot re-use a name that is still in use"), another upgrade
too ("another operation is in progress"). Nor does Pulumi know of a release whose creation it has not seen end.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gpufleet_tools.sandbox.control_plane.api_server import ApiServer, connected, patiently
from gpufleet_tools.sandbox.errors import SandboxError

_SECRET = {"apiVersion": "v1", "kind": "Secret"}


@dataclass(frozen=True)
class Interrupted:
    """Helm's record of an install that the state does not know, or of an upgrade that has not ended."""

    path: str
    """Where the API server has it."""
    release: str
    """Its release, as `namespace/name`."""
    status: str
    """What Helm was about, in its own word."""


def interrupted(api: ApiServer, known: Collection[str]) -> list[Interrupted]:
    """What a run that was killed has left. `known` has the releases of the state, each as `namespace/name`."""
    secrets = api.resource(_SECRET)
    found = []
    for record in api.by_label(secrets, "owner=helm"):
        labels, path = record["labels"], secrets.path(record["namespace"], record["name"])
        each = Interrupted(path, f"{record['namespace']}/{labels['name']}", labels["status"])
        if each.release not in known or each.status in ("pending-upgrade", "pending-rollback"):
            found.append(each)
    return found


def forget_interrupted(kubeconfig: Path, known: Collection[str]) -> list[str]:
    """Removes the records that a run that was killed has left, and says of each in a line what it was.

    The chart's objects stay: Helm adopts those that bear its release's name (action/install.go of Helm 3.2 and newer).
    To uninstall them would wait for finalizers that only ARC's controller removes. Raises SandboxError.
    """
    with connected(kubeconfig) as api:
        found = interrupted(api, known)
        for each in found:
            patiently(functools.partial(api.call, "DELETE", each.path))
    return [
        f"Helm release {each.release}: {each.status} when an earlier run was killed;"
        " its record is removed, and what it left is taken over"
        for each in found
    ]


def refuse_interrupted(kubeconfig: Path, known: Collection[str], stack: str) -> None:
    """Raises SandboxError where a run that was killed has left something: the engine would wait for ever for a
    namespace whose objects it does not know, and never deletes."""
    with connected(kubeconfig) as api:
        found = sorted({each.release for each in interrupted(api, known)})
    if found:
        raise SandboxError(
            f"an earlier run was killed while Helm was at work on {', '.join(found)}: bring the stack up again first"
            f" (gpufleet sandbox up {stack} --engine pulumi), or leave --engine out to end it as it is"
        )
