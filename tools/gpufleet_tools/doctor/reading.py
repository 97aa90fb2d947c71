"""Read-only snapshot of a live cluster: lists of objects, and what the user may not read.

Every request is a GET. The contents of Secrets are never read, only their metadata.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from gpufleet_tools.api_server import CONNECTIONS, ApiError, ApiServer
from gpufleet_tools.doctor import crds
from gpufleet_tools.doctor.finding import DoctorError

Object = Mapping[str, Any]

_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_ARC = "/apis/actions.github.com/v1alpha1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_OF_SCALE_SETS = "app.kubernetes.io/part-of=gha-rs"
_ARC_PODS = "app.kubernetes.io/component in (runner-scale-set-listener,controller-manager)"

LOG_LINES = 40
"""Lines of a listener's log that are read if the listener does not stay up."""

LOG_SECONDS, LOG_PAUSE = 10.0, 0.5
"""Seconds to wait for the errors of all these listeners, and between two attempts."""

BUSY_SECONDS = 10.0
"""Seconds during which a request is repeated if the API server is busy, as it is with new CRDs."""

LAST_WORDS = "Application returned an error"
"""Text in the last line of a listener's log (cmd/ghalistener/main.go at 0.14.2)."""


@dataclass(frozen=True)
class Query:
    """A list of objects."""

    resource: str
    """Plural name of the resource."""
    root: str
    """Path of its API group."""
    purpose: str
    """Checks that require the objects."""
    scope: Literal["all", "cluster", "controller", "devices"] = "all"
    """Namespaces: `cluster` for a resource without; `all` for all of them or, without permission, those of the stack;
    otherwise those of ARC's controller or of the device plugin."""
    selector: str = ""
    """Label selector."""
    fields: str = ""
    """Field selector."""
    metadata_only: bool = False
    """Whether to request only the metadata."""


QUERIES: Mapping[str, Query] = {
    "namespaces": Query("namespaces", "/api/v1", "namespaces that do not terminate", "cluster"),
    "nodes": Query("nodes", "/api/v1", "nodes and their GPUs", "cluster"),
    "controllers": Query("deployments", "/apis/apps/v1", "ARC's controller", selector=f"{_OF_SCALE_SETS}-controller"),
    "runner sets": Query("autoscalingrunnersets", _ARC, "scale sets"),
    "listeners": Query("autoscalinglisteners", _ARC, "listeners"),
    "ephemeral runner sets": Query("ephemeralrunnersets", _ARC, "references of listeners"),
    "runners": Query("ephemeralrunners", _ARC, "failed and hung runners"),
    "runner pods": Query("pods", "/api/v1", "runners and listeners", selector="actions-ephemeral-runner=True"),
    "ARC's pods": Query("pods", "/api/v1", "runners and listeners", selector=_ARC_PODS),
    "events": Query("events", "/api/v1", "restarts of listeners", "controller", fields="reason=Scheduled"),
    "daemon sets": Query("daemonsets", "/apis/apps/v1", "device plugins", "devices"),
    "device pods": Query("pods", "/api/v1", "device plugins", "devices"),
    "releases": Query("secrets", "/api/v1", "interrupted Helm operations", selector="owner=helm", metadata_only=True),
    "roles": Query("roles", _RBAC, "finalizers", selector=_OF_SCALE_SETS, metadata_only=True),
    "role bindings": Query("rolebindings", _RBAC, "finalizers", selector=_OF_SCALE_SETS, metadata_only=True),
    "service accounts": Query("serviceaccounts", "/api/v1", "finalizers", selector=_OF_SCALE_SETS, metadata_only=True),
}
"""Lists by name."""


@dataclass(frozen=True, order=True)
class Unread:
    """Objects that the user may not read."""

    verb: Literal["get", "list"]
    """Missing verb."""
    resource: str
    """Resource, as RBAC names it."""
    namespace: str
    """Namespace; empty for the whole cluster."""
    purpose: str
    """Checks that are missing therefore."""


@dataclass(frozen=True)
class Scope:
    """Namespaces and objects of a stack."""

    controller: str
    """Namespace of ARC's controller."""
    runners: Sequence[str]
    """Namespaces of runners."""
    devices: Sequence[str]
    """Namespaces of device plugins."""
    secrets: Collection[tuple[str, str]]
    """Secrets with credentials: namespace and name."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a cluster at one time."""

    now: datetime.datetime
    """Time of the snapshot."""
    kubernetes: str
    """Version of the API server."""
    lists: Mapping[str, Sequence[Object]]
    """Objects by the name of their list in QUERIES. A list is missing if the user may not read it at all."""
    crds: Mapping[str, Sequence[str]] | None
    """Fields of ARC's CRDs by plural name, without missing CRDs; None if the user may not read them."""
    secrets: Mapping[tuple[str, str], Object | None]
    """Metadata of Secrets with credentials, by namespace and name; None for one that does not exist. It lacks Secrets
    that the user may not read."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Last lines of the logs of listeners that do not stay up, by pod."""
    unread: Sequence[Unread] = ()
    """Objects that the user may not read."""

    def __getitem__(self, name: str) -> Sequence[Object]:
        """Return a list; an empty one if the user may not read it."""
        assert name in QUERIES
        return self.lists.get(name, ())

    def knows(self, *names: str) -> bool:
        """Return whether all these lists were read."""
        return all(name in self.lists for name in names)

    def age(self, time: str | None) -> float:
        """Return the seconds since a time of the API server; 0 for None."""
        return (self.now - datetime.datetime.fromisoformat(time)).total_seconds() if time else 0.0


def read(api: ApiServer, scope: Scope, restless: Callable[[Snapshot], Collection[tuple[str, str]]]) -> Snapshot:
    """Return a snapshot. `restless` returns namespace and name of pods whose log is required. Raises DoctorError if the
    cluster does not respond or rejects the credentials."""
    reader = _Reader(api, scope)
    version = reader.version()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        names, secrets = list(QUERIES), sorted(scope.secrets)
        found_crds = pool.submit(reader.crds)
        found_secrets = [pool.submit(reader.secret, *each) for each in secrets]
        found = [pool.submit(reader.objects, QUERIES[name]) for name in names]
        lists = {
            name: objects for name, each in zip(names, found, strict=True) if (objects := each.result()) is not None
        }
        metadata = zip(secrets, (each.result() for each in found_secrets), strict=True)
        snapshot = Snapshot(
            now=datetime.datetime.now(datetime.UTC),
            kubernetes=version,
            lists=lists,
            crds=found_crds.result(),
            secrets={key: value for key, value in metadata if value != _FORBIDDEN},
        )
    return dataclasses.replace(snapshot, logs=reader.logs(restless(snapshot)), unread=tuple(sorted(reader.unread)))


_FORBIDDEN: Object = {"forbidden": True}


