"""`gpufleet check`, as a shell runs it: exit codes, and where it finds stacks."""

from __future__ import annotations

import sys

import pytest

from gpufleet_tools import cli
from gpufleet_tools.arguments import parser
from tests.conftest import ROOT, Gpufleet, MakeProject

CASES = ROOT / "tests" / "settings"
SOUND = (CASES / "smallest.ok.yaml").read_text()
WITH_FINDINGS = SOUND.replace("kind: existingSecret", "kind: token")
INVALID = SOUND.replace("gpus: 2", "gpus: 3")

FAULT = "Pulumi.bad.yaml:21: runners.mi300-gpu-2.gpus: 3 does not divide a node of 8 GPUs; use 1, 2, 4 or 8\n"
FINDING = (
    "Pulumi.open.yaml:17: projects.ml.credentials: error: the secret 'ml-token' is not set; set it: "
    "pulumi config set --secret gpu-runners:ml-token [missing-secret]\n"
)


def elsewhere(text: str, cluster: str) -> str:
    """The same stack on another cluster and for other users: labels of one cluster or organisation have to differ."""
    return text.replace("name: lab", f"name: {cluster}").replace("github.com/example", f"github.com/{cluster}")


def test_nothing_to_say(project: MakeProject, gpufleet: Gpufleet) -> None:
    outcome = gpufleet("-C", project({"lab": SOUND}), "check", "lab")
    assert (outcome.code, outcome.out, outcome.err) == (0, "lab: no findings\n", "")


def test_findings(project: MakeProject, gpufleet: Gpufleet) -> None:
    outcome = gpufleet("-C", project({"open": WITH_FINDINGS}), "check", "open")
    assert (outcome.code, outcome.out, outcome.err) == (1, f"{FINDING}open: 1 finding\n", "")


def test_all_stacks_when_none_is_named(project: MakeProject, gpufleet: Gpufleet) -> None:
    """What is wrong with one keeps nothing from being said of the others; the worst counts."""
    stacks = {"bad": INVALID, "open": elsewhere(WITH_FINDINGS, "b"), "lab": elsewhere(SOUND, "c")}
    outcome = gpufleet("-C", project(stacks), "check")
    assert (outcome.code, outcome.err) == (2, FAULT)
    assert outcome.out == f"lab: no findings\n{FINDING}open: 1 finding\n"


def test_the_stacks_that_are_named(project: MakeProject, gpufleet: Gpufleet) -> None:
    stacks = {"bad": INVALID, "open": elsewhere(WITH_FINDINGS, "b"), "lab": elsewhere(SOUND, "c")}
    outcome = gpufleet("-C", project(stacks), "check", "open", "lab")
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out == f"{FINDING}open: 1 finding\nlab: no findings\n"


def test_a_stack_that_does_not_exist_names_those_that_do(project: MakeProject, gpufleet: Gpufleet) -> None:
    outcome = gpufleet("-C", project({"lab": SOUND, "open": WITH_FINDINGS}), "check", "labb")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "Pulumi.labb.yaml: does not exist; stacks here: lab, open\n"


def test_other_commands_refuse_the_same_file_in_the_same_words(project: MakeProject, gpufleet: Gpufleet) -> None:
    outcome = gpufleet("-C", project({"bad": INVALID}), "preview", "bad")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", FAULT)


# In this process: what is refused before anything of the project is read.


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and standard error."""
    code = cli.run(parser().parse_args(arguments))
    return code, capsys.readouterr().err


def test_a_folder_without_a_project(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("empty").resolve()
    message = f"gpufleet: {folder} has no Pulumi.yaml; name the project's folder with -C\n"
    assert run(capsys, "-C", str(folder), "check") == (2, message)


def test_the_current_folder_is_the_project(
    project: MakeProject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(project({"bad": INVALID}))
    assert run(capsys, "check") == (2, FAULT)


def test_a_project_without_stacks(
    project: MakeProject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    root = project({})
    message = f"gpufleet: {root} has no stack files (Pulumi.<stack>.yaml)\n"
    assert run(capsys, "-C", str(root), "check") == (2, message)


@pytest.mark.parametrize("arguments", [(), ("chek",), ("check", "--colour"), ("preview",), ("-C",)])
def test_wrong_arguments(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(arguments)
    assert end.value.code == cli.INVALID
    assert "usage: gpufleet" in capsys.readouterr().err
