"""Settings from which the arguments of the EKS and Karpenter components come."""

from __future__ import annotations

from collections.abc import Mapping

from gpufleet.aws.ebs.storage_class_args import EbsStorageClassArgs
from gpufleet.aws.ec2.instance_types import CAPACITY_TYPE
from gpufleet.aws.ecr.image_cache_args import CachedRegistry
from gpufleet.aws.karpenter.node_pool_args import (
    AmiTerm,
    CapacityReservationTerm,
    Disruption,
    DisruptionBudget,
    Kubelet,
    NodeClass,
    PlacementGroup,
    Requirement,
    ReservedInstances,
)
from gpufleet.nvidia.sharing import GPU, Mig, Mps, TimeSlicing
from gpufleet.problem import Path
from gpufleet.taint import Taint
from gpufleet_stacks.settings.args.node_pools import sources_of_requirements
from gpufleet_stacks.settings.models.eks_cluster import EksClusterSettings
from gpufleet_stacks.settings.models.karpenter import KarpenterPool
from gpufleet_stacks.settings.rules.places import Places, Words, attributes

_CLUSTER: Path = ("cluster",)
_NETWORK: Path = ("cluster", "network")
_SYSTEM_NODES: Path = ("cluster", "systemNodes")

NETWORK = Places(
    {
        ("region",): (*_CLUSTER, "region"),
        ("cluster_name",): (*_CLUSTER, "name"),
        ("zones",): (*_NETWORK, "zones"),
        ("control_plane_zones",): (*_NETWORK, "controlPlaneZones"),
        ("cidr",): (*_NETWORK, "cidr"),
        ("nat",): (*_NETWORK, "natGateways"),
        ("interface_endpoints",): (*_NETWORK, "interfaceEndpoints"),
        ("protect",): (*_CLUSTER, "deletionProtection"),
        ("tags",): (*_CLUSTER, "tags"),
    }
)
"""Settings of a network that the stack creates."""

CLUSTER = Places(
    {
        ("cluster_name",): (*_CLUSTER, "name"),
        ("region",): (*_CLUSTER, "region"),
        ("account_id",): (*_CLUSTER, "account"),
        ("kubernetes_version",): (*_CLUSTER, "kubernetesVersion"),
        ("network", "private_subnets"): (*_NETWORK, "privateSubnets"),
        ("network", "control_plane_zones"): (*_NETWORK, "controlPlaneZones"),
        ("addons",): (*_CLUSTER, "addons"),
        ("endpoint", "public"): (*_CLUSTER, "endpoint", "publicAccessFrom"),
        ("endpoint", "cidrs"): (*_CLUSTER, "endpoint", "publicAccessFrom"),
        ("endpoint", "open_to_the_world"): (*_CLUSTER, "endpoint", "openToTheWorld"),
        ("endpoint", "private_cidrs"): (*_CLUSTER, "endpoint", "privateAccessFrom"),
        # A stack file names one type and one number.
        ("system_nodes", "instance_types"): (*_SYSTEM_NODES, "instanceType"),
        ("system_nodes", "instance_types", 0): (*_SYSTEM_NODES, "instanceType"),
        ("system_nodes", "min_size"): (*_SYSTEM_NODES, "count"),
        ("system_nodes", "desired_size"): (*_SYSTEM_NODES, "count"),
        ("system_nodes", "max_size"): (*_SYSTEM_NODES, "count"),
        ("admins",): (*_CLUSTER, "administrators"),
        ("access",): (*_CLUSTER, "access"),
        ("addon_configuration",): (*_CLUSTER, "addonConfiguration"),
        ("log_types",): (*_CLUSTER, "logs", "types"),
        ("log_retention_days",): (*_CLUSTER, "logs", "retentionDays"),
        ("deletion_protection",): (*_CLUSTER, "deletionProtection"),
        ("tags",): (*_CLUSTER, "tags"),
    },
    {
        "endpoint-cidr-too-wide": (
            "CIDR {cidr!r} is wider than /{widest}, nearly the whole internet; list the networks of the cluster's"
            " users, or write openToTheWorld: true"
        ).format_map,
    },
)
"""Settings of the cluster."""


