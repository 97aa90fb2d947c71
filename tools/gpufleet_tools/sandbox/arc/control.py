"""The process around ARC as others see it: what it is started with, and the commands that it takes."""

from __future__ import annotations

import dataclasses
import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufleet_tools.sandbox.control_plane.control_plane import LOOPBACK, ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError

KEY_HEADER = "X-Sandbox-Key"
"""Header with the key of the control server."""


@dataclass(frozen=True)
class Configuration:
    """What the process is given, in a file."""

    kubeconfig: str
    folder: str
    """Folder for state, logs and certificates."""
    programs: dict[str, str]
    """Folder with `manager` and `ghalistener`, by version."""
    hosts: list[str]
    """Host names of GitHub in the stack's URLs."""
    key: str
    """Key of the control server, which only this user can read."""

    def write(self, file: Path) -> None:
        """Write it where only this user can read it."""
        file.touch(mode=0o600)
        file.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Configuration:
        return cls(**json.loads(file.read_text()))


@dataclass(frozen=True)
class Control:
    """The way to the process around ARC (world.py)."""

    port: int
    key: str

    @classmethod
    def of(cls, control_plane: ControlPlane) -> Control:
        """The way to that of a sandbox. Raises SandboxError where ARC is not real."""
        file = control_file(control_plane)
        try:
            content = json.loads(file.read_text())
        except FileNotFoundError:
            raise SandboxError(
                "GitHub takes commands only where ARC is real: gpufleet sandbox up STACK --arc real"
            ) from None
        return cls(content["port"], content["key"])

    def call(self, command: str, **arguments: Any) -> Any:
        """Do a command, and return its answer. Raises SandboxError."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)
        try:
            connection.request("POST", f"/{command}", json.dumps(arguments), {KEY_HEADER: self.key})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise SandboxError(f"the simulated GitHub does not answer ({error}); bring the sandbox up again") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise SandboxError(f"the simulated GitHub refuses {command}: {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def answers(self) -> bool:
        """Whether the process answers."""
        try:
            self.call("state")
        except SandboxError:
            return False
        return True


def control_file(control_plane: ControlPlane) -> Path:
    """The file with port and key, which only this user can read."""
    return control_plane.directory / "arc" / "control.json"


def write(control_plane: ControlPlane, configuration: Configuration, port: int) -> Control:
    """Write the file for the commands to come."""
    file = control_file(control_plane)
    file.touch(mode=0o600)
    file.write_text(json.dumps({"port": port, "key": configuration.key}))
    return Control(port, configuration.key)
