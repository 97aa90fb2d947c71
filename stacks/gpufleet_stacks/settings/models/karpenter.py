"""Settings of Karpenter and of its node pools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gpufleet.aws.karpenter.node_pool_args import (
    BUDGET_DURATION,
    BUDGET_NODES,
    DURATION,
    HOP_LIMITS,
    MIN_VALUES,
    MOST_AMI_TERMS,
    MOST_BUDGETS,
    SCHEDULE,
    WEIGHTS,
    AmiFamily,
    ConsolidationPolicy,
    DisruptionReason,
    Operator,
    PlacementStrategy,
)
from gpufleet.aws.karpenter.versions import KARPENTER_VERSION
from gpufleet.nvidia.sharing import FEWEST_REPLICAS, MOST_MPS_REPLICAS
from gpufleet_stacks.settings.models.aws_value_types import (
    Account,
    InstanceType,
    Iops,
    ResourceId,
    Tags,
    Throughput,
    Zone,
)
from gpufleet_stacks.settings.models.taints import TaintSettings
from gpufleet_stacks.settings.models.value_types import (
    MOST,
    Cores,
    Count,
    Filled,
    LabelKey,
    Labels,
    Model,
    Name,
    Size,
    Switch,
    Text,
    Version,
)

Span = Annotated[str, Text(DURATION, 32, "a duration such as 30s, 90m or 24h")]
SpanOrNever = Annotated[str, Text(f"{DURATION}|Never", 32, "a duration such as 30s or 24h, or Never")]
HoursMinutes = Annotated[str, Text(BUDGET_DURATION, 16, "a duration in hours and minutes such as 8h, 30m or 1h30m")]
Schedule = Annotated[
    str,
    Text(
        SCHEDULE,
        128,
        "a cron schedule: five fields such as '0 8 * * 1-5', or a name such as @daily",
    ),
]
Word = Annotated[
    str, Text(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 63, "a word: letters, digits, '-', '_' and '.'")
]


class Instances(Model):
    """Constraints on the instance types that Karpenter may choose. Empty keys add none."""

    categories: tuple[Word, ...] = ()
    """Instance categories: `c`, `m`, `r`, `g`, `p`."""
    families: tuple[Word, ...] = ()
    """Instance families: `g4dn`, `g5`."""
    sizes: tuple[Word, ...] = ()
    """Instance sizes: `2xlarge`."""
    cpus: tuple[Annotated[int, Field(strict=True, ge=1)], ...] = ()
    """Allowed numbers of vCPUs."""
    generation_above: Count | None = None
    """Exclusive lower bound of the instance generation: 4 allows 5 and newer."""
    hypervisor: Literal["nitro", "xen"] | None = None
    """Hypervisor. The device plugin and the EBS volume limits assume `nitro`."""
    architecture: Literal["amd64", "arm64"] = "amd64"
    """CPU architecture of the nodes and of the runners' images. Without this requirement, Karpenter would provision
    whichever is cheaper."""
    gpu_counts: tuple[Annotated[int, Field(strict=True, ge=1, le=64)], ...] | None = None
    """GPU counts of the allowed instance types, all that occur; empty for types without GPUs. If omitted, read from a
    built-in table of EC2 instance types. Set it for types or zones newer than that table; zones, and CPU and memory of
    runners, are then not checked."""


class PoolRequirement(Model):
    """An additional requirement, in Karpenter's own syntax."""

    key: LabelKey
    """Label that Karpenter sets on every instance type."""
    operator: Operator
    """Comparison operator."""
    values: tuple[str, ...] = ()
    """Values to compare the label with."""
    min_values: Annotated[int, Field(strict=True, ge=MIN_VALUES[0], le=MIN_VALUES[1])] | None = None
    """Minimum number of different values that must remain to choose from."""


class TimeSlicingSettings(Model):
    """Time-slicing: several pods take turns on one GPU, without isolation of memory or faults."""

    replicas: Annotated[int, Field(strict=True, ge=FEWEST_REPLICAS, le=MOST)]
    """Number of pods that may share one GPU."""
    rename_by_default: Switch = False
    """Whether to advertise shared GPUs as `nvidia.com/gpu.shared`. Rejected on EKS, because Karpenter does not know
    that name."""
    fail_requests_greater_than_one: Switch = True
    """Whether to reject pods that request more than one share. Two shares may be of the same GPU, and give no more GPU
    time than one."""


