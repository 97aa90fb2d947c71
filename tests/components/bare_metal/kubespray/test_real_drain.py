"""Removals by real kubespray with a real kubectl and a real API server: how long they wait, and what is left.

The machines that are removed are Node objects without a kubelet, so their pods never end by themselves. Nothing is
reset: the machine of the control plane is this one.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import time
from typing import Any

import pytest

from gpufleet.bare_metal.kubespray.driver.playbook import Outcome
from gpufleet.bare_metal.kubespray.driver.steps import Desired, removals
from gpufleet.bare_metal.kubespray.inventory import desired
from gpufleet.bare_metal.kubespray.rules import settled
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests.bare_metal import DOCUMENT_000
from tests.components.bare_metal.kubespray.test_checkout import LOCAL, run_on, with_kubespray
from tests.hosts.namespaces import until
from tests.tools.sandbox.conftest import built, control_plane

__all__ = ["built", "control_plane"]

pytestmark = [pytest.mark.process, pytest.mark.slow, with_kubespray]

LEAVING = DOCUMENT_000.nodes[3].name

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    # The sandbox ends pods of every node, but takes no finalizer away.
    "metadata": {"name": "job", "namespace": "default", "finalizers": ["example.test/running"]},
    "spec": {"nodeName": LEAVING, "containers": [{"name": "runner", "image": "example.test/runner:v1"}]},
}


class Kubectl:
    """The real kubectl, which notes what it is called with."""

    def __init__(self, folder: pathlib.Path, control_plane: ControlPlane) -> None:
        self.folder = folder
        real = f"{control_plane.binaries.path('kubectl')} --kubeconfig {control_plane.kubeconfig}"
        folder.mkdir()
        # kubespray names its own kubeconfig first.
        (folder / "kubectl").write_text(f'#!/bin/sh\nshift 2\necho "$*" >> {folder}/calls\nexec {real} "$@"\n')
        (folder / "kubectl").chmod(0o755)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        command = [str(self.folder / "kubectl"), "--kubeconfig", "none", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout

    def drains(self) -> list[str]:
        return [line for line in (self.folder / "calls").read_text().splitlines() if line.startswith("drain ")]


@pytest.fixture
def kubectl(control_plane: ControlPlane, tmp_path: pathlib.Path) -> Kubectl:
    """An API server with a worker on which a job runs, and no kubelet."""
    made = Kubectl(tmp_path / "bin", control_plane)
    until(lambda: "default" in made("get", "serviceaccounts", "--output", "name"), "a service account for pods")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": LEAVING}}
    for each in (node, POD):
        made("apply", "--filename", "-", stdin=json.dumps(each))
    return made


def removed(folder: pathlib.Path, kubectl: Kubectl, **changes: Any) -> tuple[Outcome, float]:
    """Removes the worker as the driver does; returns the outcome and the seconds that it took."""
    nodes = [dataclasses.replace(each, variables=LOCAL) for each in DOCUMENT_000.nodes]
    before = desired(dataclasses.replace(DOCUMENT_000, nodes=nodes))
    staying = [each for each in nodes if each.name != LEAVING]
    after: Desired = desired(dataclasses.replace(DOCUMENT_000, nodes=staying, **changes))
    (step,) = removals(settled(before), after)
    if LEAVING in after["lost"]:
        # Nothing may connect to it. Ansible asks for the drain's end with its interpreter, on the control plane.
        interpreter = {"ansible_python_interpreter": LOCAL["ansible_python_interpreter"]}
        step["inventory"][LEAVING]["variables"] = {"ansible_host": "192.0.2.4", **interpreter}
    variables = {**before["variables"]["all"], "bin_dir": str(kubectl.folder), "ansible_become": False}
    # Or it would reset this machine.
    extra = {**step["extra"], "reset_nodes": False}
    (folder / "facts").mkdir(parents=True)
    for name, node in before["nodes"].items():
        (folder / "facts" / name).write_text(json.dumps({"main_access_ip": node["variables"]["ansible_host"]}))
    began = time.monotonic()
    outcome = run_on(folder, step["inventory"], variables, step["playbook"], extra=extra)
    return outcome, time.monotonic() - began


def test_a_lost_worker_goes_within_seconds_although_its_pods_never_end(
    kubectl: Kubectl, tmp_path: pathlib.Path
) -> None:
    outcome, seconds = removed(tmp_path / "lost", kubectl, lost=[LEAVING])
    assert outcome.well, outcome
    (drain,) = kubectl.drains()
    assert "--grace-period 0 --timeout 1s" in drain
    assert LEAVING not in kubectl("get", "nodes", "--output", "name")
    # Ansible looks at the drain every 15 seconds; without the limit it would take six hours.
    assert seconds < 180


def test_a_worker_is_drained_once_for_as_long_as_is_said_and_stays_if_its_jobs_do(
    kubectl: Kubectl, tmp_path: pathlib.Path
) -> None:
    outcome, seconds = removed(tmp_path / "first", kubectl, drain_seconds=5, drain_grace_seconds=600)
    assert [*outcome.failed] == [LEAVING]
    (drain,) = kubectl.drains()
    assert "--grace-period 600 --timeout 5s" in drain
    # kubespray itself would try four times.
    assert seconds < 120
    assert kubectl("get", "node", LEAVING, "--output", "jsonpath={.spec.unschedulable}") == "true"
    # The job ends; the next run goes on, and does not wait 600 seconds for volumes.
    kubectl("patch", "pod", "job", "--type", "merge", "--patch", '{"metadata": {"finalizers": null}}')
    outcome, seconds = removed(tmp_path / "second", kubectl, drain_seconds=5, drain_grace_seconds=600)
    assert outcome.well, outcome
    assert seconds < 120
    assert LEAVING not in kubectl("get", "nodes", "--output", "name")
