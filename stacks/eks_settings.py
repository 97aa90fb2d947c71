"""The part of a stack file that describes a cluster on EKS, whose nodes Karpenter buys and gives back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from components.gpu_sharing import GPU
from components.karpenter_policies import Partition, partition_of
from components.karpenter_versions import KARPENTER_VERSION
from components.node_pool_args import AmiFamily, ConsolidationPolicy, DisruptionReason, Operator
from components.nvidia_device_plugin import NVIDIA_DEVICE_PLUGIN_VERSION, DeviceListStrategy
from stacks.fault import Path
from stacks.settings import Runner, Settings
from stacks.taints import Taint
from stacks.value_types import (
    MOST,
    Cores,
    Count,
    Filled,
    Folder,
    Image,
    LabelKey,
    Labels,
    Model,
    Name,
    Size,
    Switch,
    Text,
    Version,
)

Region = Annotated[str, Text(r"[a-z]{2}(-[a-z]+)+-[0-9]", 32, "an AWS region such as ap-southeast-1")]
Zone = Annotated[str, Text(r"[a-z]{2}(-[a-z]+)+-[0-9][a-z]", 32, "an availability zone such as ap-southeast-1a")]
Account = Annotated[str, Text(r"[0-9]{12}", 12, "an AWS account: twelve digits, in quotes")]
Arn = Annotated[str, Text(r"arn:aws[-a-z]*:[a-z0-9-]+:[^:]*:[0-9]*:.+", 2048, "an ARN: arn:aws:iam::ACCOUNT:role/NAME")]
Cidr = Annotated[str, Text(r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}", 18, "a range of IPv4 addresses: 10.0.0.0/16")]
Minor = Annotated[str, Text(r"1\.[0-9]{1,2}", 5, "a minor version of Kubernetes, in quotes: '1.35'")]
ResourceId = Annotated[
    str, Text(r"[a-z]+-[0-9a-f]{8,17}", 64, "the id of an AWS resource, such as vpc-0123456789abcdef0")
]
Span = Annotated[str, Text(r"([0-9]+[hms])+", 32, "a span of time such as 30s, 90m or 24h")]
HoursMinutes = Annotated[str, Text(r"[0-9]+h([0-9]+m)?|[0-9]+m", 16, "hours and minutes such as 8h, 30m or 1h30m")]
Schedule = Annotated[
    str,
    Text(
        r"@(annually|yearly|monthly|weekly|daily|midnight|hourly)|[!-~]+( [!-~]+){4}",
        128,
        "a schedule: five fields of cron such as '0 8 * * 1-5', or @daily and the like",
    ),
]
SpanOrNever = Annotated[str, Text(r"([0-9]+[hms])+|Never", 32, "a span of time such as 30s or 24h, or Never")]
InstanceType = Annotated[str, Text(r"[a-z0-9-]+\.[a-z0-9-]+", 32, "an instance type such as m6i.large")]
Word = Annotated[
    str, Text(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 63, "a word: letters, digits, '-', '_' and '.'")
]
Tags = dict[Filled, str]

# -- the network ------------------------------------------------------------------------------------------------------


class OwnNetwork(Model):
    """A VPC that this stack makes, with a public and a private subnet in every zone."""

    kind: Literal["own"]
    """A VPC of the stack's own."""
    cidr: Cidr = "10.0.0.0/16"
    """Addresses of the VPC."""
    zones: Annotated[tuple[Zone, ...], Field(min_length=2)]
    """Availability zones; three are usual. The more there are, the more often a GPU type can be had."""
    nat_gateways: Literal["single", "perZone", "none"] = "single"
    """NAT gateways. `single` costs least, and all zones are cut off with its own; `perZone` has no such dependence.
    With `none` nodes reach registries and GitHub by a way of your own."""
    interface_endpoints: tuple[Filled, ...] = ()
    """AWS services that are reached without leaving the VPC. Without NAT gateways: `ec2`, `ecr.api`, `ecr.dkr`, `eks`,
    `eks-auth`, `sts`, and for Karpenter `ssm` and `sqs`."""


class ExistingNetwork(Model):
    """A VPC that exists already. Only its discovery tags are this stack's."""

    kind: Literal["existing"]
    """A VPC that exists."""
    vpc_id: ResourceId
    """Id of the VPC."""
    private_subnets: Annotated[dict[Zone, ResourceId], Field(min_length=2)]
    """Subnets of the nodes, by zone."""


Network = Annotated[OwnNetwork | ExistingNetwork, Field(discriminator="kind")]


class Endpoint(Model):
    """Who reaches the cluster's API server. From inside the VPC it is always reached."""

    public_access_from: tuple[Cidr, ...] = ()
    """Addresses outside the VPC that reach it; with none there is no public endpoint, and `pulumi up` has to run where
    the VPC is reached."""
    open_to_the_world: Switch = False
    """That 0.0.0.0/0 among those addresses is meant."""


class SystemNodes(Model):
    """The managed node group that Karpenter itself runs on, with CoreDNS and the ARC controller."""

    instance_type: InstanceType = "m6i.large"
    """Instance type."""
    count: Annotated[int, Field(strict=True, ge=2, le=100)] = 2
    """Nodes. Karpenter's two replicas refuse to share one, and run on no node that Karpenter has bought."""


# -- node pools -------------------------------------------------------------------------------------------------------


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


