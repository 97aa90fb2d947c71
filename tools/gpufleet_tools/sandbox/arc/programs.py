"""ARC's own programs: their folder and their version."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpufleet_tools.sandbox.errors import SandboxError

ARC = "GPUFLEET_ARC"
"""Environment variable with the folder of `manager` and `ghalistener`, or with such a folder for each version."""

PROGRAMS = ("manager", "ghalistener")
"""File names of the controller and the listener in ARC's image."""

_LINKED_VERSION = re.compile(rb"actions-runner-controller/build\.Version=(\d+\.\d+\.\d+)")


def find(version: str) -> Path:
    """Return the folder with ARC's programs of a version. Raises SandboxError."""
    given = os.environ.get(ARC)
    if not given:
        raise SandboxError(
            f"--arc real: {ARC} is not set; set it to a folder with {' and '.join(PROGRAMS)} of ARC {version}, the"
            f" files of ghcr.io/actions/gha-runner-scale-set-controller:{version}"
        )
    folder = Path(given) / version if (Path(given) / version).is_dir() else Path(given)
    for name in PROGRAMS:
        program = folder / name
        if not program.is_file():
            raise SandboxError(f"{ARC}: {program} does not exist; put {' and '.join(PROGRAMS)} of ARC {version} there")
        if not os.access(program, os.X_OK):
            raise SandboxError(f"{ARC}: {program} cannot be executed; chmod +x it")
        if (found := _version(program, version)) != version:
            raise SandboxError(
                f"{ARC}: {program} has version {found}, but the stack has ARC {version}; put that version there, or"
                f" into {Path(given) / version}"
            )
    return folder.resolve()


def _version(program: Path, wanted: str) -> str:
    """Return the version that was linked into a program. The manager deletes scale sets of other versions."""
    content = program.read_bytes()
    if recorded := _LINKED_VERSION.search(content):
        return recorded[1].decode()
    # A build with -trimpath does not record the linker's flags, but the value is among the constants.
    return wanted if wanted.encode() in content else "unknown"