class MpsSettings(Model):
    """CUDA MPS: several pods run on one GPU at once, each with an equal part of its memory. A fault of one can end the
    others. NVIDIA calls it experimental."""

    replicas: Annotated[int, Field(strict=True, ge=FEWEST_REPLICAS, le=MOST_MPS_REPLICAS)]
    """Number of pods that share one GPU."""


class MigSettings(Model):
    """Multi-Instance GPU: each GPU is divided in hardware into isolated instances of one profile. `userData` or an AMI
    of yours must create the instances before the kubelet starts."""

    profile: Annotated[str, Text(r"[1-7]g\.[0-9]+gb", 16, "a MIG profile such as 1g.10gb")]
    """Profile of every instance; the GPU model decides how many a GPU holds."""


class Sharing(Model):
    """GPU sharing by exactly one method. It determines the device plugin's configuration, and the GPU counts that
    Karpenter plans with."""

    time_slicing: TimeSlicingSettings | None = None
    """Time-slicing: pods take turns on a GPU."""
    mps: MpsSettings | None = None
    """CUDA MPS: pods run on a GPU at once."""
    mig: MigSettings | None = None
    """Multi-Instance GPU: pods have parts of a GPU."""

    @model_validator(mode="after")
    def has_one_method(self) -> Sharing:
        """Raise an error unless exactly one method is set."""
        methods = [method for method in (self.time_slicing, self.mps, self.mig) if method]
        if len(methods) != 1:
            message = "has {count} of timeSlicing, mps and mig; exactly one is required"
            raise PydanticCustomError("sharing", message, {"count": len(methods) or "none"})
        return self


class PoolLimits(Model):
    """Limits on the resources of all nodes in the pool together."""

    cpu: Cores | None = None
    """CPU cores."""
    memory: Size | None = None
    """Memory."""
    gpus: Count | None = None
    """Physical GPUs, counted before sharing, as AWS bills them. Required in a pool with GPUs."""
    nodes: Count | None = None
    """Number of nodes."""


class BudgetSettings(Model):
    """Limit on the number of nodes that Karpenter may disrupt at once."""

    nodes: Annotated[str, Text(BUDGET_NODES, 16, "a number of nodes or a percentage, in quotes: '10%'")]
    """Number of nodes, or percentage of the pool; `"0"` forbids disruption."""
    reasons: tuple[DisruptionReason, ...] = ()
    """Disruption reasons that the budget limits; if omitted, all."""
    schedule: Schedule | None = None
    """Start of the budget, as a cron schedule in UTC. Requires `duration`."""
    duration: HoursMinutes | None = None
    """Duration of the budget, in hours and minutes. Requires `schedule`."""


class PoolDisruption(Model):
    """Voluntary disruption of nodes by Karpenter. A CI job on a disrupted node is lost."""

    consolidation_policy: ConsolidationPolicy = "WhenEmpty"
    """Nodes that Karpenter may remove. Its own default, `WhenEmptyOrUnderutilized`, evicts running pods."""
    consolidate_after: SpanOrNever = "30s"
    """Time without pods added or removed before Karpenter considers a node for removal."""
    budgets: Annotated[tuple[BudgetSettings, ...], Field(max_length=MOST_BUDGETS)] = ()
    """Limits on simultaneous disruptions; if omitted, a tenth of the pool."""


class Ami(Model):
    """Selection of AMIs. An alias cannot be combined with other keys, and neither can an ID."""

    alias: Filled | None = None
    """Family and version of an AMI that AWS publishes for EKS: `al2023@v20260512`. With `@latest`, every new AMI
    replaces every node."""
    id: ResourceId | None = None
    """ID of one AMI."""
    name: Filled | None = None
    """Name of AMIs, with wildcards."""
    owner: Filled | None = None
    """Account that owns the AMIs; use it with a name or tags."""
    tags: Tags = {}
    """Tags that the AMIs must have."""
    ssm_parameter: Filled | None = None
    """SSM parameter that holds an AMI's ID."""


