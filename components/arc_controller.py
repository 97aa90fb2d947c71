"""The GitHub Actions Runner Controller (ARC): one per cluster, before any scale set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.core.v1 import Namespace

from components.chart import Chart

ARC_REGISTRY = "oci://ghcr.io/actions/actions-runner-controller-charts"
ARC_VERSION = "0.14.2"

JOB_LABELS = ("organization", "repository")
"""Labels of the listeners' job metrics. `job_name`, `job_workflow_ref` and `event_name` grow with every workflow and
branch, so that a histogram never ends (actions/actions-runner-controller#3555); `name` and `namespace` are empty on
job metrics (cmd/ghalistener/metrics/metrics.go at 0.14.2)."""

SCALE_SET_LABELS = ("name", "namespace")
"""Labels of the listeners' gauges: one series per scale set."""


@dataclass(frozen=True, kw_only=True)
class ControllerReference:
    """A controller, as its scale sets have to know it. Take `ArcController.reference`, or describe one that runs
    already."""

    service_account: str
    """Name of its service account, `<release>-gha-rs-controller`. Left out, the scale-set chart would look for it in
    the live cluster, and fail where it is not there yet."""
    namespace: str
    """Namespace of the controller."""
    version: str = ARC_VERSION
    """Its chart version, and so that of every scale set it manages: it deletes those of another minor version."""
    chart_mirror: str | None = None
    """Folder or registry to take the scale-set chart from instead of GitHub's registry."""
    listener_metrics: Mapping[str, Any] | None = None
    """Chart value `listenerMetrics` of its scale sets; None exposes none."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before a scale set, and has to stay until it is gone: only a running controller removes a
    scale set's finalizers."""


@dataclass(frozen=True, kw_only=True)
class ArcControllerArgs:
    """What the ARC controller needs to know."""

    namespace: str = "arc-systems"
    """Namespace of the controller and of every listener; created and owned by the component."""
    release: str = "arc"
    """Helm release name; the controller's service account is `<release>-gha-rs-controller`."""
    version: str = ARC_VERSION
    """Chart version of the controller, and of every scale set it manages: a controller deletes scale sets whose
    minor version is not its own."""
    chart_mirror: str | None = None
    """Folder or registry to take the chart from instead of GitHub's registry."""
    metrics: bool = True
    """Expose Prometheus metrics of the controller and of the listeners."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """Log level of the controller. The chart's own default is `debug`."""
    values: dict[str, Any] = field(default_factory=dict)
    """Further chart values, laid over the component's own."""


class ArcController(pulumi.ComponentResource):
    """The controller's namespace and its Helm release.

    Owns the namespace, the release and, with the release, ARC's four CRDs.
    """

    ready: pulumi.Resource
    """The release: depend on it for "the controller runs"."""
    reference: ControllerReference
    """What its scale sets are told."""

    def __init__(
        self, name: str, args: ArcControllerArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or ArcControllerArgs()
        super().__init__("gpu-runners:index:ArcController", name, None, opts)
        chart = Chart(
            name="gha-runner-scale-set-controller",
            registry=ARC_REGISTRY,
            version=args.version,
            mirror=args.chart_mirror,
        )
        namespace = Namespace(
            f"{name}-namespace", metadata={"name": args.namespace}, opts=pulumi.ResourceOptions(parent=self)
        )
        self.ready = chart.release(
            name,
            release=args.release,
            namespace=args.namespace,
            values=controller_values(args),
            timeout=300,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        self.reference = ControllerReference(
            service_account=service_account_name(args.release),
            namespace=args.namespace,
            version=args.version,
            chart_mirror=args.chart_mirror,
            listener_metrics=listener_metrics() if args.metrics else None,
            needs=[self.ready],
        )
        self.register_outputs({"version": args.version, "namespace": args.namespace})


def service_account_name(release: str) -> str:
    """The name the chart gives its service account: the full name, which is the release's own when that already
    contains the chart's short name (templates/_helpers.tpl of the controller chart)."""
    return release if "gha-rs-controller" in release else f"{release}-gha-rs-controller"


def controller_values(args: ArcControllerArgs) -> dict[str, Any]:
    """Chart values of the controller. All three metrics addresses are given or none: with one missing the chart
    starts the controller with metrics off."""
    values: dict[str, Any] = {"flags": {"logLevel": args.log_level}}
    if args.metrics:
        values["metrics"] = {
            "controllerManagerAddr": ":8080",
            "listenerAddr": ":8080",
            "listenerEndpoint": "/metrics",
        }
    return values | args.values


def listener_metrics() -> dict[str, Any]:
    """The scale-set chart's `listenerMetrics`: every metric of ARC 0.14, each with labels of bounded number.

    Once the value is given, a metric that it does not list is not exposed at all; so all are listed
    (cmd/ghalistener/metrics/metrics.go at 0.14.2). Buckets are seconds, up to the six hours of GitHub's job limit.
    """
    buckets = [10, 30, 60, 300, 900, 3600, 7200, 21600]
    gauges = ("assigned_jobs", "running_jobs", "registered_runners", "busy_runners")
    sizes = ("min_runners", "max_runners", "desired_runners", "idle_runners")
    started, completed = [*JOB_LABELS], [*JOB_LABELS, "job_result"]
    return {
        "counters": {
            "gha_started_jobs_total": {"labels": started},
            "gha_completed_jobs_total": {"labels": completed},
        },
        "gauges": {f"gha_{gauge}": {"labels": [*SCALE_SET_LABELS]} for gauge in gauges + sizes},
        "histograms": {
            "gha_job_startup_duration_seconds": {"labels": started, "buckets": buckets},
            "gha_job_execution_duration_seconds": {"labels": completed, "buckets": buckets},
        },
    }
