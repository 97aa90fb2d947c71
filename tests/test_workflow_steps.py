"""Each `run:` block of our workflows, executed as a runner does, with stand-ins for GitHub's variables and for the
programs that would install, push or ask GitHub."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.test_workflows import FILES, read

pytestmark = pytest.mark.process

Step = tuple[str, str, int]
"""Workflow, job, and the number of the `run:` block in the job."""


def blocks() -> dict[Step, dict[str, Any]]:
    """Every step with a script."""
    return {
        (path.stem, name, number): step
        for path in FILES
        for name, job in read(path)["jobs"].items()
        for number, step in enumerate(each for each in job.get("steps", []) if "run" in each)
    }


@dataclass
class Workspace:
    """Where a step runs, with programs that note how they were called."""

    folder: pathlib.Path
    environment: dict[str, str] = field(default_factory=dict)

    def program(self, name: str, script: str = "") -> None:
        """Write a program: on PATH, or at a path in the workspace."""
        path = self.folder / (name if "/" in name else f"bin/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n{script}\n')
        path.chmod(0o755)

    def run(self, step: Step) -> int:
        """Run a step's script as GitHub's runner does on Linux, and return its exit code."""
        for file in ("calls", "output", "summary"):
            (self.folder / file).touch()
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "CALLS": str(self.folder / "calls"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_BASE_REF": "main",
            "GITHUB_REPOSITORY": "example/fleet",
            **self.environment,
        }
        script = self.folder / "script.sh"
        script.write_text(blocks()[step]["run"])
        ended = subprocess.run(
            ["bash", "-e", script], cwd=self.folder, env=environment, capture_output=True, timeout=60, check=False
        )
        return ended.returncode

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def outputs(self) -> dict[str, str]:
        """Outputs of the step, as GitHub reads the file."""
        found, lines = {}, iter(self.read("output").splitlines())
        for line in lines:
            name, _, end = line.partition("<<")
            content = []
            while (each := next(lines)) != end:
                content.append(each)
            found[name] = "\n".join(content)
        return found


@pytest.fixture
def workspace(tmp_path: pathlib.Path) -> Workspace:
    workspace = Workspace(tmp_path)
    # Part of GitHub's images, and not of every machine.
    workspace.program("uuidgen")
    (tmp_path / "bin/uuidgen").write_text("#!/bin/bash\necho 7d0f6a1e-$RANDOM-$RANDOM\n")
    return workspace


def simple(step: Step, *programs: str, calls: list[str]) -> tuple[Step, Callable[[Workspace], None]]:
    """A step that only calls programs."""

    def drive(workspace: Workspace) -> None:
        for program in programs:
            workspace.program(program)
        assert workspace.run(step) == 0
        assert workspace.read("calls").splitlines() == calls

    return step, drive


DIFF: Step = ("pull-request", "difference", 1)


def difference(workspace: Workspace) -> None:
    """The base's command judges the head; its text is the comment, and its code the job's."""
    workspace.program("base/.venv/bin/gpufleet", 'echo "### refused: $4" > "${@: -1}"; exit 1')
    assert workspace.run(DIFF) == 1
    assert workspace.outputs() == {"comment": "### refused: origin/main...HEAD\n"}
    assert workspace.read("summary") == "### refused: origin/main...HEAD\n"
    (call,) = workspace.read("calls").splitlines()
    assert call.startswith("base/.venv/bin/gpufleet -C head diff origin/main...HEAD --format markdown --out /")


def reviewers(workspace: Workspace) -> None:
    workspace.environment["ENVIRONMENTS"] = "dev-preview mi300-preview"
    workspace.program("gh", 'printf "branch_policy\\nrequired_reviewers\\n"')
    assert workspace.run(REVIEWERS) == 0
    assert [line.split()[2] for line in workspace.read("calls").splitlines()] == [
        "repos/example/fleet/environments/dev-preview",
        "repos/example/fleet/environments/mi300-preview",
    ]


REVIEWERS: Step = ("pull-request", "reviewers", 0)


@pytest.mark.parametrize("script", ["echo branch_policy", "exit 1", "true"], ids=["other rules", "no answer", "none"])
def test_no_preview_without_reviewers(script: str, workspace: Workspace) -> None:
    workspace.environment["ENVIRONMENTS"] = "dev-preview"
    workspace.program("gh", script)
    assert workspace.run(REVIEWERS) == 1


def test_a_difference_that_breaks_replaces_the_comment(workspace: Workspace) -> None:
    workspace.program("base/.venv/bin/gpufleet", "exit 3")
    assert workspace.run(DIFF) == 3
    assert workspace.outputs()["comment"].startswith("### gpufleet diff: incomplete\n- It ended with exit code 3:")


def test_a_comment_sets_no_other_output(workspace: Workspace) -> None:
    workspace.program("base/.venv/bin/gpufleet", r'printf "a\nEOF\nevil=1\ncomment<<EOF\n" > "${@: -1}"')
    assert workspace.run(DIFF) == 0
    assert workspace.outputs() == {"comment": "a\nEOF\nevil=1\ncomment<<EOF\n"}


LINT: Step = ("lint-workflows", "lint", 1)


def lint(workspace: Workspace) -> None:
    workspace.program(".venv/bin/gpufleet", "echo '{}'; exit 1")
    assert workspace.run(LINT) == 0
    assert workspace.read("labels.sarif") == "{}\n"


def test_a_lint_that_breaks_uploads_nothing(workspace: Workspace) -> None:
    workspace.program(".venv/bin/gpufleet", "exit 2")
    assert workspace.run(LINT) != 0


def packages(workspace: Workspace) -> None:
    workspace.program("make")
    workspace.program("python", 'mkdir -p policy/.venv/bin; ln -s "$(command -v pip)" policy/.venv/bin/pip')
    workspace.program("pip")
    assert workspace.run(PACKAGES) == 0
    assert workspace.read("calls").splitlines() == [
        "make .venv/.installed",
        "python -m venv policy/.venv",
        "pip install --quiet --require-hashes -r policy/requirements.txt",
    ]


PACKAGES: Step = ("stack", "pulumi", 0)


def repository(workspace: Workspace) -> None:
    """A repository with one commit and a remote."""
    commit = ["-c", "user.name=a", "-c", "user.email=a@example.test", "commit", "--quiet", "--all", "--message", "one"]
    git = ["git", "-C", str(workspace.folder)]
    subprocess.run(["git", "init", "--quiet", "--bare", workspace.folder / "remote.git"], check=True)
    subprocess.run([*git, "init", "--quiet"], check=True)
    (workspace.folder / "table.json").write_text("{}\n")
    for command in (["add", "table.json"], commit, ["remote", "add", "origin", str(workspace.folder / "remote.git")]):
        subprocess.run([*git, *command], check=True)


REFRESH: Step = ("runner-releases", "refresh", 1)
PROPOSE: Step = ("runner-releases", "propose", 0)


def refresh(workspace: Workspace) -> None:
    """What changes goes to the other job as text; the token is gone when the repository's code runs."""
    repository(workspace)
    workspace.environment["GITHUB_TOKEN"] = "stand-in"
    workspace.program(".venv/bin/gpufleet", "echo 1 new release")
    workspace.program("make", '[ -z "${GITHUB_TOKEN:-}" ] && echo "{1}" > table.json')
    assert workspace.run(REFRESH) == 0
    outputs = workspace.outputs()
    assert outputs["summary"] == "1 new release"
    assert outputs["changes"]