class ReservedInstancesSettings(Model):
    """Instances that a reservation holds. Only `capacity`, `check` and the sandbox use them, because they do not query
    AWS."""

    instance_type: InstanceType
    """Instance type."""
    zone: Zone
    """Availability zone."""
    instances: Annotated[int, Field(strict=True, ge=1, le=MOST)]
    """Number of instances."""
    block: Switch = False
    """Whether it is a capacity block for ML."""


class Reservation(Model):
    """Capacity reservations and capacity blocks to use first; requires capacity `reserved`."""

    id: ResourceId | None = None
    """ID of one reservation; cannot be combined with other keys."""
    tags: Tags = {}
    """Tags that the reservations must have."""
    owner_id: Account | None = None
    """Account that owns the reservations."""
    match_criteria: Literal["open", "targeted"] | None = None
    """Matching of the reservations: `open` accepts any fitting instance, `targeted` only instances that name the
    reservation."""
    holds: ReservedInstancesSettings | None = None
    """Instances that the reservations hold together. If omitted, the sandbox has no such reservation, and `capacity`
    assumes that any instance type may be reserved."""


Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


class KubeletSettings(Model):
    """Settings of the nodes' kubelet; omitted ones keep the kubelet's defaults."""

    max_pods: Count | None = None
    """Maximum number of pods on a node."""
    pods_per_core: Count | None = None
    """Maximum number of pods per core."""
    kube_reserved: dict[Filled, str] = {}
    """Resources reserved for Kubernetes: `cpu`, `memory`, `ephemeral-storage`, `pid`."""
    system_reserved: dict[Filled, str] = {}
    """Resources reserved for the operating system, by the same names."""
    eviction_hard: dict[Filled, str] = {}
    """Thresholds below which pods are evicted immediately: `{memory.available: 5%}`."""
    image_gc_high_threshold_percent: Percent | None = None
    """Disk usage in percent at which garbage collection of images starts."""
    image_gc_low_threshold_percent: Percent | None = None
    """Disk usage in percent at which garbage collection stops; lower than the other threshold."""


class PlacementGroupSettings(Model):
    """Placement group of a pool's instances: a new one with a strategy, or an existing one."""

    strategy: PlacementStrategy | None = None
    """Strategy of a group that this stack creates: `cluster` puts instances close together, in one zone; `partition`
    and `spread` keep them on different hardware."""
    name: Filled | None = None
    """Name of the group. With a strategy, it may be omitted: `<cluster>-<pool>`."""
    id: ResourceId | None = None
    """ID of an existing group, instead of its name."""


