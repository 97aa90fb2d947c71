"""What a node pool of Karpenter is told: its nodes, the machines they are made of, and how their GPUs are shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi

from components.gpu_sharing import TimeSlicing
from components.taint import Taint

NODE_POOL_API = "karpenter.sh/v1"
NODE_CLASS_API = "karpenter.k8s.aws/v1"
NODE_OVERLAY_API = "karpenter.sh/v1alpha1"

NODE_POOL_LABEL = "karpenter.sh/nodepool"
"""Label by which Karpenter marks the nodes of a pool, with its name."""

Manifest = Any
"""A part of a manifest, as Kubernetes writes it."""

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
"""AMI families by the name that an alias has for them."""

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
"""Every label of Karpenter's AWS domain; the CRD takes no other for a requirement or a node's label."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """What an instance type, or its offering, has to be."""

    key: str
    """Label that Karpenter knows of every instance type, such as `karpenter.k8s.aws/instance-family`."""
    operator: Operator
    """How the label is compared."""
    values: Sequence[str] = ()
    """What it is compared with: any number for `In` and `NotIn`, one whole number for `Gt`, `Lt`, `Gte` and `Lte`."""
    min_values: int | None = None
    """How many different values have to remain to choose from, 1 to 50; keeps spot pools from narrowing to one type."""


@dataclass(frozen=True, kw_only=True)
class DisruptionBudget:
    """How many nodes of the pool Karpenter may take away at once."""

    nodes: str
    """A number of nodes, or a percentage of the pool: `"2"`, `"10%"`. `"0"` forbids it."""
    reasons: Sequence[DisruptionReason] = ()
    """Why nodes are taken away; all reasons when empty."""
    schedule: str | None = None
    """When the budget begins to hold, in cron's words and UTC; always, when None. Needs a duration."""
    duration: str | None = None
    """How long it holds, in hours and minutes: `"8h"`. Needs a schedule."""


@dataclass(frozen=True, kw_only=True)
class Disruption:
    """When Karpenter takes a node away of its own accord.

    A CI job cannot be moved: it is lost. So by default a node goes only when it is empty.
    """

    consolidation_policy: ConsolidationPolicy = "WhenEmpty"
    """Which nodes are taken away. Karpenter's own default, `WhenEmptyOrUnderutilized`, evicts what runs on them."""
    consolidate_after: str = "30s"
    """How long a node is left alone after a pod came or went, or `Never`."""
    budgets: Sequence[DisruptionBudget] = ()
    """How many at once; Karpenter's own default, a tenth of the pool, when empty."""


@dataclass(frozen=True, kw_only=True)
class AmiTerm:
    """Which machine images a node may start from. An alias stands alone, and so does an id."""

    alias: str | None = None
    """Family and version of an image that AWS makes for EKS, such as `al2023@v20250501`."""
    id: pulumi.Input[str] | None = None
    """Id of one image."""
    name: str | None = None
    """Name of images, with wildcards; may have an owner."""
    owner: str | None = None
    """Account whose images are looked at, with a name or tags."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the images have."""
    ssm_parameter: str | None = None
    """SSM parameter that holds an image's id."""


@dataclass(frozen=True, kw_only=True)
class SubnetTerm:
    """Which subnets nodes start in: by tags or by id."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the subnets have, such as `karpenter.sh/discovery`."""
    id: pulumi.Input[str] | None = None
    """Id of one subnet."""


@dataclass(frozen=True, kw_only=True)
class SecurityGroupTerm:
    """Which security groups nodes are in: by tags, by id or by name."""

    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the groups have, such as `karpenter.sh/discovery`."""
    id: pulumi.Input[str] | None = None
    """Id of one group."""
    name: str | None = None
    """Name of groups."""


@dataclass(frozen=True, kw_only=True)
class CapacityReservationTerm:
    """Which capacity reservations and blocks are used up first.

    They are used where the pool's requirements allow capacity type `reserved`.
    """

    id: str | None = None
    """Id of one reservation; stands alone."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the reservations have."""
    owner_id: str | None = None
    """Account that owns them."""
    match_criteria: Literal["open", "targeted"] | None = None
    """Whether the reservations are open to whatever fits, or to be named."""


