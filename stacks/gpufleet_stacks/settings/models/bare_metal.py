"""Settings of an existing cluster on your own machines, or of one that kubespray creates."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from gpufleet.amd.device_plugin import (
    PARTITIONS_PER_GPU,
    ComputePartition,
    MemoryPartition,
    gpu_resource,
)
from gpufleet.bare_metal.kubespray.args import Role
from gpufleet.bare_metal.kubespray.inventory import SITE_LABEL
from gpufleet.nvidia.sharing import GPU
from gpufleet.problem import Path
from gpufleet_stacks.settings.models.gpus import ContainerToolkit, DevicePlugin, GpuOperator
from gpufleet_stacks.settings.models.kubespray import (
    SNAPSHOT_KEYS,
    SSH_KEY,
    HostKey,
    KubespraySettings,
    Port,
    SecretKey,
    Ssh,
    UserName,
)
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.models.taints import TaintSettings
from gpufleet_stacks.settings.models.value_types import (
    MOST,
    Address,
    Cores,
    Date,
    Filled,
    Labels,
    LabelValue,
    Model,
    Name,
    Size,
)


class ContextKubeconfig(Model):
    """A context of a kubeconfig file."""

    kind: Literal["context"]
    """A context of a kubeconfig file."""
    context: Filled
    """Name of the context. Required, so that the shell's current context is never used by accident."""
    path: Filled | None = None
    """Path of the file. If omitted, `$KUBECONFIG` or `~/.kube/config` of the shell that runs Pulumi."""


class SecretKubeconfig(Model):
    """A kubeconfig stored as the stack's secret `gpu-runners:kubeconfig`."""

    kind: Literal["secret"]
    """The stack's secret `kubeconfig`."""


class KubesprayKubeconfig(Model):
    """The kubeconfig of the cluster that kubespray creates; configured in `cluster.kubespray`."""

    kind: Literal["kubespray"]
    """A cluster that this stack creates with kubespray."""


Kubeconfig = Annotated[ContextKubeconfig | SecretKubeconfig | KubesprayKubeconfig, Field(discriminator="kind")]


class Partition(Model):
    """Partitioning of every GPU in a pool."""

    compute: ComputePartition = "SPX"
    """Compute partition. `SPX` leaves a GPU whole; `CPX` splits it into eight."""
    memory: MemoryPartition = "NPS1"
    """Memory partition. `NPS4` requires `CPX`."""


class Accelerator(Model):
    """The GPUs of one node."""

    vendor: Literal["amd", "nvidia"]
    """GPU vendor. AMD GPUs are served by the AMD device plugin, NVIDIA GPUs by the GPU operator."""
    model: Filled
    """Model name shown to people: `MI300X`."""
    count: Annotated[int, Field(strict=True, ge=1, le=16)]
    """Number of physical GPUs in one node."""
    partition: Partition = Partition()
    """Partitioning of AMD GPUs. This only declares what the hosts are configured to do; it partitions nothing. Pods
    request partitions: 8 GPUs under CPX count as 64."""

    @property
    def devices(self) -> int:
        """Number of devices that pods can request on one node: GPUs times partitions."""
        return self.count * PARTITIONS_PER_GPU[self.partition.compute]


class Allocatable(Model):
    """Resources of one node that pods can use, as listed under Allocatable by `kubectl describe node`."""

    cpu: Cores
    """CPU cores."""
    memory: Size
    """Memory."""
    ephemeral_storage: Size
    """Disk space for images, logs and emptyDir volumes."""
    pods: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 110
    """Maximum number of pods; 110 is the kubelet's default."""


class Maintenance(Model):
    """Maintenance of machines. While it lasts, their nodes are cordoned, and `max` of the labels that lose capacity is
    lower. Remove the entry to end it."""

    from_: Annotated[Date | None, Field(alias="from")] = None
    """First day; if omitted, it begins with the next `pulumi up`. From this day on, the next `pulumi up` begins it."""
    until: Date
    """Expected last day, shown to users. The entry stays in effect until you remove it."""
    why: Filled
    """Reason, shown to users."""

    @property
    def in_effect(self) -> bool:
        """Whether it has begun."""
        return self.from_ is None or self.from_ <= datetime.date.today()


