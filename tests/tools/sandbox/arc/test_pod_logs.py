"""Logs of ARC's pods, as `kubectl logs` and the doctor read them. The program is a script, so ARC is not required."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet_tools.api_server import ApiError, ApiServer
from gpufleet_tools.sandbox.arc.cluster import Cluster
from gpufleet_tools.sandbox.arc.kubelet import Kubelet
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests.tools.sandbox.arc.fleets import until
from tests.tools.sandbox.arc.test_namespace import reason_to_skip

pytestmark = pytest.mark.process

SCRIPT = """#!/bin/sh
echo "starts $$"
echo "Application returned an error" >&2
sleep 2
"""

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "arc-systems"}}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "machine", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
}


def pod(name: str, labels: dict[str, str]) -> dict[str, object]:
    container = {"name": "manager", "image": "registry.example/arc:1.2.3", "command": ["/manager"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "arc-systems", "labels": labels},
        "spec": {"containers": [container], "restartPolicy": "Always"},
    }


def serve(kubeconfig: Path, folder: Path) -> None:
    """Run ARC's pods without GitHub."""

    def refuse(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            listening.accept()[0].close()

    Kubelet(Cluster(kubeconfig), folder / "pods", {"1.2.3": folder}, "", folder, refuse, refuse).run()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """A control plane with a kubelet for ARC's pods."""
    if reason := reason_to_skip([]):
        pytest.skip(reason)
    (tmp_path / "manager").write_text(SCRIPT)
    (tmp_path / "manager").chmod(0o755)
    control_plane = ControlPlane("logs", tmp_path / "gpufleet" / "logs", binaries.find(), runs_arc=True)
    kubelet = multiprocessing.get_context("spawn").Process(target=serve, args=(control_plane.kubeconfig, tmp_path))
    try:
        control_plane.up()

        kubelet.start()
        objects.apply(control_plane.kubeconfig, [NAMESPACE, NODE], "logs")
        arc = pod("arc", {"app.kubernetes.io/component": "controller-manager"})
        objects.apply(control_plane.kubeconfig, [NAMESPACE, NODE, arc, pod("simulated", {})], "logs")
        with api_server.connected(control_plane.kubeconfig) as connection:
            yield connection
    finally:
        if kubelet.is_alive():
            kubelet.terminate()
        control_plane.down()


def log(api: ApiServer, name: str, **options: str) -> list[str]:
    try:
        return api.text(f"/api/v1/namespaces/arc-systems/pods/{name}/log", options).splitlines()
    except ApiError as error:
        return [error.message]


def test_the_api_server_serves_the_logs_of_arc_s_pods(api: ApiServer) -> None:
    until(lambda: log(api, "arc")[-1:] == ["Application returned an error"])
    assert len(log(api, "arc", sinceSeconds="60")) == 2
    assert log(api, "arc", tailLines="1") == ["Application returned an error"]
    first = log(api, "arc")[0]
    until(lambda: log(api, "arc", previous="true")[:1] == [first])
    until(lambda: log(api, "arc")[:1] not in ([], [first]))
    assert "no logs found" in log(api, "simulated")[0], "no process runs there"
