"""What two revisions with the same code say of their stacks: run by `gpufleet diff` in one process, since importing the
SDK takes most of the time of an evaluation. The file is a program, `python -P fleet/evaluation_of_both.py KEY DAY BASE
BASE_OUT HEAD HEAD_OUT [STACK...]`, in a checkout with that code, which PYTHONPATH names. Only the stacks that are named
have their resources: those whose files differ."""

from __future__ import annotations

import datetime
import gc
import os
import pathlib
import sys

from fleet.evaluation import evaluation, refuse_other_code
from fleet.sdk_modules import postpone


def _main(key: str, day: str, base: str, base_out: str, head: str, head_out: str, *asked: str) -> None:
    gc.disable()
    refuse_other_code(pathlib.Path.cwd().resolve())
    postpone()
    for root, out in ((base, base_out), (head, head_out)):
        said = evaluation(pathlib.Path(root).resolve(), key, datetime.date.fromisoformat(day), asked)
        pathlib.Path(out).write_text(said.model_dump_json())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
