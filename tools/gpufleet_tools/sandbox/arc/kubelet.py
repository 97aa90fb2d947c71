"""Kubelet of ARC's own pods: runs the controller and the listeners as processes, and reports their state.

kwok simulates all other pods. These processes are real: command, arguments, environment, service account and secrets
are those of the pod, and the program has the version of the image's tag. Each process has its own namespaces
(namespace.py).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import urllib3.exceptions

from gpufleet_tools.sandbox.arc import namespace, pod_logs
from gpufleet_tools.sandbox.arc.cluster import Cluster, Object, now, pod_path

SELECTOR = "app.kubernetes.io/component in (runner-scale-set-listener,controller-manager)"
"""Labels of these pods. kwok ignores them while ARC is real (control_plane.py)."""

HTTPS = 443
_TOKEN_SECONDS = 365 * 24 * 3600
_RESTART_PAUSE = 1.0
_TIMEOUT = 30.0

Accept = Callable[[socket.socket], None]
"""Function that serves all connections of a listening socket, in separate threads, until the socket is closed."""


@dataclass(eq=False)
class _Container:
    """The only container of a pod."""

    pod: Object
    process: subprocess.Popen[bytes] | None = None
    stopping: bool = False
    sockets: list[socket.socket] = field(default_factory=list)


class Kubelet:
    """Kubelet that runs ARC's pods until its process ends."""

    def __init__(
        self,
        cluster: Cluster,
        folder: pathlib.Path,
        programs: Mapping[str, pathlib.Path],
        hosts: str,
        certificates: pathlib.Path,
        github: Accept,
        api_server: Accept,
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._programs = programs
        self._hosts = hosts
        self._certificates = certificates
        self._github = github
        self._api_server = api_server
        self._containers: dict[str, _Container] = {}

    def run(self) -> None:
        """Watch the pods indefinitely."""
        for event, pod in self._cluster.watch("/api/v1/pods", SELECTOR):
            uid = pod["metadata"]["uid"]
            container = self._containers.get(uid)
            if event == "DELETED" or "deletionTimestamp" in pod["metadata"]:
                if container is None or not container.stopping:
                    container = container or _Container(pod)
                    container.stopping = True
                    self._containers[uid] = container
                    threading.Thread(target=self._terminate, args=(container,), daemon=True).start()
            elif container is None and pod["spec"].get("nodeName"):
                self._containers[uid] = _Container(pod)
                threading.Thread(target=self._keep, args=(self._containers[uid],), daemon=True).start()

    @property
    def alive(self) -> dict[str, int]:
        """Process IDs of running containers, by pod."""
        return {
            each.pod["metadata"]["name"]: each.process.pid
            # A copy: pods come and go meanwhile.
            for each in list(self._containers.values())
            if each.process and each.process.poll() is None
        }

    # -- one pod ------------------------------------------------------------------------------------------------------

    def _keep(self, container: _Container) -> None:
        """Run a container until its pod is deleted; restart it only with restart policy Always."""
        restarts = 0
        if container.pod["status"].get("phase") in ("Running", "Failed", "Succeeded"):
            # It was a process of an earlier kubelet, and ended with it.
            self._report(container, _ended(1))
            if container.pod["spec"]["restartPolicy"] != "Always":
                return
        while not container.stopping:
            try:
                self._start(container)
            except (OSError, KeyError, urllib3.exceptions.HTTPError) as error:
                self._log(container.pod, f"not started: {error}")
                time.sleep(_RESTART_PAUSE)
                continue
            assert container.process is not None
            if container.stopping:
                container.process.terminate()
            self._report(container, _running(restarts))
            code = container.process.wait()
            self._close(container)
            if container.stopping or container.pod["spec"]["restartPolicy"] != "Always":
                self._report(container, _ended(code))
                return
            restarts += 1
            time.sleep(_RESTART_PAUSE)

    def _start(self, container: _Container) -> None:
        pod = container.pod
        spec, place = pod["spec"]["containers"][0], self._place(pod)
        volumes = self._volumes(pod, place)
        environment = {each["name"]: self._value(each, pod, spec, volumes) for each in spec.get("env", ())}
        program = self._programs[spec["image"].partition("@")[0].rpartition(":")[2]] / spec["command"][0].lstrip("/")
        start = {
            "hostname": pod["metadata"]["name"][:64],
            "ports": [HTTPS, self._cluster.port],
            "command": [str(program), *spec["command"][1:], *spec.get("args", ())],
            "environment": environment
            | {
                "PATH": os.defpath,
                "SSL_CERT_FILE": str(self._certificates),
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(self._cluster.port),
            },
        }
        (place / "start.json").write_text(json.dumps(start))
        (place / "hosts").write_text(self._hosts)
        self._service_account(pod, place / "serviceaccount")
        pod_logs.publish(self._cluster, pod, place)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            container.process = subprocess.Popen(
                [sys.executable, "-I", "-S", namespace.__file__, str(place), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            assert container.process.stdout is not None
            pod_logs.write(container.process.stdout, place)
            theirs.close()
            ours.settimeout(_TIMEOUT)
            _, descriptors, _, _ = socket.recv_fds(ours, 16, 2)
        if len(descriptors) != 2:
            container.process.wait()
            raise OSError(f"its namespaces cannot be created (log in {place})")
        container.sockets = [socket.socket(fileno=each) for each in descriptors]
        for accept, listening in zip((self._github, self._api_server), container.sockets, strict=True):
            threading.Thread(target=accept, args=(listening,), daemon=True).start()

    def _terminate(self, container: _Container) -> None:
        """Send SIGTERM, wait for the grace period, then delete the pod. Its successor can open a session at once."""
        process = container.process
        if process and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(container.pod["spec"].get("terminationGracePeriodSeconds", 30))
            except subprocess.TimeoutExpired:
                process.kill()
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        body["preconditions"] = {"uid": container.pod["metadata"]["uid"]}
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            self._cluster.call("DELETE", pod_path(container.pod), body)
        self._containers.pop(container.pod["metadata"]["uid"], None)

    def _close(self, container: _Container) -> None:
        for each in container.sockets:
            # Only a shutdown unblocks the accepting thread.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    # -- volumes, environment and service account ---------------------------------------------------------------------

    def _place(self, pod: Object) -> pathlib.Path:
        place = self._folder / str(pod["metadata"]["uid"])
        place.mkdir(parents=True, mode=0o700, exist_ok=True)
        return place

    def _volumes(self, pod: Object, place: pathlib.Path) -> dict[str, pathlib.Path]:
        """Write each secret volume to a folder, and return the folders by volume."""
        found = {}
        for volume in pod["spec"].get("volumes", ()):
            if "secret" in volume:
                folder = found[volume["name"]] = place / "volumes" / volume["name"]
                folder.mkdir(parents=True, exist_ok=True)
                for key, value in self._secret(pod, volume["secret"]["secretName"]).items():
                    (folder / key).write_bytes(base64.b64decode(value))
        return found

    def _secret(self, pod: Object, name: str) -> dict[str, str]:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{name}"
        deadline = time.monotonic() + _TIMEOUT
        while True:
            status, secret = self._cluster.call("GET", path)
            if status == 200:
                return dict(secret.get("data", {}))
            if time.monotonic() > deadline:
                raise OSError(f"there is no secret {name}")
            time.sleep(0.1)

    def _value(self, variable: Object, pod: Object, spec: Object, volumes: Mapping[str, pathlib.Path]) -> str:
        """Return the value of a variable. A path in a mounted volume is replaced by the path of its folder, since a
        mount point would have to exist on this machine."""
        if "valueFrom" in variable:
            parts = variable["valueFrom"]["fieldRef"]["fieldPath"].split(".")
            return str(pod[parts[0]][parts[1]])
        value = str(variable.get("value", ""))
        for mount in spec.get("volumeMounts", ()):
            if mount["name"] in volumes and value.startswith(f"{mount['mountPath']}/"):
                return str(volumes[mount["name"]] / value.removeprefix(f"{mount['mountPath']}/"))
        return value

    def _service_account(self, pod: Object, folder: pathlib.Path) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{spec['serviceAccountName']}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        status, answer = self._cluster.call("POST", path, request)
        if status != 201:
            raise OSError(f"no token for service account {spec['serviceAccountName']}: {answer.get('message')}")
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(answer["status"]["token"])
        (folder / "namespace").write_text(meta["namespace"])
        (folder / "ca.crt").write_bytes(pathlib.Path(self._cluster.certificate_authority).read_bytes())

    # -- status -------------------------------------------------------------------------------------------------------

    def _report(self, container: _Container, state: Mapping[str, Any]) -> None:
        spec = container.pod["spec"]["containers"][0]
        ready = state["phase"] == "Running"
        report = {
            "name": spec["name"],
            "image": spec["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": state["restarts"],
            "state": state["state"],
        }
        conditions = [
            {"type": kind, "status": str(ready), "lastTransitionTime": now()} for kind in ("ContainersReady", "Ready")
        ]
        status = {"phase": state["phase"], "containerStatuses": [report], "conditions": conditions}
        if ready:
            status |= {"startTime": now(), "podIP": "127.0.0.1"}
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            self._cluster.patch_status(container.pod, status)

    def _log(self, pod: Object, line: str) -> None:
        print(f"{now()} {pod['metadata']['namespace']}/{pod['metadata']['name']}: {line}", flush=True)


def _running(restarts: int) -> dict[str, Any]:
    return {"phase": "Running", "restarts": restarts, "state": {"running": {"startedAt": now()}, "terminated": None}}


def _ended(code: int) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    terminated = {"exitCode": code if code >= 0 else 128 - code, "reason": reason, "finishedAt": now()}
    state = {"running": None, "terminated": terminated}
    return {"phase": "Failed" if code else "Succeeded", "restarts": 0, "state": state}
