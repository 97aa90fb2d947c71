"""A Go module of two tiny programs, and a cache of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpufleet_tools.sandbox.build import go_build
from gpufleet_tools.sandbox.build.binaries import RECIPE
from gpufleet_tools.sandbox.build.go_build import Binary, Recipe

PROGRAM = 'package main\n\nvar Said = "nothing"\n\nfunc main() { println(Said) }\n'


@pytest.fixture(scope="session")
def go_cache() -> str:
    """Go's build cache of this user, where the standard library is compiled already."""
    go = go_build.go_program(RECIPE.module)
    return subprocess.run([go, "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go_cache: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOCACHE", go_cache)
    monkeypatch.setenv("GOPROXY", "off")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Two programs, `hello` and `there`, that print the value of a linker flag."""
    module = tmp_path / "module"
    for name in ("hello", "there"):
        (module / name).mkdir(parents=True)
        (module / name / "main.go").write_text(PROGRAM)
    (module / "go.mod").write_text("module example.test/tiny\n\ngo 1.26.0\n")
    table = (Binary("hello", "example.test/tiny/hello", 3), Binary("there", "example.test/tiny/there", 1))
    return Recipe(module, table, "-s -w -X main.Said=stamped")
