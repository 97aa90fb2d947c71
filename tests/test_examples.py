"""The example workflows, and our own: labels of the catalogue, actions by digest, nothing that a linter minds."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from gpufleet_tools.check import pins
from gpufleet_tools.sandbox.build import actionlint as build
from gpufleet_tools.workflows import actionlint
from tests.conftest import ROOT, Gpufleet

WORKFLOWS = sorted((ROOT / "examples/workflows").glob("*.yml"))
STACK = str(ROOT / ".github/workflows/stack.yml")


def test_there_is_an_example_for_every_label(gpufleet: Gpufleet) -> None:
    catalogue = json.loads(gpufleet("-C", ROOT, "labels", "--format", "json").out)
    assert {path.stem for path in WORKFLOWS} == {entry["label"] for entry in catalogue["labels"]}
    for path in WORKFLOWS:
        assert f"runs-on: {path.stem}\n" in path.read_text()


@pytest.mark.parametrize("folder", ["examples/workflows", ".github/workflows"])
def test_nothing_is_said_of_them(folder: str, gpufleet: Gpufleet) -> None:
    try:
        build.built()
    except actionlint.NoActionlint as error:
        pytest.skip(f"no actionlint: {error}")
    ended = gpufleet("-C", ROOT, "lint-workflows", "--format", "json", ROOT / folder)
    found = json.loads(ended.out)
    # Where a stack's own jobs run is a variable of the repository, which only GitHub knows.
    said = [each for each in found["findings"] if (each["file"], each["rule"]) != (STACK, "unresolved-label")]
    assert (ended.code, said, found["actionlint"]) == (0, [], build.version())
    assert found["files"] == len(list((ROOT / folder).iterdir()))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_those_of_our_own_ci(path: pathlib.Path) -> None:
    ours = pins.versions(ROOT / ".github/workflows")
    theirs = pins.versions(path.parent)
    assert theirs.items() <= ours.items()
    assert len(re.findall(r"uses:", path.read_text())) == len(
        re.findall(r"uses: \S+@[0-9a-f]{40} # v", path.read_text())
    )
