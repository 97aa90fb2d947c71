"""A `runs-on` label: a GitHub Actions runner scale set and the pods of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpufleet.arc import runner_releases
from gpufleet.arc.controller import ARC_REGISTRY, ControllerReference
from gpufleet.arc.project import ProjectReference
from gpufleet.chart import Chart
from gpufleet.problem import Problem, refuse

LABEL_LIMIT = 45
"""Maximum length of a scale set's name; the chart rejects longer ones (autoscalingrunnerset.yaml of the scale-set
chart)."""

RUNNER_IMAGE = runner_releases.known().default.image
"""GitHub's runner image: the newest release in `runner_releases.json`, which states sources and dates."""

DOCKER_IMAGE = "docker:28.2.2-dind"
"""Docker's official image of the daemon."""

DO_NOT_DISRUPT: Mapping[str, str] = {"karpenter.sh/do-not-disrupt": "true"}
"""Pod annotation that prevents disruption by Karpenter ("Pod-Level Controls" in Karpenter's documentation on
disruption)."""


@dataclass(frozen=True, kw_only=True)
class Docker:
    """Docker for a runner's jobs: a daemon in a privileged sidecar of the runner's pod.

    The chart's `containerMode: dind` is not used. It fixes the daemon's image, arguments and data root. It also renders
    no sidecar on servers whose minor version is not a plain number.
    """

    image: str = DOCKER_IMAGE
    """Container image of the daemon."""
    group_id: int = 123
    """ID of the group that owns the daemon's socket. The user of the runner image must be a member."""
    data_root: str = "/home/runner/docker-data"
    """Folder where the daemon stores images and layers: a pod volume, deleted with the pod."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume of the runner's pod, mounted into the runner container."""

    name: str
    """Name of the volume, unique within the pod."""
    mount_path: str
    """Mount path in the runner container."""
    source: Mapping[str, Any]
    """Volume source in Kubernetes syntax, such as `{"hostPath": {"path": "/models"}}`."""
    read_only: bool = False
    """Whether to mount the volume read-only."""


@dataclass(frozen=True, kw_only=True)
class SecretKey:
    """One key of a Kubernetes Secret in the project's namespace."""

    name: str
    """Name of the Secret, which has to exist before a runner starts."""
    key: str
    """Key in the Secret that has the value."""


@dataclass(frozen=True, kw_only=True)
class RunnerResources:
    """Resources of one runner."""

    cpu: str
    """CPU request, a Kubernetes quantity. There is no limit, so runners may use idle cores."""
    memory: str
    """Memory request, a Kubernetes quantity, without a limit."""
    ephemeral_storage: str | None = None
    """Disk space of the pod, a Kubernetes quantity: request and limit."""
    gpus: int = 0
    """Number of GPUs: request and limit."""
    gpu_resource: str = "amd.com/gpu"
    """Resource name that the node's device plugin gives to a GPU or partition."""


@dataclass(frozen=True, kw_only=True)
class RunnerScaleSetArgs:
    """Arguments of `RunnerScaleSet`."""

    label: str
    """The `runs-on` label, also the name of the scale set and its Helm release. At most 45 characters."""
    project: ProjectReference
    """Project whose jobs the runners take; provides namespace and credentials."""
    controller: ControllerReference
    """Controller that manages the scale set; determines its chart version."""
    min_runners: int
    """Minimum number of idle runners."""
    max_runners: int
    """Maximum number of runners at once. ARC's own default is 2,147,483,647."""
    resources: RunnerResources
    """Resources of one runner."""
    image: str = RUNNER_IMAGE
    """Runner image; it must contain `/home/runner/run.sh`."""
    image_pull_policy: str = "IfNotPresent"
    """Pull policy of both images; use `Always` for tags that move."""
    docker: Docker | None = None
    """Docker for the jobs; None for runners without Docker."""
    render_group: int | None = None
    """ID of the group that owns `/dev/dri/renderD*` on the nodes; the runner becomes a member."""
    runtime_class: str | None = None
    """RuntimeClass of the pod. It must exist; the NVIDIA GPU operator creates `nvidia`. None for the default runtime of
    the node's container engine."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Node labels that the runners require."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Tolerations, in Kubernetes syntax."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables of the runner container, in plain text."""
    env_from_secret: Mapping[str, SecretKey] = field(default_factory=dict)
    """Additional environment variables of the runner container whose value is in a Kubernetes Secret."""
    volumes: Sequence[Volume] = ()
    """Additional volumes of the runner container."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must outlive the scale set, besides project and controller. Example: the node pool of its pods,
    whose removal would otherwise wait for them."""
    do_not_disrupt: bool = False
    """Whether to keep Karpenter from disrupting a node with a runner, whether for consolidation or drift; a job cannot
    be moved, it is lost. Expiry and drift still remove the node after the pool's `termination_grace_period`. No effect
    on nodes without Karpenter."""


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
            name="gha-runner-scale-set",
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


def _is_count(number: object) -> bool:
    return isinstance(number, int) and number >= 0


