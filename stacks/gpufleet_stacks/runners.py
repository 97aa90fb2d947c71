"""What every stack has, whatever its cluster: ARC, the projects, and a scale set for each runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpufleet.arc.controller import ArcController, ArcControllerArgs, ControllerReference
from gpufleet.arc.project import (
    ExistingSecret,
    GithubApp,
    GithubToken,
    ProjectReference,
    RunnerProject,
    RunnerProjectArgs,
)
from gpufleet.arc.scale_set import RunnerScaleSet
from gpufleet.arc.scale_set_args import (
    Docker,
    KubernetesMode,
    RunnerResources,
    RunnerScaleSetArgs,
    SecretKey,
    Volume,
)
from gpufleet_stacks.fleet import Runners
from gpufleet_stacks.settings.models.profiles.docker import DockerSettings, DockerSidecar, KubernetesPods
from gpufleet_stacks.settings.models.profiles.profile import Profile
from gpufleet_stacks.settings.models.settings import (
    Credentials,
    ExistingSecretCredentials,
    GithubAppCredentials,
    Project,
    Runner,
    Settings,
    secret_key,
)
from gpufleet_stacks.settings.models.taints import Toleration
from gpufleet_stacks.settings.problems import NAMESPACE


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a kind of cluster says about the pods of a runner."""

    gpu_resource: str
    """Name under which a GPU is asked for."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes of its pool, beside those that its profile selects."""
    do_not_disrupt: bool = False
    """That something would take its node away, unless told not to."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there as long as it is."""


@dataclass(frozen=True, kw_only=True)
class SystemPlace:
    """Where a kind of cluster has ARC's controller and listeners run."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Requests of the controller."""
    listener_requests: Mapping[str, str] = field(default_factory=dict)
    """Requests of each listener."""


def build(
    settings: Settings,
    place: Callable[[Runner], Place],
    opts: pulumi.ResourceOptions,
    system: SystemPlace = SystemPlace(),
) -> Runners:
    """ARC, the projects and the scale sets, and the stack's outputs."""
    controller = ArcController("arc", controller_args(settings, system), opts)
    projects = {
        name: RunnerProject(name, project_args(name, project), opts) for name, project in settings.projects.items()
    }
    scale_sets = {}
    for label, runner in settings.runners.items():
        args = scale_set_args(label, settings, place(runner), controller.reference, projects[runner.project].reference)
        scale_sets[label] = RunnerScaleSet(label, args, opts)
    pulumi.export("cluster", settings.cluster.name)
    pulumi.export("labels", sorted(settings.runners))
    return Runners(controller=controller, projects=projects, scale_sets=scale_sets)


def controller_args(settings: Settings, system: SystemPlace) -> ArcControllerArgs:
    """The controller as its component takes it."""
    return ArcControllerArgs(
        namespace=settings.arc.namespace,
        release=settings.arc.release,
        version=settings.arc.version,
        metrics=settings.arc.metrics,
        log_level=settings.arc.log_level,
        node_selector=system.node_selector,
        requests=system.requests,
        listener_requests=system.listener_requests,
        chart_mirror=settings.charts.mirror if settings.charts else None,
    )


def project_args(name: str, project: Project) -> RunnerProjectArgs:
    """A project as its component takes it."""
    return RunnerProjectArgs(
        config_url=project.config_url,
        namespace=project.namespace,
        runner_group=project.runner_group,
        credentials=component_credentials(name, project.credentials),
    )


def component_credentials(project: str, credentials: Credentials) -> ExistingSecret | GithubApp | GithubToken:
    """A project's credentials; what is secret comes from the stack's configuration."""
    if isinstance(credentials, ExistingSecretCredentials):
        return ExistingSecret(name=credentials.secret_name, revision=credentials.revision)
    secret = pulumi.Config(NAMESPACE).require_secret(secret_key(project, credentials))
    if isinstance(credentials, GithubAppCredentials):
        return GithubApp(
            secret_name=credentials.secret_name,
            app_id=credentials.app_id,
            installation_id=credentials.installation_id,
            private_key=secret,
        )
    return GithubToken(secret_name=credentials.secret_name, token=secret)


