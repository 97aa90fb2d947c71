"""The controller of the GitHub Actions Runner Controller (ARC): one per cluster, installed before any scale set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.core.v1 import Namespace

from gpufleet.arc.charts import ARC_REGISTRY, CONTROLLER_CHART
from gpufleet.chart import Chart

ARC_VERSION = "0.14.2"

JOB_LABELS = ("organization", "repository")
"""Labels of the listeners' job metrics. `job_name`, `job_workflow_ref` and `event_name` are omitted: their cardinality
grows with every workflow and branch (actions/actions-runner-controller#3555). `name` and `namespace` are empty on job
metrics (cmd/ghalistener/metrics/metrics.go at 0.14.2)."""

SCALE_SET_LABELS = ("name", "namespace")
"""Labels of the listeners' gauges: one series per scale set."""


@dataclass(frozen=True, kw_only=True)
class ControllerReference:
    """Connection details of a controller, passed to its scale sets. Use `ArcController.reference`, or describe an
    existing controller."""

    service_account: str
    """Name of the controller's service account, `<release>-gha-rs-controller`. Without it, the scale-set chart searches
    the live cluster, and fails if the account does not exist yet."""
    namespace: str
    """Namespace of the controller."""
    version: str = ARC_VERSION
    """Chart version of the controller and of its scale sets. The controller deletes scale sets of other minor
    versions."""
    chart_mirror: str | None = None
    """Folder or registry of the scale-set chart, instead of GitHub's registry."""
    listener_metrics: Mapping[str, Any] | None = None
    """Chart value `listenerMetrics` of the scale sets; None exposes no metrics."""
    listener_template: Mapping[str, Any] | None = None
    """Chart value `listenerTemplate` of the scale sets; None uses the controller's default listener pod."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before a scale set, and outlive it. Only a running controller removes a scale set's
    finalizers."""


@dataclass(frozen=True, kw_only=True)
class ArcControllerArgs:
    """Arguments of `ArcController`."""

    namespace: str = "arc-systems"
    """Namespace of the controller and of all listeners; created and owned by the component."""
    release: str = "arc"
    """Helm release name; the controller's service account is `<release>-gha-rs-controller`."""
    version: str = ARC_VERSION
    """Chart version of the controller and of its scale sets. A controller deletes scale sets of other minor
    versions."""
    upgrade_from: str | None = None
    """Version that the cluster has now, while it is upgraded to `version`; None outside upgrades."""
    chart_mirror: str | None = None
    """Folder or registry of the chart, instead of GitHub's registry."""
    metrics: bool = True
    """Whether to expose Prometheus metrics of the controller and of the listeners."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """Log level of the controller. The chart's own default is `debug`."""
    update_strategy: Literal["immediate", "eventual"] = "immediate"
    """Whether changed runners start at once, or after busy runners have finished. `eventual` may lose a listener
    (actions/actions-runner-controller#4432)."""
    client_limits: Mapping[str, int] | None = None
    """Limits of the controller's requests to the API server, `qps` and `burst`; None for ARC's own."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node labels that select where the controller and all listeners run. Karpenter keeps a node while a listener runs
    on it, even without jobs."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Resource requests of the controller."""
    listener_requests: Mapping[str, str] = field(default_factory=dict)
    """Resource requests of each listener."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Additional chart values, which override the component's own."""


class ArcController(pulumi.ComponentResource):
    """The ARC controller with its namespace.

    Owns the namespace, the Helm release and, through the release, ARC's four CRDs.
    """

    ready: pulumi.Resource
    """The Helm release; depend on it to wait for a running controller."""
    reference: ControllerReference
    """Connection details for the controller's scale sets."""

    def __init__(
        self, name: str, args: ArcControllerArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or ArcControllerArgs()
        super().__init__("gpu-runners:index:ArcController", name, None, opts)
        chart = Chart(
            name=CONTROLLER_CHART,
            registry=ARC_REGISTRY,
            version=args.version,
            mirror=args.chart_mirror,
        )
        namespace = Namespace(
            f"{name}-namespace", metadata={"name": args.namespace}, opts=pulumi.ResourceOptions(parent=self)
        )
        needs: list[pulumi.Resource] = [namespace]
        if args.upgrade_from is not None:
            account = service_account_name(args.release)
            child = pulumi.ResourceOptions(parent=self)
            # Imported here: the SDK's modules for it take a tenth of a preview's time.
            from gpufleet.arc.upgrade import before_upgrade

            needs += before_upgrade(name, chart, args.upgrade_from, args.namespace, account, child)
        self.ready = chart.release(
            name,
            release=args.release,
            namespace=args.namespace,
            values=controller_values(args),
            timeout=300,
            opts=pulumi.ResourceOptions(parent=self, depends_on=needs),
        )
        self.reference = ControllerReference(
            service_account=service_account_name(args.release),
            namespace=args.namespace,
            version=args.version,
            chart_mirror=args.chart_mirror,
            listener_metrics=listener_metrics() if args.metrics else None,
            listener_template=listener_template(args),
            needs=[self.ready],
        )
        self.register_outputs({"version": args.version, "namespace": args.namespace})


def service_account_name(release: str) -> str:
    """Return the name that the chart gives its service account. It is the chart's full name: the release name alone, if
    that already contains the chart's short name (templates/_helpers.tpl of the controller chart)."""
    return release if "gha-rs-controller" in release else f"{release}-gha-rs-controller"


def controller_values(args: ArcControllerArgs) -> dict[str, Any]:
    """Return the chart values of the controller. Set all three metrics addresses or none: if one is missing, the chart
    turns metrics off."""
    values: dict[str, Any] = {"flags": {"logLevel": args.log_level}}
    if args.update_strategy != "immediate":
        values["flags"]["updateStrategy"] = args.update_strategy
    if args.client_limits:
        values["flags"]["k8sClientRateLimiterQPS"] = int(args.client_limits["qps"])
        values["flags"]["k8sClientRateLimiterBurst"] = int(args.client_limits["burst"])
    if args.metrics:
        values["metrics"] = {
            "controllerManagerAddr": ":8080",
            "listenerAddr": ":8080",
            "listenerEndpoint": "/metrics",
        }
    if args.node_selector:
        values["nodeSelector"] = dict(args.node_selector)
    if args.requests:
        values["resources"] = {"requests": dict(args.requests)}
    return {**values, **args.values}


def listener_template(args: ArcControllerArgs) -> dict[str, Any] | None:
    """Return the scale-set chart's `listenerTemplate`, or None if the arguments set nothing for listeners.

    The controller merges it into its own pod. A container with another name than `listener` would be a sidecar, and a
    template without containers is rejected (controllers/actions.github.com/resourcebuilder.go and the CRD at 0.14.2).
    """
    if not (args.node_selector or args.listener_requests):
        return None
    container: dict[str, Any] = {"name": "listener"}
    if args.listener_requests:
        container["resources"] = {"requests": dict(args.listener_requests)}
    spec: dict[str, Any] = {"containers": [container]}
    if args.node_selector:
        spec["nodeSelector"] = dict(args.node_selector)
    return {"spec": spec}


def listener_metrics() -> dict[str, Any]:
    """Return the scale-set chart's `listenerMetrics`: every metric of ARC 0.14, with labels of bounded cardinality.

    ARC exposes only the metrics that the value lists, so all are listed (cmd/ghalistener/metrics/metrics.go at 0.14.2).
    Buckets are seconds, up to GitHub's job limit of six hours.
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
