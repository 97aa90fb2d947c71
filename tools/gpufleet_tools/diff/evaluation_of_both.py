"""Evaluation of two revisions with the same code, in one process: importing the SDK takes most of an evaluation's time.

`gpufleet diff` runs this file as a program: `python -P evaluation_of_both.py KEY DAY BASE BASE_OUT HEAD HEAD_OUT
[STACK...]`. Only the named stacks, whose files differ, are evaluated completely.
"""

from __future__ import annotations

import datetime
import pathlib
import sys

from gpufleet_tools import short_process
from gpufleet_tools.diff.evaluation import evaluation, refuse_other_code


def _main(key: str, day: str, base: str, base_out: str, head: str, head_out: str, *selected: str) -> None:
    refuse_other_code(pathlib.Path.cwd().resolve())
    short_process.begin()
    for root, out in ((base, base_out), (head, head_out)):
        evaluated = evaluation(pathlib.Path(root).resolve(), key, datetime.date.fromisoformat(day), selected)
        pathlib.Path(out).write_text(evaluated.model_dump_json())
    short_process.end(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
