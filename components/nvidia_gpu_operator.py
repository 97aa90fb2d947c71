"""NVIDIA's GPU operator beside hosts that bring their own driver and, where they pin it, their own toolkit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.core.v1 import Namespace

from components.chart import Chart
from components.gpu_sharing import TimeSlicing, device_plugin_config, resource_name, sharing_refusals
from components.nvidia_device_plugin import PRIVILEGED_NAMESPACE, gpu_tolerations, namespace_refusals

NVIDIA_GPU_OPERATOR_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
NVIDIA_GPU_OPERATOR_VERSION = "v26.7.0"


@dataclass(frozen=True, kw_only=True)
class PinnedValue:
    """A chart value that a host's own toolkit depends on."""

    path: str
    """Its path in the chart's values."""
    default: bool | str
    """What the chart takes where nothing is given (values.yaml at v26.7.0)."""
    wanted: bool | str
    """What it has to be."""
    reason: str
    """What happens otherwise."""


PINNED: tuple[PinnedValue, ...] = (
    PinnedValue(
        path="toolkit.enabled",
        default=True,
        wanted=False,
        reason="installs the operator's own toolkit and makes it the nodes' runtime, whatever the host pins",
    ),
    PinnedValue(
        path="cdi.enabled",
        default=True,
        wanted=False,
        # transformDevicePluginCtrForCDI in controllers/object_controls.go at v26.7.0.
        reason="tells the device plugin cdi-annotations,cdi-cri: GPUs no longer come by the host's legacy runtime",
    ),
    PinnedValue(
        path="cdi.nriPluginEnabled",
        default=False,
        wanted=False,
        reason="is refused by the chart without its toolkit and without CDI",
    ),
    PinnedValue(
        path="driver.enabled",
        default=True,
        wanted=False,
        reason="puts the driver under /run/nvidia/driver, where a host's toolkit does not look, beside the host's own",
    ),
    PinnedValue(
        path="operator.runtimeClass",
        default="nvidia",
        wanted="nvidia",
        reason="is the handler's name too, and nvidia-ctk on the host configures the handler nvidia",
    ),
    PinnedValue(
        path="gpuCluster.deployCR",
        default=False,
        wanted=False,
        reason="hands GPUs out by Dynamic Resource Allocation, which knows CDI only",
    ),
)
"""Together with `driver.enabled` and `toolkit.enabled` false, NVIDIA wants the host's default runtime to be `nvidia`
("Pre-Installed NVIDIA GPU Drivers and NVIDIA Container Toolkit", gpu-operator/getting-started.rst of
NVIDIA/cloud-native-docs). Toolkit 1.17.8 is in legacy mode unless told otherwise (internal/info/auto.go at v1.17.8 of
NVIDIA/nvidia-container-toolkit); from 25.10 the operator uses CDI unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class NvidiaGpuOperatorArgs:
    """What the operator needs to know. Whether hosts pin their toolkit has no default: taken for granted wrongly, the
    operator replaces it."""

    host_toolkit_pinned: bool
    """The hosts have a container toolkit of their own, at a version that has to stay. The operator then installs none
    and uses no CDI."""
    host_default_runtime: Literal["nvidia", "runc"] = "nvidia"
    """Default runtime of the hosts' container engine. With a pinned toolkit it has to be `nvidia`
    (`nvidia-ctk runtime configure --set-as-default`); without, the operator sees to it."""
    driver_enabled: bool = False
    """Install the driver as well. Off: the hosts, their images or their machine images have it."""
    namespace: str = "gpu-operator"
    """Namespace of the operator and of all it runs; created and owned by the component."""
    release: str = "gpu-operator"
    """Helm release name."""
    version: str = NVIDIA_GPU_OPERATOR_VERSION
    """Chart version, which is the operator's own."""
    chart_mirror: str | None = None
    """Folder or registry to take the chart from instead of NVIDIA's repository."""
    sharing: TimeSlicing | None = None
    """How many pods may be on one GPU; None gives each GPU to one pod. MPS and MIG are not supported. With sharing,
    DCGM's metrics cannot tell containers apart."""
    nfd: bool = True
    """Node feature discovery as part of this release. Once per cluster; the operator finds no GPU node without one."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Further taints of GPU nodes; `nvidia.com/gpu` with effect NoSchedule is tolerated anyway."""
    values: dict[str, Any] = field(default_factory=dict)
    """Further chart values, laid over the component's own: a top-level key replaces the component's."""


