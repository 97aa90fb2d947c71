"""Settings of a stack on EKS: its cluster and the NVIDIA device plugin."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpufleet.aws.efa.device_plugin import EFA_DEVICE_PLUGIN_VERSION
from gpufleet.aws.karpenter.node_pool_fit import gpu_counts
from gpufleet.nvidia.device_plugin import NVIDIA_DEVICE_PLUGIN_VERSION, DeviceListStrategy
from gpufleet.nvidia.sharing import GPU, devices_of_a_gpu
from gpufleet.problem import Path
from gpufleet_stacks.settings.args.node_pools import gpus_of, node_pool_args
from gpufleet_stacks.settings.models.eks_cluster import EksClusterSettings
from gpufleet_stacks.settings.models.karpenter import KarpenterPool
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_stacks.settings.models.value_types import Folder, Model, Name, Switch, Text, Version


class NvidiaPlugin(Model):
    """The NVIDIA device plugin. Each node pool defines how its GPUs are shared."""

    namespace: Name = "nvidia-device-plugin"
    """Namespace of the plugin; this stack creates and owns it."""
    version: Version = NVIDIA_DEVICE_PLUGIN_VERSION
    """Chart version."""
    fail_on_init_error: Switch = True
    """Whether to fail on nodes without a working driver. Otherwise the plugin waits silently and the node offers no
    GPUs."""
    driver_root: Folder = "/"
    """Root folder of the driver installation on the nodes."""
    pass_device_specs: Switch = False
    """Whether to pass device nodes to the kubelet, as its static CPU manager requires. Makes the plugin privileged."""
    device_list_strategy: Annotated[tuple[DeviceListStrategy, ...], Field(min_length=1)] = ("envvar",)
    """Methods by which containers receive their list of GPUs."""
    device_id_strategy: Literal["uuid", "index"] = "uuid"
    """Identifier of GPUs in that list."""
    feature_discovery: Switch = False
    """Whether to label nodes with GPU product, memory, driver and CUDA version. Installs node feature discovery."""
    runtime_class: Switch = False
    """Whether to create the RuntimeClass `nvidia`, for AMIs with another default runtime. The NVIDIA AMIs of EKS
    already use it by default."""


class EfaPlugin(Model):
    """AWS's EFA device plugin. This stack installs it if a pool has EFA interfaces."""

    version: Annotated[str, Text(r"v[0-9]+\.[0-9]+\.[0-9]+", 32, "a version such as v0.5.30")] = (
        EFA_DEVICE_PLUGIN_VERSION
    )
    """Chart version."""


class EksSettings(Settings):
    """Settings of a stack on EKS."""

    cluster: EksClusterSettings
    """The cluster."""
    nvidia_plugin: NvidiaPlugin = NvidiaPlugin()
    """NVIDIA device plugin, which makes NVIDIA GPUs schedulable."""
    efa_plugin: EfaPlugin = EfaPlugin()
    """EFA device plugin, which makes EFA interfaces schedulable."""

    def pool(self, runner: Runner) -> KarpenterPool:
        """Return the node pool of a runner."""
        return self.cluster.node_pools[self.pool_name(runner)]

    def accelerator_name(self, runner: Runner) -> str:
        """Return the display name of a runner's GPUs: `NVIDIA A10G or T4, shared by 10`."""
        pool = self.pool_name(runner)
        shares, gpus = self.shares(pool), gpus_of(pool, self.cluster)
        # The table lacks these instance types. Karpenter's GPU images support NVIDIA only.
        names = " or ".join(dict.fromkeys(f"{each.manufacturer} {each.name}" for each in gpus)) or "NVIDIA"
        return f"{names}, shared by {shares}" if shares > 1 else names

    def devices_of_a_node(self, runner: Runner) -> int:
        """Return the maximum number of GPUs on a node of the runner's pool, counted as pods request them."""
        pool = self.pool_name(runner)
        return max(gpu_counts(node_pool_args(pool, self.cluster)), default=0) * self.shares(pool)

    def devices_of_pool(self, pool: str) -> int | None:
        """Return the maximum number of GPUs in a pool, counted as pods request them; None without a limit."""
        limit = self.cluster.node_pools[pool].limits.gpus
        return None if limit is None else limit * self.shares(pool)

    def shares(self, pool: str) -> int:
        """Return the number of pods that may share one GPU of the pool."""
        return devices_of_a_gpu(node_pool_args(pool, self.cluster).sharing)

    def gpu_resource(self, pool: str) -> str:
        """Return the resource name by which pods request a GPU of a pool, shared or not."""
        return GPU

    def device_plugin_namespaces(self) -> list[tuple[Path, str, str]]:
        """Return the namespaces of device plugins: path of the setting, namespace, component."""
        return [(("nvidiaPlugin", "namespace"), self.nvidia_plugin.namespace, "the device plugin")]
