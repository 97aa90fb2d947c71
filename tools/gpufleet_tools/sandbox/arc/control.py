"""Interface of the process that runs ARC: its configuration, and its commands."""

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
    """Configuration of the process, which it reads from a file."""

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
        """Write it to a file that only this user can read."""
        file.touch(mode=0o600)
        file.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Configuration:
        return cls(**json.loads(file.read_text()))


@dataclass(frozen=True)
class Control:
    """Connection to the process that runs ARC (world.py)."""

    port: int
    key: str

    @classmethod
    def of(cls, control_plane: ControlPlane, stack: str = "STACK") -> Control:
        """Return the connection to that of a stack's sandbox. Raises SandboxError if ARC is simulated."""
        file = control_file(control_plane)
        try:
            content = json.loads(file.read_text())
        except FileNotFoundError:
            raise SandboxError(
                f"the simulated GitHub accepts commands only with the real ARC: gpufleet sandbox up {stack} --arc real"
            ) from None
        return cls(content["port"], content["key"])

    def call(self, command: str, **arguments: Any) -> Any:
        """Run a command, and return its result. Raises SandboxError."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)
        try:
            connection.request("POST", f"/{command}", json.dumps(arguments), {KEY_HEADER: self.key})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise SandboxError(f"the simulated GitHub does not respond ({error}); start the sandbox again") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise SandboxError(f"the simulated GitHub rejects {command}: {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def answers(self) -> bool:
        """Return whether the process responds."""
        try:
            self.call("state")
        except SandboxError:
            return False
        return True


def control_file(control_plane: ControlPlane) -> Path:
    """Return the file with port and key, which only this user can read."""
    return control_plane.directory / "arc" / "control.json"


def write(control_plane: ControlPlane, configuration: Configuration, port: int) -> Control:
    """Write the file with port and key for later commands."""
    file = control_file(control_plane)
    file.touch(mode=0o600)
    file.write_text(json.dumps({"port": port, "key": configuration.key}))
    return Control(port, configuration.key)
