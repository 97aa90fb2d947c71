"""Commands on the simulated GitHub: what they ask of it, what they refuse, and the table of jobs."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.sandbox import simulated_github
from gpufleet_tools.sandbox.errors import SandboxError
from tests.conftest import ROOT, Gpufleet, MakeProject

FIRST, SECOND = "linux-mi300-gpu-2", "mi300-cluster"


def job(label: str, state: str, result: str = "", wait: float | None = None) -> dict[str, Any]:
    times = {"queued": 10.0} | ({} if wait is None else {"started": 10.0 + wait})
    return {"label": label, "seconds": 5.0, "state": state, "result": result, "times": times}


class Recorded:
    """A simulated GitHub that keeps what it is asked."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.states = [[*jobs]]
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {"end": 2, "delete-scale-set": True, "revoke-key": ["abc"]}

    def call(self, command: str, **arguments: Any) -> Any:
        if command == "state":
            return {"jobs": self.states.pop(0) if len(self.states) > 1 else self.states[0]}
        self.asked.append((command, arguments))
        return self.answers.get(command)


@pytest.fixture(scope="module")
def mi300() -> Stack:
    return stack.read(ROOT, "mi300")


Connect = Callable[..., Recorded]


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Puts a recorded GitHub with these jobs in the place of that of the sandbox."""

    def connect(*jobs: dict[str, Any]) -> Recorded:
        made = Recorded(*jobs)
        monkeypatch.setattr(simulated_github, "connected", lambda _: made)
        return made

    return connect


def refused(command: Callable[[], object]) -> list[str]:
    with pytest.raises(SandboxError) as error:
        command()
    return [*error.value.lines]


def test_jobs_are_queued(mi300: Stack, github: Connect) -> None:
    asked = github().asked
    assert simulated_github.queue_jobs(mi300, [f"{FIRST}=2", f"{SECOND}=1"], 5) == ["3 jobs queued"]
    assert asked == [
        ("queue", {"label": FIRST, "count": 2, "seconds": 5}),
        ("queue", {"label": SECOND, "count": 1, "seconds": 5}),
    ]
    assert simulated_github.queue_jobs(mi300, [], 5) == [], "the table only"


def test_a_job_may_name_an_additional_label(project: MakeProject, github: Connect) -> None:
    text = (ROOT / "Pulumi.mi300.yaml").read_text().replace("    mi300-cluster:\n", "    mi300-cluster:\n      ADD\n")
    root = project({"mi300": text.replace("ADD", "additionalLabels: [rocm]")})
    asked = github(job("rocm", "queued")).asked
    read = stack.read(root, "mi300")
    simulated_github.queue_jobs(read, ["rocm=1"], 5)
    assert asked[0][1]["label"] == "rocm"
    table = simulated_github.jobs_table(read, [job("rocm", "queued")])
    assert [*table.columns[0].cells] == [FIRST, SECOND, "rocm"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_run_time_is_a_positive_number(mi300: Stack, seconds: float) -> None:
    (line,) = refused(lambda: simulated_github.queue_jobs(mi300, [], seconds))
    assert line == f"--seconds {seconds:g}: must be a positive number; omit it for jobs of 30 seconds"


WRONG = {
    FIRST: "is not LABEL=N, where N is a number of jobs",
    f"{FIRST}=": "is not LABEL=N, where N is a number of jobs",
    f"{FIRST}=²": "is not LABEL=N, where N is a number of jobs",
    f"{FIRST}=-1": "is not LABEL=N, where N is a number of jobs",
    "mi300-clutser=1": "there is no label 'mi300-clutser'; did you mean 'mi300-cluster'?",
    f"{FIRST}=10001": "is too many; at most 10000 jobs of a label",
}


def test_every_wrong_entry_is_one_line(mi300: Stack, github: Connect) -> None:
    asked = github().asked
    lines = refused(lambda: simulated_github.queue_jobs(mi300, [*WRONG], 5))
    assert lines == [f"{entry}: {said}" for entry, said in WRONG.items()]
    assert refused(lambda: simulated_github.queue_jobs(mi300, [f"{FIRST}=1", f"{FIRST}=2"], 5)) == [
        f"{FIRST}=2: label '{FIRST}' is given twice; give one number"
    ]
    assert not asked


def test_jobs_end_by_label_by_number_or_all(mi300: Stack, github: Connect) -> None:
    there = github(*(job(label, "running") for label in (FIRST, FIRST, SECOND)))
    assert simulated_github.end_jobs(mi300, "finish", [f"{FIRST}=1", SECOND]) == ["4 jobs succeeded"]
    assert simulated_github.end_jobs(mi300, "fail", []) == ["4 jobs failed"]
    simulated_github.end_jobs(mi300, "fail", [f"{FIRST}=0"])
    assert [arguments for _, arguments in there.asked] == [
        {"label": FIRST, "count": 1, "result": "succeeded"},
        {"label": SECOND, "count": None, "result": "succeeded"},
        {"label": FIRST, "count": None, "result": "failed"},
        {"label": SECOND, "count": None, "result": "failed"},
        {"label": FIRST, "count": 0, "result": "failed"},
    ]


def test_what_does_not_run_does_not_end(mi300: Stack, github: Connect) -> None:
    there = github(job(FIRST, "running"), job(SECOND, "queued"))
    assert refused(lambda: simulated_github.end_jobs(mi300, "fail", [f"{FIRST}=2", SECOND])) == [
        f"fail {FIRST}: running jobs: 1; see gpufleet sandbox jobs mi300",
        f"fail {SECOND}: running jobs: 0; see gpufleet sandbox jobs mi300",
    ]
    assert not there.asked, "neither of them"
    github(job(SECOND, "queued"))
    assert refused(lambda: simulated_github.end_jobs(mi300, "finish", [])) == [
        "finish: no job is running; see gpufleet sandbox jobs mi300"
    ]


def test_runners_are_deprecated(mi300: Stack, github: Connect) -> None:
    there = github()
    there.answers["deprecate-runners"] = {FIRST: "image:1"}
    assert simulated_github.deprecate_runners(mi300, []) == [f"{FIRST}: new runners of the image image:1 are rejected"]
    assert refused(lambda: simulated_github.deprecate_runners(mi300, [SECOND])) == [
        f"deprecate-runners {SECOND}: its scale set is not installed"
    ]
    assert there.asked == [("deprecate-runners", {"label": None}), ("deprecate-runners", {"label": SECOND})]
    assert refused(lambda: simulated_github.deprecate_runners(mi300, ["mi300-clutser"])) == [
        "there is no label 'mi300-clutser'; did you mean 'mi300-cluster'?"
    ]


def test_keys_are_revoked(mi300: Stack, github: Connect) -> None:
    there = github()
    assert simulated_github.revoke_key(mi300, "gpu-test-cluster", replaced=False) == [
        "the current key of project gpu-test-cluster revoked (abc)"
    ]
    assert simulated_github.revoke_key(mi300, "pytorch", replaced=True) == [
        "1 replaced key of project pytorch revoked (abc)"
    ]
    names = [(each["namespace"], each["secret"], each["owner"], each["current"]) for _, each in there.asked]
    assert names == [
        ("gpu-test-cluster", "pre-defined-rocm-secret", "saienduri/gpu-test-cluster", True),
        ("pytorch", "pytorch-secret", "pytorch", False),
    ]
    there.answers["revoke-key"] = []
    assert refused(lambda: simulated_github.revoke_key(mi300, "pytorch", replaced=True)) == [
        "revoke-key pytorch: the project has no replaced key"
    ]
    assert refused(lambda: simulated_github.revoke_key(mi300, "pytorhc", replaced=False)) == [
        "revoke-key pytorhc: there is no project 'pytorhc'; did you mean 'pytorch'?"
    ]


def test_a_scale_set_is_deleted(mi300: Stack, github: Connect) -> None:
    there = github()
    assert simulated_github.delete_scale_set(mi300, FIRST) == [
        f"scale set {FIRST} deleted at GitHub; ARC's objects are unchanged"
    ]
    there.answers["delete-scale-set"] = False
    assert refused(lambda: simulated_github.delete_scale_set(mi300, FIRST)) == [
        f"delete-scale-set {FIRST}: GitHub has no such scale set; ARC has not registered it"
    ]


def test_without_the_real_arc_there_is_no_github(gpufleet: Gpufleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere")
    for arguments in (["jobs", "mi300"], ["github", "mi300", "fail"]):
        ended = gpufleet("-C", ROOT, "sandbox", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == (
            "gpufleet: the simulated GitHub accepts commands only with the real ARC:"
            " gpufleet sandbox up mi300 --arc real\n"
        )


# -- the table --------------------------------------------------------------------------------------------------------

ENDED = [
    *(job(FIRST, "completed", "succeeded", wait) for wait in (1.0, 2.0, 9.0)),
    job(FIRST, "completed", "failed", 4.0),
    job(FIRST, "completed", "cancelled"),
]


def test_the_table_counts_each_job_once(mi300: Stack) -> None:
    jobs = [*ENDED, job(SECOND, "queued"), job(SECOND, "assigned"), job(SECOND, "running", wait=0.5)]
    columns = [[*column.cells] for column in simulated_github.jobs_table(mi300, jobs).columns]
    assert [*zip(*columns, strict=True)] == [
        (FIRST, "0", "0", "0", "3", "1", "4.0", "9.0"),
        (SECOND, "1", "1", "1", "0", "0", "0.5", "0.5"),
    ]


@pytest.fixture
def watched(github: Connect, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """A job that is queued, runs and is done."""
    monkeypatch.setattr(simulated_github, "_PAUSE", 0)
    there = github()
    there.states = [
        [job(FIRST, "queued")],
        [job(FIRST, "running", wait=2.0)],
        [job(FIRST, "running", wait=2.0)],
        [job(FIRST, "completed", "succeeded", 2.0)],
    ]
    return there


def test_without_a_terminal_a_line_for_each_change(
    mi300: Stack, watched: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated_github.watch(mi300, Console(width=200))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" s: ")[2] for line in lines[:3]] == [
        "1 queued, 0 assigned, 0 running, 0 done, 0 failed",
        "0 queued, 0 assigned, 1 running, 0 done, 0 failed",
        "0 queued, 0 assigned, 0 running, 1 done, 0 failed",
    ]
    assert lines[3].split()[:3] == ["runs-on", "queued", "assigned"]
    assert lines[4].split() == [FIRST, "0", "0", "0", "1", "0", "2.0", "2.0"]


def test_a_job_without_an_end_is_not_waited_for(mi300: Stack, github: Connect) -> None:
    github({**job(FIRST, "running", wait=1.0), "seconds": None})
    simulated_github.watch(mi300, Console(file=io.StringIO()))


def test_in_a_terminal_the_table_is_drawn_again(mi300: Stack, watched: Recorded) -> None:
    out = io.StringIO()
    simulated_github.watch(mi300, Console(file=out, force_terminal=True, width=100))
    drawn = out.getvalue()
    assert drawn.count("runs-on") >= len(("queued", "running", "running", "done"))
    assert " s: " not in drawn
