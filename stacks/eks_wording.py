"""What components refuse of a cluster on EKS: at the setting that it is about, and in the words of a stack file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from components.gpu_sharing import GPU
from stacks.eks_settings import EksCluster
from stacks.fault import Breach, Path
from stacks.karpenter_settings import KarpenterPool

Row = tuple[str, Sequence[str], str]
"""How a violation reads, the setting that it is about, and what is said of it; what the first holds in brackets stands
in the others as `\\1` and so on."""

_OF_THE_NETWORK: Sequence[Row] = (
    (r"zones?:? (.*)", ("zones",), r"\1"),
    (r"CIDR (.*)", ("cidr",), r"\1"),
    (r"NAT: (.*)", ("natGateways",), r"\1"),
    (r"interface endpoints?:? (.*)", ("interfaceEndpoints",), r"\1"),
)

_OF_THE_CLUSTER: Sequence[Row] = (
    (r"cluster name: (.*)", ("name",), r"\1"),
    (r"account: (.*)", ("account",), r"\1"),
    (r"zone '([^']*)': (.*)", ("network", "privateSubnets", r"\1"), r"\2"),
    (r"zones: (.*)", ("network", "privateSubnets"), r"\1"),
    (r"Kubernetes version: (.*)", ("kubernetesVersion",), r"\1"),
    (r"addons: (.*)", ("addons",), r"\1"),
    (r"addon '([^']*)': (?:version )?(.*)", ("addons", r"\1"), r"\2"),
    (
        r"endpoint: (CIDR .* is wider than /\d+); .*",
        ("endpoint", "publicAccessFrom"),
        r"\1, which is nearly everybody; name the networks of those who use the cluster, or write"
        r" openToTheWorld: true",
    ),
    (r"endpoint: (.*)", ("endpoint", "publicAccessFrom"), r"\1"),
    (r"system nodes: (min .*)", ("systemNodes", "count"), r"\1"),
    (r"system nodes: (.*)", ("systemNodes", "instanceType"), r"\1"),
    (r"admin '([^']*)': (.*)", ("administrators", r"\1"), r"\2"),
    (r"admins: (.*)", ("administrators",), r"\1"),
)

_OF_A_POOL: Sequence[Row] = (
    (r"requirement '([^']*)': (.*)", ("requirements", r"\1"), r"\2"),
    (r"requirements: (\S+) (is Karpenter's own; .*)", ("requirements", r"\1"), r"\1 \2"),
    (
        r"requirements: no (.*), or give GPU counts where the types are newer than the table",
        ("instances",),
        r"no \1, or write gpuCounts where the types are newer than the table",
    ),
    (
        r"requirements: met by (.*); add (\S+) Exists or DoesNotExist, or give the GPU counts",
        ("instances",),
        r"allows \1; name categories or families",
    ),
    (r"requirements: (.*)", ("requirements",), r"\1"),
    (r"GPU counts: (.*)", ("instances", "gpuCounts"), r"\1"),
    (r"labels: (\S+) (is Karpenter's own; .*)", ("labels", r"\1"), r"\2"),
    (r"labels: (.*)", ("labels",), r"\1"),
    (
        r"zones: (.*); (.*) is offered in none of them, but in (.*); have subnets there, .*",
        ("zones",),
        r"\2 is offered in none of \1, but in \3; have subnets there, buy others, or write gpuCounts if it has come"
        r" since",
    ),
    (
        r"zones: (.*); none of the types (.*), is offered there, but in (.*); have subnets there",
        ("zones",),
        r"none of the types \2, is offered in \1, but in \3; have subnets there, or write gpuCounts if they have come"
        r" since",
    ),
    (r"zones: (.*)", ("zones",), r"\1"),
    (rf"limits: no {re.escape(GPU)}; (.*)", ("limits",), r"no gpus; \1"),
    (r"limits: (.*)", ("limits",), r"\1"),
    (r"limit '([^']*)': (.*)", ("limits", r"\1"), r"\2"),
    (r"disruption: (.*)", ("disruption",), r"\1"),
    (r"termination grace period: none; (.*)", ("terminationGracePeriod",), r"is missing; \1"),
    (
        r"sharing: renames .*",
        ("sharing", "timeSlicing", "renameByDefault"),
        rf"Karpenter buys nodes for {GPU} alone, and knows no {GPU}.shared; write false",
    ),
    (r"sharing: (.*)", ("sharing",), r"\1"),
    (r"AMI terms: (.*)", ("amis",), r"\1"),
    (r"AMI alias '([^']*)': (.*)", ("amis", r"\1"), r"'\1': \2"),
    (r"AMI family: none; (.*)", ("amiFamily",), r"is missing; \1"),
    (r"AMI family: (.*)", ("amiFamily",), r"\1"),
    (
        r"identity: role and instance profile; .*",
        ("instanceProfile",),
        "beside a role; a node has one of them; remove the role, or this where Karpenter reaches IAM",
    ),
    (r"root volume: (.*)", ("rootVolume",), r"\1"),
    (r"tags: (.*)", ("tags",), r"\1"),
    (r"capacity reservations: (.*)", ("reservations",), r"\1"),
)

_INSTANCES: Mapping[str, str] = {
    "karpenter.k8s.aws/instance-category": "categories",
    "karpenter.k8s.aws/instance-family": "families",
    "karpenter.k8s.aws/instance-size": "sizes",
    "karpenter.k8s.aws/instance-cpu": "cpus",
    "karpenter.k8s.aws/instance-hypervisor": "hypervisor",
    "karpenter.k8s.aws/instance-generation": "generationAbove",
    "kubernetes.io/arch": "architecture",
}
"""Settings of `instances`, by the label that Karpenter is given for them."""


def network_breach(violation: str) -> Breach:
    """What `components.eks_network_rules` says of the cluster's own network."""
    return _told(("cluster", "network"), violation, _OF_THE_NETWORK)


