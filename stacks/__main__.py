"""The Pulumi program of this repository."""

import pathlib
import sys

# `pulumi install` installs the dependencies, not this project; and a checkout runs its own modules, whatever other
# checkout is installed.
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "components"), str(ROOT / "stacks")]

from gpufleet_stacks.program import run  # noqa: E402

fleet = run()
