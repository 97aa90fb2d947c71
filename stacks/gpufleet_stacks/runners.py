"""What every stack has, whatever its cluster: ARC, the projects, and a scale set for each runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
from gpufleet.arc.scale_set_args import Docker, RunnerResources, RunnerScaleSetArgs, SecretKey, Volume
from gpufleet_stacks.fleet import Runners
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
    docker = profile.docker
    return RunnerScaleSetArgs(
        label=label,
        project=project,
        controller=controller,
        min_runners=runner.min,
        max_runners=runner.max,
        resources=RunnerResources(
            cpu=runner.cpu,
            memory=runner.memory,
            ephemeral_storage=profile.ephemeral_storage,
            gpus=runner.gpus,
            gpu_resource=place.gpu_resource,
        ),
        image=profile.image,
        image_pull_policy=profile.image_pull_policy,
        docker=Docker(image=docker.image, group_id=docker.group_id, data_root=docker.data_root)
        if runner.docker
        else None,
        render_group=profile.render_group,
        runtime_class=profile.runtime_class,
        node_selector={**place.node_selector, **profile.node_selector},
        tolerations=[toleration_object(toleration) for toleration in profile.tolerations],
        env=profile.env,
        env_from_secret={
            variable: SecretKey(name=source.name, key=source.key)
            for variable, source in profile.env_from_secret.items()
        },
        volumes=[
            Volume(name=name, mount_path=volume.mount_path, source=volume.source, read_only=volume.read_only)
            for name, volume in profile.volumes.items()
        ],
        do_not_disrupt=place.do_not_disrupt,
        needs=place.needs,
    )


def toleration_object(toleration: Toleration) -> dict[str, str]:
    """A toleration as Kubernetes writes it."""
    return toleration.model_dump(exclude_none=True)
