"""A fresh clone and the `pulumi` command: no virtual environment, nothing installed, no variable of this project's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import engine
from tests.conftest import ROOT

MISSING = engine.missing("kubernetes", "command")

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing"),
]

INSTALL = ("install", "--no-plugins")
"""Plugins would come from the network; the engine takes those on PATH."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git knows, with the changes that are not committed yet."""
    folder = tmp_path_factory.mktemp("clone")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def pulumi(clone: Path, *arguments: str, stdin: str = "", well: bool = True) -> str:
    return engine.run(clone, *arguments, stdin=stdin, well=well, environment=engine.isolated(clone))


def test_install_refuses_a_package_with_another_hash(clone: Path) -> None:
    requirements = clone / "requirements.txt"
    text = requirements.read_text()
    requirements.write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", text))
    printed = pulumi(clone, *INSTALL, well=False)
    requirements.write_text(text)
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in printed


def test_install_then_preview(clone: Path) -> None:
    pulumi(clone, *INSTALL)
    assert (clone / ".venv/bin/python").exists()
    pulumi(clone, "stack", "select", "--create", "mi300")
    for key in ("gpu-test-cluster-privateKey", "ssh-privateKey"):
        pulumi(clone, "config", "set", "--secret", key, stdin="-----BEGIN KEY-----\nabc\n-----END KEY-----\n")
    printed = pulumi(clone, "preview")
    assert re.search(r"\+ \d+ to create", printed)
    assert "gpu-runners:index:RunnerScaleSet mi300-cluster" in printed
