"""actionlint's own checks of workflows: https://github.com/rhysd/actionlint."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpufleet_tools.labels import catalogue as labels
from gpufleet_tools.labels.catalogue import Catalogue
from gpufleet_tools.workflows.findings import WorkflowFinding

FILES_AT_ONCE = 500
"""Files of one run: their names have to fit a command line, and their findings memory."""

SECONDS = 600
"""How long one run may take; 500 files take a few seconds."""


class NoActionlint(Exception):
    """actionlint cannot be had here. `str()` is one line that says why, and how it could be."""


class ActionlintFailed(Exception):
    """actionlint ended without a judgement. `str()` is one line."""


@dataclass(frozen=True)
class Actionlint:
    """actionlint, as it lies on this machine."""

    program: pathlib.Path
    """The program."""
    version: str
    """Its version."""


def findings(program: pathlib.Path, files: Sequence[pathlib.Path], catalogue: Catalogue) -> Iterator[WorkflowFinding]:
    """What actionlint says of the files. Labels that it does not know are left to the catalogue, and scripts to
    those who have shellcheck and pyflakes.

    Raises ActionlintFailed.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "actionlint.yaml"
        config.write_text(labels.actionlint(catalogue))
        options = ["-config-file", str(config), "-format", "{{json .}}", "-shellcheck=", "-pyflakes="]
        options += ["-ignore", '^label ".*" is unknown']
        for some in _batches(files):
            # It says paths in its own way, relative to the current directory wherever they are.
            names = {os.path.realpath(file): str(file) for file in some}
            for found in _run([str(program), *options, "--", *names.values()]):
                yield found.model_copy(update={"file": names.get(os.path.realpath(found.file), found.file)})


def _batches(files: Sequence[pathlib.Path]) -> Iterator[Sequence[pathlib.Path]]:
    for start in range(0, len(files), FILES_AT_ONCE):
        yield files[start : start + FILES_AT_ONCE]


def _run(command: list[str]) -> Iterator[WorkflowFinding]:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ActionlintFailed(f"did not end within {SECONDS} s") from None
    # 1: it has found something. 2 and 3: bad options, and faults of its own.
    if ended.returncode not in (0, 1):
        raise ActionlintFailed((ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"])[-1])
    try:
        said = json.loads(ended.stdout or "[]")
    except ValueError:
        raise ActionlintFailed("said no JSON") from None
    for found in said:
        yield WorkflowFinding.model_construct(
            tool="actionlint",
            rule=found["kind"],
            severity="error",
            file=found["filepath"],
            line=found["line"],
            column=found["column"],
            message=found["message"],
        )
