"""ARC's own programs: files of a folder, or of ARC's image in a registry."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import IO

from gpufleet_tools.runner_images.layers import read_files
from gpufleet_tools.runner_images.web import LookupFailed, TooSlow
from gpufleet_tools.sandbox.build.go_build import cache_directory
from gpufleet_tools.sandbox.build.releases import ARCHITECTURES
from gpufleet_tools.sandbox.control_plane import processes
from gpufleet_tools.sandbox.errors import SandboxError

ARC = "GPUFLEET_ARC"
"""Environment variable with the folder of `manager` and `ghalistener`, or with such a folder for each version."""

ARC_IMAGE = "GPUFLEET_ARC_IMAGE"
"""Environment variable with another image than ARC's official one, such as its copy in a mirror."""

PROGRAMS = ("manager", "ghalistener")
"""File names of the controller and the listener in ARC's image."""

OFFICIAL_IMAGE = (
    "ghcr.io/actions/gha-runner-scale-set-controller:0.14.2"
    "@sha256:1b4c7f62e971ab259a4b8798e48e2adaad4af747f45990f474ea5feefa03531d"
)
"""ARC's image with the digest that public repositories pin beside its tag. Other versions are read by tag, and only the
registry's own digests are verified."""

_SECONDS = 600.0
_LINKED_VERSION = re.compile(rb"actions-runner-controller/build\.Version=(\d+\.\d+\.\d+)")


def find(version: str) -> Path:
    """Return the folder with ARC's programs of a version: of GPUFLEET_ARC, else from ARC's image. Raises
    SandboxError."""
    given = os.environ.get(ARC)
    if not given:
        return _from_image(image(version), version)
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


def image(version: str) -> str:
    """Return the image with ARC's programs of a version."""
    if given := os.environ.get(ARC_IMAGE):
        # As for every image, a colon after the last slash begins a tag.
        return given if "@" in given or ":" in given.rpartition("/")[2] else f"{given}:{version}"
    tagged = f"{OFFICIAL_IMAGE.partition(':')[0]}:{version}"
    return OFFICIAL_IMAGE if OFFICIAL_IMAGE.startswith(f"{tagged}@") else tagged


def _from_image(reference: str, version: str) -> Path:
    """Return the folder with the programs of an image, which are read once. Raises SandboxError."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    # A tag is resolved once. To resolve it again, remove the folder.
    name = hashlib.sha256(f"{reference} {architecture}".encode()).hexdigest()[:16]
    folder = cache_directory() / "arc" / f"{version}-{name}"
    try:
        with processes.exclusive(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                _read(reference, version, f"linux/{architecture}", folder)
    except OSError as error:
        raise SandboxError(f"{error.filename or folder}: {error.strerror or error}") from error
    return folder


def _read(reference: str, version: str, system: str, folder: Path) -> None:
    """Read the programs of an image into a new folder. Raises SandboxError."""
    print(f"reading ARC's programs from {reference}", file=sys.stderr, flush=True)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        digest = read_files(
            reference, PROGRAMS, lambda name, content: _write(partial / name, content), _SECONDS, system
        )
        for name in PROGRAMS:
            if (found := _version(partial / name, version)) != version:
                raise SandboxError(
                    f"--arc real: {name} in {reference} has version {found}, but the stack has ARC {version}; set"
                    f" {ARC_IMAGE} to an image of that version"
                )
        partial.rename(folder)
    except LookupFailed as error:
        fault = error.fault if isinstance(error, TooSlow) else str(error)
        raise SandboxError(
            f"--arc real: ARC's programs cannot be read from its image: {fault}; set {ARC_IMAGE} to a copy of the"
            f" image, or {ARC} to a folder with {' and '.join(PROGRAMS)} of ARC {version}"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"ARC's programs are in {folder} (digest of the image: {digest})", file=sys.stderr, flush=True)


def _write(file: Path, content: IO[bytes]) -> None:
    try:
        with file.open("wb") as target:
            shutil.copyfileobj(content, target, 2**20)
        file.chmod(0o755)
    except OSError as error:
        # Not a fault of the image, as which the caller would report it.
        raise SandboxError(f"{file}: {error.strerror or error}") from error


def _version(program: Path, wanted: str) -> str:
    """Return the version that was linked into a program. The manager deletes scale sets of other versions."""
    content = program.read_bytes()
    if recorded := _LINKED_VERSION.search(content):
        return recorded[1].decode()
    # A build with -trimpath does not record the linker's flags, but the value is among the constants.
    return wanted if wanted.encode() in content else "unknown"
