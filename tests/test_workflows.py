"""Our own workflows: what they may do, what they run, and whose code they run with which rights."""

from __future__ import annotations

import copy
import itertools
import pathlib
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from gpufleet_tools.arguments import parser
from gpufleet_tools.check import pins
from gpufleet_tools.sandbox.build import actionlint as build
from gpufleet_tools.workflows import actionlint
from tests.conftest import ROOT

Workflow = dict[str, Any]

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))

FORK = "github.event.pull_request.head.repo.full_name == github.repository"
"""Whether a pull request comes from the repository itself."""

WRITES = {
    ("comment", "pull-requests"),
    ("lint", "security-events"),
    ("propose", "contents"),
    ("propose", "pull-requests"),
    *((job, "id-token") for job in ("pulumi", "dev", "mi300", "preview-dev", "preview-mi300")),
}
"""Jobs that may write, and what."""


def read(path: pathlib.Path) -> Workflow:
    content: Workflow = yaml.safe_load(path.read_text())
    # YAML 1.1 reads the key `on` as true.
    content["on"] = content.pop(True, content.get("on"))
    return content


def problems(workflow: Workflow) -> Iterator[str]:
    """What is unsafe in a workflow."""
    events = workflow["on"] if isinstance(workflow["on"], dict) else {workflow["on"]: None}
    yield from (f"runs on {event}" for event in events if event in ("pull_request_target", "workflow_run"))
    top = workflow.get("permissions")
    if top not in ({}, {"contents": "read"}):
        yield "a job that says nothing of permissions has more than reading"
    for name, job in workflow["jobs"].items():
        yield from (f"{name}: {problem}" for problem in job_faults(name, job, "pull_request" in events))


def job_faults(name: str, job: Workflow, on_pull_request: bool) -> Iterator[str]:
    granted = {what for what, level in job.get("permissions", {}).items() if level != "read"}
    yield from (f"writes {what}" for what in sorted(granted) if (name, what) not in WRITES)
    if granted and on_pull_request and FORK not in job.get("if", ""):
        yield "may write for a fork"
    if "secrets" in job or "secrets." in str(job):
        yield "uses stored secrets"
    if "uses" in job:
        if not job["uses"].startswith("./"):
            yield "calls a workflow of somebody else's"
        return
    if "timeout-minutes" not in job:
        yield "may hang for six hours"
    for step in job["steps"]:
        used = step.get("uses", "")
        if used and not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", used):
            yield f"{used} is not fixed by a digest"
        if used.startswith("actions/checkout@") and step.get("with", {}).get("persist-credentials") is not False:
            yield "leaves its token behind"
        if "${{" in step.get("run", ""):
            yield "lets an expression write the script"
    runs = any("run" in step or step.get("uses", "").startswith("actions/checkout@") for step in job["steps"])
    if "pull-requests" in granted and runs and on_pull_request:
        yield "runs code with a token that comments"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_unsafe(path: pathlib.Path) -> None:
    assert list(problems(read(path))) == []


def job(name: str, **fields: Any) -> Callable[[Workflow], None]:
    """Changes fields of a job; None removes one."""

    def change(workflow: Workflow) -> None:
        for key, value in fields.items():
            key = key.replace("_", "-")
            if value is None:
                del workflow["jobs"][name][key]
            else:
                workflow["jobs"][name][key] = value

    return change


def step(name: str, number: int, **fields: Any) -> Callable[[Workflow], None]:
    """Changes fields of a step of a job."""

    def change(workflow: Workflow) -> None:
        workflow["jobs"][name]["steps"][number] |= fields

    return change


def added(name: str, **fields: Any) -> Callable[[Workflow], None]:
    """Adds a step to a job."""
    return lambda workflow: workflow["jobs"][name]["steps"].append(fields)


DIFFERENCE, COMMENT = "difference", "comment"

UNSAFE = {
    "a fork's code with our secrets": (
        lambda workflow: workflow.update(on={"pull_request_target": None}),
        "runs on pull_request_target",
    ),
    "no permissions said": (
        lambda workflow: workflow.pop("permissions"),
        "a job that says nothing of permissions has more than reading",
    ),
    "everything may be written": (
        lambda workflow: workflow.update(permissions="write-all"),
        "a job that says nothing of permissions has more than reading",
    ),
    "the head's code may comment": (
        job(DIFFERENCE, permissions={"pull-requests": "write"}),
        "difference: writes pull-requests",
    ),
    "code beside the comment": (added(COMMENT, run="make"), "comment: runs code with a token that comments"),
    "a fork may comment": (job(COMMENT, **{"if": "always()"}), "comment: may write for a fork"),
    "credentials for a fork": (job("preview-dev", **{"if": "true"}), "preview-dev: may write for a fork"),
    "a stored key": (
        step(DIFFERENCE, 2, env={"KEY": "${{ secrets.PULUMI_ACCESS_TOKEN }}"}),
        "difference: uses stored secrets",
    ),
    "every secret": (job("preview-dev", secrets="inherit"), "preview-dev: uses stored secrets"),
    "a tag": (step(DIFFERENCE, 0, uses="actions/checkout@v7"), "difference: actions/checkout@v7 is not fixed by"),
    "a token left behind": (step(DIFFERENCE, 0, **{"with": {}}), "difference: leaves its token behind"),
    "a title in a script": (
        step(DIFFERENCE, 2, run="echo ${{ github.event.pull_request.title }}"),
        "difference: lets an expression write the script",
    ),
    "no limit": (job(DIFFERENCE, timeout_minutes=None), "difference: may hang for six hours"),
    "somebody else's workflow": (
        job("preview-dev", uses="example/other/.github/workflows/a.yml@main"),
        "preview-dev: calls a workflow of somebody else's",
    ),
}


