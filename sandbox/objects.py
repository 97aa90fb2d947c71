"""Kubernetes objects of the sandbox: server-side apply, prune, dry run.

The client is the `kubernetes` package, for its kubeconfig, TLS and connection pool; its typed models are not
used, because what is applied are the plain manifests that the program made.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import http.client
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import urllib3.exceptions
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from sandbox.errors import SandboxError

Manifest = Mapping[str, Any]
Metadata = Mapping[str, Any]

_Item = TypeVar("_Item")

FIELD_MANAGER = "gpufleet"
OWNER_LABEL = "gpufleet.dev/sandbox"

# More do not help: the API server is on the same machine.
_THREADS = 8
# Seconds an object is tried again for: a new namespace has no default service account for a moment, a new
# custom resource is not served yet, a namespace of the same name is still ending.
_PATIENCE = 30.0
_REMOVAL_PATIENCE = 60.0

# The order in which kinds are applied, and the reverse of that in which they are removed; a kind that is not
# listed comes at the empty place. Later ones need earlier ones: a pod its namespace and service account.
_POLICY = "PriorityClass RuntimeClass StorageClass ServiceAccount Secret ConfigMap ResourceQuota LimitRange"
_RIGHTS = "ClusterRole Role ClusterRoleBinding RoleBinding"
_WORKLOADS = ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
_ORDER: tuple[tuple[str, ...], ...] = (
    ("CustomResourceDefinition",),
    ("Namespace",),
    ("Node",),
    (*_POLICY.split(), *_RIGHTS.split()),
    (),
    _WORKLOADS,
)
_ORDER_OF_OTHERS = _ORDER.index(())


class Identity(NamedTuple):
    """What makes an object that one and no other; not its version, which only says how it is written down."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True)
class Applied:
    """How many objects an apply created, changed and left as they were."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class _Resource:
    """A kind as the API server serves it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


class _RefusedError(Exception):
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
class _Api:
    """The API server of a kubeconfig, and the kinds it serves."""

    kubeconfig: Path
    resources: dict[tuple[str, str, str], _Resource] = field(default_factory=dict)
    """By group, version and kind."""

    def __post_init__(self) -> None:
        settings = kubernetes_client.Configuration()
        try:
            load: Callable[..., None] = kubernetes_config.load_kube_config
            load(config_file=str(self.kubeconfig), client_configuration=settings)
        except kubernetes_config.ConfigException as error:
            raise SandboxError(f"{self.kubeconfig} cannot be used: {error}; is the sandbox up?") from error
        # A proxy from the environment knows nothing of a server on loopback.
        settings.proxy = None
        settings.retries = 0
        settings.connection_pool_maxsize = _THREADS
        self._host = str(settings.host)
        self._connections = kubernetes_client.ApiClient(settings).rest_client.pool_manager

    def __enter__(self) -> _Api:
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
        """One request: the HTTP status and the object that came back. Raises _RefusedError."""
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
            raise _RefusedError(0, f"the API server does not answer: {error}") from error
        try:
            answer = json.loads(response.data) if response.data else {}
        except ValueError:
            answer = {"message": response.data.decode(errors="replace")}
        if response.status >= 400:
            raise _RefusedError(response.status, answer.get("message") or f"HTTP status {response.status}")
        return response.status, answer

    def discover(self) -> None:
        """Ask what is served: two requests for all groups (aggregated discovery, on by default since
        1.30)."""
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for root in ("/api", "/apis"):
            answer = _patiently(functools.partial(self.call, "GET", root, accept=accept))[1]
            versions = [(group, version) for group in answer["items"] for version in group["versions"]]
            for group, version in versions:
                for resource in version["resources"]:
                    found = _Resource(
                        group=group["metadata"].get("name", ""),
                        version=version["version"],
                        kind=resource["responseKind"]["kind"],
                        plural=resource["resource"],
                        namespaced=resource["scope"] == "Namespaced",
                        verbs=frozenset(resource["verbs"]),
                    )
                    self.resources.setdefault((found.group, found.version, found.kind), found)

    def resource(self, manifest: Manifest) -> _Resource:
        """The kind of `manifest`. Raises _RefusedError when it is not served."""
        group, version = _group_version(manifest)
        found = self.resources.get((group, version, manifest["kind"]))
        if found is None:
            kind = f"{manifest['kind']} in {manifest['apiVersion']}"
            raise _RefusedError(404, f"there is no kind {kind}; is its CRD among the objects?")
        return found

    def by_label(self, resource: _Resource, selector: str) -> list[dict[str, Any]]:
        """The metadata of the objects of one kind, in all namespaces, that carry a label."""
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        answer = _patiently(
            lambda: self.call("GET", resource.path(), query={"labelSelector": selector}, accept=accept)
        )[1]
        return [item["metadata"] for item in answer["items"] or []]


