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
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = folder / "actionlint.yaml"
        config.write_text(labels.actionlint(catalogue))
        options = ["-config-file", str(config), "-format", "{{json .}}", "-shellcheck=", "-pyflakes="]
        options += ["-ignore", '^label ".*" is unknown']
        for number, (root, own) in enumerate(_by_repository(files).items()):
            shown = _as_repository(root, folder / str(number)) if root else None
            for some in _batches(own):
                # It says paths in its own way, relative to the current directory wherever they are.
                names = {os.path.realpath(file): str(file) for file in some}
                given = [str(shown / _absolute(file).relative_to(root) if root and shown else file) for file in some]
                for found in _run([str(program), *options, "--", *given]):
                    file = names.get(os.path.realpath(found.file), found.file)
                    message = found.message.replace(str(shown), str(root))
                    yield found.model_copy(update={"file": file, "message": message})


def _absolute(file: pathlib.Path) -> pathlib.Path:
    # Not resolve(): a workflow that is a link is its repository's all the same.
    return pathlib.Path(os.path.abspath(file))  # noqa: PTH100


def _by_repository(files: Sequence[pathlib.Path]) -> dict[pathlib.Path | None, list[pathlib.Path]]:
    """Files by the folder that has their `.github/workflows`; those of none by None.

    Each is a run of its own: actionlint 1.7.12 takes a file for that of an earlier repository whose path its own
    begins with (project.go, 64), so that it looks for the actions of `a-b` in `a`, and finds none.
    """
    found: dict[pathlib.Path | None, list[pathlib.Path]] = {}
    for file in files:
        folder = _absolute(file).parent
        root = folder.parent.parent if folder.parts[-2:] == (".github", "workflows") else None
        found.setdefault(root, []).append(file)
    return found


def _as_repository(root: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Return a folder that actionlint takes for the repository. It reads local actions and workflows only below a
    folder with `.git` (project.go, 28), which the archive of a repository does not have."""
    if (root / ".git").exists():
        return root
    folder.mkdir()
    (folder / ".git").mkdir()
    for entry in root.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


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
