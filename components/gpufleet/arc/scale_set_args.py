"""Arguments of a runner scale set: its runners, their job containers, and their pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpufleet.arc import runner_releases
from gpufleet.arc.controller import ControllerReference
from gpufleet.arc.project import ProjectReference

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
    data_root: str | None = "/home/runner/docker-data"
    """Folder where the daemon stores images and layers: a pod volume, deleted with the pod. None for the daemon's own
    folder in its container."""
    command: Sequence[str] | None = None
    """Command of the daemon's container; None for a script that starts the daemon, or with `args` for the image's own
    entrypoint."""
    args: Sequence[str] | None = None
    """Arguments of the command. They replace all default arguments, including group and data root."""
    startup_probe: Mapping[str, Any] | None = None
    """Startup probe of the daemon's container, in Kubernetes syntax. The runner starts after it has succeeded."""
    volume_mounts: Sequence[Mapping[str, Any]] = ()
    """Additional mounts of the daemon's container, in Kubernetes syntax; volumes of the pod by name."""


@dataclass(frozen=True, kw_only=True)
class KubernetesMode:
    """Job containers as separate pods, which the runner starts through the API server; no Docker daemon.

    The chart allows the runners' service account to create pods and read secrets in the runners' namespace
    (templates/kube_mode_role.yaml of the scale-set chart). Your own service account replaces it.
    """

    work_volume_claim: Mapping[str, Any] | None
    """PersistentVolumeClaimSpec of the work folder that runner and job share; None for ARC's mode
    `kubernetes-novolume`, which copies the folder instead."""
    additional_role_rules: Sequence[Mapping[str, Any]] = ()
    """Additional RBAC rules of the runners' service account."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume of the runner's pod."""

    name: str
    """Name of the volume, unique within the pod."""
    mount_path: str | None = None
    """Mount path in the runner container; None for a volume that only `volume_mounts` mount."""
    source: Mapping[str, Any]
    """Volume source in Kubernetes syntax, such as `{"hostPath": {"path": "/models"}}`."""
    sub_path: str | None = None
    """Path within the volume to mount; None for its root."""
    read_only: bool = False
    """Whether to mount the volume read-only."""


@dataclass(frozen=True, kw_only=True)
class SecretKey:
    """One key of a Kubernetes Secret in the project's namespace."""

    name: str
    """Name of the Secret, which must exist before a runner starts."""
    key: str
    """Key of the value in the Secret."""


@dataclass(frozen=True, kw_only=True)
class RunnerResources:
    """Resources of one runner."""

    cpu: str
    """CPU request, a Kubernetes quantity."""
    memory: str
    """Memory request, a Kubernetes quantity."""
    cpu_limit: str | None = None
    """CPU limit, a Kubernetes quantity. None for no limit, so that runners may use idle cores."""
    memory_limit: str | None = None
    """Memory limit, a Kubernetes quantity; None for no limit."""
    ephemeral_storage: str | None = None
    """Disk space of the pod, a Kubernetes quantity: request and limit."""
    gpus: int = 0
    """Number of GPUs: request and limit."""
    gpu_resource: str = "amd.com/gpu"
    """Resource name that the node's device plugin gives to a GPU or partition."""
    extended: Mapping[str, int] = field(default_factory=dict)
    """Amounts of further extended resources, by name: request and limit."""


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
    additional_labels: Sequence[str] = ()
    """Additional labels of the scale set at GitHub. ARC registers them only when it creates the scale set
    (createRunnerScaleSet in autoscalingrunnerset_controller.go at 0.14.2)."""
    command: Sequence[str] | None = None
    """Command of the runner container. None starts the runner; with Docker, as soon as the daemon is ready."""
    args: Sequence[str] | None = None
    """Arguments of the command."""
    job_timeout_minutes: int | None = None
    """Time limit of a job in minutes, after which its runner ends it; None for the limit of the workflow and of GitHub.
    The image requires `/bin/bash`."""
    docker: Docker | KubernetesMode | None = None
    """Method by which jobs run containers; None for jobs without containers."""
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
    """Additional environment variables of the runner container with values in Kubernetes Secrets."""
    env_value_from: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Additional environment variables of the runner container with other sources, each an EnvVarSource."""
    env_from: Sequence[Mapping[str, Any]] = ()
    """Secrets and ConfigMaps whose keys become environment variables of the runner container, in Kubernetes syntax."""
    security_context: Mapping[str, Any] = field(default_factory=dict)
    """SecurityContext of the runner container."""
    volumes: Sequence[Volume] = ()
    """Additional volumes of the pod."""
    volume_mounts: Sequence[Mapping[str, Any]] = ()
    """Additional mounts of the runner container, in Kubernetes syntax; volumes of the pod by name."""
    work_volume: Mapping[str, Any] | None = None
    """Source of the volume with the jobs' work folder, in Kubernetes syntax; None for an empty one on the node's
    disk."""
    init_containers: Sequence[Mapping[str, Any]] = ()
    """Additional init containers, in Kubernetes syntax. They run after those of Docker."""
    pod_spec: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the pod's spec, in Kubernetes syntax: `affinity`, `securityContext`, `serviceAccountName` and
    others without an argument of their own."""
    pod_metadata: Mapping[str, Any] = field(default_factory=dict)
    """Labels and annotations of the pod."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Labels and annotations of every object that the chart creates."""
    pod_template: Mapping[str, Any] = field(default_factory=dict)
    """Strategic merge patch of the PodTemplateSpec, applied after everything else. It can change everything; rules do
    not check it."""
    listener_template: Mapping[str, Any] | None = None
    """PodTemplateSpec of the scale set's listener, merged into the controller's."""
    listener_metrics: Mapping[str, Any] | None = None
    """Metrics of the scale set's listener; None for the controller's."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must outlive the scale set, besides project and controller. Example: the node pool of its pods,
    whose removal would otherwise wait for them."""
    do_not_disrupt: bool = False
    """Whether to prevent Karpenter from disrupting nodes with runners, because their jobs would be lost. Expiry and
    drift still remove a node after the pool's `termination_grace_period`. No effect on nodes without Karpenter."""
