"""Daemons: processes of a sandbox, beside its control plane, that outlive the command.

They end with the control plane's `down`, which ends every process whose program is in the sandbox's directory.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpufleet
import gpufleet_stacks
import gpufleet_tools
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane, free_ports, is_free
from gpufleet_tools.sandbox.errors import SandboxError

_TIMEOUT = 120.0
_PACKAGES = (gpufleet, gpufleet_stacks, gpufleet_tools)


@dataclass(frozen=True)
class Daemon:
    """A process that runs beside the control plane."""

    name: str
    program: Path
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """Its whole environment; the caller's is not inherited."""
    ready: Callable[[], bool]
    """Function that returns whether it is ready."""

    def fingerprint(self) -> str:
        """Return a digest of program, arguments and environment."""
        described = [str(self.program.resolve()), self.arguments, sorted(self.environment.items())]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def python(name: str, module: str, *arguments: str, ready: Callable[[], bool]) -> Daemon:
    """Return a daemon that runs a module of this package with the current Python."""
    # Python that is started by a link in the sandbox's directory does not find the virtual environment, so its folders
    # are listed. The command's own folder is omitted: otherwise each command would have another fingerprint.
    own = dict.fromkeys(str(Path(package.__path__[0]).resolve().parent) for package in _PACKAGES)
    folders = [*own, *(each for each in sys.path if Path(each).name in ("site-packages", "dist-packages"))]
    environment = {"PYTHONPATH": ":".join(folders), "PYTHONUNBUFFERED": "1"}
    return Daemon(name, Path(sys.executable), ("-m", module, *arguments), environment, ready)


def ports(control_plane: ControlPlane, names: Sequence[str]) -> dict[str, int]:
    """Return a port for each name: those of the last start, unless another process has taken one."""
    file = control_plane.directory / "daemon-ports.json"
    known: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    running = bool(processes.started_from(_programs(control_plane)))
    kept = {name: known[name] for name in names if name in known and (running or is_free(known[name]))}
    if len(kept) < len(names):
        missing = [name for name in names if name not in kept]
        kept |= zip(missing, free_ports(len(missing)), strict=True)
        file.write_text(json.dumps(known | kept))
    return kept


def started(control_plane: ControlPlane, daemon: Daemon, *, restart: bool = False) -> bool:
    """Start a daemon unless it runs with the same fingerprint, and wait until it is ready. Return whether it was
    started. `restart` always starts it again. Raises SandboxError with the last line of its log."""
    fingerprint = control_plane.directory / f"{daemon.name}.started"
    with control_plane.locked():
        is_current = fingerprint.exists() and fingerprint.read_text() == daemon.fingerprint()
        if is_current and not restart and _is_alive(control_plane, daemon) and daemon.ready():
            return False
        fingerprint.unlink(missing_ok=True)
        ended(control_plane, daemon.name)
        link = _programs(control_plane) / daemon.name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(daemon.program)
        log = control_plane.directory / f"{daemon.name}.log"
        child = processes.start([link, *daemon.arguments], log=log, env=daemon.environment)
        _wait(daemon, child, log)
        fingerprint.write_text(daemon.fingerprint())
    return True


def ended(control_plane: ControlPlane, name: str) -> None:
    """End a daemon if it runs. Raises SandboxError if it does not end."""
    try:
        processes.kill(_programs(control_plane), only=name)
    except TimeoutError as error:
        raise SandboxError(f"cluster {control_plane.name}: {error}; end it yourself, then try again") from error


def alive(control_plane: ControlPlane) -> set[str]:
    """Return the names of the running daemons."""
    return set(processes.started_from(_programs(control_plane)).values())


def program(control_plane: ControlPlane, name: str) -> Path | None:
    """Return the program of a daemon; None if it was never started."""
    link = _programs(control_plane) / name
    return link.resolve() if link.exists() else None


def _programs(control_plane: ControlPlane) -> Path:
    return control_plane.directory / "daemons"


def _is_alive(control_plane: ControlPlane, daemon: Daemon) -> bool:
    return daemon.name in alive(control_plane)


def _wait(daemon: Daemon, child: int, log: Path) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not daemon.ready():
        if processes.has_ended(child) or time.monotonic() > deadline:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            message = next((line for line in lines if line.startswith("panic:")), lines[-1] if lines else "no message")
            raise SandboxError(f"{daemon.name} does not start: {message} (log: {log})")
        time.sleep(0.05)