def propose(workspace: Workspace) -> None:
    """The patch becomes a commit on the branch, and a pull request."""
    refresh(workspace)
    outputs = workspace.outputs()
    git = ["git", "-C", str(workspace.folder)]
    subprocess.run([*git, "checkout", "--quiet", "table.json"], check=True)
    workspace.environment |= {"CHANGES": outputs["changes"], "SUMMARY": outputs["summary"], "BRANCH": "runner-releases"}
    workspace.program("gh", '[ "$2" != view ]')
    assert workspace.run(PROPOSE) == 0
    shown = [*git, "show", "origin/runner-releases:table.json"]
    subprocess.run([*git, "fetch", "--quiet"], check=True)
    assert subprocess.run(shown, capture_output=True, text=True, check=True).stdout == "{1}\n"
    assert "gh pr create --head runner-releases" in workspace.read("calls")


DRIVEN: dict[Step, Callable[[Workspace], None]] = {
    DIFF: difference,
    REVIEWERS: reviewers,
    LINT: lint,
    PACKAGES: packages,
    REFRESH: refresh,
    PROPOSE: propose,
    **dict(
        (
            simple(("pull-request", "difference", 0), "make", calls=["make -C base .venv/.installed"]),
            simple(("lint-workflows", "lint", 0), "make", calls=["make .venv/.installed"]),
            simple(("runner-releases", "refresh", 0), "make", calls=["make .venv/.installed"]),
            simple(("test", "test", 0), ".ci/run", calls=[".ci/run "]),
        )
    ),
}


@pytest.mark.parametrize("step", blocks(), ids=lambda step: "-".join(map(str, step)))
def test_every_script_runs(step: Step, workspace: Workspace) -> None:
    assert step in DRIVEN, f"the script {step} of .github/workflows is driven by no test: add it to DRIVEN"
    DRIVEN[step](workspace)


def test_no_script_is_driven_that_is_gone() -> None:
    assert DRIVEN.keys() == blocks().keys()


def test_zizmor_has_nothing_to_say() -> None:
    program = shutil.which("zizmor") or str(pathlib.Path(sys.executable).with_name("zizmor"))
    if not pathlib.Path(program).is_file():
        pytest.skip("no zizmor: it is not installed here")
    command = [program, "--offline", "--no-progress", str(FILES[0].parent)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout
