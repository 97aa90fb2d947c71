"""State of node pools and instances, with Karpenter's messages about pending pods, from its objects and events."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpufleet import quantity
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet_tools.sandbox.control_plane.api_server import Listing
from gpufleet_tools.sandbox.state import (
    CloudState,
    Object,
    PoolState,
    Reasons,
    ScaleSetState,
    State,
    pods_state,
    state_of,
    unscheduled,
)

_KARPENTER = "karpenter"


def with_karpenter(listed: Listing, prices: Mapping[str, float]) -> State:
    """Return the state of a sandbox with Karpenter. Prices are per hour, by instance type."""
    pods, nodes, daemon_sets, deployments, pools, claims, events = listed(
        ("v1", "Pod"),
        ("v1", "Node"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "Deployment"),
        ("karpenter.sh/v1", "NodePool"),
        ("karpenter.sh/v1", "NodeClaim"),
        ("v1", "Event"),
    )
    latest = latest_events(events)
    exhausted = exhausted_pools(events, pods, datetime.datetime.now(datetime.UTC))
    reasons = functools.partial(_reasons, latest, exhausted)
    cloud = CloudState(
        pools={pool["metadata"]["name"]: _pool(pool, exhausted) for pool in pools},
        starting=sum(_condition(claim, "Initialized")["status"] != "True" for claim in claims),
        undecided=sum(_is_undecided(latest, pod) for pod in pods),
        deployments={each["metadata"]["name"]: _deployment(each, pods, reasons) for each in deployments},
        prices=prices,
    )
    return replace(state_of(pods, nodes, daemon_sets, reasons), cloud=cloud)


def latest_events(events: Sequence[Object]) -> dict[str, Object]:
    """Return Karpenter's latest event about each pod, by the pod's UID."""
    of_karpenter = sorted(filter(_is_karpenters, events), key=_moment)
    return {event["involvedObject"].get("uid", ""): event for event in of_karpenter}


_EXHAUSTED = "NoCompatibleInstanceTypes"
_REPEATED = datetime.timedelta(seconds=90)
"""Karpenter repeats that event every minute while pods wait (`DedupeTimeout` in
pkg/controllers/provisioning/scheduling/events.go of kubernetes-sigs/karpenter at v1.14.1)."""


def exhausted_pools(events: Sequence[Object], pods: Sequence[Object], now: datetime.datetime) -> dict[str, str]:
    """Return Karpenter's reasons why NodePools have no available instance type, by name. An event does not count if a
    pod of the pool got a node afterwards."""
    found = {}
    for event in sorted(events, key=_moment):
        if event.get("reason") == _EXHAUSTED and now - _parsed(_moment(event)[0]) < _REPEATED:
            found[event["involvedObject"]["name"]] = event
    pool_of = {pod["metadata"]["uid"]: _selected_pool(pod) for pod in pods}
    for event in events:
        pool = pool_of.get(event["involvedObject"].get("uid", ""))
        if event.get("reason") == "Nominated" and pool in found and _moment(event) > _moment(found[pool]):
            del found[pool]
    return {name: f"{_EXHAUSTED}: {event['message']}" for name, event in found.items()}


def _selected_pool(pod: Object) -> str | None:
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector", {})
    return selector.get(NODE_POOL_LABEL)


def _parsed(moment: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(moment)


def _reasons(latest: Mapping[str, Object], exhausted: Mapping[str, str], pod: Object) -> Iterable[str]:
    """Return the reasons why a pod has no node: Karpenter's message, or the scheduler's if there is none yet.

    Karpenter's event about a pod omits NodePools without any instance type: it only has the reasons of others.
    """
    of_scheduler = list(unscheduled(pod))
    event = latest.get(pod["metadata"]["uid"])
    if not (event and of_scheduler):
        return of_scheduler
    own = exhausted.get(_selected_pool(pod) or "")
    return [own] if own and event["reason"] == "FailedScheduling" else [event["message"]]


def _is_undecided(latest: Mapping[str, Object], pod: Object) -> bool:
    if not any(unscheduled(pod)) or "deletionTimestamp" in pod["metadata"]:
        return False
    event = latest.get(pod["metadata"]["uid"])
    return event is None or event["reason"] != "FailedScheduling"


def _is_karpenters(event: Object) -> bool:
    source = event.get("source", {}).get("component") or event.get("reportingComponent")
    return source == _KARPENTER and event["involvedObject"]["kind"] == "Pod"


def _moment(event: Object) -> tuple[str, bool]:
    """Return the sort key of an event. Within one second, the nomination of a node is the later event."""
    when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return str(when), event.get("reason") == "Nominated"


def _pool(pool: Object, exhausted: Mapping[str, str]) -> PoolState:
    status, ready = pool.get("status", {}), _condition(pool, "Ready")
    used = {resource: quantity.parsed(str(amount)) for resource, amount in status.get("resources", {}).items()}
    limits = pool["spec"].get("limits", {})
    return PoolState(
        not_ready="" if ready["status"] == "True" else ready.get("message") or "not ready yet",
        nodes=int(used.get("nodes", 0)),
        used=used,
        limits={resource: quantity.parsed(str(amount)) for resource, amount in limits.items()},
        exhausted=exhausted.get(pool["metadata"]["name"], ""),
    )


def _deployment(deployment: Object, pods: Sequence[Object], reasons: Reasons) -> ScaleSetState:
    metadata, selector = deployment["metadata"], deployment["spec"]["selector"].get("matchLabels", {})
    own = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == metadata["namespace"]
        and selector.items() <= pod["metadata"].get("labels", {}).items()
    ]
    return pods_state(own, reasons)


def _condition(of: Object, kind: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = of.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {"status": "Unknown"})
