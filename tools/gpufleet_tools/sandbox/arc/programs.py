"""ARC's own programs: where they are, and whether they are of the version that a stack has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpufleet_tools.sandbox.errors import SandboxError

ARC = "GPUFLEET_ARC"
"""Environment variable with a folder that has `manager` and `ghalistener`, or such a folder for each version."""

PROGRAMS = ("manager", "ghalistener")
"""The controller and the listener, as they are called in ARC's image."""

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
            raise SandboxError(f"{ARC}: there is no {program}; ARC {version} needs {' and '.join(PROGRAMS)} there")
        if not os.access(program, os.X_OK):
            raise SandboxError(f"{ARC}: {program} cannot be executed; chmod +x it")
        if (found := _version(program, version)) != version:
            raise SandboxError(
                f"{ARC}: {program} is of version {found}, and the stack has ARC {version}; put that version there, or"
                f" into {Path(given) / version}"
            )
    return folder.resolve()


def _version(program: Path, wanted: str) -> str:
    """The version that was linked into a program; the manager deletes scale sets of another one."""
    content = program.read_bytes()
    if recorded := _LINKED_VERSION.search(content):
        return recorded[1].decode()
    # A build with -trimpath does not record the linker's flags; the value itself is among the constants.
    return wanted if wanted.encode() in content else "unknown"
