"""One `runs-on` label: a GitHub Actions runner scale set and the pods its jobs run in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.arc_controller import ARC_REGISTRY, ControllerReference
from components.chart import Chart
from components.runner_project import ProjectReference

LABEL_LIMIT = 45
"""Characters in a scale set's name; the chart refuses more (autoscalingrunnerset.yaml of the scale-set chart)."""

RUNNER_IMAGE = "ghcr.io/actions/actions-runner:2.334.0"
"""GitHub's own runner image, at the runner version that ARC 0.14.2 ships with."""

DOCKER_IMAGE = "docker:28.2.2-dind"
"""Docker's own image of the daemon."""

DO_NOT_DISRUPT: Mapping[str, str] = {"karpenter.sh/do-not-disrupt": "true"}
"""Annotation of a pod that Karpenter leaves alone ("Pod-Level Controls" in Karpenter's chapter on disruption)."""


@dataclass(frozen=True, kw_only=True)
class Docker:
    """Docker for the jobs of a runner: a daemon in a privileged sidecar of the runner's pod.

    The chart's `containerMode: dind` is not used: it fixes image, arguments and data root of the daemon, and on
    servers whose minor version is not a plain number it renders no sidecar at all.
    """

    image: str = DOCKER_IMAGE
    """Image of the daemon."""
    group_id: int = 123
    """Group id that owns the daemon's socket; the runner image's user is a member of it."""
    data_root: str = "/home/runner/docker-data"
    """Where the daemon keeps images and layers: a volume of the pod, emptied when the pod stops."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume of the runner's pod, mounted into the runner container."""

    name: str
    """Name of the volume, unique within the pod."""
    mount_path: str
    """Where the runner sees it."""
    source: Mapping[str, Any]
    """The volume's source as Kubernetes writes it, for example `{"hostPath": {"path": "/models"}}`."""
    read_only: bool = False
    """Mount it read-only."""


@dataclass(frozen=True, kw_only=True)
class RunnerResources:
    """What one runner asks of its node."""

    cpu: str
    """CPU request, a Kubernetes quantity. Requested, never limited: an idle core is free to use."""
    memory: str
    """Memory request, a Kubernetes quantity. Requested, never limited."""
    ephemeral_storage: str | None = None
    """Disk of the pod, a Kubernetes quantity, requested and limited."""
    gpus: int = 0
    """GPUs, requested and limited."""
    gpu_resource: str = "amd.com/gpu"
    """Name that the node's device plugin gives to one GPU or partition."""


@dataclass(frozen=True, kw_only=True)
class RunnerScaleSetArgs:
    """What a scale set needs to know."""

    label: str
    """The `runs-on` label: name of the scale set and of its Helm release. At most 45 characters."""
    project: ProjectReference
    """Project whose jobs the runners take, with namespace and credentials."""
    controller: ControllerReference
    """Controller that manages the scale set, and decides its chart version."""
    min_runners: int
    """Idle runners kept ready."""
    max_runners: int
    """Most runners at once. ARC takes an unset value for 2,147,483,647."""
    resources: RunnerResources
    """What one runner asks of its node."""
    image: str = RUNNER_IMAGE
    """Image of the runner, which holds `/home/runner/run.sh`."""
    image_pull_policy: str = "IfNotPresent"
    """Pull policy of both images; `Always` for a tag that moves."""
    docker: Docker | None = None
    """Docker for the jobs; None for runners whose jobs do without."""
    render_group: int | None = None
    """Group id that owns `/dev/dri/renderD*` on the nodes; the runner becomes a member of it."""
    runtime_class: str | None = None
    """RuntimeClass of the pod, which has to exist: NVIDIA's GPU operator makes `nvidia`. None for the default runtime
    of the node's container engine."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels a node must have."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Tolerations, as Kubernetes writes them."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of the runner container."""
    volumes: Sequence[Volume] = ()
    """Further volumes of the runner container."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there as long as the scale set is, beside project and controller: the node pool that its pods run
    on, which would wait for them when it is removed."""
    do_not_disrupt: bool = False
    """Keep Karpenter from taking the node away under a runner, to save money or for a change of its pool: a job cannot
    be moved, it is lost. The node still goes once it has expired, or its pool has changed, and the pool's
    `termination_grace_period` is over. Means nothing where nodes are not bought, as on bare metal."""


class RunnerScaleSet(pulumi.ComponentResource):
    """The Helm release of one scale set.

    It waits for what its project and its controller name as needed, and is removed before that: ARC's finalizers on the
    scale set need a running controller, and credentials.
    """

    ready: pulumi.Resource
    """The release: depend on it for "jobs with this label find runners"."""
    label: str
    """The `runs-on` label."""

    def __init__(self, name: str, args: RunnerScaleSetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
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


def scale_set_values(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Values for the chart `gha-runner-scale-set`, complete: nothing is left to the chart's look-ups or defaults that
    a job's life depends on.

    Raises ValueError when the label, `min_runners` or `max_runners` are out of bounds.
    """
    if len(args.label) > LABEL_LIMIT:
        raise ValueError(f"label {args.label!r} has {len(args.label)} characters; at most {LABEL_LIMIT} are allowed")
    if not 0 <= args.min_runners <= args.max_runners:
        raise ValueError(
            f"label {args.label!r}: min {args.min_runners}, max {args.max_runners}; 0 <= min <= max is needed"
        )
    values: dict[str, Any] = {
        "githubConfigUrl": args.project.config_url,
        "githubConfigSecret": args.project.credentials_secret,
        "controllerServiceAccount": {"name": args.controller.service_account, "namespace": args.controller.namespace},
        # Integers: the chart drops strings without a word.
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
    return values


def pod_spec(args: RunnerScaleSetArgs) -> dict[str, Any]:
    """Pod spec of one runner."""
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
    """Copies the runner's own tools to where containers that jobs start can mount them."""
    return {
        "name": "init-dind-externals",
        "image": args.image,
        "imagePullPolicy": args.image_pull_policy,
        "command": ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"],
        "volumeMounts": [{"name": "dind-externals", "mountPath": "/home/runner/tmpDir"}],
    }


def _docker_container(args: RunnerScaleSetArgs, docker: Docker) -> dict[str, Any]:
    """The daemon, as a native sidecar: an init container that is restarted always, so that it starts before the
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
    """The runner. Its name has to be `runner`: ARC hands the job's registration to the container of that name only.
    Its command has to be given, since the chart's own goes when the list of containers is given."""
    env = [_field("POD_NAME", "metadata.name"), _field("NODE_NAME", "spec.nodeName")]
    env += [{"name": name, "value": value} for name, value in args.env.items()]
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
    """What a runner with Docker starts with: turn the GPUs allotted to the pod into options for `docker run`, in
    `/etc/podinfo/gha-render-devices`, and wait for the daemon.

    The file is advice that a workflow may ignore: the daemon is privileged and sees every device of the node.
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
