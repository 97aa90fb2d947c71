"""actionlint's own checks of workflows: https://github.com/rhysd/actionlint."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpufleet_tools.labels import catalogue as labels
from gpufleet_tools.labels.catalogue import Catalogue
from gpufleet_tools.workflows.findings import WorkflowFinding

FILES_AT_ONCE = 500
"""Files of one run: their names must fit a command line, and their findings memory."""

SECONDS = 600
"""Time limit of one run; 500 files take a few seconds."""


class NoActionlint(Exception):
    """actionlint is not available. `str()` is one line with reason and remedy."""


class ActionlintFailed(Exception):
    """actionlint failed. `str()` is one line."""


@dataclass(frozen=True)
class Actionlint:
    """Installed actionlint."""

    program: pathlib.Path
    """Path of the program."""
    version: str
    """Version of the program."""


def findings(program: pathlib.Path, files: Sequence[pathlib.Path], catalogue: Catalogue) -> Iterator[WorkflowFinding]:
    """Yield actionlint's findings about the files, with the configuration of their repository. Unknown labels are
    checked by the catalogue instead; scripts are not checked with shellcheck and pyflakes.

    Raises ActionlintFailed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options = ["-format", "{{json .}}", "-shellcheck=", "-pyflakes=", "-ignore", '^label ".*" is unknown']
        for number, (root, own) in enumerate(_by_repository(files).items()):
            config = folder / f"{number}.yaml"
            config.write_text(yaml.safe_dump(_configuration(root, catalogue)))
            shown = _as_repository(root, folder / str(number)) if root else None
            # actionlint prints paths relative to the current directory, and its configuration's `paths` are relative to
            # it too (linter.go, 632, of 1.7.12).
            current = shown or pathlib.Path.cwd()
            for some in _batches(own):
                names = {os.path.realpath(file): str(file) for file in some}
                given = [str(shown / _absolute(file).relative_to(root) if root and shown else file) for file in some]
                for found in _run([str(program), "-config-file", str(config), *options, "--", *given], current):
                    file = names.get(os.path.realpath(current / found.file), found.file)
                    message = found.message.replace(str(shown), str(root))
                    yield found.model_copy(update={"file": file, "message": message})


def _configuration(root: pathlib.Path | None, catalogue: Catalogue) -> dict[str, Any]:
    """Return the configuration of a repository, with the labels of the catalogue in addition."""
    labelled: dict[str, Any] = yaml.safe_load(labels.actionlint(catalogue))
    files = [root / ".github" / name for name in ("actionlint.yaml", "actionlint.yml")] if root else []
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        return labelled
    try:
        own = yaml.safe_load(file.read_bytes()) or {}
        listed = (own.get("self-hosted-runner") or {}).get("labels") or []
        every = sorted({*listed, *labelled["self-hosted-runner"]["labels"]})
    except (yaml.YAMLError, AttributeError, TypeError):
        raise ActionlintFailed(f"{file} is not a configuration of actionlint") from None
    return {**own, "self-hosted-runner": {"labels": every}}


def _absolute(file: pathlib.Path) -> pathlib.Path:
    # Not resolve(): a workflow that is a link belongs to the repository of the link.
    return pathlib.Path(os.path.abspath(file))  # noqa: PTH100


def _by_repository(files: Sequence[pathlib.Path]) -> dict[pathlib.Path | None, list[pathlib.Path]]:
    """Return the files by the folder with their `.github/workflows`; None for other files.

    Each folder gets a separate run: actionlint 1.7.12 assigns a file to an earlier repository whose path is a prefix of
    its own (project.go, 64), so that it does not find the actions of `a-b`, which it looks for in `a`.
    """
    found: dict[pathlib.Path | None, list[pathlib.Path]] = {}
    for file in files:
        folder = _absolute(file).parent
        root = folder.parent.parent if folder.parts[-2:] == (".github", "workflows") else None
        found.setdefault(root, []).append(file)
    return found


def _as_repository(root: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Return a folder that actionlint accepts as a repository. It reads local actions and workflows only below a folder
    with `.git` (project.go, 28), which the archive of a repository does not have."""
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


def _run(command: list[str], folder: pathlib.Path) -> Iterator[WorkflowFinding]:
    environment = {**os.environ, "PWD": str(folder)}
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ActionlintFailed(f"did not end within {SECONDS} s") from None
    # 1: findings. 2 and 3: invalid options and internal errors.
    if ended.returncode not in (0, 1):
        raise ActionlintFailed((ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"])[-1])
    try:
        output = json.loads(ended.stdout or "[]")
    except ValueError:
        raise ActionlintFailed("its output is not JSON") from None
    for found in output:
        yield WorkflowFinding.model_construct(
            tool="actionlint",
            rule=found["kind"],
            severity="error",
            file=found["filepath"],
            line=found["line"],
            column=found["column"],
            message=found["message"],
        )
