"""Model of a stack file: the only code that reads configuration.

The string below a field describes it to users. The JSON Schema, editors and docs/settings.md show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import Field

from gpufleet.arc.controller import ARC_VERSION
from gpufleet.problem import Path
from gpufleet_stacks.settings.models.profiles.docker import DockerSidecar
from gpufleet_stacks.settings.models.profiles.profile import Profile
from gpufleet_stacks.settings.models.taints import TaintSettings
from gpufleet_stacks.settings.models.value_types import (
    MOST,
    AdditionalLabel,
    Cores,
    Count,
    Date,
    Filled,
    Folder,
    GithubUrl,
    Id,
    Label,
    Model,
    Name,
    ObjectName,
    SecretKeyName,
    Size,
    Switch,
    Text,
    Version,
)


class Pool(Protocol):
    """A node pool of machines or of Karpenter nodes."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> tuple[TaintSettings, ...]: ...
    @property
    def overcommit(self) -> Literal["refused", "allowed"]: ...


class Cluster(Protocol):
    """A cluster of any kind."""

    @property
    def kind(self) -> Literal["bareMetal", "eks"]: ...
    @property
    def name(self) -> str: ...
    @property
    def node_pools(self) -> Mapping[str, Pool]: ...


class ClientLimits(Model):
    """Limits of the controller's requests to the API server."""

    qps: Annotated[int, Field(strict=True, ge=1, le=MOST)]
    """Requests a second."""
    burst: Annotated[int, Field(strict=True, ge=1, le=MOST)]
    """Requests at once."""


class Arc(Model):
    """The Actions Runner Controller."""

    version: Version = ARC_VERSION
    """Chart version of the controller and of all scale sets. A controller deletes scale sets of other minor versions:
    change the minor version with `gpufleet upgrade arc`."""
    upgrade_from: Version | None = None
    """Version that the cluster has now, at most one minor version away. While it is set, ARC's controller cannot delete
    scale sets, and `pulumi up` updates ARC's CRDs. Remove it after the upgrade."""
    namespace: Name = "arc-systems"
    """Namespace of the controller and the listeners; this stack creates and owns it."""
    release: Name = "arc"
    """Helm release name; the controller's service account is named after it."""
    metrics: Switch = True
    """Whether to expose Prometheus metrics of controller and listeners, with labels of bounded cardinality."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    """Log level of the controller."""
    update_strategy: Literal["immediate", "eventual"] = "immediate"
    """Whether changed runners start at once, beside the busy ones of before, or after those have finished."""
    client_limits: ClientLimits | None = None
    """Limits of the controller's requests to the API server; if omitted, ARC's own: 20 a second, 30 at once. A runner
    takes about 10."""


class Charts(Model):
    """Source of Helm charts."""

    mirror: Annotated[str, Text(r"(oci://|https?://|/).+", 512, "an absolute folder, or an oci:// or https:// URL")]
    """Registry (`oci://…`), chart repository (`https://…`) or folder with `<chart>-<version>.tgz`, for sites without
    internet access."""


class ExistingSecretCredentials(Model):
    """A Kubernetes secret that the project's owners manage in their namespace. This stack never changes it."""

    kind: Literal["existingSecret"]
    """An existing Kubernetes secret."""
    secret_name: Name
    """Name of the Kubernetes secret."""
    revision: Filled | None = None
    """Text of your choice, such as a date. Change it after the secret's contents have changed: `pulumi up` then
    restarts the listeners, which read the secret only when they start. No job is touched."""


class GithubAppCredentials(Model):
    """A GitHub App. Its private key is the stack's secret `<project>-privateKey`."""

    kind: Literal["githubApp"]
    """A GitHub App."""
    app_id: Id
    """App ID or client ID."""
    installation_id: Id
    """ID of the App's installation on the organisation or repository."""
    secret_name: Name
    """Name of the Kubernetes secret that this stack creates for the App."""


class TokenCredentials(Model):
    """A personal access token: the stack's secret `<project>-token`."""

    kind: Literal["token"]
    """A personal access token."""
    secret_name: Name
    """Name of the Kubernetes secret that this stack creates for the token."""


Credentials = Annotated[
    ExistingSecretCredentials | GithubAppCredentials | TokenCredentials, Field(discriminator="kind")
]


class ProxyServer(Model):
    """A proxy."""

    url: Annotated[str, Text(r"https?://[^/@\s]+/?", 512, "a URL without credentials: http://HOST:PORT")]
    """URL of the proxy. Credentials belong into a Secret."""
    credentials_secret: Name | None = None
    """Secret in the project's namespace with the keys `username` and `password`; if omitted, the proxy requires
    none."""


class Proxy(Model):
    """Proxies between the runners and GitHub."""

    http: ProxyServer | None = None
    """Proxy for HTTP; if omitted, none."""
    https: ProxyServer | None = None
    """Proxy for HTTPS; if omitted, none."""
    no_proxy: tuple[Filled, ...] = ()
    """Hosts that are reached without the proxies."""


class ServerCertificate(Model):
    """Certificate authority of a GitHub Enterprise Server."""

    config_map: ObjectName
    """ConfigMap in the project's namespace."""
    key: SecretKeyName = "ca.crt"
    """Key of the certificate in the ConfigMap, in PEM."""
    runner_mount_path: Folder | None = None
    """Folder of the runner container for the certificate, which jobs then trust too; if omitted, only the controller
    and the listeners have it."""


