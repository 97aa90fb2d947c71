"""AMD Conductor: machines that exist, and the cluster on them."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes

from components import (
    AmdGpuDevicePlugin,
    AmdGpuDevicePluginArgs,
    ArcController,
    ArcControllerArgs,
    ControllerReference,
    Docker,
    ExistingSecret,
    GithubApp,
    GithubToken,
    ProjectReference,
    RunnerProject,
    RunnerProjectArgs,
    RunnerResources,
    RunnerScaleSet,
    RunnerScaleSetArgs,
    Volume,
)
from stacks.settings import (
    BareMetalCluster,
    ContextKubeconfig,
    Credentials,
    ExistingSecretCredentials,
    GithubAppCredentials,
    NodePool,
    Project,
    Settings,
    Taint,
    Toleration,
    secret_key,
)


def build(settings: Settings) -> None:
    """Everything that runs on the cluster, and the stack's outputs."""
    provider = cluster_provider(settings.cluster)
    opts = pulumi.ResourceOptions(providers=[provider])
    AmdGpuDevicePlugin("amd-gpu-device-plugin", device_plugin_args(settings), opts)
    mirror = settings.charts.mirror if settings.charts else None
    controller = ArcController(
        "arc",
        ArcControllerArgs(
            namespace=settings.arc.namespace,
            release=settings.arc.release,
            version=settings.arc.version,
            metrics=settings.arc.metrics,
            log_level=settings.arc.log_level,
            chart_mirror=mirror,
        ),
        opts,
    )
    projects = {
        name: RunnerProject(name, project_args(name, project), opts) for name, project in settings.projects.items()
    }
    for label, runner in settings.runners.items():
        args = scale_set_args(label, settings, controller.reference, projects[runner.project].reference)
        RunnerScaleSet(label, args, opts)
    pulumi.export("cluster", settings.cluster.name)
    pulumi.export("labels", sorted(settings.runners))


def cluster_provider(cluster: BareMetalCluster) -> pulumi_kubernetes.Provider:
    """The one way to the cluster. Its identity is the cluster's name, so that a renewed kubeconfig replaces nothing."""
    kubeconfig = cluster.kubeconfig
    if isinstance(kubeconfig, ContextKubeconfig):
        return pulumi_kubernetes.Provider(
            cluster.name, context=kubeconfig.context, kubeconfig=kubeconfig.path, cluster_identifier=cluster.name
        )
    secret = pulumi.Config().require_secret("kubeconfig")
    return pulumi_kubernetes.Provider(cluster.name, kubeconfig=secret, cluster_identifier=cluster.name)


def device_plugin_args(settings: Settings) -> AmdGpuDevicePluginArgs:
    """The plugin runs on the nodes of every pool, unless the settings say where."""
    plugin, pools = settings.device_plugin, list(settings.cluster.node_pools.values())
    selector = common_labels(pools) if plugin.node_selector is None else plugin.node_selector
    taints = {taint: None for pool in pools for taint in pool.taints}
    tolerations = (
        [tolerating(taint) for taint in taints]
        if plugin.tolerations is None
        else [toleration_object(toleration) for toleration in plugin.tolerations]
    )
    return AmdGpuDevicePluginArgs(
        namespace=plugin.namespace,
        resource_naming=plugin.resource_naming,
        health_check_seconds=plugin.health_check_seconds,
        node_selector={"kubernetes.io/arch": "amd64"} | selector,
        tolerations=tolerations,
    )


def common_labels(pools: list[NodePool]) -> dict[str, str]:
    """Labels that every pool has."""
    first, *others = pools
    return {key: value for key, value in first.labels.items() if all(p.labels.get(key) == value for p in others)}


def tolerating(taint: Taint) -> dict[str, str]:
    """The toleration of one taint."""
    return {"key": taint.key, "operator": "Exists", "effect": taint.effect}


def toleration_object(toleration: Toleration) -> dict[str, str]:
    """A toleration as Kubernetes writes it."""
    return toleration.model_dump(exclude_none=True)


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
        return ExistingSecret(name=credentials.secret_name)
    secret = pulumi.Config().require_secret(secret_key(project, credentials))
    if isinstance(credentials, GithubAppCredentials):
        return GithubApp(
            secret_name=credentials.secret_name,
            app_id=credentials.app_id,
            installation_id=credentials.installation_id,
            private_key=secret,
        )
    return GithubToken(secret_name=credentials.secret_name, token=secret)


def scale_set_args(
    label: str, settings: Settings, controller: ControllerReference, project: ProjectReference
) -> RunnerScaleSetArgs:
    """A runner with everything that its profile and its pool say about it."""
    runner = settings.runners[label]
    profile, pool = settings.profile(runner), settings.pool(runner)
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
            gpu_resource=settings.gpu_resource(pool),
        ),
        image=profile.image,
        image_pull_policy=profile.image_pull_policy,
        docker=Docker(image=docker.image, group_id=docker.group_id, data_root=docker.data_root)
        if runner.docker
        else None,
        render_group=profile.render_group,
        node_selector=profile.node_selector,
        tolerations=[toleration_object(toleration) for toleration in profile.tolerations],
        env=profile.env,
        volumes=[
            Volume(name=name, mount_path=volume.mount_path, source=volume.source, read_only=volume.read_only)
            for name, volume in profile.volumes.items()
        ],
    )
