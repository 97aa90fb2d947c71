"""Logs of ARC's pods: files in the format of container runtimes, and objects by which kwok serves them to kubectl."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import IO

from gpufleet_tools.sandbox.arc.cluster import Cluster, Object, now

_FILE, _PREVIOUS = "log", "log.previous"


def write(output: IO[bytes], folder: Path) -> None:
    """Write a container's output to the log in its pod's folder until the output ends. The log of the container before
    a restart is kept beside it."""
    file = folder / _FILE
    if file.exists():
        file.replace(folder / _PREVIOUS)
    # kwok requires the file as soon as it knows the log.
    file.touch()
    threading.Thread(target=_copy, args=(output, file), daemon=True).start()


def _copy(output: IO[bytes], file: Path) -> None:
    with output, file.open("ab", buffering=0) as log:
        for line in output:
            # The format of CRI (k8s.io/cri-client/pkg/logs): time, stream, F for a full line, and the line.
            log.write(f"{now(fraction=True)} stdout F ".encode() + line.rstrip(b"\n") + b"\n")


def publish(cluster: Cluster, pod: Object, folder: Path) -> None:
    """Have kwok serve the log of a pod. The object is deleted with the pod."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    log = {
        "containers": [pod["spec"]["containers"][0]["name"]],
        "logsFile": str(folder / _FILE),
        "previousLogsFile": str(folder / _PREVIOUS),
    }
    manifest = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Logs",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner]},
        "spec": {"logs": [log]},
    }
    path = f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{metadata['namespace']}/logs/{metadata['name']}"
    status, answer = cluster.call(
        "PATCH", f"{path}?fieldManager=kubelet&force=true", manifest, "application/apply-patch+yaml"
    )
    if status >= 400:
        raise OSError(f"its log cannot be served: {answer.get('message')}")
