"""The Pulumi program: the stack's settings, turned into components."""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# `pulumi install` installs the dependencies, not this project; and a checkout imports its own modules, whatever
# other checkout is installed.
sys.path.insert(0, str(ROOT))

from stacks import load  # noqa: E402

PROGRAMS = {"bareMetal": "stacks.conductor", "eks": "stacks.aws"}
"""The module that builds each kind of cluster. Only one is imported: AWS's SDK takes its time."""

settings = load.from_engine(ROOT)
importlib.import_module(PROGRAMS[settings.cluster.kind]).build(settings)