class KarpenterPool(Model):
    """Nodes that Karpenter provisions for pending pods and removes when they are empty."""

    instances: Instances
    """Constraints on the instance types."""
    capacity: Annotated[tuple[Literal["spot", "on-demand", "reserved"], ...], Field(min_length=1)] = ("on-demand",)
    """Capacity types. With both `spot` and `on-demand`, Karpenter uses on-demand only where no spot capacity is
    available. AWS reclaims spot instances with two minutes' notice, and their jobs are lost."""
    zones: tuple[Zone, ...] = ()
    """Zones to provision nodes in; if omitted, all zones of the network."""
    requirements: tuple[PoolRequirement, ...] = ()
    """Additional requirements, in Karpenter's own syntax."""
    labels: Labels = {}
    """Labels of every node."""
    taints: tuple[TaintSettings, ...] = ()
    """Taints of every node."""
    limits: PoolLimits
    """Limits of the pool. `nodes: 0` pauses it: jobs wait, and existing nodes stay until they are empty."""
    overcommit: Literal["refused", "allowed"] = "refused"
    """Whether the `max` of the pool's labels may together exceed what fits within its limits (overcommitted pool). With
    `allowed`, jobs may queue although their label is below `max`, without a finding."""
    sharing: Sharing | None = None
    """GPU sharing; if omitted, each GPU belongs to one pod."""
    disruption: PoolDisruption = PoolDisruption()
    """Voluntary disruption of nodes."""
    expire_after: SpanOrNever = "720h"
    """Age at which a node is drained, even if jobs run on it."""
    termination_grace_period: Span | None = None
    """Time that a draining node waits for its jobs; set at least the length of the longest job. Required in a pool with
    GPUs."""
    weight: Annotated[int, Field(strict=True, ge=WEIGHTS[0], le=WEIGHTS[1])] | None = None
    """Priority among pools; the highest weight is tried first."""
    node_class: Name | None = None
    """Name of the EC2NodeClass; if omitted, the pool's name."""
    amis: Annotated[tuple[Ami, ...], Field(min_length=1, max_length=MOST_AMI_TERMS)]
    """AMIs of the nodes."""
    ami_family: AmiFamily | None = None
    """AMI family; determines the bootstrap user data. Not needed with an alias."""
    role: Filled | None = None
    """Name of the nodes' IAM role; if omitted, the role that this stack creates."""
    instance_profile: Filled | None = None
    """Instance profile of the nodes, instead of a role. Required where IAM is unreachable."""
    root_volume: Size = "200Gi"
    """Size of the root volume, which holds images and the jobs' files. Karpenter's own default is 20Gi."""
    root_volume_iops: Iops | None = None
    """IOPS of the root volume; if omitted, 3000."""
    root_volume_throughput: Throughput | None = None
    """Throughput of the root volume in MiB/s; if omitted, 125."""
    root_volume_key: Filled | None = None
    """KMS key of the root volume, by ID, ARN or alias; if omitted, the account's default key. The key's policy must let
    the role of Karpenter's controller use it."""
    image_snapshot: ResourceId | None = None
    """Snapshot of a Bottlerocket data volume with container images that nodes then need not pull."""
    fast_image_pull: Switch = False
    """Whether nodes pull and unpack layers of images in parallel. Requires AL2023 v20250821 or later; give the root
    volume at least 600 MiB/s."""
    user_data: Filled | None = None
    """Additional user data: a shell script, a NodeConfig of nodeadm, or MIME parts; for Bottlerocket, TOML settings."""
    kubelet: KubeletSettings = KubeletSettings()
    """Settings of the kubelet."""
    startup_taints: tuple[TaintSettings, ...] = ()
    """Taints that another component removes once a node is ready; runners need not tolerate them."""
    efa: Literal["onRequest", "always"] | None = None
    """EFA interfaces, for jobs on several nodes. With `onRequest`, nodes for runners that request
    `vpc.amazonaws.com/efa` have all that their type supports. With `always`, every node has them, without IP addresses.
    If omitted, none."""
    placement_group: PlacementGroupSettings | None = None
    """Placement group of the instances; if omitted, none. AWS recommends strategy `cluster` with EFA."""
    instance_store: Literal["RAID0"] | None = None
    """`RAID0` stores the jobs' files on the instance's local disks, if it has any."""
    metadata_hop_limit: Annotated[int, Field(strict=True, ge=HOP_LIMITS[0], le=HOP_LIMITS[1])] = 1
    """Hop limit for instance metadata. With 1, jobs cannot use the node's role."""
    reservations: tuple[Reservation, ...] = ()
    """Capacity reservations to use first."""
    tags: Tags = {}
    """Tags of instances, volumes and network interfaces."""

    @property
    def paused(self) -> bool:
        """Return whether a limit of zero keeps Karpenter from provisioning nodes."""
        return 0 in (self.limits.gpus, self.limits.nodes)


class ServiceMonitorSettings(Model):
    """A ServiceMonitor for Karpenter's metrics. Helm creates it only if the Prometheus operator's CRDs exist when
    Karpenter is installed or upgraded."""

    labels: Labels = {}
    """Labels by which your Prometheus selects ServiceMonitors: `{release: prometheus}`."""


class KarpenterSettings(Model):
    """Settings of Karpenter itself."""

    version: Version = KARPENTER_VERSION
    """Version of both Karpenter charts."""
    node_repair: Switch = False
    """Whether to replace nodes that stay unhealthy, without a drain: their jobs are lost. Nodes with faulty GPUs are
    replaced after 10 minutes, others after 30. Requires the add-on `eks-node-monitoring-agent`, v1.6.0 or later; alpha
    in Karpenter."""
    service_monitor: ServiceMonitorSettings | None = None
    """ServiceMonitor for Karpenter's metrics; if omitted, none."""
    spot_service_linked_role: Switch = False
    """Whether to create the account's service-linked role for spot instances. An account has only one; creating it
    again fails."""
