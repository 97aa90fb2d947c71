"""Upgrade of ARC by Pulumi's real engine, with ARC's own charts, controllers and listeners; only GitHub is simulated.

It runs where `pulumi` and its kubernetes plugin are on PATH, GPUFLEET_CHARTS names a folder with ARC's charts, and
GPUFLEET_ARC one with ARC's programs, both of both versions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import lifecycle, real_arc
from gpufleet_tools.sandbox.arc import programs
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane import api_server, processes
from gpufleet_tools.sandbox.rehearsal import Rehearsal
from gpufleet_tools.upgrade import arc as upgrade
from tests import engine
from tests.conftest import ROOT, MakeProject
from tests.e2e.test_engine import at_helm_record
from tests.tools.sandbox.arc.fleets import DEPLOYMENT, NEW, OLD, SCALE_SET, missing

BUSY = "mi300-cluster"
UP = ("up", "mi300", "--engine", "pulumi", "--arc", "real", f"--jobs={BUSY}=3", "--jobs=linux-mi300-gpu-2=0")
MISSING = [*engine.missing("kubernetes"), *missing(OLD, NEW)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"engine and ARC are not here: {'; '.join(MISSING)}"),
]


@dataclass
class Rehearsed:
    """A project in a rehearsal with the real ARC."""

    root: Path
    kubeconfig: Path
    github: Control

    def sandbox(self, *arguments: str) -> str:
        """What a command of the sandbox prints, which has to succeed."""
        process = self.start(*arguments)
        printed, _ = process.communicate(timeout=500)
        assert process.returncode == 0, printed
        return printed

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of the sandbox in a process group of its own."""
        program = "from gpufleet_tools.cli import main; main()"
        command = [sys.executable, "-c", program, "-C", str(self.root), "sandbox", *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def up(self) -> str:
        return self.sandbox(*UP)

    def killed(self, moment: Callable[[Path], None]) -> None:
        """Kill an `up` with its engine and the engine's plugins at a moment, as where the machine goes down."""
        process = self.start(*UP)
        moment(self.kubeconfig)
        os.killpg(process.pid, signal.SIGKILL)
        read = stack.read(self.root, "mi300")
        backend = Rehearsal(read, lifecycle.rehearsal_control_plane(read, binaries.find(), runs_arc=True)).backend
        assert processes.kill_with("PULUMI_BACKEND_URL", backend, "pulumi-")
        process.communicate()

    def versions(self) -> set[str]:
        """Versions of the charts of ARC's controller and scale sets, as the cluster has them."""
        found = [*self.listed(*SCALE_SET), *self.listed(*DEPLOYMENT)]
        versions = {each["metadata"].get("labels", {}).get("app.kubernetes.io/version") for each in found}
        return {each for each in versions if each in (OLD, NEW)}

    def listed(self, version: str, kind: str) -> list[dict[str, Any]]:
        return api_server.listed(self.kubeconfig, (version, kind))[0]

    def ids(self) -> dict[str, int]:
        return {name: each["id"] for name, each in self.github.call("state")["scaleSets"].items()}

    def running(self) -> set[int]:
        return {each["id"] for each in self.github.call("state")["jobs"] if each["state"] == "running"}

    def fields(self) -> set[str]:
        """Fields of a scale set's spec, as its definition has them."""
        found = self.listed("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        (mine,) = (each for each in found if each["spec"]["names"]["plural"] == "autoscalingrunnersets")
        schema = mine["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(schema["properties"]["spec"]["properties"])

    def policies(self) -> list[str]:
        found = self.listed("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
        return [each["metadata"]["name"] for each in found]


@pytest.fixture
def rehearsed(project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearsed]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    projects = "  gpu-runners:projects:"
    text = (ROOT / "Pulumi.mi300.yaml").read_text()
    root = project({"mi300": text.replace(projects, f"  gpu-runners:arc: {{version: {OLD}}}\n{projects}")})
    read = stack.read(root, "mi300")
    control_plane = lifecycle.rehearsal_control_plane(read, binaries.find(), runs_arc=True)
    try:
        control_plane.up()
        # The kubelet has both versions, as if nodes had pulled both images.
        links = real_arc.folder_of(control_plane) / "programs"
        links.mkdir()
        for version in (OLD, NEW):
            (links / version).symlink_to(programs.find(version))
        with_arc = Rehearsed(root, control_plane.kubeconfig, Control(0, ""))
        with_arc.up()
        with_arc.github = Control.of(control_plane)
        yield with_arc
    finally:
        lifecycle.down(root, "mi300")


def test_pulumi_up_upgrades_arc_and_keeps_jobs(rehearsed: Rehearsed) -> None:
    ids, running, fields = rehearsed.ids(), rehearsed.running(), rehearsed.fields()
    assert len(running) == 3
    assert "runnerScaleSetLabels" not in fields
    upgrade.run(rehearsed.root, "mi300", upgrade.Request(to=NEW, kubeconfig=rehearsed.kubeconfig))
    printed = rehearsed.up()
    assert "deleted" not in printed
    assert "runnerScaleSetLabels" in rehearsed.fields()
    assert rehearsed.policies() == ["arc-gha-rs-controller-upgrade"]
    # Nothing more to do, and nothing lost.
    assert "nothing changed" in rehearsed.up()
    assert (rehearsed.ids(), rehearsed.running()) == (ids, running)
    upgrade.run(rehearsed.root, "mi300", upgrade.Request(finish=True, kubeconfig=rehearsed.kubeconfig))
    rehearsed.up()
    assert rehearsed.policies() == []
    assert "runnerScaleSetLabels" in rehearsed.fields()
    assert (rehearsed.ids(), rehearsed.running()) == (ids, running)
    rehearsed.sandbox("down", "mi300", "--engine", "pulumi")


@pytest.mark.parametrize("release", ["arc", BUSY])
def test_an_upgrade_that_is_killed_and_run_again_keeps_jobs(rehearsed: Rehearsed, release: str) -> None:
    """Helm is at work on the controller, or on a scale set whose controller is new already. The next `up` cancels the
    killed one (`pulumi cancel`) and forgets what Helm did not finish."""
    ids, running = rehearsed.ids(), rehearsed.running()
    assert len(running) == 3
    upgrade.run(rehearsed.root, "mi300", upgrade.Request(to=NEW, kubeconfig=rehearsed.kubeconfig))
    rehearsed.killed(at_helm_record(release, "pending-upgrade"))
    assert rehearsed.running() == running
    assert "deleted" not in rehearsed.up()
    assert rehearsed.versions() == {NEW}
    assert "nothing changed" in rehearsed.up()
    assert (rehearsed.ids(), rehearsed.running()) == (ids, running)
