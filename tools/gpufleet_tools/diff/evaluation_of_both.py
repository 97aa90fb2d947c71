"""Evaluation of two revisions with the same code, as two forks of one process: importing the code takes about as long
as an evaluation.

`gpufleet diff` runs this file as a program: `python -P evaluation_of_both.py KEY DAY BASE BASE_OUT HEAD HEAD_OUT
[STACK...]`. Only the named stacks, whose files differ, are evaluated completely.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import sys
import traceback
from typing import NoReturn

from gpufleet_tools import short_process
from gpufleet_tools.diff.evaluation import evaluation, import_code, refuse_other_code


def _main(key: str, day: str, base: str, base_out: str, head: str, head_out: str, *selected: str) -> NoReturn:
    refuse_other_code(pathlib.Path.cwd().resolve())
    short_process.begin()
    import_code()
    fork = os.fork()
    root, out = (head, head_out) if fork else (base, base_out)
    code = 1
    try:
        evaluated = evaluation(pathlib.Path(root).resolve(), key, datetime.date.fromisoformat(day), selected)
        pathlib.Path(out).write_text(evaluated.model_dump_json())
        code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) if fork else 0
    except BaseException:
        traceback.print_exc()
    finally:
        short_process.end(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
