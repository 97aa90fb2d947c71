"""Arguments of `KarpenterNodePool`: instance types, node class, disruption and GPU sharing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi

from gpufleet.nvidia.sharing import Sharing
from gpufleet.taint import Taint

NODE_POOL_API = "karpenter.sh/v1"
NODE_CLASS_API = "karpenter.k8s.aws/v1"
NODE_OVERLAY_API = "karpenter.sh/v1alpha1"

NODE_POOL_LABEL = "karpenter.sh/nodepool"
"""Label with the pool's name that Karpenter sets on its nodes."""

Manifest = Any
"""Part of a manifest in Kubernetes syntax."""

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
ConsolidationPolicy = Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]
DisruptionReason = Literal["Underutilized", "Empty", "Drifted"]
AmiFamily = Literal["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"]

ALIAS_FAMILIES: Mapping[str, AmiFamily] = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
"""AMI families, by their name in an alias."""

INSTANCE_LABELS = frozenset(
    f"karpenter.k8s.aws/{label}"
    for label in (
        "instance-tenancy",
        "capacity-reservation-type",
        "capacity-reservation-id",
        "capacity-reservation-interruptible",
        "ec2nodeclass",
        "instance-encryption-in-transit-supported",
        "instance-category",
        "instance-hypervisor",
        "instance-family",
        "instance-generation",
        "instance-local-nvme",
        "instance-size",
        "instance-cpu",
        "instance-cpu-manufacturer",
        "instance-cpu-sustained-clock-speed-mhz",
        "instance-memory",
        "instance-ebs-bandwidth",
        "instance-network-bandwidth",
        "instance-gpu-name",
        "instance-gpu-manufacturer",
        "instance-gpu-count",
        "instance-gpu-memory",
        "instance-accelerator-name",
        "instance-accelerator-manufacturer",
        "instance-accelerator-count",
        "instance-capability-flex",
        "placement-group-id",
        "placement-group-partition",
    )
)
"""All labels of Karpenter's AWS domain. The CRD accepts no others of that domain in requirements or node labels."""

# Patterns and bounds of the CRDs (pkg/apis/crds of aws/karpenter-provider-aws at v1.14.1).

DURATION = r"(?:[0-9]+[smh])+"
"""Pattern of a duration."""

BUDGET_DURATION = r"(?:[0-9]+[hm]|[0-9]+h[0-9]+m)(?:0s)?"
"""Pattern of a budget's duration."""

BUDGET_NODES = r"(?:100|[0-9]{1,2})%|[0-9]+"
"""Pattern of a budget's node limit."""

SCHEDULE = r"@(?:annually|yearly|monthly|weekly|daily|midnight|hourly)|[!-~]+(?: [!-~]+){4}"
"""Pattern of a budget's schedule."""

WEIGHTS = (1, 100)
"""Lowest and highest weight of a pool."""

MIN_VALUES = (1, 50)
"""Lowest and highest `min_values` of a requirement."""

HOP_LIMITS = (1, 64)
"""Lowest and highest hop limit of instance metadata."""

MOST_BUDGETS = 50
"""Maximum number of budgets of a pool."""

MOST_AMI_TERMS = 30
"""Maximum number of AMI terms of a node class."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """Requirement on an instance type or its offerings."""

    key: str
    """Label that Karpenter sets on every instance type, such as `karpenter.k8s.aws/instance-family`."""
    operator: Operator
    """Comparison operator."""
    values: Sequence[str] = ()
    """Values to compare the label with: any number for `In` and `NotIn`, one whole number for `Gt`, `Lt`, `Gte` and
    `Lte`."""
    min_values: int | None = None
    """Minimum number of different values that must remain to choose from, 1 to 50. Keeps spot pools from narrowing to
    one type."""


@dataclass(frozen=True, kw_only=True)
class DisruptionBudget:
    """Limit on the number of nodes that Karpenter may disrupt at once."""

    nodes: str
    """Number of nodes, or percentage of the pool: `"2"`, `"10%"`. `"0"` forbids disruption."""
    reasons: Sequence[DisruptionReason] = ()
    """Disruption reasons that the budget limits; all if empty."""
    schedule: str | None = None
    """Start of the budget, as a cron schedule in UTC; None for always. Requires `duration`."""
    duration: str | None = None
    """Duration of the budget, in hours and minutes: `"8h"`. Requires `schedule`."""


@dataclass(frozen=True, kw_only=True)
class Disruption:
    """Voluntary disruption of nodes by Karpenter.

    A CI job cannot be moved: if its node is disrupted, it is lost. By default, only empty nodes are removed.
    """

    consolidation_policy: ConsolidationPolicy = "WhenEmpty"
    """Nodes that Karpenter may remove. Its own default, `WhenEmptyOrUnderutilized`, evicts running pods."""
    consolidate_after: str = "30s"
    """Time without pods added or removed before Karpenter considers a node for removal, or `Never`."""
    budgets: Sequence[DisruptionBudget] = ()
    """Limits on simultaneous disruptions; if empty, Karpenter's default, a tenth of the pool."""