@dataclass(frozen=True, kw_only=True)
class Kubelet:
    """What the kubelet of a node is told; its own defaults where nothing is given."""

    max_pods: int | None = None
    """Most pods on a node."""
    pods_per_core: int | None = None
    """Most pods for each core."""
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    """What Kubernetes keeps for itself: `cpu`, `memory`, `ephemeral-storage`, `pid`."""
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    """What the operating system keeps, by the same names."""
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    """Below what pods are evicted at once: `{"memory.available": "5%"}`."""
    image_gc_high_threshold_percent: int | None = None
    """Disk usage at which unused images begin to be removed."""
    image_gc_low_threshold_percent: int | None = None
    """Disk usage at which that ends; lower than the other."""


@dataclass(frozen=True, kw_only=True)
class NodeClass:
    """The machines of a pool, as EC2 is asked for them."""

    name: str
    """Name of the EC2NodeClass in the cluster."""
    ami_terms: Sequence[AmiTerm]
    """Images to start from. An alias is pinned to a version: with `@latest` each new image replaces every node."""
    subnet_terms: Sequence[SubnetTerm]
    """Subnets to start in."""
    security_group_terms: Sequence[SecurityGroupTerm]
    """Security groups to be in."""
    role: pulumi.Input[str] | None = None
    """IAM role of the nodes, by name; Karpenter makes an instance profile of it."""
    instance_profile: pulumi.Input[str] | None = None
    """Instance profile of the nodes, in place of a role; the only way where IAM cannot be reached."""
    ami_family: AmiFamily | None = None
    """How a node of that image is told about its cluster; an alias says it already."""
    root_volume_size: str = "200Gi"
    """Disk for images and for what pods write. Karpenter's own default, 20Gi, holds no runner that asks for 100 GB."""
    instance_store_policy: Literal["RAID0"] | None = None
    """`RAID0`: what pods write goes to the instance's own disks, where it has some."""
    metadata_hop_limit: int = 1
    """Network hops to the instance's metadata. With 1, pods do not reach the node's role. Tokens are always needed."""
    capacity_reservation_terms: Sequence[CapacityReservationTerm] = ()
    """Reservations and blocks to use."""
    kubelet: Kubelet = field(default_factory=Kubelet)
    """Settings of the kubelet."""
    user_data: str | None = None
    """What a node does when it starts, beside joining."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of instances, volumes and network interfaces."""


@dataclass(frozen=True, kw_only=True)
class KarpenterNodePoolArgs:
    """What a pool of nodes needs to know."""

    pool: str
    """Name of the NodePool in the cluster, which its nodes carry as label `karpenter.sh/nodepool`."""
    node_class: NodeClass
    """The machines it is made of."""
    requirements: Sequence[Requirement]
    """What instance types are bought, and how."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every node."""
    taints: Sequence[Taint] = ()
    """Taints of every node."""
    startup_taints: Sequence[Taint] = ()
    """Taints that something else takes off a node once it is ready; no pod has to tolerate them."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Most of each resource in all nodes together, as text: the API server turns numbers into text, which would look
    like a change for ever. With GPUs, `nvidia.com/gpu` is needed, counted as shared."""
    weight: int | None = None
    """Which pool is tried first, 1 to 100, highest first."""
    disruption: Disruption = field(default_factory=Disruption)
    """When nodes are taken away."""
    expire_after: str = "720h"
    """Age at which a node is drained, whatever runs on it, or `Never`."""
    termination_grace_period: str | None = None
    """How long a node that is to go waits for its pods; at least the longest job. Needed with GPUs: without, one pod
    that is not to be disturbed keeps an expired node, and its price, for ever."""
    gpu_counts: Sequence[int] | None = None
    """How many GPUs the pool's instance types have: every count that occurs. Found in the table of instance types when
    None; given for types that are newer than the table, and empty for a pool that is to be taken as one without GPUs,
    whatever its requirements allow."""
    sharing: TimeSlicing | None = None
    """How GPUs are shared between pods; None for whole GPUs."""
    zones: Sequence[str] = ()
    """Zones that the pool's subnets are in, such as `eu-central-1a`, to check that its instance types are offered
    there. Not told to the cluster, and not checked when empty."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there as long as the pool is: `KarpenterReference.needs`, above all the running controller, which
    ends the pool's instances."""
