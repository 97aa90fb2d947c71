"""GitHub Actions runner scale set of one `runs-on` label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pulumi

from gpufleet.arc.charts import ARC_REGISTRY, SCALE_SET_CHART
from gpufleet.arc.job_timeout import MOST_MINUTES, conflicts
from gpufleet.arc.runner_pod import pod_template
from gpufleet.arc.scale_set_args import LABEL_LIMIT, KubernetesMode, RunnerScaleSetArgs
from gpufleet.arc.strategic_merge import merged
from gpufleet.chart import Chart
from gpufleet.problem import Problem, refuse

CREDENTIALS_REVISION = "gpufleet.dev/credentials-revision"
"""Annotation of listener pods that changes with the project's credentials."""


class RunnerScaleSet(pulumi.ComponentResource):
    """The Helm release of one scale set.

    It depends on the `needs` of its project and controller, and is removed before them: ARC's finalizers on the scale
    set require a running controller and the credentials.
    """

    ready: pulumi.Resource
    """The Helm release; depend on it to wait until jobs with the label find runners."""
    label: str
    """The `runs-on` label."""

    def __init__(self, name: str, args: RunnerScaleSetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, scale_set_problems(args))
        super().__init__("gpu-runners:index:RunnerScaleSet", name, None, opts)
        chart = Chart(
            name=SCALE_SET_CHART,
            registry=ARC_REGISTRY,
            version=args.controller.version,
            mirror=args.controller.chart_mirror,
        )
        self.label = args.label
        self.ready = chart.release(
            name,
            release=args.label,
            namespace=args.project.namespace,
            values=scale_set_values(args),
            timeout=600,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[*args.project.needs, *args.controller.needs, *args.needs]
            ),
        )
        self.register_outputs({"label": self.label})


def scale_set_problems(args: RunnerScaleSetArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    if len(args.label) > LABEL_LIMIT:
        message = f"{args.label!r} has {len(args.label)} characters; at most {LABEL_LIMIT} are allowed; shorten it"
        yield Problem(("label",), "label-too-long", message)
    if not _is_count(args.min_runners) or not _is_count(args.max_runners) or args.min_runners > args.max_runners:
        message = f"min {args.min_runners!r}, max {args.max_runners!r}; whole numbers, 0 <= min <= max, are allowed"
        yield Problem(("min_runners",), "runners", message)
    if args.job_timeout_minutes is not None:
        yield from _timeout_problems(args, args.job_timeout_minutes)


def _timeout_problems(args: RunnerScaleSetArgs, minutes: int) -> Iterator[Problem]:
    """Yield the reasons why jobs have no time limit, or end other runners' jobs."""
    field = ("job_timeout_minutes",)
    if not _is_count(minutes) or not 0 < minutes <= MOST_MINUTES:
        message = f"{minutes!r} is not allowed; use 1 to {MOST_MINUTES}, GitHub's limit"
        yield Problem(field, "job-timeout", message)
        return
    for patch in ({"spec": args.pod_spec}, args.pod_template):
        for path, message in conflicts(patch):
            yield Problem(("pod_template", *path), "job-timeout", message)


def _is_count(number: object) -> bool:
    return isinstance(number, int) and number >= 0


def scale_set_values(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the complete values of the chart `gha-runner-scale-set`. Values that could end a job are never left to the
    chart's lookups or defaults."""
    values: dict[str, Any] = {
        "githubConfigUrl": args.project.config_url,
        "githubConfigSecret": args.project.credentials_secret,
        "controllerServiceAccount": {"name": args.controller.service_account, "namespace": args.controller.namespace},
        # Integers, because the chart silently drops strings.
        "minRunners": int(args.min_runners),
        "maxRunners": int(args.max_runners),
        "template": pod_template(args),
    }
    if args.additional_labels:
        values["scaleSetLabels"] = list(args.additional_labels)
    values |= {part: dict(args.metadata[part]) for part in ("labels", "annotations") if args.metadata.get(part)}
    if isinstance(args.docker, KubernetesMode):
        values["containerMode"] = _container_mode(args.docker)
    if args.project.runner_group:
        values["runnerGroup"] = args.project.runner_group
    if args.project.proxy:
        values["proxy"] = dict(args.project.proxy)
    if args.project.server_tls:
        values["githubServerTLS"] = dict(args.project.server_tls)
    if metrics := args.listener_metrics or args.controller.listener_metrics:
        values["listenerMetrics"] = dict(metrics)
    if template := listener_template(args):
        values["listenerTemplate"] = template
    return values


def listener_template(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the listener's pod template: the controller's, merged with the scale set's own, and the revision of the
    credentials as an annotation.

    The controller does not watch secrets, and a listener reads its credentials only when it starts. A changed
    annotation replaces the listener but no runners: `RunnerSetSpecHash` of 0.14.2 does not include the listener's
    template (apis/actions.github.com/v1alpha1/autoscalingrunnerset_types.go).
    """
    template: dict[str, Any] = {}
    if args.project.credentials_revision is not None:
        template = {"metadata": {"annotations": {CREDENTIALS_REVISION: args.project.credentials_revision}}}
    for part in (args.controller.listener_template, args.listener_template):
        template = merged(template, part or {})
    if template:
        # The CRD requires a container; ARC's own is named `listener`.
        template["spec"] = {"containers": [{"name": "listener"}]} | template.get("spec", {})
    return template


def _container_mode(mode: KubernetesMode) -> dict[str, Any]:
    """Return the chart value `containerMode` for job containers that run as pods."""
    found: dict[str, Any] = {"type": "kubernetes-novolume"}
    if mode.work_volume_claim is not None:
        found = {"type": "kubernetes", "kubernetesModeWorkVolumeClaim": dict(mode.work_volume_claim)}
    if mode.additional_role_rules:
        found["kubernetesModeAdditionalRoleRules"] = [dict(rule) for rule in mode.additional_role_rules]
    return found
