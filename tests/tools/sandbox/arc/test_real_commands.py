"""The commands on the simulated GitHub, with ARC's own controller and listeners; and both beside the real Karpenter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import lifecycle, simulated_github
from gpufleet_tools.sandbox.control_plane import api_server
from tests.conftest import ROOT, MakeProject
from tests.tools.sandbox.arc.fleets import FIRST, REQUIRES_ARC, SECOND, Real, until

pytestmark = [pytest.mark.slow, REQUIRES_ARC]


@pytest.fixture
def fleet(project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Real]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Real(project({}))
    try:
        made.up()
        yield made
    finally:
        lifecycle.down(made.root, "mi300")


def listener_of(fleet: Real, label: str) -> str:
    """The UID of a label's listener; empty without one."""
    pods = fleet.listed(("v1", "Pod"))
    found = [each["metadata"] for each in pods if each["metadata"]["name"].startswith(label)]
    return next((each["uid"] for each in found if each["name"].endswith("-listener")), "")


def test_jobs_finish_and_fail_and_runners_are_replaced(fleet: Real) -> None:
    read = fleet.stack
    assert simulated_github.queue_jobs(read, [f"{SECOND}=2"], 600) == ["2 jobs queued"]
    until(lambda: fleet.jobs(SECOND, "running") == 2)
    before = fleet.runners(SECOND)
    assert simulated_github.end_jobs(read, "fail", [f"{SECOND}=1"]) == ["1 job failed"]
    assert simulated_github.end_jobs(read, "finish", []) == ["1 job succeeded"]
    columns = [[*each.cells] for each in simulated_github.jobs_table(read, fleet.github.call("state")["jobs"]).columns]
    rows = {row[0]: row[1:6] for row in zip(*columns, strict=True)}
    assert rows == {FIRST: ("0", "0", "0", "0", "0"), SECOND: ("0", "0", "0", "1", "1")}
    # One idle runner is left, as `min` says.
    until(lambda: len(fleet.runners(SECOND)) == 1)
    assert len(fleet.runners(SECOND).keys() & before) <= 1


def test_a_revoked_key_ends_the_listener_and_a_deleted_scale_set_is_gone(fleet: Real) -> None:
    read = fleet.stack
    listener = listener_of(fleet, SECOND)
    until(lambda: fleet.github.call("state")["scaleSets"].get(SECOND, {}).get("session"))
    (line,) = simulated_github.revoke_key(read, "gpu-test-cluster", replaced=False)
    assert line.startswith("the current key of project gpu-test-cluster revoked (")
    until(lambda: listener_of(fleet, SECOND) != listener)
    # The other project has another key.
    until(lambda: fleet.github.call("state")["scaleSets"][FIRST]["session"])
    assert simulated_github.delete_scale_set(read, FIRST)
    assert FIRST not in fleet.github.call("state")["scaleSets"]


def test_arc_runs_on_nodes_that_karpenter_manages(
    project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = project({"dev": (ROOT / "Pulumi.dev.yaml").read_text()})
    read = stack.read(root, "dev")
    try:
        state = lifecycle.up(read, read.plan(), None, ["linux-nvidia-gpu=2"], runs_arc=True).state
        assert {label: pods.running for label, pods in state.scale_sets.items()} == {"linux-nvidia-gpu": 2}
        (pods,) = api_server.listed(lifecycle.running(read).kubeconfig, ("v1", "Pod"))
        nodes = {
            each["metadata"]["name"]: each["spec"]["nodeName"]
            for each in pods
            if each["metadata"]["namespace"] == read.settings.arc.namespace
        }
        assert len(nodes) == 3, "the controller and two listeners, and none that is simulated"
        assert {node.rpartition("-")[0] for node in nodes.values()} == {"gpu-dev-system-nodes"}
        assert lifecycle.up(read, read.plan(), None, ["linux-nvidia-gpu=2"], runs_arc=True).changed == "nothing changed"
    finally:
        lifecycle.down(root, "dev")
