"""Client of a Kubernetes API server: connections, discovery and retries.

It uses the `kubernetes` package for kubeconfig, TLS, credentials and connection pool, but not its typed models:
requests have the program's plain manifests.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import urllib3.exceptions
from kubernetes import client

Manifest = Mapping[str, Any]

_Item = TypeVar("_Item")

CONNECTIONS = 8
"""Parallel requests. More do not help: the sandbox's API server is on the same machine, and others limit clients."""

# Seconds during which a request is retried: a new namespace may have no default service account yet, a new custom
# resource may not be served yet, and a namespace of the same name may still be terminating.
_TIMEOUT = 30.0

_REQUEST_TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)


@dataclass(frozen=True)
class ServedKind:
    """One version of a kind, as discovery describes it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the API path of all objects, of those in a namespace, or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


class ApiError(Exception):
    """An error response: its HTTP status (0 without a response) and its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = " ".join(message.split())

    @property
    def transient(self) -> bool:
        """Whether a later request may succeed."""
        text = self.message
        if self.status == 403:
            return "service account" in text or "serviceaccount" in text or "being terminated" in text
        if self.status == 404:
            # The message for a custom resource whose CRD is not served yet; that for a missing object has its name.
            return "could not find the requested resource" in text or "page not found" in text
        if self.status == 500:
            # Type errors and unknown fields also return 500, and are permanent.
            return "etcdserver" in text or "timed out" in text
        return self.status in (0, 409, 429, 502, 503, 504)


@dataclass
class ApiServer:
    """Connection to an API server, and the kinds that it serves."""

    settings: client.Configuration
    """Address, certificates and credentials."""
    resources: dict[tuple[str, str, str], ServedKind] = field(default_factory=dict)
    """Served kinds by group, version and kind."""

    def __post_init__(self) -> None:
        self.settings.retries = 0
        self.settings.connection_pool_maxsize = CONNECTIONS
        self._connections = client.ApiClient(self.settings).rest_client.pool_manager

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *of_exception: object) -> None:
        self._connections.clear()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str = "application/json",
    ) -> tuple[int, dict[str, Any]]:
        """Send one request, and return the HTTP status and the response. Raises ApiError."""
        headers = {"Accept": accept}
        if body is not None:
            # Server-side apply requires YAML, of which JSON is a subset. A content type without a body results in 415.
            headers["Content-Type"] = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        status, content = self._send(method, path, query or {}, None if body is None else json.dumps(body), headers)
        try:
            answer = json.loads(content) if content else {}
        except ValueError:
            answer = {"message": content}
        if status >= 400:
            raise ApiError(status, answer.get("message") or f"HTTP status {status}")
        return status, answer

    def text(self, path: str, query: Mapping[str, str]) -> str:
        """Return the plain text at a path, such as the log of a pod. Raises ApiError."""
        status, content = self._send("GET", path, query, None, {"Accept": "*/*"})
        if status >= 400:
            raise ApiError(status, content)
        return content

    def _send(
        self, method: str, path: str, query: Mapping[str, str], body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, str]:
        url = f"{self.settings.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {**headers, **self._credentials()}
        try:
            response = self._connections.request(
                method, url, body=body, headers=headers, timeout=_REQUEST_TIMEOUT, retries=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"the API server does not respond: {error}") from error
        return response.status, response.data.decode(errors="replace")

    def _credentials(self) -> dict[str, str]:
        """Return the header with the token; none if a certificate identifies the client. An expired token of an exec
        plugin is issued again."""
        return {each["key"]: each["value"] for each in self.settings.auth_settings().values() if each["value"]}

    def discover(self) -> None:
        """Discover the served kinds with two requests (aggregated discovery, enabled by default since 1.30)."""
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for root in ("/api", "/apis"):
            answer = retried(functools.partial(self.call, "GET", root, accept=accept))[1]
            versions = [(group, version) for group in answer["items"] for version in group["versions"]]
            for group, version in versions:
                for resource in version["resources"]:
                    found = ServedKind(
                        group=group["metadata"].get("name", ""),
                        version=version["version"],
                        kind=resource["responseKind"]["kind"],
                        plural=resource["resource"],
                        namespaced=resource["scope"] == "Namespaced",
                        verbs=frozenset(resource["verbs"]),
                    )
                    self.resources.setdefault((found.group, found.version, found.kind), found)

    def resource(self, manifest: Manifest) -> ServedKind:
        """Return the kind of a manifest. Raises ApiError if it is not served."""
        group, version = group_version(manifest)
        found = self.resources.get((group, version, manifest["kind"]))
        if found is None:
            kind = f"{manifest['kind']} in {manifest['apiVersion']}"
            raise ApiError(404, f"there is no kind {kind}; is its CRD among the objects?")
        return found

    def by_label(self, resource: ServedKind, selector: str) -> list[dict[str, Any]]:
        """Return the metadata of all objects of one kind with a label, in all namespaces."""
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        query = {"labelSelector": selector}
        _, answer = retried(lambda: self.call("GET", resource.path(), query=query, accept=accept))
        return [item["metadata"] for item in answer["items"] or []]


def retried(work: Callable[[], _Item], timeout: float = _TIMEOUT) -> _Item:
    """Return the result of `work`, which is retried after transient errors, with growing pauses."""
    deadline, pause = time.monotonic() + timeout, 0.02
    while True:
        try:
            return work()
        except ApiError as error:
            if not error.transient or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def group_version(manifest: Manifest) -> tuple[str, str]:
    """Return the two parts of a manifest's apiVersion. The group of core kinds is empty."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    return group, version
