"""The model of a stack file: the only reader of configuration.

What a field means to its user is in the string under it; the JSON Schema, editors and the README take it from there.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from components.amd_gpu_device_plugin import (
    PARTITIONS_PER_GPU,
    ComputePartition,
    MemoryPartition,
    ResourceNaming,
    gpu_resource,
)
from components.arc_controller import ARC_VERSION
from components.runner_scale_set import DOCKER_IMAGE, LABEL_LIMIT, RUNNER_IMAGE
from stacks import quantity
from stacks.documented import Documented


class Model(Documented):
    """Base of every part of the stack file."""

    model_config = ConfigDict(hide_input_in_errors=True)


@dataclass(frozen=True)
class Text:
    """Text of a certain form, checked with a message of its own and shown to editors as a pattern."""

    pattern: str
    limit: int
    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"pattern": f"^({self.pattern})$", "maxLength": self.limit}

    def check(self, text: str) -> str:
        if len(text) > self.limit:
            raise PydanticCustomError(
                "text_too_long",
                "has {length} characters; at most {limit} are allowed, shorten it",
                {"length": len(text), "limit": self.limit},
            )
        if not re.fullmatch(self.pattern, text):
            raise PydanticCustomError("not_legal", "is not {what}", {"what": self.what})
        return text


@dataclass(frozen=True)
class Amount:
    """A Kubernetes quantity: text, or a number."""

    unit: str
    """What a number without a suffix counts."""
    least: Decimal
    """Smallest amount that can be meant: 512 bytes of memory are a forgotten suffix."""
    examples: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": ["string", "number"], "pattern": f"^{quantity.PATTERN}$", "exclusiveMinimum": 0}

    def check(self, value: Any) -> str:
        context = {"unit": self.unit, "examples": self.examples}
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        try:
            # 20 characters are more than any machine has of anything.
            amount = quantity.parse(value if isinstance(value, str) and len(value) <= 20 else "")
        except ValueError:
            message = "is not a Kubernetes quantity; write for example {examples}"
            raise PydanticCustomError("quantity", message, context) from None
        if amount < self.least:
            message = "is too little, counted in {unit}; write for example {examples}"
            raise PydanticCustomError("quantity", message, context)
        return str(value)


def _id(value: Any) -> Any:
    """IDs are text even where YAML reads a number: as a number they reach Helm as 1.234567e+06."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _day(value: Any) -> Any:
    """The engine hands a YAML date over in Go's own words: `2027-03-31 00:00:00 +0000 UTC`."""
    return value.removesuffix(" 00:00:00 +0000 UTC") if isinstance(value, str) else value


_WORD = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_TOKEN = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

MOST = 2**31 - 1
"""Kubernetes and ARC keep counts and group ids in 32 bits."""

Count = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Switch = Annotated[bool, Field(strict=True)]
Filled = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Text(_WORD, 63, "a Kubernetes name: lower case letters, digits and '-'")]
Label = Annotated[
    str,
    Text(
        rf"{_WORD}(\.{_WORD})*",
        LABEL_LIMIT,
        "a runner label: lower case letters, digits, '-' and '.', since its Helm release is named after it",
    ),
]
LabelKey = Annotated[
    str, Text(rf"({_WORD}(\.{_WORD})*/)?{_TOKEN}", 317, "the key of a Kubernetes label: NAME or DOMAIN/NAME")
]
LabelValue = Annotated[
    str, Text(rf"({_TOKEN})?", 63, "the value of a Kubernetes label: letters, digits, '-', '_' and '.'")
]
Labels = dict[LabelKey, LabelValue]
Cores = Annotated[str, Amount("cores", Decimal("0.001"), "8 or 500m")]
Size = Annotated[str, Amount("bytes", Decimal(1024) ** 2, "64Gi or 100G")]
Id = Annotated[
    str,
    BeforeValidator(_id),
    Text(r"[A-Za-z0-9.]+", 64, "an id: letters and digits"),
    WithJsonSchema({"type": ["string", "integer"]}),
]
Address = Annotated[str, Text(r"[A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9])?", 253, "an IP address or a host name")]
Folder = Annotated[str, Text(r"/[^\s:]*", 512, "an absolute path: it begins with '/'")]
Variable = Annotated[str, Text(r"[A-Za-z_][A-Za-z0-9_]*", 256, "the name of an environment variable")]
Date = Annotated[datetime.date, BeforeValidator(_day)]
Image = Annotated[str, Text(r"[A-Za-z0-9][-A-Za-z0-9._/:@]*", 512, "a container image: HOST/NAME:TAG")]
Version = Annotated[str, Text(r"[0-9]+\.[0-9]+\.[0-9]+([-+][-+.A-Za-z0-9]+)?", 64, "an exact version such as 0.14.2")]
GithubUrl = Annotated[
    str,
    Text(
        r"https://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?",
        512,
        "a GitHub URL: write https://github.com/ORG or https://github.com/ORG/REPO",
    ),
]


# -- the cluster ------------------------------------------------------------------------------------------------------


class ContextKubeconfig(Model):
    """A context of a kubeconfig file."""

    kind: Literal["context"]
    """A kubeconfig file's context."""
    context: Filled
    """Name of the context. Always named: nothing goes to whatever context happens to be current."""
    path: Filled | None = None
    """Path of the file; left out, `$KUBECONFIG` or `~/.kube/config`."""


class SecretKubeconfig(Model):
    """A kubeconfig kept as a secret of the stack, under the key `gpu-runners:kubeconfig`."""

    kind: Literal["secret"]
    """The stack's secret `kubeconfig`."""


Kubeconfig = Annotated[ContextKubeconfig | SecretKubeconfig, Field(discriminator="kind")]


