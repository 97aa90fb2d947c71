"""Move of a cluster's state to another machine that runs kubespray: packed and sealed on the old one, unpacked on the
new one.

Sent unchanged to the machine that runs kubespray: standard library only.
"""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
import textwrap

from gpufleet.bare_metal.kubespray.driver.folder import Cluster, RunError
from gpufleet.bare_metal.kubespray.driver.payloads import AdoptPayload, HandOverPayload

MOVED = ("desired.json", "ssh.json", "inventory", "facts")
"""Files and folders that move with the journal. Pulumi sends the SSH key again; the rest is written by each run."""

_WIDTH = 120
"""Length of a line of the archive. pulumi-command hangs after a very long line (LINE_LIMIT in playbook.py)."""


def hand_over(cluster: Cluster, payload: HandOverPayload) -> None:
    """Seal the cluster's state, so that no command changes the cluster from here, and print it for the new machine.

    A second call prints the same state again. Raise RunError if this machine has no journal, or has given it to
    another machine.
    """
    with cluster.locked():
        if cluster.moved_to() not in (None, payload["to"]):
            raise RunError(
                f"{cluster.folder}: the journal has moved to {cluster.moved_to()}; set movedFrom to that machine, or if"
                " it never got the journal, rename journal.moved.json to journal.json"
            )
        cluster.seal(payload["to"])
        journal = cluster.sealed_journal()
        if journal is None:
            raise RunError(
                f"{cluster.folder}: has no journal to move; remove movedFrom, or name the machine that has it"
            )
        packed: AdoptPayload = {
            "identity": json.loads(journal)["identity"],
            "archive": _packed(_files(cluster.folder) | {"journal.json": journal}),
        }
    print(json.dumps(packed, indent=1))


def adopt(cluster: Cluster, payload: AdoptPayload) -> None:
    """Take over the state of a cluster from another machine, and print the cluster's identity. Changes nothing if this
    machine has the cluster's journal already."""
    cluster.require_lasting_machine()
    with cluster.locked():
        journal = cluster.journal()
        if journal["members"] and journal["identity"] != payload["identity"]:
            raise RunError(
                f"{cluster.folder}: has the journal of another cluster of this name; remove movedFrom, or choose"
                " another directory"
            )
        if journal["identity"] != payload["identity"]:
            files = _unpacked(payload["archive"])
            # The journal comes last: until then, an interrupted move starts again.
            for name in sorted(files, key=lambda name: name == "journal.json"):
                cluster.write(name, files[name])
            cluster.unseal()
    print(payload["identity"])


def _files(folder: pathlib.Path) -> dict[str, str]:
    """Return the text of each file that moves, by path in the cluster's folder."""
    roots = [folder / name for name in MOVED]
    files = [each for root in roots for each in ([root] if root.is_file() else sorted(root.rglob("*")))]
    return {str(file.relative_to(folder)): file.read_text() for file in files if file.is_file()}


def _packed(files: dict[str, str]) -> list[str]:
    """Return files as lines of text."""
    compressed = gzip.compress(json.dumps(files, sort_keys=True).encode(), mtime=0)
    return textwrap.wrap(base64.b64encode(compressed).decode(), _WIDTH)


def _unpacked(lines: list[str]) -> dict[str, str]:
    files: dict[str, str] = json.loads(gzip.decompress(base64.b64decode("".join(lines))))
    return files
