"""NVIDIA device plugin, which makes GPUs schedulable, whole or shared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.node.v1 import RuntimeClass

from gpufleet.nvidia.release import chart_release, gpu_tolerations, namespace_problems, privileged_namespace
from gpufleet.nvidia.sharing import (
    Mig,
    MigStrategy,
    Sharing,
    device_plugin_config,
    mig_problems,
    resource_name,
    sharing_problems,
)
from gpufleet.problem import Problem, refuse

NVIDIA_DEVICE_PLUGIN_REPOSITORY = "https://nvidia.github.io/k8s-device-plugin"
NVIDIA_DEVICE_PLUGIN_VERSION = "0.20.0"

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""Node label with the name of the plugin's configuration on that node (`DefaultConfigLabel` in
cmd/config-manager/main.go of NVIDIA/k8s-device-plugin at v0.20.0)."""

MPS_LABEL = "nvidia.com/mps.capable"
"""Label by which the chart selects nodes for the MPS control daemon (templates/daemonset-mps-control-daemon.yml). GPU
feature discovery, if installed, sets it too."""

GPU_LABEL = "nvidia.com/gpu.present"
"""Label by which NVIDIA's charts select GPU nodes; set by feature discovery or by the node pool."""


DeviceListStrategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]

OWN_VALUES = (
    "config",
    "compatWithCPUManager",
    "migStrategy",
    "failOnInitError",
    "deviceListStrategy",
    "deviceIDStrategy",
    "nvidiaDriverRoot",
)
"""Chart values that the arguments already set. As values they would override the configuration file: the plugin would
ignore `sharing`, and an autoscaler would count GPUs that do not exist."""


@dataclass(frozen=True, kw_only=True)
class NvidiaDevicePluginArgs:
    """Arguments of `NvidiaDevicePlugin`."""

    namespace: str = "nvidia-device-plugin"
    """Namespace of the plugin; created and owned by the component. The chart rejects `default`."""
    release: str = "nvdp"
    """Helm release name."""
    version: str = NVIDIA_DEVICE_PLUGIN_VERSION
    """Chart version, equal to the plugin's version."""
    chart_mirror: str | None = None
    """Folder or registry of the chart, instead of NVIDIA's repository."""
    sharing: Sharing | None = None
    """GPU sharing on nodes without the label `nvidia.com/device-plugin.config`; None gives each GPU to one pod."""
    configs: Mapping[str, Sharing | None] = field(default_factory=dict)
    """GPU sharing on nodes with that label, by its value."""
    mig_strategy: MigStrategy = "none"
    """MIG strategy. Only `none` is supported, not `single` or `mixed`; share GPUs as `Mig` instead."""
    device_list_strategy: Sequence[DeviceListStrategy] = ("envvar",)
    """Methods by which containers receive their list of GPUs. `envvar` requires the NVIDIA runtime, `cdi-*` a runtime
    with CDI; `volume-mounts` gives the plugin SYS_ADMIN."""
    device_id_strategy: Literal["uuid", "index"] = "uuid"
    """Identifier of GPUs in that list."""
    driver_root: str = "/"
    """Root folder of the driver on the host; `/run/nvidia/driver` if the GPU operator installed it."""
    pass_device_specs: bool = False
    """Whether to pass device nodes to the kubelet, as its static CPU manager requires. Makes the plugin privileged."""
    fail_on_init_error: bool = True
    """Whether to fail on nodes without a working driver, instead of waiting silently without GPUs."""
    gfd: bool = False
    """Whether to install GPU feature discovery: node labels for GPU product, memory, driver and CUDA version. It
    requires node feature discovery, from this release or another."""
    nfd: bool = False
    """Whether to install node feature discovery with this release. Only once per cluster: two would share CRDs and
    cluster roles."""
    runtime_class: bool = False
    """Whether to create the RuntimeClass `nvidia` with handler `nvidia`, for nodes where the NVIDIA runtime is not the
    default. The GPU operator creates it too."""
    runtime_class_name: str | None = None
    """RuntimeClass of the plugin's own pods; None if the NVIDIA runtime is the nodes' default."""
    node_selector: Mapping[str, str] = field(default_factory=lambda: {GPU_LABEL: "true"})
    """Labels of the nodes with NVIDIA GPUs. All must match; they replace the chart's three alternatives."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Additional tolerations of the plugin's pods; `nvidia.com/gpu` with effect NoSchedule is always tolerated."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Additional chart values, which override the component's own. Values set by arguments above are not allowed."""


