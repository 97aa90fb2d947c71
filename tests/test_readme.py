"""The README keeps its word: the table of settings is generated, and every piece of a stack file in it is valid."""

from __future__ import annotations

import copy
import pathlib
import re
from typing import Any

import pytest
import yaml

from stacks import load
from stacks.fault import InvalidSettings
from stacks.schema import settings_table
from stacks.stack_file import stack_files, stack_name
from tests.conftest import ROOT, Generated, Gpufleet, MakeProject, Outcome
from tests.recording import recorded

README = ROOT / "README.md"

TABLE = re.compile(r"(?<=<!-- settings -->\n).*(?=<!-- /settings -->)", re.DOTALL)

FENCE = re.compile(r"^```ya?ml[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.generated
def test_the_table_of_settings_is_current(generated: Generated) -> None:
    text = README.read_text()
    assert TABLE.search(text), "README.md has no lines <!-- settings --> and <!-- /settings -->, one after the other"
    generated(README, TABLE.sub(lambda _: settings_table(), text))


def test_every_setting_is_in_the_table() -> None:
    table = settings_table()
    for path, words in {
        "runners.<label>.max": "whole number | required |",
        "runners.<label>.docker": "true or false | `false` |",
        "cluster.nodePools.<pool>.nodes.<node>.address": "text | required |",
        "cluster.nodePools.<pool>.accelerator.partition": "section | the defaults below |",
        "cluster.nodePools.<pool>.accelerator.partition.memory": "`NPS1` or `NPS4` | `NPS1` |",
        "cluster.nodePools.<pool>.allocatable.cpu": "quantity | required |",
        "projects.<project>.credentials": "section with `kind`: `existingSecret`, `githubApp` or `token` | required |",
        "projects.<project>.credentials.appId": "text or whole number | required with `githubApp` |",
        "profiles.<profile>.tolerations[].operator": "`Exists` or `Equal` | `Equal` |",
        "profiles.<profile>.volumes.<volume>.source": "map | required |",
        "acknowledged[].until": "date | required |",
    }.items():
        assert f"| `{path}` | {words} " in table
    for part in table.split("### ")[1:]:
        rows = part.splitlines()[4:]
        assert all(row.count(" | ") == 3 for row in rows if row), "a cell holds a bar"
        assert len({*rows}) == len(rows) > 20


# -- fences -----------------------------------------------------------------------------------------------------------


def fences(text: str) -> list[str]:
    """The pieces of stack files in a text."""
    return [fence for fence in FENCE.findall(text) if "gpu-runners:" in fence]


def merged(whole: Any, part: Any) -> Any:
    """A stack file with a piece of another laid over it."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return whole | {key: merged(whole.get(key), value) for key, value in part.items()}
    return copy.deepcopy(part)


def check(piece: str, folder: pathlib.Path) -> None:
    """Raises InvalidSettings where the committed stack is not valid with the piece in it."""
    content = yaml.safe_load(piece)
    part = content if "config" in content else {"config": content}
    path = folder / "Pulumi.mi300.yaml"
    whole = yaml.safe_load((ROOT / "Pulumi.mi300.yaml").read_text())
    path.write_text(yaml.safe_dump(merged(whole, part), sort_keys=False))
    load.from_file(path)


def test_pieces_of_stack_files_are_valid(tmp_path: pathlib.Path) -> None:
    for piece in fences(README.read_text()):
        check(piece, tmp_path)


SAMPLE = """
```yaml
kind: Namespace
```

```yaml
gpu-runners:runners:
  mi300-gpu-4: {project: pytorch, gpus: GPUS, cpu: 32, memory: 400Gi, max: 2}
```

```yaml title="Pulumi.mi300.yaml"
config:
  gpu-runners:runners:
    mi300-gpu-8: {project: pytorch, gpus: GPUS, cpu: 32, memory: 200Gi, max: 2}
```
"""


def test_a_piece_that_is_wrong_is_found(tmp_path: pathlib.Path) -> None:
    for piece in fences(SAMPLE.replace("GPUS", "4")):
        check(piece, tmp_path)
    wrong = fences(SAMPLE.replace("GPUS", "3"))
    assert len(wrong) == 2
    for piece in wrong:
        with pytest.raises(InvalidSettings, match="3 does not divide a node of 8 GPUs"):
            check(piece, tmp_path)


# -- programs ---------------------------------------------------------------------------------------------------------

PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_programs_run() -> None:
    programs = PROGRAM.findall(README.read_text())
    assert programs
    for text in programs:
        plan = recorded(lambda text=text: exec(text, {}))
        assert [release.name for release in plan.releases()] == ["linux-mi300-gpu-1"]


# -- output -----------------------------------------------------------------------------------------------------------

OUTPUT = re.compile(
    r"<!-- output(?:: (?P<edits>.*?))? -->\n```console\n\$ gpufleet (?P<command>.*)\n(?P<printed>(?:.*\n)*?)```\n"
)
"""A command of the README and what it prints; on the committed stack, or after edits `this -> that`."""


@pytest.mark.generated
def test_output_is_what_the_commands_print(project: MakeProject, gpufleet: Gpufleet, generated: Generated) -> None:
    committed = (ROOT / "Pulumi.mi300.yaml").read_text()
    others = {stack_name(file): file.read_text() for file in stack_files(ROOT)}
    root = project({**others, "mi300": committed})

    def ran(block: re.Match[str]) -> str:
        text = committed
        for edit in filter(None, (block["edits"] or "").split(", ")):
            before, _, after = edit.partition(" -> ")
            assert before in text, f"the stack file has no '{before}' to edit"
            text = text.replace(before, after, 1)
        (root / "Pulumi.mi300.yaml").write_text(text)
        # Acknowledgements end, and what is printed here should not change with the day.
        day = ["--on", "2026-12-01"] if block["command"].startswith(("check", "preview")) else []
        return _block(block, gpufleet("-C", root, *block["command"].split(), *day))

    text = README.read_text()
    assert len(OUTPUT.findall(text)) >= 2
    generated(README, OUTPUT.sub(ran, text))


def _block(block: re.Match[str], ended: Outcome) -> str:
    """The fence with what the command printed in place of what stood there."""
    head = block[0][: block.start("printed") - block.start()]
    return f"{head}{ended.out}{ended.err}```\n"