class SmokeWorkload(Model):
    """Pods that ask for a GPU and sleep: proof that nodes come, and a GPU node's price as long as it is there."""

    pool: Name
    """Node pool that they run on."""
    image: Image
    """Image of the pods."""
    replicas: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 2
    """Pods."""
    gpus: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    """GPUs of one pod."""


class EksCluster(Model):
    """A cluster on EKS that this stack makes."""

    kind: Literal["eks"]
    """A cluster on EKS."""
    name: Annotated[str, Text(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 46, "a name: lower case letters, digits and '-'")]
    """Name of the cluster; roles and the interruption queue are named after it."""
    region: Region
    """AWS region."""
    account: Account
    """AWS account. Credentials of another account are refused."""
    kubernetes_version: Minor
    """Minor version of Kubernetes."""
    network: Network
    """The VPC."""
    endpoint: Endpoint = Endpoint()
    """Who reaches the API server."""
    administrators: dict[Name, Arn] = {}
    """Roles and users who administer the cluster, each by a name of your own. Whoever makes it does so anyway."""
    system_nodes: SystemNodes = SystemNodes()
    """Nodes for Karpenter and other parts of the system."""
    addons: dict[Name, Filled]
    """EKS addons and their versions: `aws eks describe-addon-versions` lists them. Needed: vpc-cni, coredns, kube-proxy
    and eks-pod-identity-agent."""
    deletion_protection: Switch = True
    """Refuse to delete the cluster, until this is turned off and applied."""
    tags: Tags = {}
    """Tags of every AWS resource."""
    karpenter: KarpenterSettings = KarpenterSettings()
    """Karpenter itself."""
    node_pools: Annotated[dict[Name, KarpenterPool], Field(min_length=1)]
    """What Karpenter buys, by name of the NodePool."""
    smoke_workload: SmokeWorkload | None = None
    """Pods that prove it works; left out, none."""

    @property
    def partition(self) -> Partition:
        """Partition of the region."""
        return partition_of(self.region)


# -- what runs on it --------------------------------------------------------------------------------------------------


class NvidiaPlugin(Model):
    """NVIDIA's device plugin. How GPUs are shared is said at each node pool."""

    namespace: Name = "nvidia-device-plugin"
    """Namespace of the plugin; owned by this stack."""
    version: Version = NVIDIA_DEVICE_PLUGIN_VERSION
    """Version of its chart."""
    fail_on_init_error: Switch = True
    """Fail on a node without a working driver, instead of waiting there without GPUs and without a word."""
    driver_root: Folder = "/"
    """Where the driver lies on the nodes."""
    pass_device_specs: Switch = False
    """Give the kubelet the device nodes too, for its static CPU manager; the plugin is privileged then."""
    device_list_strategy: Annotated[tuple[DeviceListStrategy, ...], Field(min_length=1)] = ("envvar",)
    """How a container is told its GPUs."""
    device_id_strategy: Literal["uuid", "index"] = "uuid"
    """What a GPU is called in that list."""
    feature_discovery: Switch = False
    """Label nodes with GPU product, memory, driver and CUDA; brings node feature discovery."""
    runtime_class: Switch = False
    """Create the RuntimeClass `nvidia`, for images whose default runtime is another. EKS's NVIDIA images have it as
    default."""


class EksSettings(Settings):
    """The settings of a stack on EKS."""

    cluster: EksCluster
    """The cluster."""
    nvidia_plugin: NvidiaPlugin = NvidiaPlugin()
    """What makes NVIDIA's GPUs schedulable."""

    def pool(self, runner: Runner) -> KarpenterPool:
        """The node pool of a runner."""
        return self.cluster.node_pools[self.pool_name(runner)]

    def accelerator_name(self, runner: Runner) -> str:
        """What its GPUs are, for people: `NVIDIA A10G or T4, shared by 10`."""
        # Imported here, as below: it reads these settings.
        from stacks.node_pools import gpus_of

        pool = self.pool_name(runner)
        shares, gpus = self.shares(pool), gpus_of(pool, self.cluster)
        # Of types that the table does not know, Karpenter's images are for one maker.
        names = " or ".join(dict.fromkeys(f"{each.manufacturer} {each.name}" for each in gpus)) or "NVIDIA"
        return f"{names}, shared by {shares}" if shares > 1 else names

    def devices_of_a_node(self, runner: Runner) -> int:
        """Most GPUs, as pods ask for them, that a node of its pool has."""
        from components.node_pool_fit import gpu_counts
        from stacks.node_pools import node_pool_args

        pool = self.pool_name(runner)
        return max(gpu_counts(node_pool_args(pool, self.cluster)), default=0) * self.shares(pool)

    def devices_of_pool(self, pool: str) -> int | None:
        """GPUs, as pods ask for them, of all nodes that the pool may have; None without a limit."""
        limit = self.cluster.node_pools[pool].limits.gpus
        return None if limit is None else limit * self.shares(pool)

    def shares(self, pool: str) -> int:
        """Pods that may be on one GPU of the pool."""
        sharing = self.cluster.node_pools[pool].sharing
        return sharing.time_slicing.replicas if sharing else 1

    def gpu_resource(self, pool: str) -> str:
        """Name under which pods ask for a GPU of that pool, shared or not."""
        return GPU

    def device_plugin_namespaces(self) -> list[tuple[Path, str, str]]:
        """Namespaces of device plugins: the setting, the namespace, and what it is of."""
        return [(("nvidiaPlugin", "namespace"), self.nvidia_plugin.namespace, "the device plugin")]
