"""The part of a stack file that describes machines that somebody owns, and the cluster on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from components.amd_gpu_device_plugin import (
    PARTITIONS_PER_GPU,
    ComputePartition,
    MemoryPartition,
    ResourceNaming,
    gpu_resource,
)
from components.gpu_sharing import GPU
from components.kubespray_args import Role
from components.kubespray_inventory import SITE_LABEL
from stacks.fault import Path
from stacks.kubespray_settings import SSH_KEY, HostKey, KubesprayCluster, Port, SecretKey, Ssh, UserName
from stacks.nvidia_settings import ContainerToolkit, GpuOperator
from stacks.settings import Runner, Settings
from stacks.taints import Taint, Toleration
from stacks.value_types import MOST, Address, Cores, Count, Filled, Labels, LabelValue, Model, Name, Size


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


class KubesprayKubeconfig(Model):
    """The kubeconfig of the cluster that kubespray makes, as the section `cluster.kubespray` says."""

    kind: Literal["kubespray"]
    """A cluster that this stack makes with kubespray."""


Kubeconfig = Annotated[ContextKubeconfig | SecretKubeconfig | KubesprayKubeconfig, Field(discriminator="kind")]


class Partition(Model):
    """How every GPU of a pool is partitioned."""

    compute: ComputePartition = "SPX"
    """Compute partition: SPX leaves a GPU whole, CPX makes eight of it."""
    memory: MemoryPartition = "NPS1"
    """Memory partition. NPS4 only goes with CPX."""


class Accelerator(Model):
    """The GPUs of one node."""

    vendor: Literal["amd", "nvidia"]
    """Who makes them, and so what serves them: AMD's device plugin, or NVIDIA's GPU operator."""
    model: Filled
    """Model, for people: `MI300X`."""
    count: Annotated[int, Field(strict=True, ge=1, le=16)]
    """Physical GPUs of one node."""
    partition: Partition = Partition()
    """How each of AMD's is partitioned. Partitioning itself is the hosts' business; it is declared here because pods
    ask for partitions: eight GPUs under CPX are 64."""

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


class Node(Model):
    """One machine."""

    address: Address
    """Address that it is reached at."""
    labels: Labels = {}
    """Its own labels, over those of its pool."""
    site: Annotated[LabelValue, Field(min_length=1)] | None = None
    """Where it stands; becomes its label `topology.kubernetes.io/region`."""
    roles: tuple[Role, ...] = ("worker",)
    """What it is in the cluster."""
    host_keys: tuple[HostKey, ...] = ()
    """Its public host keys, as `/etc/ssh/ssh_host_ed25519_key.pub` has one on it. Whoever logs in needs one."""
    port: Port = 22
    """Port of its SSH server."""
    user: UserName | None = None
    """User on it, where it is not that of `cluster.ssh`."""
    internal_address: Address | None = None
    """Address that its services listen on, one of its own; left out, that of its default route."""
    access_address: Address | None = None
    """Address by which the other nodes reach it; left out, `internalAddress`."""
    variables: dict[Filled, Any] = {}
    """Further variables of kubespray or Ansible for this machine. None that another setting stands for."""
    secret_variables: dict[Filled, SecretKey] = {}
    """Variables of this machine that are secret, each with the key of the stack's secret that has it:
    `{ansible_become_password: kubespray-becomePassword}`."""


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
    overcommit: Literal["refused", "allowed"] = "refused"
    """Whether its labels may together have more runners at most than the machines hold. `allowed`: jobs may queue while
    their label still has room, and nothing is said of it."""

    def node_labels(self, node: Node) -> dict[str, str]:
        """All labels of one of its nodes."""
        site = {SITE_LABEL: node.site} if node.site else {}
        return self.labels | site | node.labels


ON_MACHINES = ("ssh", "kubespray", "nvidiaContainerToolkit")
"""Sections of a cluster by which something is done on its machines."""


class BareMetalCluster(Model):
    """A cluster of machines that somebody owns. It exists already, or kubespray makes it."""

    kind: Literal["bareMetal"]
    """A cluster of machines that somebody owns."""
    name: Name
    """Name of the cluster. Stacks that name the same cluster share its labels."""
    kubeconfig: Kubeconfig
    """How to reach its API server."""
    ssh: Ssh | None = None
    """How its machines are reached by SSH, where something is to be done on them."""
    kubespray: KubesprayCluster | None = None
    """How kubespray makes the cluster; only with `kubeconfig: {kind: kubespray}`."""
    nvidia_container_toolkit: ContainerToolkit | None = None
    """NVIDIA's container toolkit on the machines with its GPUs; left out, they have one already or the GPU operator
    brings it."""
    node_pools: Annotated[dict[Name, NodePool], Field(min_length=1)]
    """Its GPU nodes, by kind of machine."""

    def pools_of(self, vendor: str) -> dict[str, NodePool]:
        """The node pools with GPUs of a vendor, by name."""
        return {name: pool for name, pool in self.node_pools.items() if pool.accelerator.vendor == vendor}

    @property
    def makes_use_of_ssh(self) -> bool:
        """Whether `pulumi up` runs something on the machines."""
        return self.kubespray is not None or self.nvidia_container_toolkit is not None


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


class BareMetalSettings(Settings):
    """The settings of a stack on machines that somebody owns."""

    cluster: BareMetalCluster
    """The cluster."""
    device_plugin: DevicePlugin = DevicePlugin()
    """What makes AMD's GPUs schedulable."""
    gpu_operator: GpuOperator = GpuOperator()
    """What makes NVIDIA's GPUs schedulable."""

    def pool(self, runner: Runner) -> NodePool:
        """The node pool of a runner."""
        return self.cluster.node_pools[self.pool_name(runner)]

    def accelerator_name(self, runner: Runner) -> str:
        """What its GPUs are, for people: `AMD MI300X`, `AMD MI300X (CPX)`."""
        accelerator = self.pool(runner).accelerator
        name = f"{accelerator.vendor.upper()} {accelerator.model}"
        compute = accelerator.partition.compute
        return name if compute == "SPX" else f"{name} ({compute})"

    def devices_of_a_node(self, runner: Runner) -> int:
        """GPUs or partitions that a node of its pool has."""
        return self.pool(runner).accelerator.devices

    def devices_of_pool(self, pool: str) -> int:
        """GPUs or partitions of all nodes of the pool."""
        nodes = self.cluster.node_pools[pool]
        return nodes.accelerator.devices * len(nodes.nodes)

    def gpu_resource(self, pool: str) -> str:
        """Name under which pods ask for a GPU of that pool."""
        if self.cluster.node_pools[pool].accelerator.vendor == "nvidia":
            return GPU
        partition = self.cluster.node_pools[pool].accelerator.partition
        return gpu_resource(self.device_plugin.resource_naming, partition.compute, partition.memory)

    def device_plugin_namespaces(self) -> list[tuple[Path, str, str]]:
        """Namespaces of device plugins: the setting, the namespace, and what it is of."""
        found: list[tuple[Path, str, str]] = []
        if self.cluster.pools_of("amd"):
            found.append((("devicePlugin", "namespace"), self.device_plugin.namespace, "the device plugin"))
        if self.cluster.pools_of("nvidia"):
            found.append((("gpuOperator", "namespace"), self.gpu_operator.namespace, "the GPU operator"))
        return found

    def secret_keys(self) -> Mapping[str, str]:
        """Configuration keys that have to hold a secret, each with the setting that asks for it."""
        cluster = self.cluster
        own = {"kubeconfig": "cluster.kubeconfig"} if cluster.kubeconfig.kind == "secret" else {}
        own |= {SSH_KEY: "cluster.ssh"} if cluster.makes_use_of_ssh and needs_ssh_key(cluster) else {}
        return {**super().secret_keys(), **own, **dict(secret_variables(cluster))}


def secret_variables(cluster: BareMetalCluster) -> Iterator[tuple[str, str]]:
    """Keys of the secrets that kubespray's variables take, each with the setting that names it."""
    if cluster.kubespray is None:
        return
    for variable, key in cluster.kubespray.secret_variables.items():
        yield key, f"cluster.kubespray.secretVariables.{variable}"
    for pool, members in cluster.node_pools.items():
        for name, node in members.nodes.items():
            for variable, key in node.secret_variables.items():
                yield key, f"cluster.nodePools.{pool}.nodes.{name}.secretVariables.{variable}"


def needs_ssh_key(cluster: BareMetalCluster) -> bool:
    """Whether some login of the cluster has no agent, and so takes the stack's secret."""
    bastion = cluster.kubespray.run_on if cluster.kubespray else None
    logins = [cluster.ssh, bastion if bastion and bastion.kind == "bastion" else None]
    return any(login is not None and login.agent_socket is None for login in logins)
