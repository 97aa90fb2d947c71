"""Folder of one cluster on the machine that runs kubespray: its lock, its journal, its runs.

Sent unchanged to the machine that runs kubespray: standard library only.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import shutil
import socket
import sys
from collections.abc import Iterator

from gpufleet.bare_metal.kubespray.driver import playbook as playbook
from gpufleet.bare_metal.kubespray.driver.steps import Desired, Journal, Step, hosts, immutable

NO_CLUSTER: Journal = {
    "identity": "",
    "members": {},
    "touched": {},
    "secrets": None,
    "kubespray": "",
    "kubernetes": "",
}


class RunError(Exception):
    """Error raised if a run cannot start, or fails. The message has one line for each fact."""


def say(line: str) -> None:
    """Report progress. Errors are ignored, so that a run continues after its caller has been killed."""
    now = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S")
    with contextlib.suppress(OSError):
        print(f"{now} {line[: playbook.LINE_LIMIT]}", file=sys.stderr, flush=True)


class Cluster:
    """The folder of one cluster."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._journal = folder / "journal.json"
        self._desired = folder / "desired.json"
        self._sealed = folder / "journal.moved.json"
        self._destination = folder / "moved-to"

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the cluster's lock, so that no other run starts. The kernel releases it when the last holder ends."""
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another run on this cluster; its log is the newest in {self.folder / 'logs'}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock.fileno()

    def journal(self) -> Journal:
        """Return the journal of the cluster's members."""
        if not self._journal.exists():
            return NO_CLUSTER
        journal: Journal = json.loads(self._journal.read_text())
        desired = self.desired()
        if journal["members"] and "immutable" not in journal and desired:
            # An older driver wrote the journal. Its last desired state is the best known state at creation.
            journal["immutable"] = immutable(desired["variables"])
        return journal

    def keep(self, journal: Journal) -> None:
        """Write the journal atomically."""
        self.write("journal.json", json.dumps(journal, indent=1))

    def require_lasting_machine(self) -> None:
        """Raise RunError on GitHub's own runners, which are deleted after each job, together with the journal."""
        if os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted":
            raise RunError(
                f"{self.folder}: would hold kubespray's journal, but GitHub deletes this runner after the job; set"
                " runOn to a bastion, or use a self-hosted runner that stays"
            )

    def seal(self, destination: str) -> None:
        """Put the journal aside, so that no command finds it, and note where it goes. An older driver finds none
        either."""
        if self._journal.exists():
            self.write(self._destination.name, destination)
            self._journal.replace(self._sealed)

    def sealed_journal(self) -> str | None:
        """Return the text of the journal that was put aside; None if there is none."""
        return self._sealed.read_text() if self._sealed.exists() else None

    def moved_to(self) -> str | None:
        """Return the machine to which the journal has moved; None if it has not."""
        sealed = self._sealed.exists() and not self._journal.exists()
        return self._destination.read_text() if sealed else None

    def unseal(self) -> None:
        """Forget that the journal has moved away, because it is back."""
        for file in (self._sealed, self._destination):
            file.unlink(missing_ok=True)

    def desired(self) -> Desired | None:
        """Return the last desired state; None if there is none."""
        if not self._desired.exists():
            return None
        desired: Desired = json.loads(self._desired.read_text())
        return desired

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder atomically, readable only by its owner."""
        file = self.folder / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        part.replace(file)

    def surroundings(self) -> playbook.Surroundings:
        """Return the places of kubespray. Raise RunError if it is not installed."""
        file = self.folder / "kubespray.json"
        if not file.exists():
            raise RunError(f"{file}: is missing; the command `install` has not run")
        found = json.loads(file.read_text())
        return playbook.Surroundings(
            checkout=pathlib.Path(found["checkout"]), venv=pathlib.Path(found["venv"]), folder=self.folder
        )

    def run(self, step: Step, lock: int, *options: str) -> tuple[playbook.Outcome, pathlib.Path]:
        """Run one step with its own inventory."""
        place = self.surroundings()
        free = shutil.disk_usage(self.folder).free
        if free < playbook.SPACE_NEEDED:
            raise RunError(
                f"{self.folder}: {free // 2**20} MiB are free on {socket.gethostname()}; a run requires"
                f" {playbook.SPACE_NEEDED // 2**20} MiB for its log; free disk space, then run `pulumi up` again"
            )
        # JSON is YAML too. The suffix selects Ansible's plugin, and kubespray's ansible.cfg ignores `.ini`.
        self.write("inventory/hosts.yaml", json.dumps(hosts(step["inventory"], step.get("broken", ())), indent=1))
        for name in ("logs", "facts", "cp", "tmp"):
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
        name = pathlib.Path(step["playbook"]).stem
        log = self.folder / "logs" / f"{now}-{name}.log"
        limit = f" for {', '.join(step['limit'])}" if step["limit"] else ""
        say(f"{step['playbook']}{limit}: log {log}")
        desired = self.desired()
        outcome = playbook.run(
            place,
            step["playbook"],
            inventory=self.folder / "inventory",
            log=log,
            say=say,
            lock=lock,
            limit=step["limit"],
            options=options,
            extra=step["extra"],
            forks=playbook.forks(len(step["inventory"]), desired.get("forks") if desired else None),
        )
        return outcome, log
