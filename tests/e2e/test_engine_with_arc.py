"""The whole production path on one machine: Pulumi's engine, Helm, ARC's own controller and listeners, and jobs.

It runs where the engine, ARC's charts and ARC's programs are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import lifecycle, simulated_github
from gpufleet_tools.sandbox.arc import programs
from gpufleet_tools.sandbox.control_plane import api_server
from tests.e2e import test_engine
from tests.e2e.test_engine import ROOT, Checkout
from tests.tools.sandbox.arc.fleets import FIRST, SECOND, until

MISSING = [*test_engine.MISSING, *([programs.ARC] if programs.ARC not in os.environ else [])]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"the engine or ARC is not here: {', '.join(MISSING)} missing"),
]

UP = ("up", "--arc", "real", "--jobs", f"{FIRST}=1", "--jobs", f"{SECOND}=2")


@pytest.fixture
def checkout(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    folder = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "components", "stacks"):
        (folder / name).symlink_to(ROOT / name)
    made = Checkout(folder, tmp_path_factory.mktemp("state"))
    made.stack_file.write_text((ROOT / "Pulumi.mi300.yaml").read_text())
    monkeypatch.setenv("XDG_STATE_HOME", str(made.state))
    yield made
    lifecycle.down(made.folder, "mi300")


def test_jobs_run_on_what_pulumi_created_and_destroy_deletes_the_scale_sets(checkout: Checkout) -> None:
    # `min` of each label, and three jobs.
    assert checkout.run(*UP).splitlines()[-1].endswith("5 runner pods running")
    read = stack.read(checkout.folder, "mi300")
    github = simulated_github.connected(read)
    until(lambda: [each["state"] for each in github.call("state")["jobs"]] == ["running"] * 3)
    assert {*github.call("state")["scaleSets"]} == {FIRST, SECOND}
    status = lifecycle.status(read)
    assert (status.installed, status.runs_arc, status.state.running) == (True, True, 5)
    assert checkout.run(*UP).splitlines()[-1] == "nothing changed: 5 runner pods running"
    # A deletion waits for jobs; `down` cancels them.
    rehearsal = checkout.rehearsal()
    with rehearsal.locked():
        lifecycle.destroy_rehearsal(read, rehearsal)
    assert github.call("state")["scaleSets"] == {}
    (namespaces,) = api_server.listed(rehearsal.control_plane.kubeconfig, ("v1", "Namespace"))
    assert {"arc-systems", "gpu-test-cluster"}.isdisjoint(each["metadata"]["name"] for each in namespaces)
    assert re.search(r"was removed$", checkout.run("down").strip())