class NvidiaDevicePlugin(pulumi.ComponentResource):
    """The NVIDIA device plugin with its namespace and, optionally, the RuntimeClass `nvidia`.

    One per cluster. Do not use it on Bottlerocket's NVIDIA nodes, which include a plugin, or with the GPU operator,
    which installs one.
    """

    ready: pulumi.Resource
    """The Helm release; depend on it to wait until pods can request GPUs."""
    resource: str
    """Resource name by which pods request GPUs."""

    def __init__(
        self, name: str, args: NvidiaDevicePluginArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or NvidiaDevicePluginArgs()
        refuse(name, plugin_problems(args))
        super().__init__("gpu-runners:index:NvidiaDevicePlugin", name, None, opts)
        needs: list[pulumi.Resource] = [privileged_namespace(name, args, self)]
        if args.runtime_class:
            child = pulumi.ResourceOptions(parent=self)
            needs.append(
                RuntimeClass(f"{name}-runtime-class", metadata={"name": "nvidia"}, handler="nvidia", opts=child)
            )
        self.ready = chart_release(
            name,
            args,
            self,
            chart="nvidia-device-plugin",
            registry=NVIDIA_DEVICE_PLUGIN_REPOSITORY,
            needs=needs,
            values=plugin_values(args),
            timeout=300,
        )
        self.resource = resource_name(args.sharing)
        self.register_outputs({"version": args.version, "resource": self.resource})


def plugin_problems(args: NvidiaDevicePluginArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    yield from namespace_problems(args.namespace)
    yield from sharing_problems(args.sharing)
    for name, sharing in args.configs.items():
        for problem in sharing_problems(sharing):
            yield dataclasses.replace(problem, path=("configs", name, *problem.path[1:]))
    if "default" in args.configs:
        message = "is reserved for nodes without the label; set the argument sharing instead"
        yield Problem(("configs", "default"), "default-config", message)
    yield from mig_problems(("mig_strategy",), args.mig_strategy)
    if not args.device_list_strategy:
        message = "is empty, so no container would receive its GPUs; name at least one strategy"
        yield Problem(("device_list_strategy",), "no-device-list-strategy", message)
    if not args.node_selector:
        message = f"is empty, but the plugin fails on nodes without GPUs; select nodes by {GPU_LABEL} or another label"
        yield Problem(("node_selector",), "no-node-selector", message)
    for key in OWN_VALUES:
        if key in args.values:
            yield Problem(("values", key), "value-of-an-argument", "follows from the arguments; set those instead")


def plugin_values(args: NvidiaDevicePluginArgs) -> dict[str, Any]:
    """Return the chart values of the plugin.

    MIG strategy and device list strategy are set twice, because the chart does not read the configuration file: unless
    both are also values, it gives the plugin SYS_ADMIN (`requiresCapSysAdmin` in templates/_helpers.tpl at 0.20.0).
    `config.name` is not set, because the release owns the file.
    """
    sharings = {"default": args.sharing, **args.configs}
    flags = plugin_flags(args)
    values: dict[str, Any] = {
        # The chart uses `default` on nodes without the label (`fallbackStrategies` in values.yaml).
        "config": {"map": {name: device_plugin_config(flags, sharing) for name, sharing in sharings.items()}},
        # A value would override the files (`NewConfig` in api/config/v1/config.go). Without one, the chart gives the
        # plugin SYS_ADMIN, which MIG needs.
        **({} if any(isinstance(each, Mig) for each in sharings.values()) else {"migStrategy": args.mig_strategy}),
        "deviceListStrategy": ",".join(args.device_list_strategy),
        "affinity": nodes_with(args.node_selector),
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            *gpu_tolerations(args.tolerations),
        ],
        "gfd": {"enabled": args.gfd},
        "nfd": discovery_values(args),
    }
    if args.pass_device_specs:
        # Only this value makes the plugin privileged, as the flag requires.
        values["compatWithCPUManager"] = True
    if any(strategy.startswith("cdi") for strategy in args.device_list_strategy) or args.driver_root != "/":
        # Mounts the driver's root, which CDI specifications are generated from (daemonset-device-plugin.yml).
        values["nvidiaDriverRoot"] = args.driver_root
    if args.runtime_class_name:
        values["runtimeClassName"] = args.runtime_class_name
    return {**values, **args.values}


def plugin_flags(args: NvidiaDevicePluginArgs) -> dict[str, Any]:
    """Return `flags` of the plugin's configuration file."""
    return {
        "migStrategy": args.mig_strategy,
        "failOnInitError": args.fail_on_init_error,
        "nvidiaDriverRoot": args.driver_root,
        "plugin": {
            "passDeviceSpecs": args.pass_device_specs,
            "deviceListStrategy": list(args.device_list_strategy),
            "deviceIDStrategy": args.device_id_strategy,
        },
    }


def discovery_values(args: NvidiaDevicePluginArgs) -> dict[str, Any]:
    """Return the values of node feature discovery. `enabled` is always set. Otherwise `gfd.enabled` decides (condition
    of the dependency in Chart.yaml), and could install a second discovery.

    The chart's own worker only tolerates `nvidia.com/gpu` with the value `present`. It would not run on nodes with
    another value or none, and would never label them.
    """
    if not args.nfd:
        return {"enabled": False}
    control_plane = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
    return {"enabled": True, "worker": {"tolerations": [control_plane, *gpu_tolerations(args.tolerations)]}}


def nodes_with(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return an affinity to nodes with all these labels. The value `nodeSelector` would only add to the chart's
    affinity. That requires labels which a stand-alone node feature discovery does not set
    (NVIDIA/k8s-device-plugin#1213)."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
