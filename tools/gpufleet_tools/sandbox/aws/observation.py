"""What Karpenter has done, and why it has not done more: in its own words, from its objects and its events."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet_stacks.settings import quantity
from gpufleet_tools.sandbox.control_plane.api_server import Listing
from gpufleet_tools.sandbox.state import (
    CloudState,
    Object,
    PoolState,
    ScaleSetState,
    State,
    Why,
    pods_state,
    state_of,
    unscheduled,
)

_KARPENTER = "karpenter"


def with_karpenter(listed: Listing, prices: Mapping[str, float]) -> State:
    """The state of a sandbox whose nodes Karpenter starts; prices are per hour, by instance type."""
    pods, nodes, daemon_sets, deployments, pools, claims, events = listed(
        ("v1", "Pod"),
        ("v1", "Node"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "Deployment"),
        ("karpenter.sh/v1", "NodePool"),
        ("karpenter.sh/v1", "NodeClaim"),
        ("v1", "Event"),
    )
    news = last_news(events)
    exhausted = exhausted_pools(events, pods, datetime.datetime.now(datetime.UTC))
    why = functools.partial(_reasons, news, exhausted)
    cloud = CloudState(
        pools={pool["metadata"]["name"]: _pool(pool, exhausted) for pool in pools},
        starting=sum(_condition(claim, "Initialized")["status"] != "True" for claim in claims),
        undecided=sum(_is_undecided(news, pod) for pod in pods),
        deployments={each["metadata"]["name"]: _deployment(each, pods, why) for each in deployments},
        prices=prices,
    )
    return replace(state_of(pods, nodes, daemon_sets, why), cloud=cloud)


def last_news(events: Sequence[Object]) -> dict[str, Object]:
    """The last event in which Karpenter spoke of each pod, by the pod's uid."""
    spoken = sorted(filter(_is_karpenters, events), key=_moment)
    return {event["involvedObject"].get("uid", ""): event for event in spoken}


_EXHAUSTED = "NoCompatibleInstanceTypes"
_REPEATED = datetime.timedelta(seconds=90)
"""Karpenter repeats that event every minute while pods wait (`DedupeTimeout` in
pkg/controllers/provisioning/scheduling/events.go of kubernetes-sigs/karpenter at v1.14.1)."""


def exhausted_pools(events: Sequence[Object], pods: Sequence[Object], now: datetime.datetime) -> dict[str, str]:
    """Karpenter's reasons why a NodePool has no instance type to provision, by the NodePool's name: of its own event,
    where no pod of the pool was given a node since."""
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


def _reasons(news: Mapping[str, Object], exhausted: Mapping[str, str], pod: Object) -> Iterable[str]:
    """Why a pod is on no node: what Karpenter says, or the scheduler where Karpenter has said nothing yet.

    Karpenter's event of a pod leaves out NodePools without any instance type: it only has the reasons of others.
    """
    of_scheduler = list(unscheduled(pod))
    event = news.get(pod["metadata"]["uid"])
    if not (event and of_scheduler):
        return of_scheduler
    own = exhausted.get(_selected_pool(pod) or "")
    return [own] if own and event["reason"] == "FailedScheduling" else [event["message"]]


def _is_undecided(news: Mapping[str, Object], pod: Object) -> bool:
    if not any(unscheduled(pod)) or "deletionTimestamp" in pod["metadata"]:
        return False
    event = news.get(pod["metadata"]["uid"])
    return event is None or event["reason"] != "FailedScheduling"


def _is_karpenters(event: Object) -> bool:
    source = event.get("source", {}).get("component") or event.get("reportingComponent")
    return source == _KARPENTER and event["involvedObject"]["kind"] == "Pod"


def _moment(event: Object) -> tuple[str, bool]:
    """In the same second a node that is on its way is the later news."""
    when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return str(when), event.get("reason") == "Nominated"


def _pool(pool: Object, exhausted: Mapping[str, str]) -> PoolState:
    status, ready = pool.get("status", {}), _condition(pool, "Ready")
    used = {resource: quantity.parse(str(amount)) for resource, amount in status.get("resources", {}).items()}
    limits = pool["spec"].get("limits", {})
    return PoolState(
        why_not="" if ready["status"] == "True" else ready.get("message") or "not ready yet",
        nodes=int(used.get("nodes", 0)),
        used=used,
        limits={resource: quantity.parse(str(amount)) for resource, amount in limits.items()},
        exhausted=exhausted.get(pool["metadata"]["name"], ""),
    )


def _deployment(deployment: Object, pods: Sequence[Object], why: Why) -> ScaleSetState:
    metadata, selector = deployment["metadata"], deployment["spec"]["selector"].get("matchLabels", {})
    own = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == metadata["namespace"]
        and selector.items() <= pod["metadata"].get("labels", {}).items()
    ]
    return pods_state(own, why)


def _condition(of: Object, kind: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = of.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {"status": "Unknown"})
