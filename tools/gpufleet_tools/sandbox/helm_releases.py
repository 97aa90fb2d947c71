"""Helm's release records that a killed `up` leaves behind, and that would make the next one fail.

Helm keeps a Secret for each revision of a release, and writes it before the chart's objects. If it is killed in
between, the release stays pending: another install fails ("cannot re-use a name that is still in use"), and so does
another upgrade ("another operation is in progress"). Pulumi's state lacks a release whose creation did not complete.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gpufleet_tools.api_server import ApiServer, retried
from gpufleet_tools.sandbox.control_plane.api_server import connected
from gpufleet_tools.sandbox.errors import SandboxError

_SECRET = {"apiVersion": "v1", "kind": "Secret"}


@dataclass(frozen=True)
class Interrupted:
    """Helm's record of an install that Pulumi's state lacks, or of an upgrade that did not complete."""

    path: str
    """Path of the record in the API."""
    release: str
    """Release as `namespace/name`."""
    status: str
    """Helm's status of the release."""


def interrupted(api: ApiServer, known: Collection[str]) -> list[Interrupted]:
    """Return the records of interrupted operations. `known` has the releases of the state as `namespace/name`."""
    secrets = api.resource(_SECRET)
    found = []
    for record in api.by_label(secrets, "owner=helm"):
        labels, path = record["labels"], secrets.path(record["namespace"], record["name"])
        each = Interrupted(path, f"{record['namespace']}/{labels['name']}", labels["status"])
        if each.release not in known or each.status in ("pending-upgrade", "pending-rollback"):
            found.append(each)
    return found


def forget_interrupted(kubeconfig: Path, known: Collection[str]) -> list[str]:
    """Remove the records of interrupted operations, and return a line about each.

    The chart's objects stay: Helm adopts those with its release's name (action/install.go of Helm 3.2 and newer).
    Uninstalling them would wait for finalizers that only ARC's controller removes. Raises SandboxError.
    """
    with connected(kubeconfig) as api:
        found = interrupted(api, known)
        for each in found:
            retried(functools.partial(api.call, "DELETE", each.path))
    return [
        f"Helm release {each.release}: removed its record, which was {each.status} when an earlier run was killed; Helm"
        " adopts the objects"
        for each in found
    ]


def refuse_interrupted(kubeconfig: Path, known: Collection[str], stack: str) -> None:
    """Raise SandboxError if there are records of interrupted operations: the engine would never delete their objects,
    and would wait indefinitely for the deletion of their namespace."""
    with connected(kubeconfig) as api:
        found = sorted({each.release for each in interrupted(api, known)})
    if found:
        raise SandboxError(
            f"an earlier run was killed during a Helm operation on {', '.join(found)}; bring the stack up again first"
            f" (gpufleet sandbox up {stack} --engine pulumi), or omit --engine to remove the sandbox as it is"
        )
