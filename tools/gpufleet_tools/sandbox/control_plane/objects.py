"""Kubernetes objects of the sandbox: server-side apply and prune."""

from __future__ import annotations

import base64
import copy
import functools
import http.client
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from gpufleet_tools.api_server import (
    CONNECTIONS,
    ApiError,
    ApiServer,
    Manifest,
    ServedKind,
    group_version,
    retried,
)
from gpufleet_tools.sandbox.control_plane.api_server import connected
from gpufleet_tools.sandbox.errors import SandboxError

Metadata = Mapping[str, Any]

_Item = TypeVar("_Item")

FIELD_MANAGER = "gpufleet"
OWNER_LABEL = "gpufleet.dev/sandbox"

# Seconds within which a removed object must disappear.
_REMOVAL_TIMEOUT = 60.0

# Order in which kinds are applied, and reverse order in which they are removed. A kind that is not listed has the empty
# place. Later kinds depend on earlier ones: a pod on its namespace and service account.
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
    """Identity of an object. The version of its kind is not part of it."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True)
class Applied:
    """Numbers of objects that an apply created, changed and left unchanged."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


def identity(manifest: Manifest) -> Identity:
    """Return the identity of a manifest. Its namespace is empty for a cluster-wide object, and for an object in
    `default` without an explicit namespace; `keep` of `prune` accepts both."""
    metadata = manifest["metadata"]
    return Identity(group_version(manifest)[0], manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def apply(kubeconfig: Path, objects: Sequence[Manifest], owner: str) -> Applied:
    """Apply objects: forced server-side apply as field manager "gpufleet".

    Each object gets the label OWNER_LABEL with the value `owner`, by which `prune` finds it. Objects are applied in
    steps (CRDs, namespaces, nodes, the rest, workloads), in parallel within each step. The status of a Node is applied
    too. The `stringData` of a Secret is sent as `data`, since the server would keep a key that was removed from
    stringData. Transient errors are retried for up to 30 seconds. Raises SandboxError with one line for each rejected
    object, after all have been tried.

    The API server does not store an apply without changes, so an object with the same resourceVersion as before is
    unchanged. If it differs, a controller may have changed the object meanwhile, and `_same_but_for_status` decides.
    """
    outcomes: list[tuple[Manifest, str | ApiError]] = []
    with connected(kubeconfig) as api:
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
            results = list(zip(step, _parallel(one, step), strict=True))
            outcomes += results
            if step[0]["kind"] == "CustomResourceDefinition":
                _wait_for_definitions(api, [each for each, result in results if not isinstance(result, ApiError)])
    _raise_errors(outcomes)
    found = [outcome for _, outcome in outcomes]
    return Applied(found.count("created"), found.count("changed"), found.count("unchanged"))


def prune(kubeconfig: Path, keep: Collection[Identity], owner: str) -> list[Identity]:
    """Remove every object that `apply` created for `owner` and that is not in `keep`. Return the removed objects.

    Wait up to 60 seconds until they and their dependents (a Job's pods) are deleted, workloads first. Pods on a removed
    Node are deleted with it; Kubernetes would take a minute. Objects that only inherited the label, such as the
    EndpointSlice of a Service, are not touched. Raises SandboxError with one line for each object that cannot be
    removed.
    """
    kept = {Identity(i.group, i.kind, i.namespace or "default", i.name) for i in keep} | set(keep)
    problems: list[tuple[Identity, ApiError]] = []
    with connected(kubeconfig) as api:
        found = {key: resource for key, resource in _owned(api, owner).items() if key not in kept}
        ending = {key.name for key in found if key.kind == "Namespace"}
        # Objects in a removed namespace are deleted with it, except workloads, whose pods must be deleted first.
        singly = [key for key in found if key.namespace not in ending or key.kind in _WORKLOADS]
        for rank in sorted({_rank(key.kind) for key in singly}, reverse=True):
            step = [key for key in singly if _rank(key.kind) == rank]
            outcomes = _parallel(lambda key: _remove(api, found[key], key), step)
            problems += [(key, o) for key, o in zip(step, outcomes, strict=True) if isinstance(o, ApiError)]
    if problems:
        raise SandboxError(*(f"{key} cannot be removed: {problem.message}" for key, problem in problems))
    return sorted(found)


def _metadata_before(api: ApiServer, objects: Sequence[Manifest], owner: str) -> dict[Identity, Metadata]:
    """Return the metadata of the owner's existing objects of all kinds in `objects`."""
    kinds = {(*group_version(manifest), manifest["kind"]) for manifest in objects}
    resources = [api.resources[kind] for kind in kinds & api.resources.keys()]
    listed = _parallel(lambda resource: _owned_by(api, resource, owner), resources)
    return {key: metadata for found in _all(listed) for key, metadata in found.items()}


def _rank(kind: str) -> int:
    return next((rank for rank, kinds in enumerate(_ORDER) if kind in kinds), _ORDER_OF_OTHERS)


def _steps(objects: Sequence[Manifest]) -> list[list[Manifest]]:
    ranks = sorted({_rank(manifest["kind"]) for manifest in objects})
    return [[manifest for manifest in objects if _rank(manifest["kind"]) == rank] for rank in ranks]


def _parallel(work: Callable[[_Item], Any], items: Sequence[_Item]) -> list[Any]:
    """Return the results of `work` for every item, in order; eight run in parallel. An ApiError is a result."""

    def one(item: _Item) -> Any:
        try:
            return work(item)
        except ApiError as error:
            return error

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(one, items))


def _all(results: Iterable[Any]) -> list[Any]:
    """Return the results of `_parallel`. Raise the first ApiError among them."""
    found = list(results)
    for result in found:
        if isinstance(result, ApiError):
            raise result
    return found