@dataclass(frozen=True, kw_only=True)
class AmiTerm:
    """Selection of AMIs. An alias cannot be combined with other keys, and neither can an ID."""

    alias: str | None = None
    """Family and version of an AMI that AWS publishes for EKS, such as `al2023@v20250501`."""
    id: pulumi.Input[str] | None = None
    """ID of one AMI."""
    name: str | None = None
    """Name of AMIs, with wildcards; can be combined with an owner."""
    owner: str | None = None
    """Account that owns the AMIs; use it with a name or tags."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the AMIs must have."""
    ssm_parameter: str | None = None
    """SSM parameter that holds an AMI's ID."""


@dataclass(frozen=True, kw_only=True)
class SubnetTerm:
    """Selection of subnets for nodes, by tags or by ID."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the subnets must have, such as `karpenter.sh/discovery`."""
    id: pulumi.Input[str] | None = None
    """ID of one subnet."""


@dataclass(frozen=True, kw_only=True)
class SecurityGroupTerm:
    """Selection of the nodes' security groups, by tags, ID or name."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the groups must have, such as `karpenter.sh/discovery`."""
    id: pulumi.Input[str] | None = None
    """ID of one group."""
    name: str | None = None
    """Name of the groups."""


@dataclass(frozen=True, kw_only=True)
class ReservedInstances:
    """Instances that a capacity reservation or capacity block holds."""

    instance_type: str
    """Instance type."""
    zone: str
    """Availability zone."""
    instances: int
    """Number of instances."""
    block: bool = False
    """Whether it is a capacity block for ML."""


@dataclass(frozen=True, kw_only=True)
class CapacityReservationTerm:
    """Capacity reservations and capacity blocks to use first.

    They are used if the pool's requirements allow capacity type `reserved`.
    """

    id: str | None = None
    """ID of one reservation; cannot be combined with other keys."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the reservations must have."""
    owner_id: str | None = None
    """Account that owns the reservations."""
    match_criteria: Literal["open", "targeted"] | None = None
    """Matching of the reservations: `open` accepts any fitting instance, `targeted` only instances that name the
    reservation."""
    holds: ReservedInstances | None = None
    """Instances that the selected reservations hold together, to work out which types the pool may provision. Not
    passed to the cluster. None if unknown: any type may be reserved then."""


@dataclass(frozen=True, kw_only=True)
class Kubelet:
    """Settings of the nodes' kubelet; omitted ones keep the kubelet's defaults."""

    max_pods: int | None = None
    """Maximum number of pods on a node."""
    pods_per_core: int | None = None
    """Maximum number of pods per core."""
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    """Resources reserved for Kubernetes: `cpu`, `memory`, `ephemeral-storage`, `pid`."""
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    """Resources reserved for the operating system, by the same names."""
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    """Thresholds below which pods are evicted immediately: `{"memory.available": "5%"}`."""
    image_gc_high_threshold_percent: int | None = None
    """Disk usage in percent at which garbage collection of images starts."""
    image_gc_low_threshold_percent: int | None = None
    """Disk usage in percent at which garbage collection stops; lower than the other threshold."""


PlacementStrategy = Literal["cluster", "partition", "spread"]


@dataclass(frozen=True, kw_only=True)
class PlacementGroup:
    """Placement group of a pool's instances, by name or ID."""

    name: str | None = None
    """Name of the group."""
    id: str | None = None
    """ID of an existing group, instead of its name."""
    strategy: PlacementStrategy | None = None
    """Strategy of a group that the pool creates under the name: `cluster` puts instances close together, in one zone;
    `partition` and `spread` keep them on different hardware. None for an existing group."""


