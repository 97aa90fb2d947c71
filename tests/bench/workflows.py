"""`gpufleet lint-workflows` over thousands of workflows, with and without actionlint."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from tests.bench.fleets import ROOT
from tests.bench.timing import run

GPUFLEET = str(pathlib.Path(sys.executable).with_name("gpufleet"))

WORKFLOW = (ROOT / ".github/workflows/test.yml").read_text()

JOB = """\
  gpu-{number}:
    strategy:
      matrix:
        gpu: [linux-mi300-gpu-2, linux-mi300-gpu-{number}]
        python: ["3.11", "3.12", "3.13"]
        exclude: [{{gpu: linux-mi300-gpu-2, python: "3.11"}}]
    runs-on: ${{{{ matrix.gpu }}}}
    steps:
      - run: echo "${{{{ matrix.python }}}}"
"""


def measure(*, smallest: bool = False) -> None:
    """Prints seconds and memory of 100, 1,000 and 10,000 files, fifty to a repository."""
    table = Table("workflows", "labels only", "memory", "with actionlint", title="lint-workflows", box=None)
    for files in (100,) if smallest else (100, 1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(files):
                workflows = pathlib.Path(folder) / f"repository-{number // 50}/.github/workflows"
                workflows.mkdir(parents=True, exist_ok=True)
                (workflows / f"{number}.yml").write_text(WORKFLOW + JOB.format(number=number % 10))
            command = [GPUFLEET, "-C", str(ROOT), "lint-workflows", folder]
            alone, both = run([*command, "--labels-only"]), run(command)
        table.add_row(f"{files:,}", f"{alone.seconds:.1f} s", f"{alone.mebibytes:.0f} MiB", f"{both.seconds:.1f} s")
    Console(highlight=False).print(table)
