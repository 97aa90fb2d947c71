"""Rehearsal: a real `pulumi up` of the stack's program into the sandbox's API server.

The project's files are not changed. The engine runs in a separate folder with its own passphrase, backend and stack
file. That stack file has the sandbox's kubeconfig and stand-ins for secrets, and no sections that run commands on
machines.
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
"""Environment variable with a folder of charts, `<name>-<version>.tgz`, for machines that cannot reach a registry."""


@dataclass(frozen=True)
class Rehearsal:
    """The engine's folder for one stack, in the directory of its control plane."""

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
    def locked(self) -> Iterator[None]:
        """Hold the lock of the stack's rehearsals; wait for it if another command holds it."""
        directory = self.control_plane.directory
        with processes.exclusive(directory.with_name(f"{directory.name}.rehearsal.lock")):
            yield

    def prepare(self, keys: Mapping[str, str] | None = None) -> None:
        """Write the engine's folder, and select or create the stack. `keys` has values of its secrets; others get a
        stand-in. Raises SandboxError."""
        # Plugins outlive a killed engine and continue, as does Helm's installation. Because of `locked`, they belong to
        # no other command.
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
        # Use the virtual environment of this command in place of the project's.
        project["runtime"] = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(project, sort_keys=False))
        self._write_stack_file()
        # A killed run leaves the engine's lock; because of `locked`, no other command uses it.
        self.pulumi("stack", "select", "--create", self.stack.name, quiet=True)
        self.pulumi("cancel", "--yes", quiet=True)
        values = dict.fromkeys(self._secret_config_keys(), STAND_IN)
        values |= {f"{NAMESPACE}:{key}": text for key, text in (keys or {}).items()}
        values[f"{NAMESPACE}:kubeconfig"] = self.control_plane.kubeconfig.read_text()
        for key, text in values.items():
            if key not in self._stored_secrets():
                self.pulumi("config", "set", "--secret", key, stdin=text, quiet=True)

    def _write_stack_file(self) -> None:
        """Write the stack's values with the sandbox's kubeconfig. Encrypted secrets of an earlier run are kept."""
        file = self._stack_file
        before: dict[str, Any] = yaml.safe_load(file.read_text()) if file.exists() else {}
        config = {**self.stack.file.foreign, **{f"{NAMESPACE}:{k}": v for k, v in self._values().items()}}
        kept = {key: before["config"][key] for key in self._stored_secrets() & self._secret_config_keys()}
        file.write_text(yaml.safe_dump({**before, "config": config | kept}, sort_keys=False))

    def _stored_secrets(self) -> set[str]:
        """Return the full keys of the secrets in the rehearsal's stack file."""
        if not self._stack_file.exists():
            return set()
        file = read(self._stack_file)
        return {*(f"{NAMESPACE}:{key}" for key in file.secrets), *file.foreign_secrets}

    def _secret_config_keys(self) -> set[str]:
        """Return the full keys of all secrets of the rehearsed stack, including those of the program's own settings."""
        return {*(f"{NAMESPACE}:{key}" for key in self.secret_keys()), *self.stack.file.foreign_secrets}

    def secret_keys(self) -> set[str]:
        """Return the secrets that the rehearsed stack requires: those of its projects and the kubeconfig."""
        return {*Settings.secret_keys(self.stack.settings), "kubeconfig"}

    def _values(self) -> dict[str, Any]:
        values = dict(self.stack.file.values)
        # Without the sections that run commands on machines: the sandbox is the cluster.
        cluster = {key: value for key, value in values["cluster"].items() if key not in ON_MACHINES}
        values["cluster"] = {**cluster, "kubeconfig": {"kind": "secret"}}
        if CHARTS in os.environ and "charts" not in values:
            values["charts"] = {"mirror": str(pathlib.Path(os.environ[CHARTS]).resolve())}
        return values

    def pulumi(self, *arguments: str, stdin: str | None = None, quiet: bool = False) -> str:
        """Run the engine's command line in its folder. If `quiet`, return its output, else let it print.

        Raises SandboxError if it fails.
        """
        command = ["pulumi", *arguments, "--non-interactive", "--cwd", str(self.folder)]
        done = processes.interactive(command, env=self.environment(), text=stdin, quiet=quiet)
        if done.returncode:
            output = [line for line in done.stdout.splitlines() if line.strip()]
            raise SandboxError(f"pulumi {' '.join(arguments)} failed with exit code {done.returncode}", *output[-5:])
        return done.stdout

    def releases(self) -> set[str]:
        """Return the Helm releases of the state as `namespace/name`."""
        exported = json.loads(self.pulumi("stack", "export", quiet=True))
        resources = exported["deployment"].get("resources", [])
        return {resource["id"] for resource in resources if resource["type"] == RELEASE and "id" in resource}

    def environment(self) -> Mapping[str, str]:
        """Return the caller's environment with the rehearsal's backend and passphrase, and without other clusters."""
        own = {
            "PULUMI_BACKEND_URL": self.backend,
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(self.folder / "passphrase"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "KUBECONFIG": os.devnull,
        }
        foreign = ("PULUMI_STACK", "PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE")
        return {key: value for key, value in os.environ.items() if key not in foreign} | own


def require_cli() -> None:
    """Raise SandboxError if the engine's command line is not on PATH."""
    if shutil.which("pulumi") is None:
        raise SandboxError(
            "pulumi is not on PATH; a rehearsal requires it: install it (https://www.pulumi.com/docs/install/), or omit"
            " --engine"
        )