class Partition(Model):
    """How every GPU of a pool is partitioned."""

    compute: ComputePartition = "SPX"
    """Compute partition: SPX leaves a GPU whole, CPX makes eight of it."""
    memory: MemoryPartition = "NPS1"
    """Memory partition. NPS4 only goes with CPX."""


class Accelerator(Model):
    """The GPUs of one node."""

    vendor: Literal["amd"]
    """Who makes them, and so which device plugin serves them."""
    model: Filled
    """Model, for people: `MI300X`."""
    count: Annotated[int, Field(strict=True, ge=1, le=16)]
    """Physical GPUs of one node."""
    partition: Partition = Partition()
    """How each of them is partitioned. Partitioning itself is the hosts' business; it is declared here because pods ask
    for partitions: eight GPUs under CPX are 64."""

    @property
    def devices(self) -> int:
        """What pods can ask for on one node: GPUs times partitions."""
        return self.count * PARTITIONS_PER_GPU[self.partition.compute]


class Allocatable(Model):
    """What one node has left for pods, as `kubectl describe node` says under Allocatable."""

    cpu: Cores
    """Cores."""
    memory: Size
    """Memory."""
    ephemeral_storage: Size
    """Disk for images, logs and emptyDir volumes."""
    pods: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 110
    """Pods; 110 is the kubelet's default."""


class Taint(Model):
    """A taint of a node."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What it does to pods that do not tolerate it."""


class Toleration(Model):
    """A toleration of a pod."""

    key: LabelKey | None = None
    """Key of the taint; left out with `Exists`, every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value counts."""
    value: LabelValue | None = None
    """Value of the taint, with `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; left out, every effect."""

    @model_validator(mode="after")
    def key_and_value_go_with_the_operator(self) -> Toleration:
        """What the API server refuses otherwise."""
        if self.operator == "Exists" and self.value:
            raise PydanticCustomError("toleration", "operator Exists takes no value; remove 'value', or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise PydanticCustomError(
                "toleration", "operator Equal needs a key; add 'key', or use Exists for every taint"
            )
        return self

    def tolerates(self, taint: Taint) -> bool:
        """Whether a pod with this toleration may run on a node with that taint."""
        key = (self.key is None and self.operator == "Exists") or self.key == taint.key
        value = self.operator == "Exists" or (self.value or "") == taint.value
        return key and value and self.effect in (None, taint.effect)


class Node(Model):
    """One machine."""

    address: Address
    """Address that it is reached at."""
    labels: Labels = {}
    """Its own labels, over those of its pool."""


class NodePool(Model):
    """Machines of one kind."""

    accelerator: Accelerator
    """Their GPUs."""
    allocatable: Allocatable
    """What each of them has left for pods."""
    labels: Labels = {}
    """Labels of every node. The device plugin runs where they are, so they should tell these nodes from others."""
    taints: tuple[Taint, ...] = ()
    """Taints of every node."""
    nodes: Annotated[dict[Name, Node], Field(min_length=1)]
    """The machines, by node name."""

    def node_labels(self, node: Node) -> dict[str, str]:
        """All labels of one of its nodes."""
        return self.labels | node.labels


class BareMetalCluster(Model):
    """A cluster of machines that somebody owns. It exists already; what runs on it is what this stack adds."""

    kind: Literal["bareMetal"]
    """A cluster of machines that somebody owns."""
    name: Name
    """Name of the cluster. Stacks that name the same cluster share its labels."""
    kubeconfig: Kubeconfig
    """How to reach its API server."""
    node_pools: Annotated[dict[Name, NodePool], Field(min_length=1)]
    """Its GPU nodes, by kind of machine."""


# -- what runs on it --------------------------------------------------------------------------------------------------


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


class DevicePlugin(Model):
    """AMD's device plugin and node labeller."""

    resource_naming: ResourceNaming = "single"
    """`single`: every device is `amd.com/gpu`. `mixed`: devices are named after their partition, `amd.com/cpx_nps4`."""
    namespace: Name = "kube-system"
    """Namespace of both; it exists already."""
    health_check_seconds: Count = 30
    """Seconds between health checks of the GPUs; 0 turns them off."""
    node_selector: Labels | None = None
    """Labels of the nodes they run on; left out, the labels that the node pools have in common."""
    tolerations: tuple[Toleration, ...] | None = None
    """Taints they tolerate; left out, the taints of the node pools."""


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
    """A stack file's settings."""

    cluster: BareMetalCluster
    """The cluster."""
    arc: Arc = Arc()
    """The Actions Runner Controller."""
    device_plugin: DevicePlugin = DevicePlugin()
    """What makes GPUs schedulable."""
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

    def pool(self, runner: Runner) -> NodePool:
        """The node pool of a runner."""
        pool = self.profile(runner).pool
        return self.cluster.node_pools[pool] if pool else next(iter(self.cluster.node_pools.values()))

    def gpu_resource(self, pool: NodePool) -> str:
        """Name under which pods ask for a GPU of that pool."""
        partition = pool.accelerator.partition
        return gpu_resource(self.device_plugin.resource_naming, partition.compute, partition.memory)

    def secret_keys(self) -> Mapping[str, str]:
        """Configuration keys that have to hold a secret, each with the setting that asks for it."""
        keys = {
            secret_key(name, project.credentials): f"projects.{name}.credentials"
            for name, project in self.projects.items()
            if not isinstance(project.credentials, ExistingSecretCredentials)
        }
        return keys | ({"kubeconfig": "cluster.kubeconfig"} if self.cluster.kubeconfig.kind == "secret" else {})


def secret_key(project: str, credentials: GithubAppCredentials | TokenCredentials) -> str:
    """Configuration key of a project's secret."""
    return f"{project}-privateKey" if isinstance(credentials, GithubAppCredentials) else f"{project}-token"
