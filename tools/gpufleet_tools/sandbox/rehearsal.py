"""A stack brought up by the real engine: `pulumi up` of the same program, into the sandbox's API server.

The project's own files are never touched: the engine gets a folder of its own, with a stack file of its own whose
kubeconfig is the sandbox's, whose secrets are stand-ins and which has nothing done on machines, a passphrase of its
own, and a backend of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpufleet_stacks.settings.models.bare_metal import ON_MACHINES
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import NAMESPACE
from gpufleet_stacks.settings.stack_file import read
from gpufleet_tools.plan.plan import RELEASE
from gpufleet_tools.plan.stack import STAND_IN, Stack
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError

CHARTS = "GPUFLEET_CHARTS"
"""Environment variable with a folder of charts, `<name>-<version>.tgz`, for machines that reach no registry."""


@dataclass(frozen=True)
class Rehearsal:
    """The engine's folder for one stack, beside the control plane that it deploys into."""

    stack: Stack
    control_plane: ControlPlane

    @property
    def folder(self) -> pathlib.Path:
        return self.control_plane.directory / "rehearsal"

    @property
    def _stack_file(self) -> pathlib.Path:
        return self.folder / f"Pulumi.{self.stack.name}.yaml"

    @property
    def backend(self) -> str:
        """URL of the folder with the state."""
        return f"file://{self.folder / 'state'}"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until no other command rehearses the stack, and keeps others waiting."""
        directory = self.control_plane.directory
        with processes.exclusive(directory.with_name(f"{directory.name}.rehearsal.lock")):
            yield

    def prepare(self) -> None:
        """Lays out the engine's folder, and selects or makes the stack. Raises SandboxError."""
        # Plugins outlive an engine that was killed, and go on: Helm with what it installs. `alone` sees to it that
        # they are nobody else's.
        processes.kill_with("PULUMI_BACKEND_URL", self.backend, "pulumi-")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir(exist_ok=True)
        passphrase = self.folder / "passphrase"
        if not passphrase.exists():
            passphrase.write_text(secrets.token_hex(32))
        for entry in self.stack.root.iterdir():
            link = self.folder / entry.name
            if not (entry.name.startswith(("Pulumi.", ".")) or link.is_symlink()):
                link.symlink_to(entry)
        project = yaml.safe_load((self.stack.root / "Pulumi.yaml").read_text())
        # The environment of this very command, wherever the project's own would be.
        project["runtime"] = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project, sort_keys=False))
        self._write_stack_file()
        # A killed run leaves the engine's lock behind; that nobody else runs, `alone` sees to.
        self.pulumi("stack", "select", "--create", self.stack.name, quiet=True)
        self.pulumi("cancel", "--yes", quiet=True)
        values = dict.fromkeys(self._secret_config_keys(), STAND_IN)
        values[f"{NAMESPACE}:kubeconfig"] = self.control_plane.kubeconfig.read_text()
        for key, text in values.items():
            if key not in self._stored_secrets():
                self.pulumi("config", "set", "--secret", key, stdin=text, quiet=True)

    def _write_stack_file(self) -> None:
        """The stack's values with the sandbox's kubeconfig, and its secrets, encrypted once and then kept."""
        file = self._stack_file
        before: dict[str, Any] = yaml.safe_load(file.read_text()) if file.exists() else {}
        config = {**self.stack.file.foreign, **{f"{NAMESPACE}:{k}": v for k, v in self._values().items()}}
        kept = {key: before["config"][key] for key in self._stored_secrets() & self._secret_config_keys()}
        file.write_text(yaml.safe_dump({**before, "config": config | kept}, sort_keys=False))

    def _stored_secrets(self) -> set[str]:
        """Whole keys of the secrets that the rehearsal's own stack file has."""
        if not self._stack_file.exists():
            return set()
        file = read(self._stack_file)
        return {*(f"{NAMESPACE}:{key}" for key in file.secrets), *file.foreign_secrets}

    def _secret_config_keys(self) -> set[str]:
        """Whole keys of every secret of the rehearsed stack, those of the program's own configuration among them."""
        return {*(f"{NAMESPACE}:{key}" for key in self.secret_keys()), *self.stack.file.foreign_secrets}

    def secret_keys(self) -> set[str]:
        """Secrets that the rehearsed stack asks for: those of its projects, since nothing is done on machines."""
        return {*Settings.secret_keys(self.stack.settings), "kubeconfig"}

    def _values(self) -> dict[str, Any]:
        values = dict(self.stack.file.values)
        # Whatever would be done on machines is left out: the sandbox is the cluster.
        cluster = {key: value for key, value in values["cluster"].items() if key not in ON_MACHINES}
        values["cluster"] = {**cluster, "kubeconfig": {"kind": "secret"}}
        if CHARTS in os.environ and "charts" not in values:
            values["charts"] = {"mirror": str(pathlib.Path(os.environ[CHARTS]).resolve())}
        return values

    def pulumi(self, *arguments: str, stdin: str | None = None, quiet: bool = False) -> str:
        """Runs the engine's command line in its folder; returns what it printed when quiet, else lets it print.

        Raises SandboxError when it fails.
        """
        command = ["pulumi", *arguments, "--non-interactive", "--cwd", str(self.folder)]
        done = processes.attended(command, env=self.environment(), text=stdin, quiet=quiet)
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if line.strip()]
            raise SandboxError(f"pulumi {' '.join(arguments)} ended with {done.returncode}", *said[-5:])
        return done.stdout

    def releases(self) -> set[str]:
        """Helm releases of the state, each as `namespace/name`."""
        exported = json.loads(self.pulumi("stack", "export", quiet=True))
        resources = exported["deployment"].get("resources", [])
        return {resource["id"] for resource in resources if resource["type"] == RELEASE and "id" in resource}

    def environment(self) -> Mapping[str, str]:
        """The caller's environment, with backend and passphrase of the rehearsal, and no way to another cluster."""
        own = {
            "PULUMI_BACKEND_URL": self.backend,
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(self.folder / "passphrase"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "KUBECONFIG": os.devnull,
        }
        foreign = ("PULUMI_STACK", "PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE")
        return {key: value for key, value in os.environ.items() if key not in foreign} | own


def require_cli() -> None:
    """Raises SandboxError when the engine's command line is not on PATH."""
    if shutil.which("pulumi") is None:
        raise SandboxError(
            "pulumi is not on PATH: a rehearsal needs the official CLI, https://www.pulumi.com/docs/install/;"
            " without, leave --engine out"
        )