class Project(Model):
    """A GitHub organisation or repository whose jobs run here."""

    config_url: GithubUrl
    """URL of the organisation or repository."""
    namespace: Name
    """Namespace of the runners. With `kind: existingSecret` it must exist; otherwise this stack creates and owns it."""
    runner_group: Filled | None = None
    """GitHub runner group; if omitted, GitHub's default group."""
    proxy: Proxy | None = None
    """Proxies between runners, listeners and GitHub; if omitted, none."""
    server_certificate: ServerCertificate | None = None
    """Certificate authority of your GitHub Enterprise Server; if omitted, the public ones."""
    owner: Filled | None = None
    """Team or person responsible for the runners, shown in the catalogue of labels."""
    contact: Filled | None = None
    """Contact for questions about the runners: a channel, an address or a URL."""
    credentials: Credentials
    """Credentials with which the runners register at GitHub."""


class Deprecation(Model):
    """Deprecation of a label that will be removed."""

    until: Date
    """Last day on which the label is served."""
    use: Label | None = None
    """Replacement label."""


class Limits(Model):
    """Limits of one runner."""

    cpu: Cores | None = None
    """CPU limit; if omitted, runners may use idle cores."""
    memory: Size | None = None
    """Memory limit: the kernel ends a job that exceeds it. If omitted, none."""


class Runner(Model):
    """Runners of one `runs-on` label."""

    project: Name
    """Project whose jobs the runners serve."""
    profile: Name | None = None
    """Profile of the runners; if omitted, the default of every profile setting."""
    gpus: Count
    """Number of GPUs or partitions of one runner."""
    cpu: Cores
    """CPU cores of one runner: a request."""
    memory: Size
    """Memory of one runner: a request."""
    limits: Limits = Limits()
    """Limits of one runner; if omitted, none."""
    min: Count = 0
    """Minimum number of idle runners."""
    max: Annotated[int, Field(strict=True, ge=1, le=MOST)]
    """Maximum number of runners at once."""
    docker: Switch = False
    """Whether jobs can run containers; `docker` of the profile determines how."""
    additional_labels: tuple[AdditionalLabel, ...] = ()
    """Additional labels by which jobs may request these runners, also beside their own; other runners may have them
    too. ARC registers them only when it creates the scale set at GitHub: a later change has no effect."""
    deprecated: Deprecation | None = None
    """Planned removal of the label. Jobs with a removed label do not fail; they queue for 24 hours."""


class Acknowledgement(Model):
    """Acknowledgement of a known finding, with a reason and an expiry date."""

    finding: Filled
    """Name of the finding, as `gpufleet check` prints it in brackets."""
    path: str | None = None
    """Setting to which the acknowledgement applies; if omitted, all."""
    reason: Filled
    """Reason for the acknowledgement."""
    until: Date
    """Last day of the acknowledgement; from the next day on, the finding is reported again."""


class Settings(Model):
    """Settings of a stack file that are the same for every kind of cluster.

    Each kind has a model of its own, so that commands import only the models that their stack uses.
    """

    if TYPE_CHECKING:

        @property
        def cluster(self) -> Cluster: ...

    arc: Arc = Arc()
    """The Actions Runner Controller."""
    charts: Charts | None = None
    """Source of Helm charts; if omitted, the vendors' registries."""
    projects: Annotated[dict[Name, Project], Field(min_length=1)]
    """GitHub organisations and repositories whose jobs run here, by name."""
    profiles: dict[Name, Profile] = {}
    """Settings shared by several runners, by name of the profile."""
    runners: dict[Label, Runner]
    """Runners, by their `runs-on` label."""
    host_paths: tuple[Folder, ...] = ()
    """Folders of the nodes that pods may mount as `hostPath`, each with everything below it. Other folders are errors
    of the policy, and so are the sockets of container engines and the nodes' credentials even if listed here."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    """Known findings, each acknowledged with a reason and an expiry date."""

    def profile(self, runner: Runner) -> Profile:
        """Return the profile of a runner."""
        return self.profiles[runner.profile] if runner.profile else Profile()

    def has_docker_daemon(self, runner: Runner) -> bool:
        """Return whether jobs of a runner use a Docker daemon in its pod."""
        return runner.docker and isinstance(self.profile(runner).docker, DockerSidecar)

    def pool_name(self, runner: Runner) -> str:
        """Return the name of a runner's node pool."""
        return self.profile(runner).pool or next(iter(self.cluster.node_pools))

    def pool(self, runner: Runner) -> Pool:
        """Return the node pool of a runner."""
        return self.cluster.node_pools[self.pool_name(runner)]

    def effective(self, label: str) -> Runner:
        """Return a runner with the `min` and `max` that its scale set has at present."""
        return self.runners[label]

    def accelerator_name(self, runner: Runner) -> str:
        """Return the display name of a runner's GPUs."""
        raise NotImplementedError

    def devices_of_a_node(self, runner: Runner) -> int:
        """Return the maximum number of GPUs on a node of the runner's pool, counted as pods request them."""
        raise NotImplementedError

    def devices_of_pool(self, pool: str) -> int | None:
        """Return the maximum number of GPUs in a pool, counted as pods request them; None if unlimited."""
        raise NotImplementedError

    def gpu_resource(self, pool: str) -> str:
        """Return the resource name by which pods request a GPU of a pool."""
        raise NotImplementedError

    def device_plugin_namespaces(self) -> list[tuple[Path, str, str]]:
        """Return the namespaces of device plugins: path of the setting, namespace, component."""
        return []

    def secret_keys(self) -> Mapping[str, str]:
        """Return the configuration keys that must hold a secret, each with the setting that requires it."""
        return {
            secret_key(name, project.credentials): f"projects.{name}.credentials"
            for name, project in self.projects.items()
            if not isinstance(project.credentials, ExistingSecretCredentials)
        }


def secret_key(project: str, credentials: GithubAppCredentials | TokenCredentials) -> str:
    """Return the configuration key of a project's secret."""
    return f"{project}-privateKey" if isinstance(credentials, GithubAppCredentials) else f"{project}-token"
