"""Preconditions of an upgrade on the live cluster, which is only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpufleet.arc.controller import service_account_name
from gpufleet.arc.versions import minor_steps
from gpufleet_stacks.settings.models.settings import Settings

Item = dict[str, Any]

_CONTROLLERS = "/apis/apps/v1/deployments"
_SCALE_SETS = "/apis/actions.github.com/v1alpha1/autoscalingrunnersets"
_VERSION = "app.kubernetes.io/version"
"""Label with the version of the chart (_helpers.tpl of both charts)."""


class Unreadable(Exception):
    """The cluster cannot be read."""


def obstacles(settings: Settings, kubeconfig: Path, context: str | None, version: str) -> list[str]:
    """Return the reasons why an upgrade from a version, or its end at that version, must wait. Raises Unreadable."""
    # Imported here: only this check needs a client of Kubernetes.
    try:
        from gpufleet_tools.kubeconfig import InvalidKubeconfig, client_configuration
    except ModuleNotFoundError:
        raise Unreadable("--kubeconfig requires the package kubernetes; run pip install 'gpufleet[sandbox]'") from None
    from gpufleet_tools.api_server import ApiError, ApiServer

    try:
        with ApiServer(client_configuration(kubeconfig, context)) as api:
            controllers, scale_sets = (api.call("GET", path)[1]["items"] for path in (_CONTROLLERS, _SCALE_SETS))
    except InvalidKubeconfig as error:
        raise Unreadable(f"--kubeconfig {error}") from error
    except ApiError as error:
        raise Unreadable(f"--kubeconfig {kubeconfig}: {error.message}") from error
    return [*_of_controller(settings, controllers, version), *_of_scale_sets(settings, scale_sets, version)]


def _of_controller(settings: Settings, deployments: list[Item], version: str) -> Iterator[str]:
    name = service_account_name(settings.arc.release)
    where = f"{settings.arc.namespace}/{name}"
    found = next((each for each in deployments if _place(each) == where), None)
    if found is None:
        yield f"there is no controller {where} in the cluster; nothing to upgrade"
        return
    live = _version(found)
    if live != version:
        yield f"the controller in the cluster has version {live}, not {version}; run pulumi up with {version} first"
    elif not found.get("status", {}).get("readyReplicas"):
        yield f"the controller {where} does not run; only a running controller finishes what the last pulumi up started"


def _of_scale_sets(settings: Settings, scale_sets: list[Item], version: str) -> Iterator[str]:
    namespaces = {project.namespace for project in settings.projects.values()}
    for each in scale_sets:
        if each["metadata"]["namespace"] not in namespaces:
            continue
        if "deletionTimestamp" in each["metadata"]:
            yield (
                f"scale set {_place(each)} is being deleted, and a chart applied to it now would be lost; wait until it"
                " is gone (its busy runners finish their jobs first)"
            )
        elif minor_steps(_version(each), version):
            yield f"scale set {_place(each)} has version {_version(each)}, not {version}; run pulumi up first"


def _place(item: Item) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _version(item: Item) -> str:
    return str(item["metadata"].get("labels", {}).get(_VERSION, "unknown"))
