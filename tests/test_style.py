"""Lint, format and types, as tests: there is no second thing to remember."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.process, pytest.mark.style]

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check", "--quiet"], ["mypy"]],
    ids=["lint", "format", "types"],
)
def test_style(command: list[str]) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
