"""Versions stand in one place each, and every one has a reason."""

from __future__ import annotations

import ast
import datetime
import json
import pathlib
import re
from collections.abc import Iterator

import pytest

from gpufleet_tools.check import compatibility, pins
from gpufleet_tools.check.pins import PinError
from tests.conftest import ROOT, Gpufleet

VERSION = re.compile(r"(?<![\w.])v?[0-9]+\.[0-9]+\.[0-9]+(?!\.?[0-9])")
"""Three numbers; four are an address."""


QUIET_DAY = str(min(pin.review for pin in pins.pins().pins))
"""Last day on which no review is due."""


def fixed() -> set[tuple[str, str]]:
    """Places and names of every pin."""
    return {(pin.place, pin.name) for pin in pins.pins().pins}


def literals(file: pathlib.Path) -> Iterator[tuple[str | None, str]]:
    """Every text of a module that is no docstring, with the constant of the module that it belongs to."""
    for statement in ast.parse(file.read_text()).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        name = targets[0].id if isinstance(targets[0], ast.Name) else None
        docstrings = {id(node.value) for node in ast.walk(statement) if isinstance(node, ast.Expr)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield name, node.value


@pytest.mark.parametrize("folder", ["components", "stacks", "tools/gpufleet_tools/sandbox"])
def test_a_version_stands_at_its_pin_and_nowhere_else(folder: str) -> None:
    known = fixed()
    for file in sorted((ROOT / folder).rglob("*.py")):
        place = file.relative_to(ROOT).as_posix()
        for name, text in literals(file):
            # A sentence shows what a version looks like, and fixes none.
            if VERSION.search(text) and " " not in text:
                assert (place, name) in known, (
                    f"{place}: {text!r} fixes a version: make it a constant and give its reasons in check/pins.yaml,"
                    " or take it from where it stands already"
                )


def test_the_scan_sees_a_version_that_has_no_pin(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        '"""At 1.2.3."""\nA = "x:1.2.3-y"\n\n\ndef f():\n    """At 1.2.3."""\n    return {"a": ["v1.2.4"]}\n'
    )
    found = [(name, text) for name, text in literals(file) if VERSION.search(text)]
    assert found == [("A", "x:1.2.3-y"), (None, "v1.2.4")]
    assert not VERSION.search("127.0.0.1")


@pytest.mark.parametrize("place", ["pyproject.toml", ".github/workflows"])
def test_everything_that_is_fixed_has_a_reason(place: str) -> None:
    there = pins.versions(ROOT / place)
    assert {name for where, name in fixed() if where == place} == there.keys(), (
        "give the reasons in tools/gpufleet_tools/check/pins.yaml"
    )


@pytest.mark.parametrize("file", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/tools/**/go.mod")))
def test_every_tool_built_from_go_has_a_reason(file: str) -> None:
    """What a module builds is what it fixes; the rest follows from it."""
    text = (ROOT / file).read_text()
    tools = re.findall(r"^(?:tool |\t)([\w./-]+)$", text, re.MULTILINE)
    names = {name for where, name in fixed() if where == file}
    assert tools
    assert all(any(tool.startswith(name) for name in names) for tool in tools), (
        "give the reasons in tools/gpufleet_tools/check/pins.yaml"
    )


def test_what_the_control_plane_says_it_is_is_what_it_is() -> None:
    modules = pins.versions(ROOT / "tools/gpufleet_tools/sandbox/build/modules/kubernetes/go.mod")
    assert (
        pins.versions(ROOT / "tools/gpufleet_tools/sandbox/build/binaries.py")["_KUBERNETES_VERSION"]
        == modules["k8s.io/kubernetes"]
    )


def test_every_reason_says_something() -> None:
    for reason in pins.reasons():
        for text in (reason.what, reason.why, reason.breaks, reason.source):
            assert text == text.strip()
            assert len(text) > 4


def test_no_pin_is_named_twice() -> None:
    assert len(fixed()) == len(pins.pins().pins)


def test_actions_are_fixed_by_digest() -> None:
    for name, version in pins.versions(ROOT / ".github/workflows").items():
        assert re.fullmatch(r"v\d+\.\d+\.\d+ [0-9a-f]{12}", version), name
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        assert all("@" in line and re.search(r"@[0-9a-f]{40} # v", line) for line in used(file)), file


def used(file: pathlib.Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if "uses:" in line and "uses: ./" not in line]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", 'A = "1"\nB: str = "2"\nC = D = "3"\nE = f()\nF = {"gitVersion": "4"}\n', "A=1 B=2 C=3 D=3 F=4"),
        (
            "go.mod",
            "module a\n\nrequire b/c v1.2.3\n\nrequire (\n\td/e v0.1.0 // indirect\n)\n",
            "b/c=v1.2.3 d/e=v0.1.0",
        ),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["a==1"]\n[project.optional-dependencies]\nx = ["b[c]==2"]\n',
            "a=1 b=2",
        ),
    ],
)
def test_places(name: str, text: str, expected: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / name).write_text(text)
    assert pins.versions(tmp_path / name) == dict(pair.split("=") for pair in expected.split())


def test_a_pin_that_has_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (reason, *_) = pins.reasons()
    monkeypatch.setattr(pins, "reasons", lambda: [reason.model_copy(update={"names": ["GONE"]})])
    with pytest.raises(PinError, match=r"components/gpufleet/arc/controller\.py: does not pin GONE"):
        pins.pins()


def test_a_file_of_another_kind_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(PinError, match="unsupported type of file"):
        pins.versions(tmp_path / "a.txt")


def test_the_command(gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", ROOT, "pins", "--on", QUIET_DAY)
    assert (ended.code, ended.err) == (0, "")
    for pin in pins.pins().pins:
        assert pin.version.partition("@")[0].rpartition(":")[2] in ended.out
    assert ended.out.splitlines()[-1] == f"{len(fixed())} pinned versions, 0 due for review"


def test_json(gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", ROOT, "pins", "--on", QUIET_DAY, "--format", "json")
    found = {pin["name"]: pin for pin in json.loads(ended.out)["pins"]}
    assert (
        found["ARC_VERSION"]["version"] == pins.versions(ROOT / "components/gpufleet/arc/controller.py")["ARC_VERSION"]
    )
    assert datetime.date.fromisoformat(found["ARC_VERSION"]["review"])


def test_a_pin_that_is_due_is_a_finding(gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", ROOT, "pins", "--on", "2099-01-01")
    assert (ended.code, ended.out.splitlines()[-1].endswith(f"{len(fixed())} due for review")) == (
        1,
        True,
    )


def test_a_row_of_the_matrix_that_is_due_is_said_and_a_finding(gpufleet: Gpufleet) -> None:
    first = min(entry.review for entry in compatibility.matrix())
    assert "compatibility:" not in gpufleet("-C", ROOT, "pins", "--on", str(first)).out
    ended = gpufleet("-C", ROOT, "pins", "--on", str(first + datetime.timedelta(days=1)))
    rows = [line for line in ended.out.splitlines() if line.startswith("compatibility: ")]
    assert ended.code == 1
    assert len(rows) == sum(entry.review == first for entry in compatibility.matrix())
    assert all(f"review due since {first}" in row for row in rows)