class NodeSettings(Model):
    """One machine."""

    address: Address
    """Address at which the machine is reached."""
    labels: Labels = {}
    """Labels of this machine; they override those of its pool."""
    site: Annotated[LabelValue, Field(min_length=1)] | None = None
    """Location of the machine; becomes its label `topology.kubernetes.io/region`."""
    roles: tuple[Role, ...] = ("worker",)
    """Roles of the machine in the cluster."""
    host_keys: tuple[HostKey, ...] = ()
    """Public SSH host keys of the machine, for example the content of `/etc/ssh/ssh_host_ed25519_key.pub`. Required for
    SSH logins."""
    port: Port = 22
    """Port of the machine's SSH server."""
    user: UserName | None = None
    """SSH user on this machine; if omitted, the user of `cluster.ssh`."""
    internal_address: Address | None = None
    """Address of this machine that its services listen on; if omitted, that of its default route."""
    access_address: Address | None = None
    """Address at which other nodes reach this machine; if omitted, `internalAddress`."""
    generation: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 1
    """Generation of the machine's installation. Increase it after the machine was reinstalled: the next `pulumi up`
    sets it up again."""
    maintenance: Maintenance | None = None
    """Maintenance of this machine."""
    variables: dict[Filled, Any] = {}
    """Additional kubespray or Ansible variables for this machine. Variables that have a setting of their own are not
    allowed."""
    secret_variables: dict[Filled, SecretKey] = {}
    """Secret variables of this machine. Each names the key of a stack secret: `{ansible_become_password:
    kubespray-becomePassword}`."""


class NodePool(Model):
    """Identical machines with GPUs."""

    accelerator: Accelerator
    """GPUs of each machine."""
    allocatable: Allocatable
    """Resources of each machine that pods can use."""
    labels: Labels = {}
    """Labels of every node. The device plugin selects its nodes by them, so choose labels that other nodes do not
    have."""
    taints: tuple[TaintSettings, ...] = ()
    """Taints of every node."""
    maintenance: Maintenance | None = None
    """Maintenance of all machines of the pool."""
    nodes: Annotated[dict[Name, NodeSettings], Field(min_length=1)]
    """The machines, by node name."""
    overcommit: Literal["refused", "allowed"] = "refused"
    """Whether the `max` of the pool's labels may together exceed the machines' capacity (overcommitted pool). With
    `allowed`, jobs may queue although their label is below `max`, without a finding."""

    def node_labels(self, node: NodeSettings) -> dict[str, str]:
        """Return all labels of a node of this pool."""
        site = {SITE_LABEL: node.site} if node.site else {}
        return self.labels | site | node.labels

    def selected_by(self, selector: Mapping[str, str]) -> dict[str, NodeSettings]:
        """Return the machines whose nodes have all labels of a selector, by node name."""
        return {name: node for name, node in self.nodes.items() if selector.items() <= self.node_labels(node).items()}

    def in_maintenance(self) -> dict[str, Maintenance]:
        """Return the maintenance of each machine whose own or whose pool's has begun, by node name."""
        entries = {name: (node.maintenance, self.maintenance) for name, node in self.nodes.items()}
        begun = {name: [entry for entry in each if entry and entry.in_effect] for name, each in entries.items()}
        return {name: max(each, key=lambda entry: entry.until) for name, each in begun.items() if each}

    def available(self) -> dict[str, NodeSettings]:
        """Return the machines that are not in maintenance, by node name."""
        away = self.in_maintenance()
        return {name: node for name, node in self.nodes.items() if name not in away}


ON_MACHINES = ("ssh", "kubespray", "nvidiaContainerToolkit")
"""Sections of a cluster that change its machines over SSH."""


class BareMetalCluster(Model):
    """A cluster on your own machines: an existing one, or one that kubespray creates."""

    kind: Literal["bareMetal"]
    """A cluster on your own machines."""
    name: Name
    """Name of the cluster. Stacks with the same cluster name must not define the same label."""
    kubeconfig: Kubeconfig
    """Credentials for the cluster's API server."""
    ssh: Ssh | None = None
    """SSH access to the machines; required for `kubespray` and `nvidiaContainerToolkit`."""
    kubespray: KubespraySettings | None = None
    """Settings of kubespray; only with `kubeconfig: {kind: kubespray}`."""
    nvidia_container_toolkit: ContainerToolkit | None = None
    """NVIDIA container toolkit on machines with NVIDIA GPUs. If omitted, it is expected to be installed already, or the
    GPU operator installs it."""
    node_pools: Annotated[dict[Name, NodePool], Field(min_length=1)]
    """GPU nodes, grouped into pools of identical machines."""

    def pools_of(self, vendor: str) -> dict[str, NodePool]:
        """Return the node pools with GPUs of one vendor, by name."""
        return {name: pool for name, pool in self.node_pools.items() if pool.accelerator.vendor == vendor}

    def maintenance(self) -> Iterator[tuple[Path, Maintenance]]:
        """Yield every maintenance with its path in the stack file."""
        for name, pool in self.node_pools.items():
            path: Path = ("cluster", "nodePools", name)
            if pool.maintenance:
                yield (*path, "maintenance"), pool.maintenance
            for node, members in pool.nodes.items():
                if members.maintenance:
                    yield (*path, "nodes", node, "maintenance"), members.maintenance

    @property
    def makes_use_of_ssh(self) -> bool:
        """Whether `pulumi up` runs something on the machines."""
        return self.kubespray is not None or self.nvidia_container_toolkit is not None


