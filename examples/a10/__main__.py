"""The project's own program for another folder of stack files: Pulumi wants a program within its project's folder."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from stacks import conductor, load  # noqa: E402

settings = load.from_engine(HERE)
conductor.build(settings)
