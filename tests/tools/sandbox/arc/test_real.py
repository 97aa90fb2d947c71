"""ARC's own controller and listeners, with GitHub simulated: jobs, and a key that rotates.

They run where GPUFLEET_ARC has ARC's programs and GPUFLEET_CHARTS its charts.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet.arc.scale_set import CREDENTIALS_REVISION
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.sandbox import lifecycle, real_arc
from gpufleet_tools.sandbox.arc import charts, programs
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.rehearsal import CHARTS
from tests.conftest import ROOT, MakeProject

MISSING = [name for name in (programs.ARC, CHARTS) if name not in os.environ]

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"ARC itself is not here: {', '.join(MISSING)} not set"),
]

PATIENCE = 120.0
APP, LABEL = "gpu-test-cluster", "mi300-cluster"
SECRET = "pre-defined-rocm-secret"


@dataclasses.dataclass
class Running:
    """A stack that is up."""

    stack: Stack
    control_plane: ControlPlane
    github: Control

    def pods(self, part: str) -> dict[str, str]:
        """UIDs of pods by name."""
        (found,) = api_server.listed(self.control_plane.kubeconfig, ("v1", "Pod"))
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found if part in each["metadata"]["name"]}

    def jobs(self, label: str, state: str) -> int:
        return sum((job["label"], job["state"]) == (label, state) for job in self.github.call("state")["jobs"])

    def rotate(self) -> None:
        """What `pulumi up` does with a new key: the Secret, then the release with another revision."""
        plan, folder = self.stack.plan(), real_arc.folder_of(self.control_plane)
        (folder / f"{APP}-{SECRET}.pem").unlink()
        own = real_arc.with_app_keys(lifecycle.own_objects(plan), folder)
        secret = [each for each in own if each["metadata"]["name"] == SECRET]
        (release,) = (each for each in plan.releases() if each.name == LABEL)
        values: dict[str, Any] = copy.deepcopy(dict(release.values))
        values["listenerTemplate"]["metadata"]["annotations"][CREDENTIALS_REVISION] = "rotated"
        chart = charts.rendered(dataclasses.replace(release, values=values))
        for step in (secret, chart):
            objects.apply(self.control_plane.kubeconfig, step, self.stack.name)


@pytest.fixture
def running(project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = project({"mi300": (ROOT / "Pulumi.mi300.yaml").read_text()})
    read = stack.read(root, "mi300")
    try:
        lifecycle.up(read, read.plan(), None, ["mi300-cluster=3"], runs_arc=True)
        control_plane = lifecycle.running(read)
        yield Running(read, control_plane, Control.of(control_plane))
    finally:
        lifecycle.down(root, "mi300")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.2)


def test_a_rotated_key_restarts_one_listener_and_touches_no_job(running: Running) -> None:
    until(lambda: running.jobs(LABEL, "running") == 3)
    listeners, runners = running.pods("-listener"), running.pods("-runner-")
    before = running.github.call("state")
    running.rotate()
    until(lambda: len(running.github.call("state")["credentials"]) == len(before["credentials"]) + 1)
    until(lambda: running.github.call("state")["scaleSets"][LABEL]["session"] is not None)
    changed = {name for name, uid in running.pods("-listener").items() if listeners.get(name) != uid}
    assert [name.rpartition("-")[0].startswith(LABEL) for name in changed] == [True]
    now = running.pods("-runner-")
    assert {name: now.get(name) for name in runners} == runners
    # The old key is of no use to anybody any more.
    assert len(running.github.call("revoke-key", namespace=APP, secret=SECRET, owner=APP, current=False)) == 1
    after = running.pods("-listener")
    running.github.call("queue", label=LABEL, count=2, seconds=1)
    until(lambda: running.jobs(LABEL, "completed") == 2)
    running.github.call("end", label=LABEL, count=None, result="succeeded")
    until(lambda: running.jobs(LABEL, "completed") == 5)
    assert running.pods("-listener") == after
    ids = [state["scaleSets"][LABEL]["id"] for state in (before, running.github.call("state"))]
    assert ids[0] == ids[1]
