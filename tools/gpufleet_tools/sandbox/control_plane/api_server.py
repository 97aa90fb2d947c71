"""The API server of a kubeconfig: one connection, the kinds that are served, and what is tried again.

The client is the `kubernetes` package, for its kubeconfig, TLS and connection pool; its typed models are not
used, because what is sent are the plain manifests that the program made.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import urllib3.exceptions
from kubernetes import client, config

from gpufleet_tools.sandbox.errors import SandboxError

Manifest = Mapping[str, Any]

_Item = TypeVar("_Item")

CONNECTIONS = 8
"""Requests at a time. More do not help: the API server is on the same machine."""

# Seconds a request is tried again for: a new namespace has no default service account for a moment, a new
# custom resource is not served yet, a namespace of the same name is still ending.
_PATIENCE = 30.0


def configuration(kubeconfig: Path) -> client.Configuration:
    """How a client reaches the API server of a kubeconfig. Raises ConfigException when it says nothing of one."""
    settings = client.Configuration()
    load: Callable[..., None] = config.load_kube_config
    load(config_file=str(kubeconfig), client_configuration=settings)
    # A proxy from the environment knows nothing of a server on loopback.
    settings.proxy = None
    return settings


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
        """Where the API server has its objects, those of one namespace, or one of them."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


class Refusal(Exception):
    """A refusal: the HTTP status (0 when nobody answered) and what the API server says about it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = " ".join(message.split())

    @property
    def passing(self) -> bool:
        """Whether it may be gone a moment later."""
        text = self.message
        if self.status == 403:
            return "service account" in text or "serviceaccount" in text or "being terminated" in text
        if self.status == 404:
            # Of a custom resource whose definition is not served yet; a missing object says which it is.
            return "could not find the requested resource" in text or "page not found" in text
        if self.status == 500:
            # Type errors and unknown fields come back as 500 as well, and they stay.
            return "etcdserver" in text or "timed out" in text
        return self.status in (0, 409, 429, 502, 503, 504)


@dataclass
class ApiServer:
    """The API server of a kubeconfig, and the kinds it serves."""

    kubeconfig: Path
    resources: dict[tuple[str, str, str], ServedKind] = field(default_factory=dict)
    """By group, version and kind."""

    def __post_init__(self) -> None:
        try:
            settings = configuration(self.kubeconfig)
        except config.ConfigException as error:
            raise SandboxError(f"{self.kubeconfig} cannot be used: {error}; is the sandbox up?") from error
        settings.retries = 0
        settings.connection_pool_maxsize = CONNECTIONS
        self._host = str(settings.host)
        self._connections = client.ApiClient(settings).rest_client.pool_manager

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
        """One request: the HTTP status and the object that came back. Raises Refusal."""
        url = self._host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept}
        if body is not None:
            # JSON is YAML, so that the same text serves for server-side apply. Without a body no type: else
            # 415.
            headers["Content-Type"] = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        text = None if body is None else json.dumps(body)
        try:
            response = self._connections.request(method, url, body=text, headers=headers, timeout=60.0, retries=False)
        except urllib3.exceptions.HTTPError as error:
            raise Refusal(0, f"the API server does not answer: {error}") from error
        try:
            answer = json.loads(response.data) if response.data else {}
        except ValueError:
            answer = {"message": response.data.decode(errors="replace")}
        if response.status >= 400:
            raise Refusal(response.status, answer.get("message") or f"HTTP status {response.status}")
        return response.status, answer

    def discover(self) -> None:
        """Ask what is served: two requests for all groups (aggregated discovery, on by default since
        1.30)."""
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for root in ("/api", "/apis"):
            answer = patiently(functools.partial(self.call, "GET", root, accept=accept))[1]
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
        """The kind of `manifest`. Raises Refusal when it is not served."""
        group, version = group_version(manifest)
        found = self.resources.get((group, version, manifest["kind"]))
        if found is None:
            kind = f"{manifest['kind']} in {manifest['apiVersion']}"
            raise Refusal(404, f"there is no kind {kind}; is its CRD among the objects?")
        return found

    def by_label(self, resource: ServedKind, selector: str) -> list[dict[str, Any]]:
        """The metadata of the objects of one kind, in all namespaces, that carry a label."""
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        answer = patiently(lambda: self.call("GET", resource.path(), query={"labelSelector": selector}, accept=accept))[
            1
        ]
        return [item["metadata"] for item in answer["items"] or []]


Listing = Callable[..., list[list[dict[str, Any]]]]
"""Takes (apiVersion, kind) pairs, and gives all objects of each, in all namespaces."""


@contextlib.contextmanager
def listing(kubeconfig: Path) -> Iterator[Listing]:
    """Lists objects over one connection, for whoever looks again and again. Raises SandboxError."""
    with connected(kubeconfig) as api:

        def one(version: str, kind: str) -> list[dict[str, Any]]:
            resource = api.resource({"apiVersion": version, "kind": kind})
            items: list[dict[str, Any]] = patiently(lambda: api.call("GET", resource.path()))[1]["items"]
            return items

        yield lambda *kinds: [one(*kind) for kind in kinds]


def listed(kubeconfig: Path, *kinds: tuple[str, str]) -> list[list[dict[str, Any]]]:
    """All objects of each (apiVersion, kind), in all namespaces. Raises SandboxError."""
    with listing(kubeconfig) as found:
        return found(*kinds)


@contextlib.contextmanager
def connected(kubeconfig: Path) -> Iterator[ApiServer]:
    """The API server and what it serves. A refusal that nobody dealt with is a fault of the whole."""
    try:
        with ApiServer(kubeconfig) as api:
            api.discover()
            yield api
    except Refusal as problem:
        raise SandboxError(f"{problem.message}; is the sandbox up?") from problem


def patiently(work: Callable[[], _Item], patience: float = _PATIENCE) -> _Item:
    """`work`, tried again while what it meets may pass, with growing pauses."""
    deadline, pause = time.monotonic() + patience, 0.02
    while True:
        try:
            return work()
        except Refusal as problem:
            if not problem.passing or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def group_version(manifest: Manifest) -> tuple[str, str]:
    """The two parts of its apiVersion; the group is empty for the core kinds."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    return group, version
