"""Simulation of ARC's controller for deletions: it removes the finalizers that only a running controller removes.

Installed charts create a Deployment of the controller in the sandbox, but no container runs there, so scale sets could
not be deleted. Like the real controller (0.14.2, autoscalingrunnerset_controller.go), this one removes finalizers only
while the controller's Deployment and the scale set's credentials exist. A program that deletes those first hangs here
as it would on a real cluster.

On EKS, the controller and the listeners are idle pods too: a node with a listener is never empty.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from gpufleet.arc.charts import CONTROLLER_CHART
from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.plan import Plan, Release, revealed
from gpufleet_tools.sandbox.control_plane import api_server
from gpufleet_tools.sandbox.control_plane.idle_pods import idle_pods

GROUP, VERSION, PLURAL = "actions.github.com", "v1alpha1", "autoscalingrunnersets"
FINALIZER = "autoscalingrunnerset.actions.github.com/finalizer"
PROTECTION = "actions.github.com/cleanup-protection"
_CLEANUP = "actions.github.com/cleanup-"
_CONTROLLER = "app.kubernetes.io/part-of=gha-rs-controller"

_INTERVAL = 0.3

COMPONENT = "app.kubernetes.io/component"
"""Label of ARC's pods: `controller-manager`, LISTENER or `runner`."""

LISTENER = "runner-scale-set-listener"
"""Value of COMPONENT for a listener."""


def pods(plan: Plan) -> list[dict[str, Any]]:
    """Return a Job for each pod of ARC, with placement and requests of the charts' values. Listeners run in the
    controller's namespace."""
    controller = arc_releases.controller(plan)
    if controller is None:
        return []
    values = revealed(controller.values)
    spec = {field: values[field] for field in ("nodeSelector", "tolerations", "affinity") if field in values}
    container = {"name": "manager", "resources": values.get("resources", {})}
    found = [_job(controller, "controller-manager", controller.name, spec, container)]
    for release in arc_releases.scale_sets(plan):
        template = revealed(release.values).get("listenerTemplate", {}).get("spec", {})
        own = [each for each in template.get("containers", []) if each["name"] == "listener"]
        container = {"name": "listener", "resources": own[0].get("resources", {}) if own else {}}
        spec = {field: value for field, value in template.items() if field != "containers"}
        found.append(_job(controller, LISTENER, release.name, spec, container))
    return found


def _job(
    controller: Release, component: str, name: str, spec: Mapping[str, Any], container: Mapping[str, Any]
) -> dict[str, Any]:
    image = f"ghcr.io/actions/{CONTROLLER_CHART}:{controller.version}"
    pod = {
        "metadata": {"labels": {COMPONENT: component}},
        "spec": {**spec, "containers": [{"image": image, **container}]},
    }
    return idle_pods(f"{name}-{container['name']}", controller.namespace, pod)


@contextlib.contextmanager
def simulated(kubeconfig: pathlib.Path) -> Iterator[None]:
    """Simulate the controller while the context is open."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(kubeconfig, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _run(kubeconfig: pathlib.Path, stop: threading.Event) -> None:
    with client.ApiClient(api_server.configuration(kubeconfig)) as api:
        while not stop.wait(_INTERVAL):
            # After a conflict, or while the CRD is not served yet, the next round tries again.
            with contextlib.suppress(ApiException):
                found: Any = client.CustomObjectsApi(api).list_cluster_custom_object(GROUP, VERSION, PLURAL)
                for scale_set in found["items"]:
                    _reconcile(api, scale_set)


def _reconcile(api: client.ApiClient, scale_set: dict[str, Any]) -> None:
    metadata = scale_set["metadata"]
    finalizers = metadata.get("finalizers", [])
    if "deletionTimestamp" not in metadata:
        if FINALIZER not in finalizers:
            _set_finalizers(api, metadata, [*finalizers, FINALIZER])
    elif FINALIZER in finalizers and _can_be_cleaned_up(api, scale_set):
        for annotation, name in metadata.get("annotations", {}).items():
            if annotation.startswith(_CLEANUP):
                _release(api, annotation.removeprefix(_CLEANUP), metadata["namespace"], name)
        _set_finalizers(api, metadata, [name for name in finalizers if name != FINALIZER])


def _can_be_cleaned_up(api: client.ApiClient, scale_set: dict[str, Any]) -> bool:
    """Return whether the controller runs and has the credentials to delete the scale set at GitHub."""
    if not client.AppsV1Api(api).list_deployment_for_all_namespaces(label_selector=_CONTROLLER).items:
        return False
    try:
        client.CoreV1Api(api).read_namespaced_secret(
            scale_set["spec"]["githubConfigSecret"], scale_set["metadata"]["namespace"]
        )
    except ApiException as error:
        if error.status == 404:
            return False
        raise
    return True


def _release(api: client.ApiClient, what: str, namespace: str, name: str) -> None:
    """Remove the chart's finalizer from an object that the scale set names for clean-up."""
    rights, core = client.RbacAuthorizationV1Api(api), client.CoreV1Api(api)
    patch: Callable[..., Any]
    if "role-binding" in what:
        patch = rights.patch_namespaced_role_binding
    elif "role" in what:
        patch = rights.patch_namespaced_role
    elif "service-account" in what:
        patch = core.patch_namespaced_service_account
    else:
        patch = core.patch_namespaced_secret
    with contextlib.suppress(ApiException):
        patch(name, namespace, {"metadata": {"$deleteFromPrimitiveList/finalizers": [PROTECTION]}})


def _set_finalizers(api: client.ApiClient, metadata: dict[str, Any], finalizers: list[str]) -> None:
    body = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
    client.CustomObjectsApi(api).patch_namespaced_custom_object(
        GROUP, VERSION, metadata["namespace"], PLURAL, metadata["name"], body
    )