def storage_class_places(name: str) -> Places:
    """Return the settings of a StorageClass."""
    section: Path = ("cluster", "storageClasses", name)
    return Places(
        attributes(EbsStorageClassArgs, (), section, {"key_arn": "key", "storage_class": None, "needs": None})
    )


def image_cache_places(cluster: EksClusterSettings) -> Places:
    """Return the settings of the pull-through cache."""
    section: Path = ("cluster", "imageCache")
    rows: dict[Path, Path] = {("registries",): section}
    for prefix in cluster.image_cache:
        names = {"credentials_arn": "credentials"}
        rows |= attributes(CachedRegistry, ("registries", prefix), (*section, prefix), names)
    return Places(rows)


def pool_places(name: str, cluster: EksClusterSettings) -> Places:
    """Return the settings of a node pool."""
    pool, section = cluster.node_pools[name], ("cluster", "nodePools", name)
    rows: dict[Path, Path] = {
        ("pool",): section,
        ("gpu_counts",): (*section, "instances", "gpuCounts"),
        ("sharing",): (*section, "sharing"),
        ("limits", GPU): (*section, "limits", "gpus"),
        ("requirements",): (*section, "instances"),
    }
    for argument in ("labels", "taints", "limits", "weight", "disruption"):
        rows[(argument,)] = (*section, argument)
    rows[("startup_taints",)] = (*section, "startupTaints")
    rows[("expire_after",)] = (*section, "expireAfter")
    rows[("termination_grace_period",)] = (*section, "terminationGracePeriod")
    if pool.sharing and pool.sharing.mig:
        rows |= attributes(Mig, ("sharing",), (*section, "sharing", "mig"), {"instances": "profile"})
    elif pool.sharing and pool.sharing.mps:
        rows |= attributes(Mps, ("sharing",), (*section, "sharing", "mps"))
    else:
        rows |= attributes(TimeSlicing, ("sharing",), (*section, "sharing", "timeSlicing"))
    rows |= attributes(Disruption, ("disruption",), (*section, "disruption"))
    for index in range(len(pool.taints)):
        rows |= attributes(Taint, ("taints", index), (*section, "taints", index))
    for index in range(len(pool.startup_taints)):
        rows |= attributes(Taint, ("startup_taints", index), (*section, "startupTaints", index))
    for index in range(len(pool.disruption.budgets)):
        where: Path = ("disruption", "budgets", index)
        rows |= attributes(DisruptionBudget, where, (*section, *where))
    rows |= _requirements(pool, section) | _zones(pool, cluster, section) | _node_class(pool, cluster, section)
    return Places(rows, _words(pool))


def _requirements(pool: KarpenterPool, section: Path) -> dict[Path, Path]:
    """Return the settings of requirements: a setting with values, or one in Karpenter's own syntax."""
    rows: dict[Path, Path] = {}
    for index, source in enumerate(sources_of_requirements(pool)):
        where: Path = ("requirements", index)
        rows[where] = (*section, *source)
        if source[0] == "requirements":
            rows |= attributes(Requirement, where, rows[where])
        else:
            rows |= dict.fromkeys(attributes(Requirement, where, ()), rows[where])
            if source[-1] in ("architecture", "hypervisor", "generationAbove"):
                # The setting is a single value, not a list.
                rows[*where, "values", 0] = rows[where]
    return rows


def _zones(pool: KarpenterPool, cluster: EksClusterSettings, section: Path) -> dict[Path, Path]:
    """Return the settings of zones: the pool's or, if it has none, the network's. In that case problems of all zones
    together are reported at the instance types."""
    if pool.zones:
        return {("zones",): (*section, "zones")}
    rows: dict[Path, Path] = {
        ("zones",): (*section, "instances", *(["families"] if pool.instances.families else [])),
    }
    if cluster.network.kind == "own":
        return rows | {("zones", index): (*_NETWORK, "zones", index) for index in range(len(cluster.network.zones))}
    subnets = enumerate(cluster.network.private_subnets)
    return rows | {("zones", index): (*_NETWORK, "privateSubnets", zone) for index, zone in subnets}