@dataclass(frozen=True, kw_only=True)
class NodeClass:
    """EC2 settings of a pool's nodes."""

    name: str
    """Name of the EC2NodeClass in the cluster."""
    ami_terms: Sequence[AmiTerm]
    """AMIs of the nodes. Pin aliases to a version: with `@latest`, every new AMI replaces every node."""
    subnet_terms: Sequence[SubnetTerm]
    """Subnets of the nodes."""
    security_group_terms: Sequence[SecurityGroupTerm]
    """Security groups of the nodes."""
    role: pulumi.Input[str] | None = None
    """Name of the nodes' IAM role; Karpenter creates an instance profile for it."""
    instance_profile: pulumi.Input[str] | None = None
    """Instance profile of the nodes, instead of a role. Required where IAM is unreachable."""
    ami_family: AmiFamily | None = None
    """AMI family; determines the bootstrap user data. Not needed with an alias."""
    root_volume_size: str = "200Gi"
    """Size of the root volume, which holds images and the pods' files. Karpenter's own default, 20Gi, fits no runner
    that requests 100 GB."""
    root_volume_iops: int | None = None
    """IOPS of the root volume, 3,000 to 16,000; None for 3,000."""
    root_volume_throughput: int | None = None
    """Throughput of the root volume in MiB/s, 125 to 1,000; None for 125."""
    root_volume_key: pulumi.Input[str] | None = None
    """KMS key of the root volume, by ID, ARN or alias; None for the account's default key. Karpenter's controller must
    be allowed to use it."""
    image_snapshot: pulumi.Input[str] | None = None
    """Snapshot with container images that nodes then need not pull. Only for Bottlerocket, which has a volume for
    them."""
    fast_image_pull: bool = False
    """Whether nodes pull and unpack layers of images in parallel: nodeadm's gate `FastImagePull`, which AL2023 has
    since v20250821. Give the root volume at least 600 MiB/s for it."""
    instance_store_policy: Literal["RAID0"] | None = None
    """`RAID0` stores the pods' files on the instance's local disks, if it has any."""
    metadata_hop_limit: int = 1
    """Hop limit for instance metadata. With 1, pods cannot use the node's role. Tokens (IMDSv2) are always required."""
    capacity_reservation_terms: Sequence[CapacityReservationTerm] = ()
    """Capacity reservations and capacity blocks to use."""
    efa_only_interfaces: int = 0
    """Number of EFA-only interfaces of every node, which need no IP addresses. With 0, nodes for pods that request
    `vpc.amazonaws.com/efa` have all EFA interfaces of their instance type, each with an IP address."""
    placement_group: PlacementGroup | None = None
    """Placement group of the instances; None for none."""
    kubelet: Kubelet = field(default_factory=Kubelet)
    """Settings of the kubelet."""
    user_data: str | None = None
    """Additional user data, run when a node starts."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of instances, volumes and network interfaces."""


@dataclass(frozen=True, kw_only=True)
class KarpenterNodePoolArgs:
    """Arguments of `KarpenterNodePool`."""

    pool: str
    """Name of the NodePool in the cluster, and value of its nodes' label `karpenter.sh/nodepool`."""
    node_class: NodeClass
    """EC2 settings of the nodes."""
    requirements: Sequence[Requirement]
    """Requirements on instance types and capacity types."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every node."""
    taints: Sequence[Taint] = ()
    """Taints of every node."""
    startup_taints: Sequence[Taint] = ()
    """Taints that another component removes once a node is ready; pods need not tolerate them."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Limits on the resources of all nodes together. Use text: the API server converts numbers to text, which would
    show as a permanent difference. With GPUs, `nvidia.com/gpu` is required, counted after sharing."""
    weight: int | None = None
    """Priority among pools, 1 to 100; the highest weight is tried first."""
    disruption: Disruption = field(default_factory=Disruption)
    """Voluntary disruption of nodes."""
    expire_after: str = "720h"
    """Age at which a node is drained, even if pods run on it, or `Never`."""
    termination_grace_period: str | None = None
    """Time that a draining node waits for its pods; set at least the length of the longest job. Required with GPUs:
    otherwise a single pod with do-not-disrupt keeps an expired node, and its cost, forever."""
    gpu_counts: Sequence[int] | None = None
    """GPU counts of the pool's instance types, all that occur; None to read them from the table of instance types. Set
    it for types newer than the table. An empty list treats the pool as one without GPUs, whatever its requirements
    allow."""
    sharing: Sharing | None = None
    """GPU sharing; None gives each GPU to one pod."""
    zones: Sequence[str] = ()
    """Zones of the pool's subnets, such as `eu-central-1a`, to check that they offer the instance types. Not passed to
    the cluster; not checked if empty."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must outlive the pool: `KarpenterReference.needs`, above all the running controller, which
    terminates the pool's instances."""
