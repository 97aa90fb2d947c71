"""What README, docs and examples name is there, what they show is what happens, and their links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import copy
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_stacks.settings.schema import settings_table
from gpufleet_stacks.settings.stack_file import stack_files, stack_name
from gpufleet_tools.arguments import parser
from gpufleet_tools.policy.rules import RULES
from tests import pictures
from tests.aws.defects import DEFECTS
from tests.conftest import ROOT, Generated, Gpufleet, MakeProject, Outcome
from tests.recording import recorded

README, SETTINGS = ROOT / "README.md", ROOT / "docs/settings.md"

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
    ROOT / "tests/kubespray/README.md",
]
"""What people read."""

of_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

LONGEST = 250
"""Lines of the README: what does not fit has a page in docs."""

TABLE = re.compile(r"(?<=<!-- settings -->\n).*(?=<!-- /settings -->)", re.DOTALL)

FENCE = re.compile(r"^```ya?ml[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.generated
def test_the_table_of_settings_is_current(generated: Generated) -> None:
    text = SETTINGS.read_text()
    assert TABLE.search(text), "settings.md has no lines <!-- settings --> and <!-- /settings -->, one after the other"
    generated(SETTINGS, TABLE.sub(lambda _: settings_table(), text))


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
        "profiles.<profile>.volumes.<volume>.source": "Kubernetes `VolumeSource` | required |",
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


@of_every_page
def test_pieces_of_stack_files_are_valid(page: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for piece in fences(page.read_text()):
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


def test_the_program_of_components_runs() -> None:
    (text,) = [program for program in PROGRAM.findall(README.read_text()) if "RunnerScaleSet" in program]
    plan = recorded(lambda: exec(text, {}))
    assert [release.name for release in plan.releases()] == ["linux-mi300-gpu-1"]


def test_the_whole_program_is_that_of_an_example() -> None:
    """The example is run by its own tests."""
    (text,) = [program for program in PROGRAM.findall(README.read_text()) if "gpufleet_stacks" in program]
    example = ast.parse((ROOT / "examples/a10/__main__.py").read_text())
    assert ast.unparse(example.body[1:]) == ast.unparse(ast.parse(text))


# -- output -----------------------------------------------------------------------------------------------------------

OUTPUT = re.compile(
    r"<!-- output(?:: (?P<edits>.*?))? -->\n```console\n\$ gpufleet (?P<command>.*)\n(?P<printed>(?:.*\n)*?)```\n"
)
"""A command of a page and what it prints; on the committed stack, or after edits `this -> that`."""


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

    blocks = 0
    for page in PAGES:
        text = page.read_text()
        blocks += len(OUTPUT.findall(text))
        generated(page, OUTPUT.sub(ran, text))
    assert blocks >= 4


def _block(block: re.Match[str], ended: Outcome) -> str:
    """The fence with what the command printed in place of what stood there."""
    head = block[0][: block.start("printed") - block.start()]
    return f"{head}{ended.out}{ended.err}```\n"


# -- commands ---------------------------------------------------------------------------------------------------------

SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)

COMMAND = re.compile(r"(?:^|\$\(|`)(?:\$ )?gpufleet ((?:[^`\n]|\\\n)*?)(?=\s*(?:[#|>)`]|$))", re.MULTILINE)
"""A command in a line of a shell or in running text, without what a shell does with its output."""


def commands(text: str) -> Iterator[list[str]]:
    """Arguments of `gpufleet`, as a page writes them. A command in running text may name its subcommand alone."""
    for fence in SHELL.findall(text):
        yield from (shlex.split(command) for command in COMMAND.findall(fence))


def subcommands(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Subcommands of a parser, by name."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


@of_every_page
def test_commands_are_accepted(page: pathlib.Path) -> None:
    for arguments in commands(page.read_text()):
        try:
            parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"gpufleet does not accept: {shlex.join(arguments)}")


def test_commands_are_found() -> None:
    assert [
        *commands("```sh\ngpufleet labels > file\nexport A=$(gpufleet sandbox kubeconfig mi300)   # why\n```\n")
    ] == [
        ["labels"],
        ["sandbox", "kubeconfig", "mi300"],
    ]
    assert sum(len([*commands(page.read_text())]) for page in PAGES) >= 15


def test_the_readme_has_every_command() -> None:
    text = README.read_text()
    table = text[text.index("## Commands") : text.index("## Where things are")]
    listed = re.findall(r"^\| `gpufleet ([^`]+)` \|", table, re.MULTILINE)
    top = subcommands(parser())
    assert {row.split()[0] for row in listed} == set(top)
    actions = [action for row in listed if row.startswith("sandbox ") for action in row.split()[1].split("\\|")]
    assert {*actions} == set(subcommands(top["sandbox"]))


@of_every_page
def test_targets_of_make_exist(page: pathlib.Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`|=true )make ([a-z]+)", page.read_text(), re.MULTILINE)) <= targets


INLINE = re.compile(r"`gpufleet ([^`\n]+)`")


@of_every_page
def test_commands_in_running_text_exist(page: pathlib.Path) -> None:
    """Their arguments may be left out or be placeholders, so only subcommands and options are looked up."""
    for text in INLINE.findall(page.read_text()):
        of = parser()
        for word in shlex.split(text.replace("\\|", " ")):
            of = subcommands(of).get(word, of)
            assert not word.startswith("-") or word in of._option_string_actions, f"gpufleet {text}: no option {word}"
        assert of.prog != "gpufleet", f"gpufleet {text}: no such command"


@pytest.mark.generated
def test_defects_are_counted(generated: Generated) -> None:
    page, found = ROOT / "docs/aws.md", sum(bool(defect.found_by) for defect in DEFECTS)
    missed = len(DEFECTS) - found
    counts = f"{len(DEFECTS)} injected defects and the checks that find each: {found} are found, {missed} by none"
    text, times = re.subn(r"\d+ injected defects .*?: \d+ are found, \d+ by none", counts, page.read_text())
    assert times == 1
    generated(page, text)


def test_every_rule_of_policy_is_in_the_table() -> None:
    text = (ROOT / "docs/pull-requests.md").read_text()
    assert all(f"| `{rule.name}` | {rule.severity} | " in text for rule in RULES)


# -- paths and links --------------------------------------------------------------------------------------------------

PATH = re.compile(
    r"(?<![\w./~-])((?:components|stacks|tools|tests|docs|policy|examples|\.github|\.ci)/[\w./*-]*[\w*/])"
)

NAMED_BY = [
    *PAGES,
    ROOT / "pyproject.toml",
    ROOT / "Makefile",
    *sorted(ROOT.glob("Pulumi*.yaml")),
    *sorted(ROOT.glob(".github/**/*.yml")),
]
"""Files that name files of this repository."""

MADE = {
    ".github/actionlint.yaml",
    "components/gpufleet/AREA/",
    "policy/.venv",
    "policy/.venv/bin/pip",
    "tests/components/AREA/",
}
"""Paths that the reader makes, or that stand for several."""


@pytest.mark.parametrize("file", NAMED_BY, ids=lambda file: str(file.relative_to(ROOT)))
def test_paths_exist(file: pathlib.Path) -> None:
    named = set(PATH.findall(file.read_text())) - MADE
    missing = [path for path in named if not any((ROOT / each).exists() for each in (path, _first(path)))]
    assert not missing, f"{file.relative_to(ROOT)} names {', '.join(sorted(missing))}"


def _first(pattern: str) -> str:
    """A file that a pattern is of; the pattern itself where there is none."""
    return next((str(path) for path in ROOT.glob(pattern)), pattern) if "*" in pattern else pattern


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    without_fences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", without_fences, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: pathlib.Path) -> list[str]:
    """Links to files and headings that are not there. Links to other sites are not followed."""
    broken = []
    for link in LINK.findall(page.read_text()):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


@of_every_page
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words: `code`\n[a](#two-words-code) [b](#other) [c](gone.md) [d](page.md) [e](page.md#none)\n"
    )
    assert broken_links(page) == ["#other", "gone.md", "page.md#none"]


def test_every_page_is_in_the_readme() -> None:
    links = set(LINK.findall(README.read_text()))
    assert {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")} <= links


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LONGEST


# -- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.generated
@pytest.mark.parametrize("path", pictures.FILES, ids=lambda path: path.stem)
def test_pictures_are_current(path: pathlib.Path, generated: Generated) -> None:
    generated(path, pictures.drawn(path))


def test_a_picture_loads_nothing() -> None:
    for path in pictures.FILES:
        links = set(re.findall(r"https?://[^\s\"')]+", path.read_text()))
        assert links <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}, links


def test_a_picture_has_what_the_terminal_had() -> None:
    text = pictures.sandbox("make up STACK=dev", pictures.SANDBOX.with_suffix(".txt").read_text()).plain
    assert text.startswith("$ make up STACK=dev\n")
    assert re.search(r"20 runner pods running$", text)
    assert max(len(line) for line in text.splitlines()) <= pictures.COLUMNS


def test_a_table_that_is_drawn_again_is_shown_once() -> None:
    recorded = pictures.ARC.with_suffix(".txt").read_text().rpartition("$ gpufleet")[2].partition("\n")[2]
    assert recorded.count("runs-on") > 1
    queued, heading, _, jobs = pictures.last_frame(recorded).plain.splitlines()
    assert (queued, heading.split()[0]) == ("20 jobs queued", "runs-on")
    # One job of `up` still runs, and all of these are done.
    assert jobs.split()[:6] == ["mi300-cluster", "0", "0", "1", "20", "0"]