def _node_class(pool: KarpenterPool, cluster: EksClusterSettings, section: Path) -> dict[Path, Path]:
    names = {
        "name": "nodeClass",
        "ami_terms": "amis",
        "root_volume_size": "rootVolume",
        "instance_store_policy": "instanceStore",
        "efa_only_interfaces": "efa",
        "capacity_reservation_terms": "reservations",
        # No settings: subnets and security groups are selected by the cluster's tag.
        **dict.fromkeys(("subnet_terms", "security_group_terms")),
    }
    rows = attributes(NodeClass, ("node_class",), section, names)
    for index in range(len(pool.amis)):
        rows |= attributes(AmiTerm, ("node_class", "ami_terms", index), (*section, "amis", index))
    rows |= attributes(PlacementGroup, ("node_class", "placement_group"), (*section, "placementGroup"))
    rows |= attributes(Kubelet, ("node_class", "kubelet"), (*section, "kubelet"))
    for index in range(len(pool.reservations)):
        where: Path = ("node_class", "capacity_reservation_terms", index)
        rows |= attributes(CapacityReservationTerm, where, (*section, "reservations", index))
        rows |= attributes(ReservedInstances, (*where, "holds"), (*section, "reservations", index, "holds"))
    return rows | {("node_class", "tags", tag): ("cluster", "tags", tag) for tag in cluster.tags.keys() - pool.tags}


_LABELS: Mapping[str, str] = {
    "karpenter.k8s.aws/instance-category": "categories",
    "karpenter.k8s.aws/instance-family": "families",
    "karpenter.k8s.aws/instance-size": "sizes",
    "karpenter.k8s.aws/instance-cpu": "cpus",
    "karpenter.k8s.aws/instance-hypervisor": "hypervisor",
    # The message has values; the setting is a bound.
    "karpenter.k8s.aws/instance-generation": "generation",
    "kubernetes.io/arch": "architecture",
    CAPACITY_TYPE: "capacity",
}
"""Names of settings, by the label that they become."""


def _words(pool: KarpenterPool) -> dict[str, Words]:
    limits = {
        "cpu": pool.limits.cpu,
        "memory": pool.limits.memory,
        "gpus": pool.limits.gpus,
        "nodes": pool.limits.nodes,
    }
    all_limits = ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)
    return {
        "no-instance-type": lambda facts: (
            f"no instance type meets all requirements; {facts['alternatives'].text(_LABELS)}; correct them, or set"
            " gpuCounts if the types are newer than the table"
        ),
        "types-of-two-kinds": (
            "allows types with GPUs ({with_gpus}) and without ({without}); a pool must have one kind; restrict"
            " categories or families"
        ).format_map,
        "not-offered-here": (
            "{requested} is not offered in {zones}, only in {elsewhere}; add subnets there, choose others, or set"
            " gpuCounts if AWS now offers it in those zones"
        ).format_map,
        "nothing-offered-here": (
            "no instance type that meets the requirements ({types}) is offered in {zones}, only in {elsewhere};"
            " add subnets there, or set gpuCounts if AWS now offers them in those zones"
        ).format_map,
        "sharing-renamed": "Karpenter provisions nodes for {gpu} only, not for {gpu}.shared; write false".format_map,
        "gpu-limit-missing": (
            "gpus is missing; a pool with GPUs requires it; set it to the maximum number of GPUs"
        ).format_map,
        # Karpenter counts GPUs after sharing, but the setting counts physical GPUs.
        "gpu-limit-too-small": lambda facts: (
            f"{pool.limits.gpus} is fewer than the smallest node of the pool has, so no node could start; use at least"
            f" {facts['physical']}"
        ),
        "limits-admit-nothing": lambda facts: (
            f"no instance type of the pool is within all limits ({all_limits}), although each limit alone allows some;"
            " raise one of them"
        ),
        "nobody-partitions": (
            "EKS's AMIs create no MIG instances, so nodes would offer whole GPUs; create them in userData, which runs"
            " before the kubelet, or use your own AMI"
        ).format_map,
        "identity-twice": (
            "is set together with role; only one is allowed; remove instanceProfile, or remove role if Karpenter cannot"
            " reach IAM"
        ).format_map,
    }
