"""The process that enforces the time limit of jobs, in a PID namespace with processes of the runner's names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpufleet.arc.job_timeout import script

UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def reason_to_skip() -> str:
    if not shutil.which("unshare"):
        return "unshare is not here"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"this kernel refuses namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Programs with the runner's names, which sleep."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    for name in ("Runner.Worker", "Runner.Listener"):
        shutil.copy(shutil.which("sleep") or "sleep", tmp_path / name)
    return tmp_path


def container(folder: Path, hook: str, command: str) -> str:
    """What a container prints whose hook has run before its command."""
    (folder / "hook").write_text(hook)
    program = f"bash {folder}/hook\n{command}\necho alive $(cat /proc/[0-9]*/comm | grep -o 'Runner.*' | sort)"
    ended = subprocess.run(
        [*UNSHARE, "bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stderr == ""
    return ended.stdout


pytestmark = pytest.mark.process


def test_a_job_ends_at_its_limit_and_says_why(folder: Path) -> None:
    printed = container(
        folder, script(2, pause=1, to_end=60), "./Runner.Listener 30 & ./Runner.Worker 30 & worker=$!; wait $worker"
    )
    assert printed.splitlines() == [
        "The job has run for more than 2 seconds, its time limit: it is ended.",
        "alive Runner.Listener",
    ]


def test_a_runner_that_does_not_notice_is_killed(folder: Path) -> None:
    stubborn = "exec 2>/dev/null; (trap '' TERM; exec ./Runner.Worker 30) & ./Runner.Listener 30 & wait"
    assert container(folder, script(2, pause=1, to_end=1), stubborn).endswith("alive\n")


@pytest.mark.parametrize(
    "command",
    ["./Runner.Listener 30 & sleep 6", "./Runner.Listener 30 & ./Runner.Worker 30 & sleep 6"],
    ids=["no job", "a job within its limit"],
)
def test_nothing_else_is_ended(folder: Path, command: str) -> None:
    limit = 3 if "Worker" not in command else 30
    assert "Runner.Listener" in (printed := container(folder, script(limit, pause=1, to_end=1), command))
    assert ("Runner.Worker" in printed) == ("Worker" in command)
    assert "limit" not in printed