def identity(manifest: Manifest) -> Identity:
    """The identity of a manifest; a namespaced object without a namespace is taken to be in `default`, which
    only the API server can tell from one that has none: `keep` of `prune` accepts both."""
    metadata = manifest["metadata"]
    return Identity(_group_version(manifest)[0], manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def apply(kubeconfig: Path, objects: Sequence[Manifest], owner: str) -> Applied:
    """Have the API server hold `objects` as given: server-side apply, forced, as field manager "gpufleet".

    Each gets the label OWNER_LABEL with the value `owner`, by which `prune` finds it. In order (CRDs,
    namespaces, nodes, the rest, workloads), in parallel within each step; the status of a Node is applied
    too, and the `stringData` of a Secret is sent as `data`, since a key removed from stringData would stay on
    the server. Faults that pass are tried again for up to 30 seconds. Raises SandboxError with one line for
    every object the API server refuses, once all have been tried.

    How it is known what an object was: the API server does not store what would change nothing, so one whose
    resourceVersion is what it was when the apply began is unchanged. When it is not, a controller may have
    changed it meanwhile, and `_same_but_for_status` decides.
    """
    outcomes: list[tuple[Manifest, str | _RefusedError]] = []
    with _connected(kubeconfig) as api:
        before = _metadata_before(api, objects, owner)

        def one(manifest: Manifest) -> str:
            resource = api.resource(manifest)
            prepared = _prepared(manifest, owner)
            status, answer = _apply_one(api, resource, prepared)
            if status == http.client.CREATED:
                return "created"
            was = before.get(_key(resource, prepared))
            return "unchanged" if _same_but_for_status(resource, was, answer["metadata"]) else "changed"

        for step in _steps(objects):
            outcomes += zip(step, _parallel(one, step), strict=True)
            if step[0]["kind"] == "CustomResourceDefinition":
                _wait_for_definitions(api, step)
    _raise_refusals(outcomes)
    found = [outcome for _, outcome in outcomes]
    return Applied(found.count("created"), found.count("changed"), found.count("unchanged"))


def dry_run(kubeconfig: Path, objects: Sequence[Manifest]) -> None:
    """Ask the API server whether it would take `objects`, and change nothing.

    Unknown fields and wrong types are refused, as are kinds whose CRD is not there. An object in a namespace
    that is not there yet but is one of `objects` is checked as if it were in `default`. Raises SandboxError
    with one line for every object that is refused.
    """
    with _connected(kubeconfig) as api:
        namespaces = _patiently(lambda: api.call("GET", "/api/v1/namespaces"))[1]["items"]
        existing = {item["metadata"]["name"] for item in namespaces}
        coming = {m["metadata"]["name"] for m in objects if m["kind"] == "Namespace"} - existing

        def one(manifest: Manifest) -> None:
            prepared = _prepared(manifest, None)
            if prepared["metadata"].get("namespace") in coming:
                prepared["metadata"]["namespace"] = "default"
            _apply_one(api, api.resource(prepared), prepared, dry=True)

        outcomes = _parallel(one, objects)
    _raise_refusals(list(zip(objects, outcomes, strict=True)))


def prune(kubeconfig: Path, keep: Collection[Identity], owner: str) -> list[Identity]:
    """Remove every object that `apply` put there for `owner` and that is not in `keep`; returns them.

    Waits until they are gone with all they own (a Job's pods), up to 60 seconds, workloads first and then
    what they stand on. Pods on a removed Node are removed with it: nobody else would for a minute. Objects
    that only inherited the label (an EndpointSlice from its Service) are left alone. Raises SandboxError with
    one line for every object that cannot be removed.
    """
    kept = {Identity(i.group, i.kind, i.namespace or "default", i.name) for i in keep} | set(keep)
    faults: list[tuple[Identity, _RefusedError]] = []
    with _connected(kubeconfig) as api:
        found = {key: resource for key, resource in _owned(api, owner).items() if key not in kept}
        ending = {key.name for key in found if key.kind == "Namespace"}
        # What is in a namespace that goes is removed with it; workloads first all the same, for their pods.
        singly = [key for key in found if key.namespace not in ending or key.kind in _WORKLOADS]
        for rank in sorted({_rank(key.kind) for key in singly}, reverse=True):
            step = [key for key in singly if _rank(key.kind) == rank]
            outcomes = _parallel(lambda key: _remove(api, found[key], key), step)
            faults += [(key, o) for key, o in zip(step, outcomes, strict=True) if isinstance(o, _RefusedError)]
    if faults:
        raise SandboxError(*(f"{key} cannot be removed: {fault.message}" for key, fault in faults))
    return sorted(found)


Listing = Callable[..., list[list[dict[str, Any]]]]
"""Takes (apiVersion, kind) pairs, and gives all objects of each, in all namespaces."""


@contextlib.contextmanager
def listing(kubeconfig: Path) -> Iterator[Listing]:
    """Lists objects over one connection, for whoever looks again and again. Raises SandboxError."""
    with _connected(kubeconfig) as api:

        def one(version: str, kind: str) -> list[dict[str, Any]]:
            resource = api.resource({"apiVersion": version, "kind": kind})
            items: list[dict[str, Any]] = _patiently(lambda: api.call("GET", resource.path()))[1]["items"]
            return items

        yield lambda *kinds: [one(*kind) for kind in kinds]


def listed(kubeconfig: Path, *kinds: tuple[str, str]) -> list[list[dict[str, Any]]]:
    """All objects of each (apiVersion, kind), in all namespaces. Raises SandboxError."""
    with listing(kubeconfig) as found:
        return found(*kinds)


@contextlib.contextmanager
def _connected(kubeconfig: Path) -> Iterator[_Api]:
    """The API server and what it serves. A refusal that nobody dealt with is a fault of the whole."""
    try:
        with _Api(kubeconfig) as api:
            api.discover()
            yield api
    except _RefusedError as fault:
        raise SandboxError(f"{fault.message}; is the sandbox up?") from fault


def _metadata_before(api: _Api, objects: Sequence[Manifest], owner: str) -> dict[Identity, Metadata]:
    """What is there of our own, of all kinds that occur in `objects`."""
    kinds = {(*_group_version(manifest), manifest["kind"]) for manifest in objects}
    resources = [api.resources[kind] for kind in kinds & api.resources.keys()]
    listed = _parallel(lambda resource: _owned_by(api, resource, owner), resources)
    return {key: metadata for found in _all(listed) for key, metadata in found.items()}


def _group_version(manifest: Manifest) -> tuple[str, str]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    return group, version


def _rank(kind: str) -> int:
    return next((rank for rank, kinds in enumerate(_ORDER) if kind in kinds), _ORDER_OF_OTHERS)


def _steps(objects: Sequence[Manifest]) -> list[list[Manifest]]:
    ranks = sorted({_rank(manifest["kind"]) for manifest in objects})
    return [[manifest for manifest in objects if _rank(manifest["kind"]) == rank] for rank in ranks]


def _parallel(work: Callable[[_Item], Any], items: Sequence[_Item]) -> list[Any]:
    """`work` on every item, eight at a time, in order; a refusal is a result like any other."""

    def one(item: _Item) -> Any:
        try:
            return work(item)
        except _RefusedError as fault:
            return fault

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(one, items))


