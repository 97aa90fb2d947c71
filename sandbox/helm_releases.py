"""Helm's own records of releases, where an `up` that was killed has left some that the next one would trip over.

Helm keeps a Secret for each revision of a release, and writes it before the chart's objects. Killed in between, the
release is pending for good: another install is refused ("cannot re-use a name that is still in use"), another upgrade
too ("another operation is in progress"). Nor does Pulumi know of a release whose creation it has not seen end.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from pathlib import Path

from sandbox.api_server import connected, patiently

_SECRET = {"apiVersion": "v1", "kind": "Secret"}


def forget_interrupted(kubeconfig: Path, known: Collection[str]) -> list[str]:
    """Removes the records of installs that the state does not know and of upgrades that have not ended, and says of
    each in a line which it was. `known` has the releases of the state, each as `namespace/name`.

    The chart's objects stay: Helm adopts those that bear its release's name (action/install.go of Helm 3.2 and newer).
    To uninstall them would wait for finalizers that only ARC's controller removes. Raises SandboxError.
    """
    said = []
    with connected(kubeconfig) as api:
        secrets = api.resource(_SECRET)
        for record in api.by_label(secrets, "owner=helm"):
            labels = record["labels"]
            release, status = f"{record['namespace']}/{labels['name']}", labels["status"]
            if release in known and status not in ("pending-upgrade", "pending-rollback"):
                continue
            path = secrets.path(record["namespace"], record["name"])
            patiently(functools.partial(api.call, "DELETE", path))
            said.append(
                f"Helm release {release}: {status} when an earlier run was killed;"
                " its record is removed, and what it left is taken over"
            )
    return said
