"""Committed stack files have a form that `pulumi config set` only adds lines to (see docs/operations.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpufleet_stacks.settings.stack_file import stack_files
from tests.conftest import ROOT

COMMITTED = [path for folder in (".", "examples/a10", "examples/two-regions") for path in stack_files(ROOT / folder)]


def rewritten_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that the engine would write in another way, each with the reason."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            yield number, "blank lines are dropped"
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        number = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            yield number, "aliases are expanded"
        if isinstance(event, yaml.ScalarEvent) and event.style is None:
            if event.end_mark.line > event.start_mark.line:
                yield number, "a value over several lines is joined"
            tag = yaml.SafeLoader.yaml_implicit_resolvers.get(event.value[:1], [])
            if any(name.endswith(":timestamp") and pattern.match(event.value) for name, pattern in tag):
                yield number, "an unquoted date gains a time"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_stack_file_keeps_its_form(path: Path) -> None:
    assert list(rewritten_lines(path.read_text())) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\n\nb: 2\n", (2, "blank lines are dropped")),
        ("a: &x [1]\nb: *x\n", (2, "aliases are expanded")),
        ("a: one\n  two\n", (1, "a value over several lines is joined")),
        ("a: 2027-03-31\n", (1, "an unquoted date gains a time")),
    ],
)
def test_another_form_is_found(text: str, reason: tuple[int, str]) -> None:
    assert list(rewritten_lines(text)) == [reason]
