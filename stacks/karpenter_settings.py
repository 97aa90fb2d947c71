"""The part of a stack file that describes what Karpenter buys: its node pools, and Karpenter itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from components.karpenter_versions import KARPENTER_VERSION
from components.node_pool_args import AmiFamily, ConsolidationPolicy, DisruptionReason, Operator
from stacks.aws_value_types import Account, ResourceId, Tags, Zone
from stacks.taints import Taint
from stacks.value_types import MOST, Cores, Count, Filled, LabelKey, Labels, Model, Name, Size, Switch, Text, Version

Span = Annotated[str, Text(r"([0-9]+[hms])+", 32, "a span of time such as 30s, 90m or 24h")]
SpanOrNever = Annotated[str, Text(r"([0-9]+[hms])+|Never", 32, "a span of time such as 30s or 24h, or Never")]
HoursMinutes = Annotated[str, Text(r"[0-9]+h([0-9]+m)?|[0-9]+m", 16, "hours and minutes such as 8h, 30m or 1h30m")]
Schedule = Annotated[
    str,
    Text(
        r"@(annually|yearly|monthly|weekly|daily|midnight|hourly)|[!-~]+( [!-~]+){4}",
        128,
        "a schedule: five fields of cron such as '0 8 * * 1-5', or @daily and the like",
    ),
]
Word = Annotated[
    str, Text(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 63, "a word: letters, digits, '-', '_' and '.'")
]


class Instances(Model):
    """Which instance types Karpenter may choose among; what is left out is no matter."""

    categories: tuple[Word, ...] = ()
    """Categories: `c`, `m`, `r`, `g`, `p`."""
    families: tuple[Word, ...] = ()
    """Families: `g4dn`, `g5`."""
    sizes: tuple[Word, ...] = ()
    """Sizes: `2xlarge`."""
    cpus: tuple[Annotated[int, Field(strict=True, ge=1)], ...] = ()
    """Numbers of vCPUs."""
    generation_above: Count | None = None
    """Only generations above this one."""
    hypervisor: Literal["nitro", "xen"] | None = None
    """Hypervisor. The device plugins and EBS's limits are those of `nitro`."""
    architecture: Literal["amd64", "arm64"] = "amd64"
    """Architecture. Images of runners are of one: without this, Karpenter buys whichever is cheaper."""
    gpu_counts: tuple[Annotated[int, Field(strict=True, ge=1, le=64)], ...] | None = None
    """How many GPUs its types have, every count that occurs; none for types without. Left out, a table of EC2's types
    says so. For types that are newer than that table, or newly offered in a zone: neither is looked up then, nor
    whether a node has room for what runners ask for beside GPUs."""


class PoolRequirement(Model):
    """A further requirement, as Karpenter writes it."""

    key: LabelKey
    """Label that Karpenter knows of every instance type."""
    operator: Operator
    """How it is compared."""
    values: tuple[str, ...] = ()
    """What it is compared with."""
    min_values: Annotated[int, Field(strict=True, ge=1, le=50)] | None = None
    """How many different values have to remain to choose from."""


class TimeSlicing(Model):
    """Several pods take turns on one GPU; neither its memory nor its faults are kept apart."""

    replicas: Annotated[int, Field(strict=True, ge=2, le=MOST)]
    """Pods that may be on one GPU."""
    rename_by_default: Switch = False
    """Offer `nvidia.com/gpu.shared` instead. Refused on EKS: Karpenter does not know that name."""
    fail_requests_greater_than_one: Switch = True
    """Refuse pods that ask for more than one: two shares can be of one GPU, and are no more time of it."""


class Sharing(Model):
    """How several pods share a GPU. It drives the device plugin's configuration, and what Karpenter reckons with."""

    time_slicing: TimeSlicing
    """Pods take turns."""

    @model_validator(mode="before")
    @classmethod
    def is_supported(cls, value: Any) -> Any:
        """Other ways of sharing are known, and refused in so many words."""
        if isinstance(value, dict):
            for key, why in _UNSUPPORTED_SHARING.items():
                if key in value:
                    raise PydanticCustomError(
                        "sharing", "{key} is not supported: {why}; use timeSlicing", {"key": key, "why": why}
                    )
        return value


_UNSUPPORTED_SHARING = {
    "mps": "its daemon is experimental, and runs on nodes only that something has labelled beforehand",
    "mig": "instance types that Karpenter buys for it start unpartitioned, and it cannot plan with the parts' names",
}


class PoolLimits(Model):
    """Most of each resource in all nodes of the pool together."""

    cpu: Cores | None = None
    """Cores."""
    memory: Size | None = None
    """Memory."""
    gpus: Count | None = None
    """Physical GPUs, however they are shared: what the bill is counted in. Needed in a pool with GPUs."""
    nodes: Count | None = None
    """Nodes."""


