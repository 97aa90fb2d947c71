"""NVIDIA's device plugin: what makes GPUs a resource that pods can ask for, whole or shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.node.v1 import RuntimeClass

from components.chart import Chart
from components.gpu_sharing import MigStrategy, TimeSlicing, device_plugin_config, resource_name, sharing_refusals

NVIDIA_DEVICE_PLUGIN_REPOSITORY = "https://nvidia.github.io/k8s-device-plugin"
NVIDIA_DEVICE_PLUGIN_VERSION = "0.20.0"

GPU_LABEL = "nvidia.com/gpu.present"
"""Label by which NVIDIA's charts know a node with GPUs; feature discovery sets it, or a node pool."""

GPU_TOLERATION: Mapping[str, str] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""Tolerates the usual taint of GPU nodes with any value and with none."""

PRIVILEGED_NAMESPACE: Mapping[str, str] = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Pods that mount folders of the host are refused where a cluster's default is `baseline` or `restricted`
(gpu-operator/getting-started.rst of NVIDIA/cloud-native-docs)."""

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
"""Chart values that arguments speak of. As values they overrule the configuration file, so that the plugin would do
other than `sharing` says, and an autoscaler would count GPUs that are not there."""


@dataclass(frozen=True, kw_only=True)
class NvidiaDevicePluginArgs:
    """What the plugin needs to know."""

    namespace: str = "nvidia-device-plugin"
    """Namespace of the plugin; created and owned by the component. The chart refuses `default`."""
    release: str = "nvdp"
    """Helm release name."""
    version: str = NVIDIA_DEVICE_PLUGIN_VERSION
    """Chart version, which is the plugin's own."""
    chart_mirror: str | None = None
    """Folder or registry to take the chart from instead of NVIDIA's repository."""
    sharing: TimeSlicing | None = None
    """How many pods may be on one GPU; None gives each GPU to one pod. MPS is not supported."""
    mig_strategy: MigStrategy = "none"
    """Parts of a GPU as devices of their own. Only `none`: MIG (single, mixed) is not supported."""
    device_list_strategy: Sequence[DeviceListStrategy] = ("envvar",)
    """How a container is told its GPUs. `envvar` needs the NVIDIA runtime, `cdi-*` a runtime that reads CDI, and
    `volume-mounts` gives the plugin SYS_ADMIN."""
    device_id_strategy: Literal["uuid", "index"] = "uuid"
    """What a GPU is called in that list."""
    driver_root: str = "/"
    """Where the driver lies on the host; `/run/nvidia/driver` where the GPU operator installed it."""
    pass_device_specs: bool = False
    """Give the kubelet the device nodes too, for its static CPU manager. The plugin is privileged then."""
    fail_on_init_error: bool = True
    """Fail on a node without a working driver, instead of waiting there with no GPUs and no message."""
    gfd: bool = False
    """GPU feature discovery: labels of product, memory, driver and CUDA on every GPU node. It needs node feature
    discovery, this release's or another."""
    nfd: bool = False
    """Node feature discovery as part of this release. Once per cluster: two have the same CRDs and cluster roles."""
    runtime_class: bool = False
    """Create the RuntimeClass `nvidia` (handler `nvidia`) that pods name where the NVIDIA runtime is not the default.
    The GPU operator creates the same."""
    runtime_class_name: str | None = None
    """RuntimeClass of the plugin's own pods; None where the NVIDIA runtime is the nodes' default."""
    node_selector: Mapping[str, str] = field(default_factory=lambda: {GPU_LABEL: "true"})
    """Labels of the nodes that have NVIDIA GPUs, all of them, instead of the chart's three alternatives."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Further taints of those nodes; `nvidia.com/gpu` with effect NoSchedule is tolerated anyway."""
    values: dict[str, Any] = field(default_factory=dict)
    """Further chart values, laid over the component's own; not those that arguments above speak of."""


