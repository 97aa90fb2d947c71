"""The model of a stack file: the only reader of configuration.

What a field means to its user is in the string under it; the JSON Schema, editors and the README take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from components.arc_controller import ARC_VERSION
from components.runner_scale_set import DOCKER_IMAGE, RUNNER_IMAGE
from stacks.fault import Path
from stacks.taints import Toleration
from stacks.value_types import (
    MOST,
    Cores,
    Count,
    Date,
    Filled,
    Folder,
    GithubUrl,
    Id,
    Image,
    Label,
    Labels,
    Model,
    Name,
    Size,
    Switch,
    Text,
    Variable,
    Version,
)

if TYPE_CHECKING:
    from stacks.bare_metal_settings import BareMetalCluster, NodePool
    from stacks.eks_settings import EksCluster
    from stacks.karpenter_settings import KarpenterPool


class Arc(Model):
    """The Actions Runner Controller."""

    version: Version = ARC_VERSION
    """Chart version of the controller and of every scale set. One setting, because a controller deletes scale sets
    of another minor version: to change the minor, remove the runners first."""
    namespace: Name = "arc-systems"
    """Namespace of the controller and the listeners; owned by this stack."""
    release: Name = "arc"
    """Helm release name; the controller's service account is named after it."""
    metrics: Switch = True
    """Prometheus metrics of controller and listeners, with labels of bounded number."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """How much the controller logs."""


class Charts(Model):
    """Where Helm charts come from."""

    mirror: Annotated[str, Text(r"(oci://|https?://|/).+", 512, "an absolute folder, or an oci:// or https:// URL")]
    """A registry (`oci://…`), a chart repository (`https://…`) or a folder with `<chart>-<version>.tgz`, for sites
    without a way out."""


class ExistingSecretCredentials(Model):
    """A secret that the project's owners made in their namespace. It is named, never made, changed or deleted."""

    kind: Literal["existingSecret"]
    """A secret that exists already."""
    secret_name: Name
    """Name of the secret."""


class GithubAppCredentials(Model):
    """A GitHub App. Its private key is the stack's secret `<project>-privateKey`."""

    kind: Literal["githubApp"]
    """A GitHub App."""
    app_id: Id
    """The App's id or client id."""
    installation_id: Id
    """Id of its installation on the organisation or repository."""
    secret_name: Name
    """Name of the Kubernetes secret that is made of it."""


class TokenCredentials(Model):
    """A personal access token: the stack's secret `<project>-token`."""

    kind: Literal["token"]
    """A personal access token."""
    secret_name: Name
    """Name of the Kubernetes secret that is made of it."""


Credentials = Annotated[
    ExistingSecretCredentials | GithubAppCredentials | TokenCredentials, Field(discriminator="kind")
]


class Project(Model):
    """A GitHub organisation or repository whose jobs run here."""

    config_url: GithubUrl
    """Its URL."""
    namespace: Name
    """Namespace of its runners. With an existing secret it exists already, else this stack owns it."""
    runner_group: Filled | None = None
    """GitHub runner group of its runners; left out, GitHub's default group."""
    owner: Filled | None = None
    """Who answers for its runners, in the catalogue of labels."""
    contact: Filled | None = None
    """Where to ask about them: a channel, an address, a URL."""
    credentials: Credentials
    """What its runners register with."""


class DockerSettings(Model):
    """The Docker daemon of runners with Docker."""

    image: Image = DOCKER_IMAGE
    """Image of the daemon."""
    group_id: Count = 123
    """Group that owns the daemon's socket; the runner image's user is a member of it."""
    data_root: Folder = "/home/runner/docker-data"
    """Where the daemon keeps images and layers, inside the pod."""


class VolumeSettings(Model):
    """A volume of the runner container."""

    mount_path: Folder
    """Where the runner sees it."""
    source: Annotated[dict[str, Any], Field(min_length=1, max_length=1)]
    """The volume's source as Kubernetes writes it: `{hostPath: {path: /models}}`."""
    read_only: Switch = False
    """Mount it read-only."""


