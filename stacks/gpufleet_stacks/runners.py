"""Components of every stack, independent of the kind of cluster: ARC, the projects and the scale sets."""

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
    Proxy,
    Runner,
    ServerCertificate,
    Settings,
    secret_key,
)
from gpufleet_stacks.settings.models.taints import Toleration
from gpufleet_stacks.settings.problems import NAMESPACE


@dataclass(frozen=True, kw_only=True)
class Place:
    """Placement of a runner's pods, which depends on the kind of cluster."""

    gpu_resource: str
    """Resource name by which pods request a GPU."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the pool's nodes, in addition to those that the profile selects."""
    do_not_disrupt: bool = False
    """Whether pods need Karpenter's annotation that prevents disruption of their node."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before the scale set, and outlive it."""
    image_reference: Callable[[str], str] = str
    """Reference by which the pool's nodes pull an image; differs from the image's own with a cache."""


@dataclass(frozen=True, kw_only=True)
class SystemPlace:
    """Placement and requests of ARC's controller and listeners."""

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
    """Create ARC, the projects and the scale sets; export the stack's outputs."""
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
    """Return the arguments of the ARC controller."""
    return ArcControllerArgs(
        namespace=settings.arc.namespace,
        release=settings.arc.release,
        version=settings.arc.version,
        upgrade_from=settings.arc.upgrade_from,
        metrics=settings.arc.metrics,
        log_level=settings.arc.log_level,
        update_strategy=settings.arc.update_strategy,
        client_limits=settings.arc.client_limits.model_dump() if settings.arc.client_limits else None,
        node_selector=system.node_selector,
        requests=system.requests,
        listener_requests=system.listener_requests,
        chart_mirror=settings.charts.mirror if settings.charts else None,
    )


def project_args(name: str, project: Project) -> RunnerProjectArgs:
    """Return the arguments of a project."""
    return RunnerProjectArgs(
        config_url=project.config_url,
        namespace=project.namespace,
        runner_group=project.runner_group,
        proxy=proxy_value(project.proxy) if project.proxy else None,
        server_tls=tls_value(project.server_certificate) if project.server_certificate else None,
        credentials=component_credentials(name, project.credentials),
    )


def proxy_value(proxy: Proxy) -> dict[str, Any]:
    """Return the chart value `proxy`."""
    value: dict[str, Any] = {"noProxy": list(proxy.no_proxy)} if proxy.no_proxy else {}
    for kind, server in (("http", proxy.http), ("https", proxy.https)):
        if server:
            secret = {"credentialSecretRef": server.credentials_secret} if server.credentials_secret else {}
            value[kind] = {"url": server.url, **secret}
    return value


def tls_value(certificate: ServerCertificate) -> dict[str, Any]:
    """Return the chart value `githubServerTLS`."""
    reference = {"name": certificate.config_map, "key": certificate.key}
    mount = {"runnerMountPath": certificate.runner_mount_path} if certificate.runner_mount_path else {}
    return {"certificateFrom": {"configMapKeyRef": reference}, **mount}


def component_credentials(project: str, credentials: Credentials) -> ExistingSecret | GithubApp | GithubToken:
    """Return a project's credentials, with secrets from the stack's configuration."""
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
    """Return the arguments of a runner's scale set, from the runner, its profile and its placement."""
    runner = settings.effective(label)
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
        additional_labels=runner.additional_labels,
        image=place.image_reference(profile.image),
        image_pull_policy=profile.image_pull_policy,
        command=profile.command,
        args=profile.args,
        job_timeout_minutes=profile.job_timeout_minutes,
        docker=docker_mode(profile.docker, place.image_reference) if runner.docker else None,
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
        init_containers=[
            {**each, "image": place.image_reference(each["image"])} if isinstance(each.get("image"), str) else each
            for each in profile.init_containers
        ],
        pod_spec=pod_fields(profile),
        pod_metadata=profile.pod_metadata.model_dump(exclude_defaults=True),
        metadata=profile.scale_set_metadata.model_dump(exclude_defaults=True),
        pod_template=profile.pod_template or {},
        listener_template=profile.listener_template,
        listener_metrics=listener_metrics(profile),
        do_not_disrupt=place.do_not_disrupt,
        needs=place.needs,
    )


def docker_mode(settings: DockerSettings, image_reference: Callable[[str], str] = str) -> Docker | KubernetesMode:
    """Return the scale set's argument `docker`."""
    if isinstance(settings, DockerSidecar):
        return Docker(
            image=image_reference(settings.image),
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
"""Fields of the pod's spec that settings of a profile set unchanged, by the name of the setting."""


def pod_fields(profile: Profile) -> dict[str, Any]:
    """Return the fields of the pod's spec that a profile sets."""
    values = {field: getattr(profile, setting) for setting, field in POD_FIELDS.items()}
    return {
        field: list(value) if isinstance(value, tuple) else value
        for field, value in values.items()
        if value is not None and value not in ({}, ())
    }


def listener_metrics(profile: Profile) -> dict[str, Any] | None:
    """Return the chart value `listenerMetrics` of a profile; None if the profile sets no metrics."""
    if profile.listener_metrics is None:
        return None
    kinds = profile.listener_metrics.model_dump(exclude_defaults=True)
    return {kind: {name: _as_lists(metric) for name, metric in metrics.items()} for kind, metrics in kinds.items()}


def _as_lists(metric: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in metric.items()}


def toleration_object(toleration: Toleration) -> dict[str, str]:
    """Return a toleration in Kubernetes syntax."""
    return toleration.model_dump(exclude_none=True)