class BareMetalSettings(Settings):
    """Settings of a stack on your own machines."""

    cluster: BareMetalCluster
    """The cluster."""
    device_plugin: DevicePlugin = DevicePlugin()
    """AMD device plugin, which makes AMD GPUs schedulable."""
    gpu_operator: GpuOperator = GpuOperator()
    """NVIDIA GPU operator, which makes NVIDIA GPUs schedulable."""

    def pool(self, runner: Runner) -> NodePool:
        """Return the node pool of a runner."""
        return self.cluster.node_pools[self.pool_name(runner)]

    def effective(self, label: str) -> Runner:
        """Return a runner whose `max` has shrunk like the number of machines that it can run on, for as long as others
        are in maintenance."""
        runner = self.runners[label]
        pool = self.pool(runner)
        usable = pool.selected_by(self.profile(runner).node_selector).keys()
        available = usable & pool.available().keys()
        if available == usable:
            return runner
        most = runner.max * len(available) // len(usable)
        return runner.model_copy(update={"max": most, "min": min(runner.min, most)})

    def reduced_by(self, label: str) -> Maintenance | None:
        """Return the maintenance that reduces the capacity of a label the longest; None if none does."""
        runner = self.runners[label]
        pool = self.pool(runner)
        usable = pool.selected_by(self.profile(runner).node_selector)
        away = [entry for name, entry in pool.in_maintenance().items() if name in usable]
        return max(away, key=lambda entry: entry.until, default=None)

    def accelerator_name(self, runner: Runner) -> str:
        """Return the display name of a runner's GPUs: `AMD MI300X`, `AMD MI300X (CPX)`."""
        accelerator = self.pool(runner).accelerator
        name = f"{accelerator.vendor.upper()} {accelerator.model}"
        compute = accelerator.partition.compute
        return name if compute == "SPX" else f"{name} ({compute})"

    def devices_of_a_node(self, runner: Runner) -> int:
        """Return the number of GPUs or partitions of one node in the runner's pool."""
        return self.pool(runner).accelerator.devices

    def devices_of_pool(self, pool: str) -> int:
        """Return the number of GPUs or partitions of all nodes in a pool."""
        nodes = self.cluster.node_pools[pool]
        return nodes.accelerator.devices * len(nodes.nodes)

    def gpu_resource(self, pool: str) -> str:
        """Return the resource name by which pods request a GPU of a pool."""
        if self.cluster.node_pools[pool].accelerator.vendor == "nvidia":
            return GPU
        partition = self.cluster.node_pools[pool].accelerator.partition
        return gpu_resource(self.device_plugin.resource_naming, partition.compute, partition.memory)

    def device_plugin_namespaces(self) -> list[tuple[Path, str, str]]:
        """Return the namespaces of device plugins: path of the setting, namespace, component."""
        found: list[tuple[Path, str, str]] = []
        if self.cluster.pools_of("amd"):
            found.append((("devicePlugin", "namespace"), self.device_plugin.namespace, "the device plugin"))
        if self.cluster.pools_of("nvidia"):
            found.append((("gpuOperator", "namespace"), self.gpu_operator.namespace, "the GPU operator"))
        return found

    def secret_keys(self) -> Mapping[str, str]:
        """Return the configuration keys that must hold a secret, each with the setting that requires it."""
        cluster = self.cluster
        own = {"kubeconfig": "cluster.kubeconfig"} if cluster.kubeconfig.kind == "secret" else {}
        own |= {SSH_KEY: "cluster.ssh"} if cluster.makes_use_of_ssh and needs_ssh_key(cluster) else {}
        snapshots = cluster.kubespray.etcd_snapshots if cluster.kubespray else None
        if snapshots and snapshots.to.kind == "s3":
            own |= dict.fromkeys(SNAPSHOT_KEYS, "cluster.kubespray.etcdSnapshots.to")
        return {**super().secret_keys(), **own, **dict(secret_variables(cluster))}


def secret_variables(cluster: BareMetalCluster) -> Iterator[tuple[str, str]]:
    """Yield the keys of secrets used by kubespray variables, each with the setting that names it."""
    if cluster.kubespray is None:
        return
    for variable, key in cluster.kubespray.secret_variables.items():
        yield key, f"cluster.kubespray.secretVariables.{variable}"
    for pool, members in cluster.node_pools.items():
        for name, node in members.nodes.items():
            for variable, key in node.secret_variables.items():
                yield key, f"cluster.nodePools.{pool}.nodes.{name}.secretVariables.{variable}"


def needs_ssh_key(cluster: BareMetalCluster) -> bool:
    """Return whether any SSH login lacks an agent and therefore needs the stack's secret key."""
    kubespray = cluster.kubespray
    bastions = [kubespray.run_on, kubespray.moved_from] if kubespray else []
    logins = [cluster.ssh, *(each for each in bastions if each and each.kind == "bastion")]
    return any(login is not None and login.agent_socket is None for login in logins)
