"""A profile: what many runners have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpufleet.arc import runner_releases
from gpufleet.arc.scale_set_args import DOCKER_IMAGE, RUNNER_IMAGE
from gpufleet_stacks.settings.models.taints import Toleration
from gpufleet_stacks.settings.models.value_types import (
    Count,
    Folder,
    Image,
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


class DockerSettings(Model):
    """Docker daemon of runners with `docker: true`."""

    image: Image = DOCKER_IMAGE
    """Container image of the daemon."""
    group_id: Count = 123
    """ID of the group that owns the daemon's socket. The user of the runner image must be a member."""
    data_root: Folder = "/home/runner/docker-data"
    """Folder in the pod where the daemon stores images and layers."""


class VolumeSettings(Model):
    """A volume of the runner container."""

    mount_path: Folder
    """Mount path in the runner container."""
    source: Annotated[dict[str, Any], Field(min_length=1, max_length=1)]
    """Volume source in Kubernetes syntax: `{hostPath: {path: /models}}`."""
    read_only: Switch = False
    """Whether to mount the volume read-only."""


class SecretKey(Model):
    """One key of a Kubernetes Secret in the namespace of the runners' project."""

    name: ObjectName
    """Name of the Secret. It exists in the project's namespace: this stack never creates or changes it."""
    key: SecretKeyName
    """Key in the Secret that has the value."""


class Profile(Model):
    """Settings shared by several runners that do not concern their users."""

    pool: Name | None = None
    """Node pool of the runners; if omitted, the cluster's only one."""
    image: Image = RUNNER_IMAGE
    """Runner image; if omitted, the newest release of GitHub's image that `gpufleet pins` knows."""
    runner_version: RunnerVersion | None = None
    """Runner version in a custom image, as shown by `gpufleet pins --image IMAGE`. GitHub's image states it in its
    tag."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """Pull policy of all images; use `Always` for tags that move."""
    docker: DockerSettings = DockerSettings()
    """Docker daemon of runners with `docker: true`."""
    ephemeral_storage: Size | None = None
    """Disk space of one runner: request and limit."""
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
    """Environment variables of the runner container. None of them is a secret."""
    env_from_secret: dict[Variable, SecretKey] = {}
    """Environment variables with a secret value, each with the Secret that has it:
    `{HF_TOKEN: {name: hugging-face, key: token}}`. A runner starts only when the Secret exists."""
    volumes: dict[Name, VolumeSettings] = {}
    """Volumes of the runner container, by name."""

    @property
    def held_runner_version(self) -> str | None:
        """Return the declared runner version, or the one in the image reference; None if neither states it."""
        return self.runner_version or runner_releases.known().version_of(self.image)