def _all(results: Iterable[Any]) -> list[Any]:
    """The results of `_parallel` when every one is needed: the first refusal is raised."""
    found = list(results)
    for refusal in found:
        if isinstance(refusal, _RefusedError):
            raise refusal
    return found


def _patiently(work: Callable[[], _Item], patience: float = _PATIENCE) -> _Item:
    """`work`, tried again while what it meets may pass, with growing pauses."""
    deadline, pause = time.monotonic() + patience, 0.02
    while True:
        try:
            return work()
        except _RefusedError as fault:
            if not fault.passing or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _prepared(manifest: Manifest, owner: str | None) -> dict[str, Any]:
    """The manifest as it is sent: a copy with our label, and a Secret's texts as data."""
    prepared: dict[str, Any] = copy.deepcopy(dict(manifest))
    if owner is not None:
        prepared["metadata"].setdefault("labels", {})[OWNER_LABEL] = owner
    if prepared["kind"] == "Secret" and "stringData" in prepared:
        texts: Mapping[str, str] = prepared.pop("stringData") or {}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        prepared["data"] = {**(prepared.get("data") or {}), **encoded}
    return prepared


def _key(resource: _Resource, manifest: Manifest) -> Identity:
    namespace = manifest["metadata"].get("namespace", "default") if resource.namespaced else ""
    return Identity(resource.group, resource.kind, namespace, manifest["metadata"]["name"])


def _apply_one(api: _Api, resource: _Resource, manifest: Manifest, dry: bool = False) -> tuple[int, dict[str, Any]]:
    key = _key(resource, manifest)
    path = resource.path(key.namespace, key.name)
    # Strict: without it an unknown field of a custom resource is dropped in silence.
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
    if dry:
        query["dryRun"] = "All"
    status, answer = _patiently(lambda: api.call("PATCH", path, query=query, body=manifest))
    if resource.kind == "Node" and "status" in manifest and not dry:
        # The Node itself takes its status when it is created, and ignores it ever after.
        body = {part: manifest[part] for part in ("apiVersion", "kind", "status")}
        body["metadata"] = {"name": key.name}
        _, answer = _patiently(lambda: api.call("PATCH", f"{path}/status", query=query, body=body))
    return status, answer


