"""Settings of job containers: a Docker daemon beside the runner, or pods."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gpufleet.arc.scale_set_args import DOCKER_IMAGE
from gpufleet_stacks.settings.models.profiles.kubernetes_types import Kubernetes
from gpufleet_stacks.settings.models.value_types import Count, Folder, Image, Model


class DockerSidecar(Model):
    """A Docker daemon in a privileged sidecar of the runner."""

    kind: Literal["sidecar"] = "sidecar"
    """A Docker daemon in a privileged sidecar."""
    image: Image = DOCKER_IMAGE
    """Container image of the daemon."""
    group_id: Count = 123
    """ID of the group that owns the daemon's socket. The user of the runner image must be a member."""
    data_root: Folder | None = "/home/runner/docker-data"
    """Folder in the pod where the daemon stores images and layers; `null` for the daemon's own folder in its
    container."""
    command: tuple[str, ...] | None = None
    """Command of the daemon's container. If omitted, a script that starts the daemon; with `args`, the image's own
    entrypoint."""
    args: tuple[str, ...] | None = None
    """Arguments of the daemon's container. They replace all default arguments, including group and data root."""
    startup_probe: Annotated[dict[str, Any], Kubernetes("Probe")] | None = None
    """Startup probe of the daemon's container, in Kubernetes syntax. The runner starts after it has succeeded."""
    volume_mounts: tuple[Annotated[dict[str, Any], Kubernetes("VolumeMount")], ...] = ()
    """Additional mounts of the daemon's container, in Kubernetes syntax, of volumes of the profile."""


class KubernetesPods(Model):
    """Job containers as pods (ARC's container mode `kubernetes`): no Docker daemon, and no `docker` command."""

    kind: Literal["kubernetes"]
    """Job containers as pods that share a volume with the runner."""
    work_volume_claim: Annotated[dict[str, Any], Kubernetes("PersistentVolumeClaimSpec")]
    """Volume claim of the work folder, in Kubernetes syntax: `accessModes`, `resources`, `storageClassName`."""
    additional_role_rules: tuple[Annotated[dict[str, Any], Kubernetes("PolicyRule")], ...] = ()
    """Additional RBAC rules of the runners' service account, in Kubernetes syntax."""


class KubernetesPodsWithoutVolume(Model):
    """Job containers as pods (ARC's container mode `kubernetes-novolume`), to which the work folder is copied."""

    kind: Literal["kubernetes-novolume"]
    """Job containers as pods, to which the runner copies the work folder."""
    additional_role_rules: tuple[Annotated[dict[str, Any], Kubernetes("PolicyRule")], ...] = ()
    """Additional RBAC rules of the runners' service account, in Kubernetes syntax."""


def _with_default_kind(value: Any) -> Any:
    """Return the section with `kind: sidecar` if it has no kind. Stack files older than the other kinds have none."""
    return {"kind": "sidecar"} | value if isinstance(value, dict) else value


DockerSettings = Annotated[
    DockerSidecar | KubernetesPods | KubernetesPodsWithoutVolume,
    Field(discriminator="kind"),
    BeforeValidator(_with_default_kind),
]
