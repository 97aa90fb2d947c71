"""The Pulumi program of this repository."""

import pathlib
import sys

# `pulumi install` installs the dependencies only. Each checkout runs its own modules, even if another is installed.
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "components"), str(ROOT / "stacks")]

from gpufleet_stacks.program import run  # noqa: E402

fleet = run()