class NvidiaDevicePlugin(pulumi.ComponentResource):
    """The plugin's namespace, its Helm release and, by choice, the RuntimeClass `nvidia`.

    One per cluster, and none on Bottlerocket's NVIDIA nodes, which have a plugin already, or beside the GPU operator,
    which brings its own.
    """

    ready: pulumi.Resource
    """The release: depend on it for "GPUs can be asked for"."""
    resource: str
    """Name of the resource that pods ask for."""

    def __init__(
        self, name: str, args: NvidiaDevicePluginArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or NvidiaDevicePluginArgs()
        if reasons := plugin_refusals(args):
            raise ValueError(f"{name}: " + "; ".join(reasons))
        super().__init__("gpu-runners:index:NvidiaDevicePlugin", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        needs: list[pulumi.Resource] = [
            Namespace(
                f"{name}-namespace",
                metadata={"name": args.namespace, "labels": dict(PRIVILEGED_NAMESPACE)},
                opts=child,
            )
        ]
        if args.runtime_class:
            needs.append(
                RuntimeClass(f"{name}-runtime-class", metadata={"name": "nvidia"}, handler="nvidia", opts=child)
            )
        chart = Chart(
            name="nvidia-device-plugin",
            registry=NVIDIA_DEVICE_PLUGIN_REPOSITORY,
            version=args.version,
            mirror=args.chart_mirror,
        )
        self.ready = chart.release(
            name,
            release=args.release,
            namespace=args.namespace,
            values=plugin_values(args),
            timeout=300,
            opts=pulumi.ResourceOptions(parent=self, depends_on=needs),
        )
        self.resource = resource_name(args.sharing)
        self.register_outputs({"version": args.version, "resource": self.resource})


def namespace_refusals(namespace: str) -> list[str]:
    """Why a chart cannot have this namespace to itself; empty where it can."""
    if namespace == "default" or namespace.startswith("kube-"):
        return [f"namespace: {namespace!r} exists already, and would be removed with the component; name another"]
    return []


def plugin_refusals(args: NvidiaDevicePluginArgs) -> list[str]:
    """Every reason why the plugin cannot be like this."""
    reasons = [*namespace_refusals(args.namespace), *sharing_refusals(args.sharing, args.mig_strategy)]
    if not args.device_list_strategy:
        reasons.append("device_list_strategy: empty; a container would not be told its GPUs")
    if not args.node_selector:
        reasons.append(f"node_selector: empty; the plugin fails on nodes without GPUs. Give {GPU_LABEL} or another")
    reasons += [f"values.{key}: is made from the arguments; set those" for key in OWN_VALUES if key in args.values]
    return reasons


def plugin_values(args: NvidiaDevicePluginArgs) -> dict[str, Any]:
    """Chart values of the plugin.

    MIG and device list strategy are said twice. With any configuration file the chart no longer looks into it, and
    gives the plugin SYS_ADMIN unless both are values too (`requiresCapSysAdmin` in templates/_helpers.tpl at 0.20.0).
    `config.name` is left out: the file is the release's own.
    """
    values: dict[str, Any] = {
        "config": {"map": {"default": device_plugin_config(plugin_flags(args), args.sharing)}},
        "migStrategy": args.mig_strategy,
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
        # The flag alone is of no use: only this value makes the plugin privileged, which it has to be then.
        values["compatWithCPUManager"] = True
    if any(strategy.startswith("cdi") for strategy in args.device_list_strategy) or args.driver_root != "/":
        # Mounts the driver's root, without which no CDI specification is written (daemonset-device-plugin.yml).
        values["nvidiaDriverRoot"] = args.driver_root
    if args.runtime_class_name:
        values["runtimeClassName"] = args.runtime_class_name
    return values | args.values


def plugin_flags(args: NvidiaDevicePluginArgs) -> dict[str, Any]:
    """`flags` of the plugin's configuration file."""
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
    """Values of node feature discovery. `enabled` is always said: where it is not, `gfd.enabled` decides (the
    condition of the dependency in Chart.yaml), and a second discovery comes unasked.

    The chart's own worker tolerates `nvidia.com/gpu` with the value `present` only, so it would not run on nodes whose
    taint has another value or none, and those would never be labelled.
    """
    if not args.nfd:
        return {"enabled": False}
    control_plane = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
    return {"enabled": True, "worker": {"tolerations": [control_plane, *gpu_tolerations(args.tolerations)]}}


def gpu_tolerations(further: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tolerations of whatever has to run on every GPU node. Given lists replace the chart's."""
    return [dict(GPU_TOLERATION), *(dict(toleration) for toleration in further)]


def nodes_with(labels: Mapping[str, str]) -> dict[str, Any]:
    """Affinity to nodes with all these labels. Not the value `nodeSelector`: the chart's affinity would hold as well,
    and wants labels that a stand-alone node feature discovery does not set (NVIDIA/k8s-device-plugin#1213)."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
