"""Arguments of a runner scale set: what its runners are, how their jobs run containers, and what their pods have."""

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
