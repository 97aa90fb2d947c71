"""docs/adopt.md: its files make a project, and its commands do what it says."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.adoption import ci_fleet
from tests.adoption.environments import Environment, source_copy
from tests.conftest import ROOT

TEXT = (ROOT / "docs/adopt.md").read_text()


def fences(language: str) -> list[str]:
    """The fenced pieces in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Every command, without its comment."""
    return [line.split("  #")[0].strip() for piece in fences("sh") for line in piece.splitlines()]


def test_the_document_is_short_and_shows_the_packages_version() -> None:
    assert len(TEXT.splitlines()) <= 80
    version = re.search(r'(?m)^version = "(.*)"', (ROOT / "pyproject.toml").read_text())
    assert version
    assert fences("text") == [f"gpufleet=={version[1]}\n"]


@pytest.mark.install
def test_every_command_works_in_the_project_that_it_describes(
    adopter_with_sandbox: Environment, tmp_path: pathlib.Path
) -> None:
    project = tmp_path / "ci-fleet"
    project.mkdir()
    (project / "Pulumi.yaml").write_text(fences("yaml")[0])
    assert yaml.safe_load(fences("yaml")[0])["name"] == "ci-fleet"
    program, resource = fences("python")
    (project / "__main__.py").write_text(program + resource)
    (project / "requirements.txt").write_text(fences("text")[0])
    (project / "Pulumi.lab.yaml").write_text(ci_fleet.FILES["Pulumi.lab.yaml"])
    ci_fleet.git(project, "init", "--quiet", "--initial-branch=main")
    ci_fleet.committed(project)
    ci_fleet.git(project, "checkout", "--quiet", "-b", "upgrade")
    ci_fleet.edited(project, "Pulumi.lab.yaml", "max: 4", "max: 5")
    ci_fleet.committed(project)
    cache = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    caches = {"XDG_CACHE_HOME": cache, "XDG_STATE_HOME": str(tmp_path / "state")}
    build, *others = commands()
    assert build == "make wheel"
    for command in others:
        ended = adopter_with_sandbox.run(*command.split(), cwd=project, more=caches, timeout=900)
        assert (ended.code, ended.err) == (0, ""), command
    assert len(others) == 9


@pytest.mark.install
def test_the_wheel_is_made_where_it_says(tmp_path: pathlib.Path) -> None:
    """With the environment of these tests in place of a new one."""
    source = source_copy(tmp_path)
    shutil.copy(ROOT / "Makefile", source)
    command = ["make", f"VENV={sys.prefix}", f"--old-file={sys.prefix}/.installed", "wheel"]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = (source / "dist").iterdir()
    assert f"`dist/{wheel.name}`" in TEXT
