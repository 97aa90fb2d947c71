"""The version of gpufleet that a revision's requirements.txt pins, installed for the evaluation of that revision."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpufleet_stacks.settings.secrets import redacted

NAME = "gpufleet"

EVALUATION = pathlib.Path("gpufleet_tools/diff/evaluation.py")
"""Program that evaluates a revision, in the folder in which gpufleet is installed."""

_INDEX_OPTIONS = ("-i ", "-f ", "--index-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host")
"""Options of a requirements file that determine the source of packages."""


class InstallError(Exception):
    """A pinned version cannot be installed. `str()` is one line."""


@dataclass(frozen=True)
class Pin:
    """A version of gpufleet that a requirements file pins."""

    version: str
    """The version."""
    wheel: str | None
    """Path or URL of its wheel; None if the wheel comes from an index."""
    lines: tuple[str, ...]
    """Options of the file about the source of packages, then the requirement with its hashes."""
    folder: pathlib.Path
    """Folder of the requirements file, to which paths are relative."""

    @property
    def identity(self) -> tuple[str, str | None, str]:
        """Identity of the pin: the version, the wheel's location, and the digest of a wheel in the project."""
        file = self.folder / (self.wheel or "")
        content = hashlib.sha256(file.read_bytes()).hexdigest() if self.wheel and file.is_file() else ""
        return self.version, self.wheel, content


def pin(folder: pathlib.Path) -> Pin | None:
    """Return the pin in a project's requirements.txt; None if it pins no version of gpufleet."""
    file = folder / "requirements.txt"
    lines = list(_logical_lines(file.read_text())) if file.is_file() else []
    options = [line for line in lines if line.startswith(_INDEX_OPTIONS)]
    for line in lines:
        if found := _pinned(line.split(" --")[0].strip()):
            return Pin(*found, (*options, line), folder)
    return None


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the logical lines of a requirements file without comments."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if plain := re.sub(r"(^|\s)#.*", "", line).strip():
            yield " ".join(plain.split())


def _pinned(requirement: str) -> tuple[str, str | None] | None:
    """Return version and wheel of a requirement that pins gpufleet; None for any other."""
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        # A path or a URL, perhaps with extras.
        wheel = re.sub(r"\[[^]]*\]$", "", requirement)
        version = _wheel_version(wheel)
        return (version, wheel) if version else None
    if canonicalize_name(parsed.name) != NAME:
        return None
    if parsed.url:
        version = _wheel_version(parsed.url)
        return (version, parsed.url) if version else None
    exact = re.fullmatch(r"==([^*,]+)", str(parsed.specifier))
    return (exact[1], None) if exact else None


def _wheel_version(place: str) -> str | None:
    try:
        name, version, *_ = parse_wheel_filename(re.split(r"[#?]", place)[0].rpartition("/")[2])
    except InvalidWheelFilename:
        return None
    return str(version) if name == NAME else None


def is_installed_here(wanted: Pin) -> bool:
    """Return whether the environment of this command has that version. An editable install does not count."""
    try:
        distribution = importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        return False
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if "dir_info" in origin or wanted.wheel:
        return False
    return distribution.version == wanted.version


def installed(wanted: Pin) -> pathlib.Path:
    """Return the folder with that version in the user's cache. Install the version there first if it is missing.

    Its dependencies are not installed; those of this environment are used. Raises InstallError.
    """
    from gpufleet_tools.sandbox.build.go_build import cache_directory

    key = hashlib.sha256(repr((*wanted.identity, *wanted.lines)).encode()).hexdigest()[:16]
    folder = cache_directory() / "versions" / f"{wanted.version}-{key}"
    if not (folder / EVALUATION).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as scratch:
            target = pathlib.Path(scratch, "version")
            _install(wanted, pathlib.Path(scratch, "requirements.txt"), target)
            if not (target / EVALUATION).is_file():
                raise InstallError(f"gpufleet {wanted.version} is older than `gpufleet diff`")
            if not folder.exists():
                target.rename(folder)
    return folder


def _install(wanted: Pin, requirements: pathlib.Path, target: pathlib.Path) -> None:
    requirements.write_text("".join(f"{line}\n" for line in wanted.lines))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    # Only wheels: a revision under review must not run a build here.
    command += ["--no-deps", "--only-binary=:all:", "--target", str(target), "--requirement", str(requirements)]
    # Without the caller's modules, in which pip might find gpufleet.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=wanted.folder, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.strip()]
        last = next((line for line in reversed(errors) if line.startswith("ERROR:")), (errors or ["no message"])[-1])
        why = redacted(last.removeprefix("ERROR:").strip())
        raise InstallError(f"gpufleet {wanted.version} cannot be installed: {why}")