class NvidiaGpuOperator(pulumi.ComponentResource):
    """The operator's namespace and its Helm release.

    A Helm release and not a chart's rendered objects: its hooks upgrade and clean up the operator's CRDs. One per
    cluster, and no `NvidiaDevicePlugin` beside it. The RuntimeClass `nvidia` is the operator's.
    """

    ready: pulumi.Resource
    """The release: depend on it for "the operator runs". GPUs can be asked for once it has done its work."""
    resource: str
    """Name of the resource that pods ask for."""
    host_requirements: Sequence[str]
    """What the hosts have to have before it, in words."""

    def __init__(self, name: str, args: NvidiaGpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        if reasons := operator_refusals(args):
            raise ValueError(f"{name}: " + "; ".join(reasons))
        super().__init__("gpu-runners:index:NvidiaGpuOperator", name, None, opts)
        namespace = Namespace(
            f"{name}-namespace",
            metadata={"name": args.namespace, "labels": dict(PRIVILEGED_NAMESPACE)},
            opts=pulumi.ResourceOptions(parent=self),
        )
        chart = Chart(
            name="gpu-operator",
            registry=NVIDIA_GPU_OPERATOR_REPOSITORY,
            version=args.version,
            mirror=args.chart_mirror,
        )
        self.ready = chart.release(
            name,
            release=args.release,
            namespace=args.namespace,
            values=operator_values(args),
            # The hook that upgrades CRDs wants it (operator.upgradeCRD in the chart's values.yaml).
            disable_openapi_validation=True,
            timeout=600,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        self.resource = resource_name(args.sharing)
        self.host_requirements = host_requirements(args)
        self.register_outputs(
            {"version": args.version, "resource": self.resource, "hostRequirements": self.host_requirements}
        )


def host_requirements(args: NvidiaGpuOperatorArgs) -> list[str]:
    """What the operator leaves to the hosts."""
    found = [] if args.driver_enabled else ["the NVIDIA driver is installed"]
    if args.host_toolkit_pinned:
        found += [
            "the NVIDIA container toolkit is installed, all four packages at the pinned version and held",
            "the container engine's default runtime is nvidia",
        ]
    return found


def operator_refusals(args: NvidiaGpuOperatorArgs) -> list[str]:
    """Every reason why the operator cannot be like this."""
    # Sharing that is refused has no values; and none of these depends on it.
    values = operator_values(replace(args, sharing=None))
    reasons = [
        *namespace_refusals(args.namespace),
        *sharing_refusals(args.sharing, str(value_at(values, "mig.strategy", "single"))),
    ]
    if args.sharing and "devicePlugin" in args.values:
        reasons.append("values.devicePlugin: replaces the configuration that sharing is in; give one of the two")
    return reasons + pin_refusals(args, values) if args.host_toolkit_pinned else reasons


def pin_refusals(args: NvidiaGpuOperatorArgs, values: Mapping[str, Any]) -> list[str]:
    """What of these chart values undoes a toolkit that the host pins."""
    reasons = []
    for pinned in PINNED:
        found = value_at(values, pinned.path, pinned.default)
        if found != pinned.wanted:
            reasons.append(f"{pinned.path}: {found!r} {pinned.reason}; a pinned toolkit needs {pinned.wanted!r}")
    if args.host_default_runtime != "nvidia":
        reasons.append(
            f"host_default_runtime: {args.host_default_runtime!r} gives pods no GPU; a pinned toolkit needs 'nvidia'"
        )
    environment = value_at(values, "devicePlugin.env", [])
    given = {entry.get("name"): entry.get("value") for entry in environment if isinstance(entry, Mapping)}
    if "cdi" in str(given.get("DEVICE_LIST_STRATEGY", "")):
        reasons.append("devicePlugin.env: DEVICE_LIST_STRATEGY asks for CDI; a pinned toolkit needs 'envvar'")
    return reasons


def value_at(values: Mapping[str, Any], path: str, default: Any) -> Any:
    """The value at a dotted path, or what the chart takes where there is none."""
    found: Any = values
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return default
        found = found[key]
    return found


def operator_values(args: NvidiaGpuOperatorArgs) -> dict[str, Any]:
    """Chart values of the operator.

    `mig.strategy` is given to the device plugin as an environment variable and so overrules its configuration file;
    the chart's own is `single`. Without MIG nothing is left for its manager but to reset what a host has set up.
    """
    tolerations = gpu_tolerations(args.tolerations)
    values: dict[str, Any] = {
        "driver": {"enabled": args.driver_enabled},
        "toolkit": {"enabled": not args.host_toolkit_pinned},
        "cdi": {"enabled": not args.host_toolkit_pinned},
        "mig": {"strategy": "none"},
        "migManager": {"enabled": False},
        "daemonsets": {"tolerations": tolerations},
        "nfd": {"enabled": args.nfd},
    }
    if args.nfd:
        control_plane = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
        values["node-feature-discovery"] = {"worker": {"tolerations": [control_plane, *tolerations]}}
    if args.sharing:
        values["devicePlugin"] = {"config": sharing_values(args.sharing)}
    return values | args.values


def sharing_values(sharing: TimeSlicing) -> dict[str, Any]:
    """`devicePlugin.config`: a ConfigMap of the release's, named after its content. The operator does not watch it
    (gpu-operator/gpu-sharing.rst of NVIDIA/cloud-native-docs); another name is what makes the plugin start anew."""
    text = device_plugin_config({"migStrategy": "none"}, sharing)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return {
        "create": True,
        "name": f"device-plugin-config-{digest}",
        "default": "default",
        "data": {"default": text},
    }