def scale_set_values(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the complete values of the chart `gha-runner-scale-set`. Nothing on which a job's life depends is left to
    the chart's lookups or defaults."""
    values: dict[str, Any] = {
        "githubConfigUrl": args.project.config_url,
        "githubConfigSecret": args.project.credentials_secret,
        "controllerServiceAccount": {"name": args.controller.service_account, "namespace": args.controller.namespace},
        # Integers, because the chart silently drops strings.
        "minRunners": int(args.min_runners),
        "maxRunners": int(args.max_runners),
        "template": {"spec": pod_spec(args)},
    }
    if args.do_not_disrupt:
        values["template"]["metadata"] = {"annotations": dict(DO_NOT_DISRUPT)}
    if args.project.runner_group:
        values["runnerGroup"] = args.project.runner_group
    if args.controller.listener_metrics:
        values["listenerMetrics"] = dict(args.controller.listener_metrics)
    if args.controller.listener_template:
        values["listenerTemplate"] = dict(args.controller.listener_template)
    return values


def pod_spec(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the pod spec of one runner."""
    spec: dict[str, Any] = {}
    if args.render_group is not None:
        spec["securityContext"] = {"supplementalGroups": [args.render_group]}
    if args.runtime_class:
        spec["runtimeClassName"] = args.runtime_class
    if args.node_selector:
        spec["nodeSelector"] = dict(args.node_selector)
    if args.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in args.tolerations]
    if args.docker:
        spec["initContainers"] = [_externals_container(args), _docker_container(args, args.docker)]
    spec["containers"] = [_runner_container(args)]
    volumes = [{"name": name, "emptyDir": {}} for name in (_DOCKER_VOLUMES if args.docker else _PLAIN_VOLUMES)]
    spec["volumes"] = volumes + [{"name": volume.name, **volume.source} for volume in args.volumes]
    return spec


_PLAIN_VOLUMES = ("work",)
_DOCKER_VOLUMES = ("work", "dind-sock", "dind-externals", "docker-data", "podinfo")

_WORK = {"name": "work", "mountPath": "/home/runner/_work"}
_SOCKET = {"name": "dind-sock", "mountPath": "/var/run"}
_EXTERNALS = {"name": "dind-externals", "mountPath": "/home/runner/externals"}
_PODINFO = {"name": "podinfo", "mountPath": "/etc/podinfo"}


def _externals_container(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the container that copies the runner's tools to where the jobs' containers can mount them."""
    return {
        "name": "init-dind-externals",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"],
        "volumeMounts": [{"name": "dind-externals", "mountPath": "/home/runner/tmpDir"}],
    }


def _docker_container(args: RunnerScaleSetArgs, docker: Docker) -> dict[str, Any]:
    """Return the Docker daemon as a native sidecar: an init container with restart policy Always. It starts before the
    runner and ends after it."""
    return {
        "name": "dind",
        "image": docker.image,
        "imagePullPolicy": args.image_pull_policy,
        "restartPolicy": "Always",
        "command": ["sh", "-c"],
        "args": [
            "dockerd --host=unix:///var/run/docker.sock --group=${DOCKER_GROUP_GID}"
            f" --data-root={docker.data_root} &\n"
            "until docker info >/dev/null 2>&1; do sleep 5; done\n"
            "tail -f /dev/null\n"
        ],
        "env": [{"name": "DOCKER_GROUP_GID", "value": str(docker.group_id)}],
        "securityContext": {"privileged": True},
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", f"rm -rf {docker.data_root}/*"]}}},
        "volumeMounts": [_WORK, _SOCKET, _EXTERNALS, {"name": "docker-data", "mountPath": docker.data_root}],
    }


def _runner_container(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Return the runner container. Its name must be `runner`: ARC passes the job's registration only to that container.
    Its command is set, because the list of containers replaces the chart's own."""
    env = [_field("POD_NAME", "metadata.name"), _field("NODE_NAME", "spec.nodeName")]
    env += [{"name": name, "value": value} for name, value in args.env.items()]
    env += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": source.name, "key": source.key}}}
        for name, source in args.env_from_secret.items()
    ]
    mounts: list[dict[str, Any]] = [dict(_WORK)]
    command = ["/home/runner/run.sh"]
    if args.docker:
        env.insert(0, {"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"})
        mounts += [_SOCKET, _EXTERNALS, _PODINFO, {"name": "docker-data", "mountPath": args.docker.data_root}]
        command = ["/bin/sh", "-c", docker_runner_script(args.render_group)]
    return {
        "name": "runner",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": command,
        "resources": _resources(args.resources),
        "env": env,
        "volumeMounts": mounts + [_mount(volume) for volume in args.volumes],
    }


def docker_runner_script(render_group: int | None) -> str:
    """Return the start script of a runner with Docker. It writes the pod's GPUs as options of `docker run` to
    `/etc/podinfo/gha-render-devices`, and waits for the daemon.

    Workflows may ignore that file: the daemon is privileged and sees every device of the node.
    """
    group = "" if render_group is None else f"--group-add {render_group}"
    return f"""\
devices=$(ls -la /dev/dri/ | grep renderD | awk '{{print $10}}')
GHA_RENDER_DEVICES="{group}"
for device in $devices; do
  GHA_RENDER_DEVICES="${{GHA_RENDER_DEVICES}} --device /dev/dri/${{device}}"
done
echo "${{GHA_RENDER_DEVICES}}" > /etc/podinfo/gha-render-devices
# Wait for Docker to be ready before starting runner
echo "Waiting for docker..."
until docker info >/dev/null 2>&1; do sleep 5; done
/home/runner/run.sh
"""


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mount(volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": volume.name, "mountPath": volume.mount_path}
    return mount | {"readOnly": True} if volume.read_only else mount


def _resources(resources: RunnerResources) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if resources.ephemeral_storage is not None:
        limits["ephemeral-storage"] = resources.ephemeral_storage
    if resources.gpus:
        limits[resources.gpu_resource] = resources.gpus
    requests = {"cpu": resources.cpu, "memory": resources.memory, **limits}
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}