class Profile(Model):
    """What the runners of one kind have in common, beyond what their users know."""

    pool: Name | None = None
    """Node pool they run on; left out, the cluster's only one."""
    image: Image = RUNNER_IMAGE
    """Runner image."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """Pull policy of every image; `Always` for a tag that moves."""
    docker: DockerSettings = DockerSettings()
    """The Docker daemon, for runners that have one."""
    ephemeral_storage: Size | None = None
    """Disk of one runner, requested and limited."""
    render_group: Count | None = None
    """Group that owns `/dev/dri/renderD*` on the nodes. It differs from host to host: ask one with
    `stat -c %g /dev/dri/renderD128`."""
    runtime_class: Name | None = None
    """RuntimeClass of the runners, which has to exist: NVIDIA's GPU operator makes `nvidia`. Left out, the default
    runtime of the node's container engine."""
    node_selector: Labels = {}
    """Labels a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that runners tolerate."""
    env: dict[Variable, str] = {}
    """Environment variables of the runner container."""
    volumes: dict[Name, VolumeSettings] = {}
    """Volumes of the runner container, by name."""


class Deprecation(Model):
    """A label that is going to be removed."""

    until: Date
    """Last day on which it is served."""
    use: Label | None = None
    """Label to use instead."""


class Runner(Model):
    """One `runs-on` label."""

    project: Name
    """Project it belongs to."""
    profile: Name | None = None
    """Profile it extends; left out, every default."""
    gpus: Count
    """GPUs (or partitions) of one runner."""
    cpu: Cores
    """Cores of one runner: requested, not limited."""
    memory: Size
    """Memory of one runner: requested, not limited."""
    min: Count = 0
    """Idle runners kept ready."""
    max: Annotated[int, Field(strict=True, ge=1, le=MOST)]
    """Most runners at once."""
    docker: Switch = False
    """Whether its jobs use Docker."""
    deprecated: Deprecation | None = None
    """That the label is going to be removed. A workflow whose label is gone does not fail: it queues for a day."""


class Acknowledgement(Model):
    """A finding that is known and borne."""

    finding: Filled
    """Name of the finding, as `gpufleet check` prints it in brackets."""
    path: str | None = None
    """Only at this setting; left out, wherever the finding arises."""
    reason: Filled
    """Why."""
    until: Date
    """Last day of the acknowledgement; the day after, the finding is back."""


class Settings(Model):
    """A stack file's settings, as far as they are the same for every kind of cluster.

    Each kind has a model of its own, so that no command waits for models of what its stack has nothing of.
    """

    if TYPE_CHECKING:
        cluster: BareMetalCluster | EksCluster

    arc: Arc = Arc()
    """The Actions Runner Controller."""
    charts: Charts | None = None
    """Where Helm charts come from; left out, from their vendors."""
    projects: Annotated[dict[Name, Project], Field(min_length=1)]
    """GitHub organisations and repositories whose jobs run here, by name."""
    profiles: dict[Name, Profile] = {}
    """What runners have in common, by name."""
    runners: dict[Label, Runner]
    """Runners, by their `runs-on` label."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    """Findings that are known and borne."""

    def profile(self, runner: Runner) -> Profile:
        """The profile of a runner."""
        return self.profiles[runner.profile] if runner.profile else Profile()

    def pool_name(self, runner: Runner) -> str:
        """Name of the node pool of a runner."""
        return self.profile(runner).pool or next(iter(self.cluster.node_pools))

    def pool(self, runner: Runner) -> NodePool | KarpenterPool:
        """The node pool of a runner."""
        return self.cluster.node_pools[self.pool_name(runner)]

    def accelerator_name(self, runner: Runner) -> str:
        """What its GPUs are, for people."""
        raise NotImplementedError

    def devices_of_a_node(self, runner: Runner) -> int:
        """Most GPUs, as pods ask for them, that a node of its pool has."""
        raise NotImplementedError

    def devices_of_pool(self, pool: str) -> int | None:
        """GPUs, as pods ask for them, of all nodes that the pool may have; None where nothing says."""
        raise NotImplementedError

    def gpu_resource(self, pool: str) -> str:
        """Name under which pods ask for a GPU of that pool."""
        raise NotImplementedError

    def device_plugin_namespaces(self) -> list[tuple[Path, str, str]]:
        """Namespaces of device plugins: the setting, the namespace, and what it is of."""
        return []

    def secret_keys(self) -> Mapping[str, str]:
        """Configuration keys that have to hold a secret, each with the setting that asks for it."""
        return {
            secret_key(name, project.credentials): f"projects.{name}.credentials"
            for name, project in self.projects.items()
            if not isinstance(project.credentials, ExistingSecretCredentials)
        }


def secret_key(project: str, credentials: GithubAppCredentials | TokenCredentials) -> str:
    """Configuration key of a project's secret."""
    return f"{project}-privateKey" if isinstance(credentials, GithubAppCredentials) else f"{project}-token"