def cluster_breach(violation: str) -> Breach:
    """What `components.eks_cluster_rules` says."""
    return _told(("cluster",), violation, _OF_THE_CLUSTER)


def pool_breach(name: str, cluster: EksCluster, violation: str) -> Breach:
    """What `components.node_pool_rules` says of a pool."""
    pool, section = cluster.node_pools[name], ("cluster", "nodePools", name)
    path, message = _told(section, violation.removeprefix("node class: "), _OF_A_POOL)
    setting, *inner = path[len(section) :] or ("",)
    match setting, inner:
        case "requirements", [str(key)]:
            return (*section, *_of_requirement(pool, key)), message
        case "instances", []:
            return path, _in_settings(message)
        case "zones", [] if not pool.zones:
            # The network's zones, and what the pool asks for by name, do not go together.
            return (*section, "instances", *(["families"] if pool.instances.families else [])), message
        case "limits", [str(resource)] if resource == GPU:
            return (*section, "limits", "gpus"), _gpu_limit(message, pool)
        case "limits", []:
            return path, _without_shares(message, pool)
        case "amis", [str(alias)]:
            index = next(number for number, ami in enumerate(pool.amis) if ami.alias == alias)
            return (*section, "amis", index, "alias"), message.removeprefix(f"'{alias}': ")
        case "tags", [] if not pool.tags:
            return ("cluster", "tags"), message
    return path, message


def _told(section: Path, violation: str, rows: Sequence[Row]) -> Breach:
    """By the first row that it reads like; what no row tells of stays as it is, at the section."""
    for pattern, setting, words in rows:
        if match := re.fullmatch(pattern, violation, re.DOTALL):
            return (*section, *(match.expand(part) for part in setting)), match.expand(words)
    return section, violation


def _of_requirement(pool: KarpenterPool, key: str) -> Path:
    """A requirement that the pool states itself, or the setting that it comes from."""
    for index, asked in enumerate(pool.requirements):
        if asked.key == key:
            return ("requirements", index)
    return ("instances", _INSTANCES[key]) if key in _INSTANCES else ("instances",)


def _in_settings(message: str) -> str:
    """The message with the names of settings for those of labels. Of a generation it names values, and the setting has
    a bound."""
    for label, setting in _INSTANCES.items():
        word = "generation" if setting == "generationAbove" else setting
        message = re.sub(rf"{re.escape(label)}(?![-\w])", word, message)
    return message.replace("karpenter.sh/capacity-type", "capacity")


def _shares(pool: KarpenterPool) -> int:
    return pool.sharing.time_slicing.replicas if pool.sharing else 1


def _gpu_limit(message: str, pool: KarpenterPool) -> str:
    """In physical GPUs, whatever the shares: the message ends with the least that is needed."""
    least = int(message.rpartition(" ")[2]) // _shares(pool)
    return f"{pool.limits.gpus} is fewer than the smallest node of the pool has, so none could start; at least {least}"


def _without_shares(message: str, pool: KarpenterPool) -> str:
    """Karpenter counts GPUs as they are shared, the setting counts physical ones."""
    return re.sub(rf"{re.escape(GPU)} (\d+)", lambda match: f"gpus {int(match[1]) // _shares(pool)}", message)
