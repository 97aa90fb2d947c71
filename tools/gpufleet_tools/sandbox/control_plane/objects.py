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

from gpufleet_tools.sandbox.control_plane.api_server import (
    CONNECTIONS,
    ApiServer,
    Manifest,
    Refusal,
    ServedKind,
    connected,
    group_version,
    patiently,
)
from gpufleet_tools.sandbox.errors import SandboxError

Metadata = Mapping[str, Any]

_Item = TypeVar("_Item")

FIELD_MANAGER = "gpufleet"
OWNER_LABEL = "gpufleet.dev/sandbox"

# Seconds an object has to be gone in.
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


def identity(manifest: Manifest) -> Identity:
    """The identity of a manifest; a namespaced object without a namespace is taken to be in `default`, which
    only the API server can tell from one that has none: `keep` of `prune` accepts both."""
    metadata = manifest["metadata"]
    return Identity(group_version(manifest)[0], manifest["kind"], metadata.get("namespace", ""), metadata["name"])


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
    outcomes: list[tuple[Manifest, str | Refusal]] = []
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
            outcomes += zip(step, _parallel(one, step), strict=True)
            if step[0]["kind"] == "CustomResourceDefinition":
                _wait_for_definitions(api, step)
    _raise_refusals(outcomes)
    found = [outcome for _, outcome in outcomes]
    return Applied(found.count("created"), found.count("changed"), found.count("unchanged"))


def prune(kubeconfig: Path, keep: Collection[Identity], owner: str) -> list[Identity]:
    """Remove every object that `apply` put there for `owner` and that is not in `keep`; returns them.

    Waits until they are gone with all they own (a Job's pods), up to 60 seconds, workloads first and then
    what they stand on. Pods on a removed Node are removed with it: nobody else would for a minute. Objects
    that only inherited the label (an EndpointSlice from its Service) are left alone. Raises SandboxError with
    one line for every object that cannot be removed.
    """
    kept = {Identity(i.group, i.kind, i.namespace or "default", i.name) for i in keep} | set(keep)
    problems: list[tuple[Identity, Refusal]] = []
    with connected(kubeconfig) as api:
        found = {key: resource for key, resource in _owned(api, owner).items() if key not in kept}
        ending = {key.name for key in found if key.kind == "Namespace"}
        # What is in a namespace that goes is removed with it; workloads first all the same, for their pods.
        singly = [key for key in found if key.namespace not in ending or key.kind in _WORKLOADS]
        for rank in sorted({_rank(key.kind) for key in singly}, reverse=True):
            step = [key for key in singly if _rank(key.kind) == rank]
            outcomes = _parallel(lambda key: _remove(api, found[key], key), step)
            problems += [(key, o) for key, o in zip(step, outcomes, strict=True) if isinstance(o, Refusal)]
    if problems:
        raise SandboxError(*(f"{key} cannot be removed: {problem.message}" for key, problem in problems))
    return sorted(found)


def _metadata_before(api: ApiServer, objects: Sequence[Manifest], owner: str) -> dict[Identity, Metadata]:
    """What is there of our own, of all kinds that occur in `objects`."""
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
    """`work` on every item, eight at a time, in order; a refusal is a result like any other."""

    def one(item: _Item) -> Any:
        try:
            return work(item)
        except Refusal as problem:
            return problem

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(one, items))


def _all(results: Iterable[Any]) -> list[Any]:
    """The results of `_parallel` when every one is needed: the first refusal is raised."""
    found = list(results)
    for refusal in found:
        if isinstance(refusal, Refusal):
            raise refusal
    return found


def _prepared(manifest: Manifest, owner: str) -> dict[str, Any]:
    """The manifest as it is sent: a copy with our label, and a Secret's texts as data."""
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
    # Strict: without it an unknown field of a custom resource is dropped in silence.
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
    status, answer = patiently(lambda: api.call("PATCH", path, query=query, body=manifest))
    if resource.kind == "Node" and "status" in manifest:
        # The Node itself takes its status when it is created, and ignores it ever after.
        body = {part: manifest[part] for part in ("apiVersion", "kind", "status")}
        body["metadata"] = {"name": key.name}
        _, answer = patiently(lambda: api.call("PATCH", f"{path}/status", query=query, body=body))
    return status, answer


def _owned_by(api: ApiServer, resource: ServedKind, owner: str) -> dict[Identity, Metadata]:
    """The metadata of what `apply` put there for `owner`, of one kind: what carries the label and has us
    among those who applied it. The label alone is not enough: an EndpointSlice copies it from its Service."""
    return {
        _key(resource, {"metadata": metadata}): metadata
        for metadata in api.by_label(resource, f"{OWNER_LABEL}={owner}")
        if _applied_by_us(metadata)
    }


def _applied_by_us(metadata: Metadata) -> list[Mapping[str, Any]]:
    return [entry for entry in metadata.get("managedFields", []) if entry.get("manager") == FIELD_MANAGER]


def _same_but_for_status(resource: ServedKind, before: Metadata | None, after: Metadata) -> bool:
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


def _owned(api: ApiServer, owner: str) -> dict[Identity, ServedKind]:
    """All that `apply` put there for `owner`, of every kind that is served."""
    preferred: dict[tuple[str, str], ServedKind] = {}
    for resource in api.resources.values():
        if {"list", "delete"} <= resource.verbs:
            # Versions come in the server's order of preference, and one version shows all objects of a kind.
            preferred.setdefault((resource.group, resource.kind), resource)

    resources = list(preferred.values())
    listed = _parallel(lambda resource: _owned_by(api, resource, owner), resources)
    return {key: r for r, found in zip(resources, _all(listed), strict=True) for key in found}


def _remove(api: ApiServer, resource: ServedKind, key: Identity) -> None:
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
        patiently(lambda: api.call("DELETE", path, body=body))
        if key.kind == "Node":
            _remove_pods_of(api, key.name)
        while time.monotonic() < deadline:
            patiently(lambda: api.call("GET", path))
            time.sleep(pause)
            pause = min(1.5 * pause, 0.25)
    except Refusal as problem:
        if problem.status == 404:
            return
        raise
    patience = f"{_REMOVAL_PATIENCE:.0f} s"
    raise Refusal(504, f"it is still there after {patience}; a finalizer nobody removes, perhaps")


def _remove_pods_of(api: ApiServer, node: str) -> None:
    """A simulated machine that is gone ends no pods any more; Kubernetes itself notices after about a
    minute."""
    pods = api.call("GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node}"})[1]["items"]
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for pod in pods:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{quote(metadata['namespace'])}/pods/{quote(metadata['name'])}"
        try:
            patiently(functools.partial(api.call, "DELETE", path, body=body))
        except Refusal as problem:
            if problem.status != 404:
                raise


def _wait_for_definitions(api: ApiServer, definitions: Sequence[Manifest]) -> None:
    """Until the kinds that these CRDs define are among those served. One that was refused is not waited for;
    its objects will say so."""
    specs = [definition["spec"] for definition in definitions]
    wanted = {(s["group"], v["name"], s["names"]["kind"]) for s in specs for v in s["versions"] if v["served"]}
    deadline = time.monotonic() + 10
    while not wanted <= api.resources.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
        api.discover()


def _raise_refusals(outcomes: Sequence[tuple[Manifest, Any]]) -> None:
    refusals = [(manifest, outcome) for manifest, outcome in outcomes if isinstance(outcome, Refusal)]
    if refusals:
        raise SandboxError(*(f"{identity(manifest)}: {refusal.message}" for manifest, refusal in refusals))
