"""Client of the API server for the sandbox's kubelet and runners: calls, patches of status, and permanent watches."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from kubernetes import client

from gpufleet_tools.sandbox.control_plane import api_server

Object = dict[str, Any]

_PAUSE = 0.3


class Cluster:
    """One API server. While it is unavailable, calls raise urllib3's exceptions, and watches reconnect."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = api_server.configuration(kubeconfig)
        # Watches keep their connection.
        settings.connection_pool_maxsize = 64
        self.address = str(settings.host)
        self.certificate_authority = str(settings.ssl_ca_cert)
        self._connections = client.ApiClient(settings).rest_client.pool_manager

    @property
    def port(self) -> int:
        """Port on loopback."""
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Send one request, and return the HTTP status and the object of the response."""
        text = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind} if body is not None else {}
        answer = self._connections.request(
            method, self.address + path, body=text, headers=headers, timeout=60.0, retries=False
        )
        return answer.status, json.loads(answer.data) if answer.data else None

    def patch_status(self, pod: Object, status: Object) -> int:
        """Merge into the status of a pod unless another pod has replaced it. Return the HTTP status."""
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        return self.call("PATCH", pod_path(pod) + "/status", body, "application/strategic-merge-patch+json")[0]

    def watch(self, path: str, selector: str) -> Iterator[tuple[str, Object]]:
        """Yield every existing object as ADDED, then every change, indefinitely. The deletion of an object while the
        API server is unavailable is not reported."""
        query = {"labelSelector": selector}
        while True:
            try:
                _, listed = self.call("GET", f"{path}?{urlencode(query)}")
                for item in listed["items"]:
                    yield "ADDED", item
                since = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                url = f"{self.address}{path}?{urlencode(query | since)}"
                stream = self._connections.request("GET", url, preload_content=False, retries=False)
                yield from _events(stream)
            except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError):
                pass
            time.sleep(_PAUSE)


def _events(stream: Any) -> Iterator[tuple[str, Object]]:
    rest = b""
    for chunk in stream.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            yield event["type"], event["object"]


def pod_path(pod: Object) -> str:
    """Return the API path of a pod."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def now(*, fraction: bool = False) -> str:
    """Return the time in the format of Kubernetes, on demand with fractions of a second."""
    text = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds" if fraction else "seconds")
    return text.removesuffix("+00:00") + "Z"
