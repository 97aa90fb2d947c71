"""What every test stands on: an environment without the caller's, a project folder of its own, the command."""

from __future__ import annotations

import gc
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import hypothesis
import pytest

# A collection of garbage while the SDKs and the tests are imported takes a third of that time and frees nothing.
gc.disable()

ROOT = pathlib.Path(__file__).resolve().parents[1]

PACKAGES = (ROOT / "components/gpufleet", ROOT / "stacks/gpufleet_stacks", ROOT / "tools/gpufleet_tools")
"""The packages of this project."""

PYTHONPATH = os.pathsep.join(str(folder) for folder in (*(package.parent for package in PACKAGES), ROOT))
"""For processes of their own: this checkout's packages before installed ones, and its tests."""

# It asserts for the tests that import it.
pytest.register_assert_rewrite("tests.tools.diff.pull_requests")

# CI tries the same 100 examples each time, so that the same code passes or fails the same way. A developer's run tries
# 25 others. Deadlines measure the machine more than the code.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("people", deadline=None, max_examples=25)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "people")


def examples(number: int) -> int:
    """Return the number of examples of a property test: all of them in CI, a quarter in a developer's run."""
    return number if os.environ.get("CI") else number // 4


TIERS = ("slow", "install")
"""Markers of tests that run where CI is set, or when they are asked for by name."""

PROCESS_PATHS = (
    "tests/adoption",
    "tests/aws",
    "tests/components/aws/eks/test_network_made.py",
    "tests/e2e",
    "tests/hosts",
    "tests/tools/sandbox",
)
"""Folders and files all of whose tests start processes, or use AWS accounts that moto simulates."""

PROCESS_FIXTURES = {"built", "gpufleet", "karpenter_chart", "repository"}
"""Fixtures that start processes."""


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Leave unread what has no test to run: to import it takes seconds in each worker."""
    left_out = "not process" in config.getoption("-m")
    return True if left_out and collection_path in {ROOT / path for path in PROCESS_PATHS} else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that start processes, leave out the slow tiers on a developer's machine, and begin with style: to
    check types takes longest."""
    asked = config.getoption("-m")
    items.sort(key=lambda item: item.get_closest_marker("style") is None)
    for item in items:
        inside = item.path.relative_to(ROOT).as_posix().startswith(PROCESS_PATHS)
        if inside or PROCESS_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("process")
        for tier in TIERS:
            if item.get_closest_marker(tier) and tier not in asked and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason=f"tier '{tier}': set CI=true, or run pytest -m {tier}"))


def pytest_collection_finish() -> None:
    """Keep the SDKs and the tests out of garbage collections, which took a quarter of the time; collect less often."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which ARC the scenarios ran with: a run without the real one must not look like one with it."""
    for kind in ("simulated", "real"):
        outcomes = {
            outcome: sum(f"test_scenarios.py::test_arc[{kind}-" in each.nodeid for each in reports)
            for outcome, reports in terminalreporter.stats.items()
            if outcome in ("passed", "failed", "error", "skipped")
        }
        if any(outcomes.values()):
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
            terminalreporter.write_line(f"scenarios of ARC, {kind}: {counts}")


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without the marker `process` starts none, so that `make check` stays fast."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("this test starts a process: mark it with pytest.mark.process")

    # Elsewhere a session's own fixtures may start some on behalf of any test.
    left_out = "not process" in request.config.getoption("-m")
    if left_out and not request.node.get_closest_marker("process"):
        monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


@pytest.fixture(autouse=True)
def hermetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the caller's Pulumi, and no cluster, reaches a test; nothing is coloured."""
    for variable in [*os.environ]:
        if variable.startswith("PULUMI_") or variable in ("KUBECONFIG", "RUNNER_ENVIRONMENT"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("NO_COLOR", "1")
    # Both would force colours, whatever NO_COLOR says.
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("CLICOLOR_FORCE", raising=False)


MakeProject = Callable[[dict[str, str]], pathlib.Path]


@pytest.fixture
def project(tmp_path: pathlib.Path) -> MakeProject:
    """Makes a folder with this repository's Pulumi project and other stack files: their texts, by stack."""

    def make(stacks: dict[str, str]) -> pathlib.Path:
        root = tmp_path / "project"
        root.mkdir()
        shutil.copy(ROOT / "Pulumi.yaml", root)
        for folder in ("stacks", "components"):
            (root / folder).symlink_to(ROOT / folder)
        for name, text in stacks.items():
            (root / f"Pulumi.{name}.yaml").write_text(text)
        return root

    return make


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


Gpufleet = Callable[..., Outcome]


@pytest.fixture
def gpufleet(tmp_path: pathlib.Path) -> Gpufleet:
    """Runs the command `gpufleet` in a folder that is no project."""

    def run(*arguments: str | pathlib.Path) -> Outcome:
        command = [pathlib.Path(sys.executable).with_name("gpufleet"), *arguments]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    return run


Generated = Callable[[pathlib.Path, str], None]


@pytest.fixture
def generated() -> Generated:
    """Compares a generated file with what it should be; where ACCEPT=1, writes it first."""

    def compare(path: pathlib.Path, text: str) -> None:
        if os.environ.get("ACCEPT") == "1":
            path.write_text(text)
        there = path.read_text() if path.exists() else ""
        assert there == text, f"{path.relative_to(ROOT)} is out of date; write it again with: make generate"

    return compare
