"""Environments that have the built wheel of gpufleet and its dependencies, and nothing of this checkout."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass

from tests.conftest import ROOT, Outcome


def source_copy(folder: pathlib.Path) -> pathlib.Path:
    """A copy of what the wheel is built from."""
    source = folder / "source"
    for name in ("components", "stacks", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    return source


def built_wheel(
    folder: pathlib.Path, version: str | None = None, edit: tuple[str, str, str] | None = None
) -> pathlib.Path:
    """The wheel of this checkout; with another version number, and a text in a file replaced, where they are given."""
    source = ROOT
    if version:
        source = source_copy(folder / version)
        project = (source / "pyproject.toml").read_text()
        (source / "pyproject.toml").write_text(re.sub(r'(?m)^version = ".*"', f'version = "{version}"', project))
    if edit:
        file, before, after = edit
        text = (source / file).read_text()
        assert before in text
        (source / file).write_text(text.replace(before, after))
    wheels = folder / f"wheels-{version}"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = wheels.iterdir()
    return wheel


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: pathlib.Path
    """Its folder."""
    home: pathlib.Path
    """Home of the user who works in it, with nothing there."""

    @property
    def python(self) -> pathlib.Path:
        """Its interpreter."""
        return self.folder / "bin/python"

    def variables(self) -> dict[str, str]:
        """What its user's shell has: no module path, and no other environment."""
        return {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.defpath}", "HOME": str(self.home), "NO_COLOR": "1"}

    def run(
        self,
        *command: str | pathlib.Path,
        cwd: pathlib.Path,
        more: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> Outcome:
        """Runs one of its programs."""
        program, *rest = command
        ended = subprocess.run(
            [self.folder / "bin" / program, *rest],
            cwd=cwd,
            env=self.variables() | dict(more or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Outcome(ended.returncode, ended.stdout, ended.stderr)


def environment(folder: pathlib.Path, wheel: pathlib.Path, extra: str = "") -> Environment:
    """A new environment with the wheel and what its metadata asks for, in the locked versions."""
    venv.create(folder / "venv", with_pip=True)
    home = folder / "home"
    home.mkdir()
    made = Environment(folder / "venv", home)
    requirement = f"gpufleet{extra} @ {wheel.as_uri()}"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", made.python]
    install += ["--constraint", ROOT / "requirements-dev.txt", requirement]
    subprocess.run(install, check=True, timeout=580)
    return made
