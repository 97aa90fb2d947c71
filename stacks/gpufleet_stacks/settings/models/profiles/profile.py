"""Profile: settings that several runners share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpufleet.arc import runner_releases
from gpufleet.arc.job_timeout import MOST_MINUTES
from gpufleet.arc.scale_set_args import RUNNER_IMAGE
from gpufleet_stacks.settings.models.profiles.docker import DockerSettings, DockerSidecar
from gpufleet_stacks.settings.models.profiles.kubernetes_types import Kubernetes
from gpufleet_stacks.settings.models.taints import Toleration
from gpufleet_stacks.settings.models.value_types import (
    Count,
    Filled,
    Folder,
    Image,
    LabelKey,
    Labels,
    Model,
    Name,
    ObjectName,
    RunnerVersion,
    SecretKeyName,
    Size,
    Switch,
    Variable,
)


class VolumeSettings(Model):
    """A volume of the runner's pod."""

    mount_path: Folder | None = None
    """Mount path in the runner container; if omitted, only `volumeMounts`, `docker.volumeMounts` and init containers
    mount the volume."""
    source: Annotated[dict[str, Any], Field(min_length=1, max_length=1), Kubernetes("VolumeSource")]
    """Volume source in Kubernetes syntax: `{hostPath: {path: /models}}`."""
    sub_path: Filled | None = None
    """Path within the volume to mount; if omitted, its root."""
    read_only: Switch = False
    """Whether to mount the volume read-only."""


class SecretKey(Model):
    """One key of a Kubernetes Secret in the namespace of the runners' project."""

    name: ObjectName
    """Name of the Secret. It must exist in the project's namespace; this stack never creates or changes it."""
    key: SecretKeyName
    """Key of the value in the Secret."""


class PodMetadata(Model):
    """Labels and annotations of the runners' pods."""

    labels: Labels = {}
    """Labels of the pods."""
    annotations: dict[LabelKey, str] = {}
    """Annotations of the pods."""


class ScaleSetMetadata(Model):
    """Labels and annotations of the objects of a scale set."""

    labels: Labels = {}
    """Labels of the objects."""
    annotations: dict[LabelKey, str] = {}
    """Annotations of the objects."""


class Metric(Model):
    """A counter or gauge of a listener."""

    labels: tuple[Filled, ...]
    """Labels of the metric. Each combination of values is a series of its own."""


class Histogram(Metric):
    """A histogram of a listener."""

    buckets: tuple[float, ...] = ()
    """Upper bounds of the buckets, in seconds; if omitted, ARC's defaults."""


class ListenerMetrics(Model):
    """Metrics of a scale set's listener. ARC exposes only those that are listed."""

    counters: dict[Filled, Metric] = {}
    """Counters, by name."""
    gauges: dict[Filled, Metric] = {}
    """Gauges, by name."""
    histograms: dict[Filled, Histogram] = {}
    """Histograms, by name."""


