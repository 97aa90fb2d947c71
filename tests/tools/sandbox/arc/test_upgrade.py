"""Upgrade of ARC's own controller and listeners with busy runners and queued jobs, GitHub simulated.

It runs where GPUFLEET_ARC has both versions of ARC's programs, and GPUFLEET_CHARTS their charts.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import lifecycle, real_arc
from gpufleet_tools.sandbox.arc import charts, programs
from gpufleet_tools.sandbox.arc.control import Control
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.rehearsal import CHARTS
from gpufleet_tools.upgrade import arc as upgrade
from tests.conftest import ROOT, MakeProject

OLD, NEW = "0.13.1", "0.14.2"
LABEL = "mi300-cluster"
PATIENCE = 120.0


def missing() -> list[str]:
    """What this machine lacks."""
    found = [name for name in (programs.ARC, CHARTS) if name not in os.environ]
    for version in () if found else (OLD, NEW):
        try:
            programs.find(version)
        except SandboxError as error:
            found.append(str(error))
    return found


pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"both versions of ARC are not here: {'; '.join(missing())}"),
]


@dataclasses.dataclass
class Fleet:
    """A stack that is up, with its stack file."""

    root: Path
    control_plane: ControlPlane
    github: Control

    def up(self, *, guarded: bool = True, between: Callable[[], None] = lambda: None) -> None:
        """What `pulumi up` does, in the order of the plan's dependencies. `between` runs after the controller, before
        the scale sets."""
        plan = stack.read(self.root, "mi300").plan()
        own = real_arc.with_app_keys(lifecycle.own_objects(plan), real_arc.folder_of(self.control_plane))
        self.apply([each for each in own if guarded or "ValidatingAdmissionPolicy" not in each["kind"]])
        (controller,) = (each for each in plan.releases() if not each.is_scale_set)
        rendered = charts.rendered(controller)
        definition = "CustomResourceDefinition"
        if any(each.type.endswith(f":{definition}Patch") for each in plan.owned()):
            self.apply([each for each in rendered if each["kind"] == definition])
        self.apply([each for each in rendered if each["kind"] != definition])
        until(lambda: self.versions("controller-manager") == {controller.version: 1})
        between()
        for release in plan.releases():
            if release.is_scale_set:
                self.apply(charts.rendered(release))

    def apply(self, wanted: list[dict[str, Any]]) -> None:
        objects.apply(self.control_plane.kubeconfig, wanted, "mi300")

    def listed(self, version: str, kind: str) -> list[dict[str, Any]]:
        return api_server.listed(self.control_plane.kubeconfig, (version, kind))[0]

    def versions(self, component: str) -> collections.Counter[str]:
        """Running pods of one of ARC's components, by version of the image."""
        pods = [
            each
            for each in self.listed("v1", "Pod")
            if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component
            and each["status"].get("phase") == "Running"
        ]
        return collections.Counter(each["spec"]["containers"][0]["image"].rpartition(":")[2] for each in pods)

    def scale_sets(self) -> dict[str, str]:
        """Version of each scale set's chart."""
        found = self.listed("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
        return {each["metadata"]["name"]: each["metadata"]["labels"]["app.kubernetes.io/version"] for each in found}

    def ids(self) -> dict[str, int]:
        return {name: each["id"] for name, each in self.github.call("state")["scaleSets"].items()}

    def jobs(self) -> collections.Counter[str]:
        """Jobs by state; those that did not succeed have their result."""
        jobs = self.github.call("state")["jobs"]
        return collections.Counter(each["state"] + each["result"].replace("succeeded", "") for each in jobs)

    def end_jobs(self) -> None:
        self.github.call("end", label=LABEL, count=None, result="succeeded")

    def manager_said(self, words: str) -> bool:
        folders = real_arc.folder_of(self.control_plane).rglob("log")
        return any(words in file.read_text(errors="replace") for file in folders)

    def destroy_scale_sets(self) -> None:
        with api_server.connected(self.control_plane.kubeconfig) as api:
            for each in self.listed("actions.github.com/v1alpha1", "AutoscalingRunnerSet"):
                kind = api.resource(each)
                api.call("DELETE", kind.path(each["metadata"]["namespace"], each["metadata"]["name"]))


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest, project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fleet]:
    """The committed stack with a version of ARC, 8 busy runners, which are all, and 4 queued jobs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    section = f"  gpu-runners:arc: {{version: {request.param}}}\n  gpu-runners:projects:"
    text = (ROOT / "Pulumi.mi300.yaml").read_text().replace("  gpu-runners:projects:", section)
    root = project({"mi300": text})
    read = stack.read(root, "mi300")
    control_plane = ControlPlane.of(read.root, read.name, binaries.find(), runs_arc=True)
    control_plane.up()
    # The kubelet has both versions, as if nodes had pulled both images.
    links = real_arc.folder_of(control_plane) / "programs"
    links.mkdir()
    for version in (OLD, NEW):
        (links / version).symlink_to(programs.find(version))
    lifecycle.up_with_arc(read, read.plan(), None, [f"{LABEL}=0"])
    fleet = Fleet(root, lifecycle.running(read), Control.of(control_plane))
    fleet.github.call("queue", label=LABEL, count=12, seconds=None)
    until(lambda: fleet.jobs() == {"running": 8, "queued": 4})
    yield fleet
    lifecycle.down(root, "mi300")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.2)


@pytest.mark.parametrize(("fleet", "version"), [(OLD, NEW), (NEW, OLD)], ids=["up", "back"], indirect=["fleet"])
def test_every_scale_set_and_every_job_stays(fleet: Fleet, version: str) -> None:
    ids, kubeconfig = fleet.ids(), fleet.control_plane.kubeconfig
    upgrade.run(fleet.root, "mi300", upgrade.Request(to=version, rollback=version == OLD, kubeconfig=kubeconfig))

    def between() -> None:
        """Jobs end and start while the new controller has scale sets of the old version, which it cannot delete."""
        if version == NEW:
            # 0.13.1 does not log it.
            until(lambda: fleet.manager_said("Failed to delete autoscaling runner set on version mismatch"))
        fleet.end_jobs()
        until(lambda: fleet.jobs() == {"completed": 8, "running": 4})
        assert {*fleet.scale_sets().values()} == {OLD if version == NEW else NEW}

    fleet.up(between=between)
    until(lambda: fleet.versions("runner-scale-set-listener") == {version: 2})
    assert fleet.jobs() == {"completed": 8, "running": 4}
    fleet.github.call("queue", label=LABEL, count=6, seconds=None)
    until(lambda: fleet.jobs() == {"completed": 8, "running": 8, "queued": 2})
    fleet.end_jobs()
    until(lambda: fleet.jobs() == {"completed": 16, "running": 2})
    fleet.end_jobs()
    assert fleet.ids() == ids
    upgrade.run(fleet.root, "mi300", upgrade.Request(finish=True, kubeconfig=kubeconfig))
    fleet.destroy_scale_sets()
    until(lambda: fleet.scale_sets() == {} and fleet.ids() == {})


@pytest.mark.parametrize("fleet", [OLD], indirect=True)
def test_without_the_policy_the_new_controller_deletes_them(fleet: Fleet) -> None:
    """Otherwise the test above would prove nothing."""
    upgrade.run(fleet.root, "mi300", upgrade.Request(to=NEW))
    fleet.up(guarded=False, between=lambda: until(lambda: {*fleet.ids()} != {LABEL, "linux-mi300-gpu-2"}))


@pytest.mark.parametrize("fleet", [OLD], indirect=True)
def test_a_scale_set_that_is_being_deleted_is_an_obstacle(fleet: Fleet) -> None:
    """Its busy runners keep it until their jobs end, and a chart applied to it meanwhile would be lost."""
    fleet.destroy_scale_sets()
    until(lambda: [*fleet.scale_sets()] == [LABEL])
    with pytest.raises(upgrade.UpgradeError, match=f"{LABEL} is being deleted, and a chart applied to it now would be"):
        upgrade.run(fleet.root, "mi300", upgrade.Request(to=NEW, kubeconfig=fleet.control_plane.kubeconfig))
