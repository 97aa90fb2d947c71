"""Upgrade of ARC's own controller and listeners with busy runners and queued jobs, GitHub simulated.

It runs where GPUFLEET_ARC has both versions of ARC's programs, and GPUFLEET_CHARTS their charts.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpufleet_tools.plan import arc_releases
from gpufleet_tools.sandbox import lifecycle, real_arc
from gpufleet_tools.sandbox.arc import charts, programs
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.upgrade import arc as upgrade
from tests.conftest import MakeProject
from tests.tools.sandbox.arc.fleets import (
    FIRST,
    MI300,
    NEW,
    OLD,
    SCALE_SET,
    SECOND,
    Manifest,
    Real,
    requires_arc,
    until,
)

pytestmark = [pytest.mark.process, pytest.mark.slow, requires_arc(OLD, NEW)]


def with_arc(version: str) -> str:
    """The committed stack with that version of ARC."""
    projects = "  gpu-runners:projects:"
    return MI300.replace(projects, f"  gpu-runners:arc: {{version: {version}}}\n{projects}")


@dataclass
class Upgraded(Real):
    """A fleet whose ARC is upgraded."""

    def pulumi_up(self, *, guarded: bool = True, between: Callable[[], None] = lambda: None) -> None:
        """What `pulumi up` does, in the order of the plan's dependencies. `between` runs after the controller, before
        the scale sets."""
        plan, folder = self.stack.plan(), real_arc.folder_of(lifecycle.running(self.stack))
        own = real_arc.with_app_keys(lifecycle.own_objects(plan), folder)
        self.apply(*(each for each in own if guarded or "ValidatingAdmissionPolicy" not in each["kind"]))
        controller = arc_releases.controller(plan)
        assert controller is not None
        rendered = charts.rendered(controller)
        definition = "CustomResourceDefinition"
        if any(each.type.endswith(f":{definition}Patch") for each in plan.owned()):
            self.apply(*(each for each in rendered if each["kind"] == definition))
        self.apply(*(each for each in rendered if each["kind"] != definition))
        until(lambda: self.versions("controller-manager") == {controller.version: 1})
        between()
        for release in arc_releases.scale_sets(plan):
            self.apply(*charts.rendered(release))

    def versions(self, component: str) -> collections.Counter[str]:
        """Running pods of one of ARC's components, by version of the image."""
        pods = [
            each
            for each in self.listed(("v1", "Pod"))
            if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component
            and each["status"].get("phase") == "Running"
        ]
        return collections.Counter(each["spec"]["containers"][0]["image"].rpartition(":")[2] for each in pods)

    def chart_versions(self) -> dict[str, str]:
        """Version of each scale set's chart."""
        labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in self.listed(SCALE_SET)}
        return {name: each["app.kubernetes.io/version"] for name, each in labels.items()}

    def ids(self) -> dict[str, int]:
        return {name: each["id"] for name, each in self.github.call("state")["scaleSets"].items()}

    def all_jobs(self) -> collections.Counter[str]:
        """Jobs by state; the state of one that did not succeed includes its result."""
        jobs = self.github.call("state")["jobs"]
        return collections.Counter(each["state"] + each["result"].replace("succeeded", "") for each in jobs)

    def end_jobs(self) -> None:
        self.github.call("end", label=SECOND, count=None, result="succeeded")

    def logged(self, words: str) -> bool:
        """Whether one of ARC's processes has logged these words."""
        logs = real_arc.folder_of(lifecycle.running(self.stack)).rglob("log*")
        return any(words in log.read_text(errors="replace") for log in logs)

    def delete_all(self, manifests: Sequence[Manifest]) -> None:
        for each in manifests:
            self.delete(each)


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest, project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Upgraded]:
    """The committed stack with a version of ARC. All 8 runners of a label are busy, and 4 jobs are queued."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet = Upgraded(project({"mi300": with_arc(request.param)}))
    try:
        control_plane = ControlPlane.of(fleet.root, "mi300", binaries.find(), runs_arc=True)
        control_plane.up()
        # The kubelet has both versions, as if nodes had pulled both images.
        links = real_arc.folder_of(control_plane) / "programs"
        links.mkdir()
        for version in (OLD, NEW):
            (links / version).symlink_to(programs.find(version))
        fleet.up(with_arc(request.param))
        fleet.github.call("queue", label=SECOND, count=12, seconds=None)
        until(lambda: fleet.all_jobs() == {"running": 8, "queued": 4})
        yield fleet
    finally:
        lifecycle.down(fleet.root, "mi300")


@pytest.mark.parametrize(("fleet", "version"), [(OLD, NEW), (NEW, OLD)], ids=["up", "back"], indirect=["fleet"])
def test_every_scale_set_and_every_job_stays(fleet: Upgraded, version: str) -> None:
    ids, kubeconfig = fleet.ids(), fleet.kubeconfig
    upgrade.run(fleet.root, "mi300", upgrade.Request(to=version, rollback=version == OLD, kubeconfig=kubeconfig))

    def between() -> None:
        """Jobs end and start while the new controller has scale sets of the old version, which it cannot delete."""
        until(lambda: fleet.logged("Failed to delete autoscaling runner set on version mismatch"))
        fleet.end_jobs()
        until(lambda: fleet.all_jobs() == {"completed": 8, "running": 4})
        assert {*fleet.chart_versions().values()} == {OLD if version == NEW else NEW}

    fleet.pulumi_up(between=between)
    until(lambda: fleet.versions("runner-scale-set-listener") == {version: 2})
    assert fleet.all_jobs() == {"completed": 8, "running": 4}
    fleet.github.call("queue", label=SECOND, count=6, seconds=None)
    until(lambda: fleet.all_jobs() == {"completed": 8, "running": 8, "queued": 2})
    fleet.end_jobs()
    until(lambda: fleet.all_jobs() == {"completed": 16, "running": 2})
    fleet.end_jobs()
    assert fleet.ids() == ids
    upgrade.run(fleet.root, "mi300", upgrade.Request(finish=True, kubeconfig=kubeconfig))
    fleet.delete_all(fleet.listed(SCALE_SET))
    until(lambda: fleet.chart_versions() == {} and fleet.ids() == {})


@pytest.mark.parametrize(("fleet", "version"), [(OLD, NEW), (NEW, OLD)], ids=["up", "back"], indirect=["fleet"])
def test_the_sandbox_upgrades_in_the_order_of_pulumi(fleet: Upgraded, version: str) -> None:
    ids, jobs, text = fleet.ids(), {SECOND.replace("-", "_"): 12}, with_arc(version)
    with pytest.raises(SandboxError, match=f"{version} would delete its scale sets; set arc.version to "):
        fleet.up(text, **jobs)
    assert {*fleet.chart_versions().values()} == {OLD if version == NEW else NEW}
    upgrading = f"version: {version}, upgradeFrom: {OLD if version == NEW else NEW}"
    fleet.up(text.replace(f"version: {version}", upgrading), **jobs)
    until(lambda: fleet.versions("runner-scale-set-listener") == {version: 2})
    assert (fleet.ids(), fleet.all_jobs()) == (ids, {"running": 8, "queued": 4})


@pytest.mark.parametrize("fleet", [OLD], indirect=True)
def test_without_the_policy_the_new_controller_deletes_them(fleet: Upgraded) -> None:
    """Otherwise the test above would prove nothing."""
    upgrade.run(fleet.root, "mi300", upgrade.Request(to=NEW))
    fleet.pulumi_up(guarded=False, between=lambda: until(lambda: {*fleet.ids()} != {FIRST, SECOND}))


@pytest.mark.parametrize("fleet", [OLD], indirect=True)
def test_a_scale_set_that_is_being_deleted_is_an_obstacle(fleet: Upgraded) -> None:
    """Its busy runners keep it until their jobs end, and a chart applied to it meanwhile would be lost."""
    fleet.delete_all(fleet.listed(SCALE_SET))
    until(lambda: [*fleet.chart_versions()] == [SECOND])
    with pytest.raises(
        upgrade.UpgradeError, match=f"{SECOND} is being deleted, and a chart applied to it now would be"
    ):
        upgrade.run(fleet.root, "mi300", upgrade.Request(to=NEW, kubeconfig=fleet.kubeconfig))