def _prepared(manifest: Manifest, owner: str) -> dict[str, Any]:
    """Return the manifest for the request: a copy with the owner's label, and with a Secret's stringData as data."""
    prepared: dict[str, Any] = copy.deepcopy(dict(manifest))
    prepared["metadata"].setdefault("labels", {})[OWNER_LABEL] = owner
    if prepared["kind"] == "Secret" and "stringData" in prepared:
        texts: Mapping[str, str] = prepared.pop("stringData") or {}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        prepared["data"] = {**(prepared.get("data") or {}), **encoded}
    return prepared


def _key(resource: ServedKind, manifest: Manifest) -> Identity:
    namespace = manifest["metadata"].get("namespace", "default") if resource.namespaced else ""
    return Identity(resource.group, resource.kind, namespace, manifest["metadata"]["name"])


def _apply_one(api: ApiServer, resource: ServedKind, manifest: Manifest) -> tuple[int, dict[str, Any]]:
    key = _key(resource, manifest)
    path = resource.path(key.namespace, key.name)
    # Strict: otherwise unknown fields of a custom resource are dropped silently.
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
    status, answer = retried(lambda: api.call("PATCH", path, query=query, body=manifest))
    if resource.kind == "Node" and "status" in manifest:
        # The API server accepts a status in the Node only on creation.
        body = {part: manifest[part] for part in ("apiVersion", "kind", "status")}
        body["metadata"] = {"name": key.name}
        _, answer = retried(lambda: api.call("PATCH", f"{path}/status", query=query, body=body))
    return status, answer


def _owned_by(api: ApiServer, resource: ServedKind, owner: str) -> dict[Identity, Metadata]:
    """Return the metadata of the objects of one kind that `apply` created for `owner`: those with the label and our
    field manager. The label alone is not enough: an EndpointSlice copies it from its Service."""
    return {
        _key(resource, {"metadata": metadata}): metadata
        for metadata in api.by_label(resource, f"{OWNER_LABEL}={owner}")
        if _applied_by_us(metadata)
    }


def _applied_by_us(metadata: Metadata) -> list[Mapping[str, Any]]:
    return [entry for entry in metadata.get("managedFields", []) if entry.get("manager") == FIELD_MANAGER]


def _same_but_for_status(resource: ServedKind, before: Metadata | None, after: Metadata) -> bool:
    """Return whether an apply changed nothing, although a controller may have changed the object meanwhile."""
    if before is None:
        return False
    if before["resourceVersion"] == after["resourceVersion"]:
        return True
    if resource.kind == "Node":
        # Nodes have no generation, and kwok updates them at any time. Our own entries have the time of our last change.
        return _applied_by_us(before) == _applied_by_us(after)
    same = all(before.get(part) == after.get(part) for part in ("generation", "labels", "annotations"))
    return same and "generation" in before


def _owned(api: ApiServer, owner: str) -> dict[Identity, ServedKind]:
    """Return all objects that `apply` created for `owner`, of every served kind."""
    preferred: dict[tuple[str, str], ServedKind] = {}
    for resource in api.resources.values():
        if {"list", "delete"} <= resource.verbs:
            # Versions are in the server's order of preference, and each version lists all objects of a kind.
            preferred.setdefault((resource.group, resource.kind), resource)

    resources = list(preferred.values())
    listed = _parallel(lambda resource: _owned_by(api, resource, owner), resources)
    return {key: r for r, found in zip(resources, _all(listed), strict=True) for key in found}


def _remove(api: ApiServer, resource: ServedKind, key: Identity) -> None:
    """Delete one object and wait until it is deleted.

    A workload is deleted in the foreground, so that it exists until its pods are deleted; without a policy the pods of
    a Job would stay. Others are deleted in the background: in the foreground each would wait for the garbage collector.
    """
    path = resource.path(key.namespace, key.name)
    policy = "Foreground" if key.kind in _WORKLOADS else "Background"
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
    deadline, pause = time.monotonic() + _REMOVAL_TIMEOUT, 0.01
    try:
        retried(lambda: api.call("DELETE", path, body=body))
        if key.kind == "Node":
            _remove_pods_of(api, key.name)
        while time.monotonic() < deadline:
            retried(lambda: api.call("GET", path))
            time.sleep(pause)
            pause = min(1.5 * pause, 0.25)
    except ApiError as error:
        if error.status == 404:
            return
        raise
    timeout = f"{_REMOVAL_TIMEOUT:.0f} s"
    raise ApiError(504, f"it still exists after {timeout}; check its finalizers")


def _remove_pods_of(api: ApiServer, node: str) -> None:
    """Delete the pods of a removed simulated node. Kubernetes itself would take about a minute."""
    pods = api.call("GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node}"})[1]["items"]
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for pod in pods:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{quote(metadata['namespace'])}/pods/{quote(metadata['name'])}"
        try:
            retried(functools.partial(api.call, "DELETE", path, body=body))
        except ApiError as error:
            if error.status != 404:
                raise


def _wait_for_definitions(api: ApiServer, definitions: Sequence[Manifest]) -> None:
    """Wait up to 60 seconds until the kinds of these CRDs are served: it takes one, but 20 on a busy machine."""
    specs = [definition["spec"] for definition in definitions]
    wanted = {(s["group"], v["name"], s["names"]["kind"]) for s in specs for v in s["versions"] if v["served"]}
    deadline = time.monotonic() + 60
    while not wanted <= api.resources.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
        api.discover()


def _raise_errors(outcomes: Sequence[tuple[Manifest, Any]]) -> None:
    errors = [(manifest, outcome) for manifest, outcome in outcomes if isinstance(outcome, ApiError)]
    if errors:
        raise SandboxError(*(f"{identity(manifest)}: {error.message}" for manifest, error in errors))
