"""The part of a stack file that describes a cluster on EKS, whose nodes Karpenter buys and gives back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from components.gpu_sharing import GPU
from components.karpenter_policies import Partition, partition_of
from components.nvidia_device_plugin import NVIDIA_DEVICE_PLUGIN_VERSION, DeviceListStrategy
from stacks.aws_value_types import Account, Arn, Cidr, InstanceType, Region, Tags
from stacks.eks_network_settings import Network
from stacks.fault import Path
from stacks.karpenter_settings import KarpenterPool, KarpenterSettings
from stacks.settings import Runner, Settings
from stacks.value_types import MOST, Filled, Folder, Image, Model, Name, Switch, Text, Version

Minor = Annotated[str, Text(r"1\.[0-9]{1,2}", 5, "a minor version of Kubernetes, in quotes: '1.35'")]


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