@pytest.mark.parametrize(("change", "problem"), UNSAFE.values(), ids=UNSAFE)
def test_what_is_unsafe_is_seen(change: Callable[[Workflow], None], problem: str) -> None:
    workflow = copy.deepcopy(read(FOLDER / "pull-request.yml"))
    change(workflow)
    assert [said for said in problems(workflow) if said.startswith(problem)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_digest_has_its_version_beside_it(path: pathlib.Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "uses:" in line and "uses: ./" not in line]
    assert all(re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line) for line in lines)


def test_an_action_is_of_one_version_everywhere() -> None:
    text = "\n".join(path.read_text() for path in FILES)
    used = set(re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40})", text))
    assert len(used) == len({name for name, _ in used})


@pytest.mark.process
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_actionlint_has_nothing_to_say(path: pathlib.Path) -> None:
    try:
        program = build.built().program
    except actionlint.NoActionlint as error:
        pytest.skip(f"no actionlint: {error}")
    ended = subprocess.run([program, "-no-color", path], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def commands() -> list[list[str]]:
    """What the workflows run of our own command, without what a shell makes of the rest of the line."""
    found = []
    for path in FILES:
        for each in read(path)["jobs"].values():
            for line in "\n".join(step.get("run", "") for step in each.get("steps", [])).splitlines():
                if re.match(r" *(base/)?\.venv/bin/gpufleet ", line):
                    words = shlex.shlex(line, posix=True, punctuation_chars=True)
                    words.whitespace_split = True
                    found.append(list(itertools.takewhile(lambda word: word[0] not in "|>&;", words))[1:])
    return found


def test_the_command_knows_what_it_is_asked() -> None:
    asked = [parser().parse_args(command).command for command in commands()]
    assert sorted(asked) == ["diff", "lint-workflows", "pins"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stack_that_is_asked_for_is_there(path: pathlib.Path) -> None:
    for each in read(path)["jobs"].values():
        if each.get("uses") == "./.github/workflows/stack.yml":
            assert (ROOT / f"Pulumi.{each['with']['stack']}.yaml").is_file()
            assert each["with"]["command"] in ("preview", "up")


def test_what_is_applied_waits_for_its_environment() -> None:
    """Only a push to main applies, in the environment whose rules people set; all else looks on with other rights."""
    calls = [
        (path.stem, each["with"]["command"], each["with"]["environment"] == each["with"]["stack"])
        for path in FILES
        for each in read(path)["jobs"].values()
        if each.get("uses") == "./.github/workflows/stack.yml"
    ]
    assert {call for call in calls if call[1] == "up" or call[2]} == {("deploy", "up", True)}
    deploy = read(FOLDER / "deploy.yml")
    assert deploy["on"] == {"push": {"branches": ["main"]}}
    assert deploy["jobs"]["dev"]["needs"] == ["test", "preview-dev"]
    assert deploy["jobs"]["mi300"]["needs"] == ["test", "preview-mi300"]


def test_a_pull_request_is_judged_by_the_base() -> None:
    """The command and all that it imports are the base's; the pull request's folder is only evaluated."""
    checkouts = [
        step["with"] for step in read(FOLDER / "pull-request.yml")["jobs"]["difference"]["steps"] if "with" in step
    ][:2]
    assert [each["path"] for each in checkouts] == ["base", "head"]
    assert checkouts[0]["ref"] == "${{ github.event.pull_request.base.sha }}"
    assert all(command[:2] == ["-C", "head"] for command in commands() if "diff" in command)


def test_code_of_a_pull_request_gets_secrets_after_an_approval_alone() -> None:
    """Environments of pull requests are of no other event, so that every run of theirs can wait for a reviewer."""
    stacks = {
        each["with"]["environment"]: read(path)["on"]
        for path in FILES
        for each in read(path)["jobs"].values()
        if each.get("uses") == "./.github/workflows/stack.yml" and each["with"]["environment"].endswith("-preview")
    }
    assert stacks == {f"{stack}-preview": {"pull_request": None} for stack in ("dev", "mi300")}
    for name in ("preview-dev", "preview-mi300"):
        assert read(FOLDER / "pull-request.yml")["jobs"][name]["needs"] == ["difference", "reviewers"]


def test_the_engine_is_as_new_as_the_sdk() -> None:
    (version,) = [
        each["with"]["pulumi-version"]
        for each in read(FOLDER / "stack.yml")["jobs"]["pulumi"]["steps"]
        if each.get("uses", "").startswith("pulumi/actions@")
    ]
    assert version == pins.versions(ROOT / "pyproject.toml")["pulumi"]


def test_what_writes_a_branch_runs_none_of_its_code() -> None:
    """The job that may push gets a patch, and neither installs nor runs what is checked out."""
    propose = read(FOLDER / "runner-releases.yml")["jobs"]["propose"]
    assert [step["uses"].partition("@")[0] for step in propose["steps"] if "uses" in step] == ["actions/checkout"]
    (script,) = [step["run"] for step in propose["steps"] if "run" in step]
    assert {line.split()[0] for line in script.splitlines() if line} == {"base64", "git", "#", "gh"}