class _Reader:
    """Requests of one snapshot."""

    def __init__(self, api: ApiServer, scope: Scope) -> None:
        self._api = api
        self._scope = scope
        self.unread: set[Unread] = set()

    def version(self) -> str:
        """Return the version of the API server."""
        try:
            return str(self._api.call("GET", "/version")[1]["gitVersion"])
        except ApiError as error:
            if error.status == 403:
                return "unknown"
            raise self._failure(error) from error

    def objects(self, query: Query) -> Sequence[Object] | None:
        """Return a list; None if the user may read no part of it."""
        if query.scope in ("all", "cluster"):
            found = self._list(query, "")
            if found is not None or query.scope == "cluster":
                self._note(query, [""] if found is None else [])
                return found
        namespaces = self._namespaces(query)
        parts = {namespace: self._list(query, namespace) for namespace in namespaces}
        self._note(query, [namespace for namespace, part in parts.items() if part is None])
        readable = [part for part in parts.values() if part is not None]
        return [each for part in readable for each in part] if readable or not namespaces else None

    def _namespaces(self, query: Query) -> Sequence[str]:
        scope = self._scope
        if query.scope == "controller":
            return [scope.controller]
        return scope.devices if query.scope == "devices" else sorted({scope.controller, *scope.runners})

    def _note(self, query: Query, namespaces: Sequence[str]) -> None:
        self.unread |= {Unread("list", query.resource, namespace, query.purpose) for namespace in namespaces}

    def _list(self, query: Query, namespace: str) -> Sequence[Object] | None:
        """Return the objects in a namespace, or in all; None if that is forbidden."""
        path = (
            f"{query.root}/namespaces/{namespace}/{query.resource}" if namespace else f"{query.root}/{query.resource}"
        )
        options = {"labelSelector": query.selector, "fieldSelector": query.fields}
        accept = _METADATA.format("List") if query.metadata_only else "application/json"
        answer = self._get(path, {key: value for key, value in options.items() if value}, accept)
        # 404: the kind is not served, since its CRD does not exist.
        return None if answer == _FORBIDDEN else list(answer.get("items") or ()) if answer else []

    def secret(self, namespace: str, name: str) -> Object | None:
        """Return the metadata of a Secret; None if it does not exist."""
        accept = _METADATA.format("")
        answer = self._get(f"/api/v1/namespaces/{namespace}/secrets/{name}", {}, accept)
        if answer == _FORBIDDEN:
            self.unread.add(Unread("get", "secrets", namespace, "rotated keys"))
        return answer

    def crds(self) -> Mapping[str, Sequence[str]] | None:
        """Return the fields of ARC's CRDs; None if the user may not read CRDs."""
        found = {}
        for plural in crds.PLURALS:
            root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            answer = self._get(f"{root}/{plural}.actions.github.com", {})
            if answer == _FORBIDDEN:
                self.unread.add(Unread("get", "customresourcedefinitions", "", "versions of CRDs"))
                return None
            if answer:
                found[plural] = crds.fields(answer)
        return found

    def logs(self, pods: Collection[tuple[str, str]]) -> dict[str, str]:
        """Return the last lines of the logs of listeners that do not stay up, by pod. A pod that has just started has
        not written its error yet."""
        found: dict[str, str] = {}
        deadline, waiting = time.monotonic() + LOG_SECONDS, [*pods]
        while waiting:
            found |= {name: text for namespace, name in waiting if (text := self._log(namespace, name))}
            waiting = [each for each in waiting if LAST_WORDS not in found.get(each[1], "")]
            if not waiting or self._forbidden_logs or time.monotonic() > deadline:
                break
            time.sleep(LOG_PAUSE)
        return found

    @property
    def _forbidden_logs(self) -> bool:
        return any(each.resource == "pods/log" for each in self.unread)

    def _log(self, namespace: str, pod: str) -> str:
        """Return the last lines of a pod's log; empty if it cannot be read."""
        try:
            return self._api.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", {"tailLines": str(LOG_LINES)})
        except ApiError as error:
            if error.status == 403:
                self.unread.add(Unread("get", "pods/log", namespace, "reasons why listeners end"))
            return ""

    def _get(self, path: str, query: Mapping[str, str], accept: str = "application/json") -> Object | None:
        """Return an object or a list; None if it does not exist, _FORBIDDEN if the user may not read it."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._api.call("GET", path, query=query, accept=accept)[1]
            except ApiError as error:
                if error.status in (429, 503) and time.monotonic() < deadline:
                    time.sleep(LOG_PAUSE)
                    continue
                return self._without(error)

    def _without(self, error: ApiError) -> Object | None:
        """Return the substitute for an object that an error denies. Raises DoctorError for other errors."""
        if error.status == 404:
            return None
        if error.status == 403:
            return _FORBIDDEN
        raise self._failure(error) from error

    def _failure(self, error: ApiError) -> DoctorError:
        address = self._api.settings.host
        if error.status == 401:
            return DoctorError(f"{address} rejects the credentials of the kubeconfig; renew them, or pass --kubeconfig")
        if error.status == 0:
            return DoctorError(f"{address}: {error.message}; check the address and your network, or pass --kubeconfig")
        return DoctorError(f"{address}: HTTP status {error.status}: {error.message}")


def lines(unread: Sequence[Unread]) -> Iterator[str]:
    """Yield one line for each verb, resource and purpose that the user lacks."""
    groups: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for each in unread:
        namespaces, purposes = groups.setdefault((each.verb, each.resource), ([], []))
        namespaces.append(each.namespace)
        purposes.append(each.purpose)
    for (verb, resource), (namespaces, purposes) in groups.items():
        where = ", ".join(dict.fromkeys(each for each in namespaces if each))
        place = f" in {where}" if where else ""
        yield f"no permission to {verb} {resource}{place}; not checked: {', '.join(dict.fromkeys(purposes))}"