def _owned_by(api: _Api, resource: _Resource, owner: str) -> dict[Identity, Metadata]:
    """The metadata of what `apply` put there for `owner`, of one kind: what carries the label and has us
    among those who applied it. The label alone is not enough: an EndpointSlice copies it from its Service."""
    return {
        _key(resource, {"metadata": metadata}): metadata
        for metadata in api.by_label(resource, f"{OWNER_LABEL}={owner}")
        if _applied_by_us(metadata)
    }


def _applied_by_us(metadata: Metadata) -> list[Mapping[str, Any]]:
    return [entry for entry in metadata.get("managedFields", []) if entry.get("manager") == FIELD_MANAGER]


def _same_but_for_status(resource: _Resource, before: Metadata | None, after: Metadata) -> bool:
    """Whether an apply changed nothing, although a controller may have written to the object meanwhile."""
    if before is None:
        return False
    if before["resourceVersion"] == after["resourceVersion"]:
        return True
    if resource.kind == "Node":
        # Without a generation, and kwok writes to it at any time. Our own entries have the second in which we
        # last changed something.
        return _applied_by_us(before) == _applied_by_us(after)
    same = all(before.get(part) == after.get(part) for part in ("generation", "labels", "annotations"))
    return same and "generation" in before


def _owned(api: _Api, owner: str) -> dict[Identity, _Resource]:
    """All that `apply` put there for `owner`, of every kind that is served."""
    preferred: dict[tuple[str, str], _Resource] = {}
    for resource in api.resources.values():
        if {"list", "delete"} <= resource.verbs:
            # Versions come in the server's order of preference, and one version shows all objects of a kind.
            preferred.setdefault((resource.group, resource.kind), resource)

    resources = list(preferred.values())
    listed = _parallel(lambda resource: _owned_by(api, resource, owner), resources)
    return {key: r for r, found in zip(resources, _all(listed), strict=True) for key in found}


def _remove(api: _Api, resource: _Resource, key: Identity) -> None:
    """Remove one object and wait until it is gone.

    A workload in the foreground, so that it is there until its pods are not; without a policy the pods of a
    Job would stay. Others in the background: in the foreground each would wait its turn at the garbage
    collector.
    """
    path = resource.path(key.namespace, key.name)
    policy = "Foreground" if key.kind in _WORKLOADS else "Background"
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
    deadline, pause = time.monotonic() + _REMOVAL_PATIENCE, 0.01
    try:
        _patiently(lambda: api.call("DELETE", path, body=body))
        if key.kind == "Node":
            _remove_pods_of(api, key.name)
        while time.monotonic() < deadline:
            _patiently(lambda: api.call("GET", path))
            time.sleep(pause)
            pause = min(1.5 * pause, 0.25)
    except _RefusedError as fault:
        if fault.status == 404:
            return
        raise
    patience = f"{_REMOVAL_PATIENCE:.0f} s"
    raise _RefusedError(504, f"it is still there after {patience}; a finalizer nobody removes, perhaps")


def _remove_pods_of(api: _Api, node: str) -> None:
    """A simulated machine that is gone ends no pods any more; Kubernetes itself notices after about a
    minute."""
    pods = api.call("GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node}"})[1]["items"]
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for pod in pods:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{quote(metadata['namespace'])}/pods/{quote(metadata['name'])}"
        try:
            _patiently(functools.partial(api.call, "DELETE", path, body=body))
        except _RefusedError as fault:
            if fault.status != 404:
                raise


def _wait_for_definitions(api: _Api, definitions: Sequence[Manifest]) -> None:
    """Until the kinds that these CRDs define are among those served. One that was refused is not waited for;
    its objects will say so."""
    specs = [definition["spec"] for definition in definitions]
    wanted = {(s["group"], v["name"], s["names"]["kind"]) for s in specs for v in s["versions"] if v["served"]}
    deadline = time.monotonic() + 10
    while not wanted <= api.resources.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
        api.discover()


def _raise_refusals(outcomes: Sequence[tuple[Manifest, Any]]) -> None:
    refusals = [(manifest, outcome) for manifest, outcome in outcomes if isinstance(outcome, _RefusedError)]
    if refusals:
        raise SandboxError(*(f"{identity(manifest)}: {refusal.message}" for manifest, refusal in refusals))
