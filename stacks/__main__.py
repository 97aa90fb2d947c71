"""The Pulumi program: the stack's settings, turned into components."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# `pulumi install` installs the dependencies, not this project; and a checkout imports its own modules, whatever
# other checkout is installed.
sys.path.insert(0, str(ROOT))

from stacks import conductor, load  # noqa: E402

conductor.build(load.from_engine(ROOT))