def scale_set_args(
    label: str, settings: Settings, place: Place, controller: ControllerReference, project: ProjectReference
) -> RunnerScaleSetArgs:
    """A runner with everything that its profile and its place say about it."""
    runner = settings.runners[label]
    profile = settings.profile(runner)
    return RunnerScaleSetArgs(
        label=label,
        project=project,
        controller=controller,
        min_runners=runner.min,
        max_runners=runner.max,
        resources=RunnerResources(
            cpu=runner.cpu,
            memory=runner.memory,
            cpu_limit=runner.limits.cpu,
            memory_limit=runner.limits.memory,
            ephemeral_storage=profile.ephemeral_storage,
            gpus=runner.gpus,
            gpu_resource=place.gpu_resource,
            extended=profile.extended_resources,
        ),
        image=profile.image,
        image_pull_policy=profile.image_pull_policy,
        command=profile.command,
        args=profile.args,
        docker=docker_mode(profile.docker) if runner.docker else None,
        render_group=profile.render_group,
        runtime_class=profile.runtime_class,
        node_selector={**place.node_selector, **profile.node_selector},
        tolerations=[toleration_object(toleration) for toleration in profile.tolerations],
        env=profile.env,
        env_from_secret={
            variable: SecretKey(name=source.name, key=source.key)
            for variable, source in profile.env_from_secret.items()
        },
        env_value_from=profile.env_value_from,
        env_from=profile.env_from,
        security_context=profile.security_context,
        volumes=[
            Volume(
                name=name,
                mount_path=volume.mount_path,
                source=volume.source,
                sub_path=volume.sub_path,
                read_only=volume.read_only,
            )
            for name, volume in profile.volumes.items()
        ],
        volume_mounts=profile.volume_mounts,
        work_volume=profile.work_volume,
        init_containers=profile.init_containers,
        pod_spec=pod_fields(profile),
        pod_metadata=profile.pod_metadata.model_dump(exclude_defaults=True),
        pod_template=profile.pod_template or {},
        listener_template=profile.listener_template,
        listener_metrics=listener_metrics(profile),
        do_not_disrupt=place.do_not_disrupt,
        needs=place.needs,
    )


def docker_mode(settings: DockerSettings) -> Docker | KubernetesMode:
    """How jobs run containers, as the component takes it."""
    if isinstance(settings, DockerSidecar):
        return Docker(
            image=settings.image,
            group_id=settings.group_id,
            data_root=settings.data_root,
            command=settings.command,
            args=settings.args,
            startup_probe=settings.startup_probe,
            volume_mounts=settings.volume_mounts,
        )
    claim = settings.work_volume_claim if isinstance(settings, KubernetesPods) else None
    return KubernetesMode(work_volume_claim=claim, additional_role_rules=settings.additional_role_rules)


POD_FIELDS: Mapping[str, str] = {
    "pod_security_context": "securityContext",
    "service_account_name": "serviceAccountName",
    "automount_service_account_token": "automountServiceAccountToken",
    "affinity": "affinity",
    "topology_spread_constraints": "topologySpreadConstraints",
    "priority_class_name": "priorityClassName",
    "image_pull_secrets": "imagePullSecrets",
    "dns_policy": "dnsPolicy",
    "dns_config": "dnsConfig",
    "host_aliases": "hostAliases",
    "host_users": "hostUsers",
    "termination_grace_period_seconds": "terminationGracePeriodSeconds",
}
"""Settings of a profile that are fields of the pod's spec as they stand, by the name of the setting."""


def pod_fields(profile: Profile) -> dict[str, Any]:
    """Those fields of the pod's spec that a profile sets."""
    given = {field: getattr(profile, setting) for setting, field in POD_FIELDS.items()}
    return {
        field: list(value) if isinstance(value, tuple) else value
        for field, value in given.items()
        if value is not None and value not in ({}, ())
    }


def listener_metrics(profile: Profile) -> dict[str, Any] | None:
    """The metrics of a profile's listeners, as the chart takes them; None where it says nothing."""
    if profile.listener_metrics is None:
        return None
    given = profile.listener_metrics.model_dump(exclude_defaults=True)
    return {kind: {name: _as_lists(metric) for name, metric in metrics.items()} for kind, metrics in given.items()}


def _as_lists(metric: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in metric.items()}


def toleration_object(toleration: Toleration) -> dict[str, str]:
    """A toleration as Kubernetes writes it."""
    return toleration.model_dump(exclude_none=True)