class Budget(Model):
    """How many nodes Karpenter may take away at once."""

    nodes: Annotated[str, Text(r"(100|[0-9]{1,2})%|[0-9]+", 16, "a number of nodes or a percentage, in quotes: '10%'")]
    """A number, or a percentage of the pool; `"0"` forbids it."""
    reasons: tuple[DisruptionReason, ...] = ()
    """Why nodes are taken away; left out, every reason."""
    schedule: Schedule | None = None
    """When it begins to hold, as cron writes it, in UTC. Needs a duration."""
    duration: HoursMinutes | None = None
    """How long it holds, in hours and minutes. Needs a schedule."""

    @model_validator(mode="after")
    def schedule_and_duration_go_together(self) -> Budget:
        """What Karpenter refuses otherwise."""
        if (self.schedule is None) != (self.duration is None):
            got, missing = ("schedule", "duration") if self.duration is None else ("duration", "schedule")
            raise PydanticCustomError(
                "budget",
                "has a {got} and no {missing}; add the {missing}, or remove both",
                {"got": got, "missing": missing},
            )
        return self


class PoolDisruption(Model):
    """When Karpenter takes a node away of its own accord. A CI job that runs there is lost."""

    consolidation_policy: ConsolidationPolicy = "WhenEmpty"
    """Which nodes are taken away. Karpenter's own default, `WhenEmptyOrUnderutilized`, evicts what runs on them."""
    consolidate_after: SpanOrNever = "30s"
    """How long a node is left alone after a pod came or went."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = ()
    """How many at once; left out, a tenth of the pool."""


class Ami(Model):
    """Which machine images nodes start from. An alias stands alone, and so does an id."""

    alias: Filled | None = None
    """Family and version of an image that AWS makes for EKS: `al2023@v20260512`. With `@latest` every new image
    replaces every node."""
    id: ResourceId | None = None
    """Id of one image."""
    name: Filled | None = None
    """Name of images, with wildcards."""
    owner: Filled | None = None
    """Account whose images are looked at, with a name or tags."""
    tags: Tags = {}
    """Tags that the images have."""
    ssm_parameter: Filled | None = None
    """SSM parameter that holds an image's id."""


class Reservation(Model):
    """Capacity reservations and capacity blocks that are used up first, with capacity `reserved`."""

    id: ResourceId | None = None
    """Id of one reservation; stands alone."""
    tags: Tags = {}
    """Tags that the reservations have."""
    owner_id: Account | None = None
    """Account that owns them."""
    match_criteria: Literal["open", "targeted"] | None = None
    """Whether the reservations are open to whatever fits, or to be named."""


class KarpenterPool(Model):
    """Nodes that Karpenter buys when pods wait, and gives back when they are empty."""

    instances: Instances
    """Which instance types it may choose among."""
    capacity: Annotated[tuple[Literal["spot", "on-demand", "reserved"], ...], Field(min_length=1)] = ("on-demand",)
    """How they are bought. With `spot` and `on-demand`, spot first, on-demand where there is none: AWS takes a spot
    instance back at two minutes' notice, and the job with it."""
    zones: tuple[Zone, ...] = ()
    """Zones to buy in; left out, all of the network's."""
    requirements: tuple[PoolRequirement, ...] = ()
    """Further requirements, as Karpenter writes them."""
    labels: Labels = {}
    """Labels of every node."""
    taints: tuple[Taint, ...] = ()
    """Taints of every node."""
    limits: PoolLimits
    """The most that is bought."""
    overcommit: Literal["refused", "allowed"] = "refused"
    """Whether its labels may together have more runners at most than fit within its limits, whatever is bought.
    `allowed`: jobs may queue while their label still has room, and nothing is said of it."""
    sharing: Sharing | None = None
    """How several pods share a GPU; left out, each GPU is one pod's."""
    disruption: PoolDisruption = PoolDisruption()
    """When nodes are taken away."""
    expire_after: SpanOrNever = "720h"
    """Age at which a node is drained, whatever runs on it."""
    termination_grace_period: Span | None = None
    """How long a node that is to go waits for its jobs: at least the longest. Needed in a pool with GPUs."""
    weight: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    """Which pool is tried first, highest first."""
    node_class: Name | None = None
    """Name of its EC2NodeClass; left out, the pool's own name."""
    amis: Annotated[tuple[Ami, ...], Field(min_length=1, max_length=30)]
    """Machine images."""
    ami_family: AmiFamily | None = None
    """How a node of that image is told about its cluster; an alias says it already."""
    role: Filled | None = None
    """IAM role of the nodes, by name; left out, the one that this stack makes."""
    instance_profile: Filled | None = None
    """Instance profile of the nodes in place of a role: the only way where IAM cannot be reached."""
    root_volume: Size = "200Gi"
    """Disk for images and for what jobs write. Karpenter's own default is 20Gi."""
    instance_store: Literal["RAID0"] | None = None
    """`RAID0`: what jobs write goes to the instance's own disks, where it has some."""
    metadata_hop_limit: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """Network hops to the instance's metadata. With 1, jobs do not reach the node's role."""
    reservations: tuple[Reservation, ...] = ()
    """Reservations to use up first."""
    tags: Tags = {}
    """Tags of instances, volumes and network interfaces."""


class KarpenterSettings(Model):
    """Karpenter itself."""

    version: Version = KARPENTER_VERSION
    """Version of both its charts."""
    spot_service_linked_role: Switch = False
    """Make the account's role for spot instances. An account has it once: where it exists, making it fails."""