class Profile(Model):
    """Settings that several runners share."""

    pool: Name | None = None
    """Node pool of the runners; if omitted, the cluster's only one."""
    image: Image = RUNNER_IMAGE
    """Runner image; if omitted, the newest release of GitHub's image that `gpufleet pins` knows."""
    runner_version: RunnerVersion | None = None
    """Runner version in a custom image, as shown by `gpufleet pins --image IMAGE`. GitHub's image states it in its
    tag."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """Pull policy of all images; use `Always` for tags that move."""
    command: tuple[str, ...] | None = None
    """Command of the runner container. If omitted, it starts the runner; with Docker, as soon as the daemon is
    ready."""
    args: tuple[str, ...] | None = None
    """Arguments of the runner container's command."""
    docker: DockerSettings = DockerSidecar()
    """Method by which jobs run containers, on runners with `docker: true`. If `kind` is omitted, `sidecar`."""
    ephemeral_storage: Size | None = None
    """Disk space of one runner: request and limit."""
    extended_resources: dict[LabelKey, Count] = {}
    """Further extended resources of one runner, such as `{devices.kubevirt.io/kvm: 1}`: request and limit."""
    job_timeout_minutes: Annotated[int, Field(strict=True, ge=1, le=MOST_MINUTES)] | None = None
    """Time limit of a job in minutes, after which its runner ends it and the job fails. A runner without a job is never
    ended. The image requires `/bin/bash`. If omitted, only the limits of the workflow and of GitHub apply."""
    render_group: Count | None = None
    """ID of the group that owns `/dev/dri/renderD*` on the nodes. It varies between hosts; print it with `stat -c %g
    /dev/dri/renderD128`."""
    runtime_class: Name | None = None
    """RuntimeClass of the runners. It must exist; the NVIDIA GPU operator creates `nvidia`. If omitted, the default
    runtime of the node's container engine."""
    node_selector: Labels = {}
    """Node labels that the runners require."""
    tolerations: tuple[Toleration, ...] = ()
    """Node taints that the runners tolerate."""
    env: dict[Variable, str] = {}
    """Environment variables of the runner container. Secrets are rejected here; use `envFromSecret`."""
    env_from_secret: dict[Variable, SecretKey] = {}
    """Secret environment variables, each with the key of a Kubernetes Secret:
    `{HF_TOKEN: {name: hugging-face, key: token}}`. A runner starts only if the Secret exists."""
    env_value_from: dict[Variable, Annotated[dict[str, Any], Kubernetes("EnvVarSource")]] = {}
    """Environment variables with another source, in Kubernetes syntax:
    `{POD_IP: {fieldRef: {fieldPath: status.podIP}}}`."""
    env_from: tuple[Annotated[dict[str, Any], Kubernetes("EnvFromSource")], ...] = ()
    """Secrets and ConfigMaps whose keys become environment variables, in Kubernetes syntax:
    `[{secretRef: {name: mirrors}}]`. They must exist in the project's namespace."""
    volumes: dict[Name, VolumeSettings] = {}
    """Volumes of the runners' pods, by name."""
    volume_mounts: tuple[Annotated[dict[str, Any], Kubernetes("VolumeMount")], ...] = ()
    """Additional mounts of the runner container, in Kubernetes syntax, of volumes of the profile."""
    work_volume: Annotated[dict[str, Any], Field(min_length=1, max_length=1), Kubernetes("VolumeSource")] | None = None
    """Source of the volume with the jobs' work folder, in Kubernetes syntax: `{emptyDir: {sizeLimit: 200Gi}}`. If
    omitted, an empty one on the node's disk."""
    init_containers: tuple[Annotated[dict[str, Any], Kubernetes("Container")], ...] = ()
    """Additional init containers, in Kubernetes syntax. They run after those of Docker."""
    security_context: Annotated[dict[str, Any], Kubernetes("SecurityContext")] = {}
    """Security context of the runner container, in Kubernetes syntax."""
    pod_security_context: Annotated[dict[str, Any], Kubernetes("PodSecurityContext")] = {}
    """Security context of the runners' pods, in Kubernetes syntax: `{fsGroup: 1001}`."""
    pod_metadata: PodMetadata = PodMetadata()
    """Labels and annotations of the runners' pods."""
    scale_set_metadata: ScaleSetMetadata = ScaleSetMetadata()
    """Labels and annotations of every object that ARC's chart creates for a label: the scale set, service accounts and
    roles."""
    service_account_name: ObjectName | None = None
    """Service account of the runners. It must exist in the project's namespace; if omitted, the chart creates one
    without permissions, and for `docker.kind: kubernetes` one that manages pods."""
    automount_service_account_token: Switch | None = None
    """Whether to mount a token of the service account into the pods; if omitted, the service account decides."""
    affinity: Annotated[dict[str, Any], Kubernetes("Affinity")] | None = None
    """Affinity of the runners' pods, in Kubernetes syntax."""
    topology_spread_constraints: tuple[Annotated[dict[str, Any], Kubernetes("TopologySpreadConstraint")], ...] = ()
    """Topology spread constraints of the runners' pods, in Kubernetes syntax."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the runners' pods. It must exist."""
    image_pull_secrets: tuple[Annotated[dict[str, Any], Kubernetes("LocalObjectReference")], ...] = ()
    """Secrets for pulling images, in Kubernetes syntax: `[{name: registry}]`. They must exist in the project's
    namespace."""
    dns_policy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] | None = None
    """DNS policy of the runners' pods; if omitted, `ClusterFirst`."""
    dns_config: Annotated[dict[str, Any], Kubernetes("PodDNSConfig")] | None = None
    """DNS settings of the runners' pods, in Kubernetes syntax."""
    host_aliases: tuple[Annotated[dict[str, Any], Kubernetes("HostAlias")], ...] = ()
    """Additional lines of the pods' /etc/hosts, in Kubernetes syntax."""
    host_users: Switch | None = None
    """Whether the pods use the node's user namespace; `false` gives each pod its own. If omitted, the node's."""
    termination_grace_period_seconds: Count | None = None
    """Seconds between SIGTERM and SIGKILL when a runner's pod is deleted; if omitted, 30."""
    listener_template: Annotated[dict[str, Any], Kubernetes("PodTemplateSpec", patch=True)] | None = None
    """Pod template of the scale sets' listeners, in Kubernetes syntax, merged into the controller's. ARC's container is
    `listener`."""
    listener_metrics: ListenerMetrics | None = None
    """Metrics of the scale sets' listeners; if omitted, those that `arc.metrics` selects."""
    pod_template: Annotated[dict[str, Any], Kubernetes("PodTemplateSpec", patch=True)] | None = None
    """Last resort: a strategic merge patch of the runners' pod template, in Kubernetes syntax, applied after all other
    settings. Rules do not check it; `gpufleet check` reports what it bypasses."""

    @property
    def held_runner_version(self) -> str | None:
        """Return the declared runner version, or the one in the image reference; None if neither states it."""
        return self.runner_version or runner_releases.known().version_of(self.image)
