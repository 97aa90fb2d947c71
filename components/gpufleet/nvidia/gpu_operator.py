"""NVIDIA GPU operator for hosts that provide their own driver and possibly a pinned container toolkit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pulumi

from gpufleet.gpu_validation import GpuValidation, validation_problems
from gpufleet.nvidia.release import chart_release, gpu_tolerations, namespace_problems, privileged_namespace
from gpufleet.nvidia.sharing import (
    Mig,
    Mps,
    TimeSlicing,
    device_plugin_config,
    mig_problems,
    resource_name,
    sharing_problems,
)
from gpufleet.nvidia.validated_device_plugin import validated_device_plugin
from gpufleet.problem import Problem, refuse

NVIDIA_GPU_OPERATOR_REPOSITORY = "https://helm.ngc.nvidia.com/nvidia"
NVIDIA_GPU_OPERATOR_VERSION = "v26.7.0"


@dataclass(frozen=True, kw_only=True)
class PinnedValue:
    """A chart value that a host's own toolkit depends on."""

    path: str
    """Path in the chart's values."""
    default: bool | str
    """Default of the chart (values.yaml at v26.7.0)."""
    wanted: bool | str
    """Required value."""
    reason: str
    """Effect of any other value."""


PINNED: tuple[PinnedValue, ...] = (
    PinnedValue(
        path="toolkit.enabled",
        default=True,
        wanted=False,
        reason="installs the operator's own toolkit and makes it the nodes' runtime, despite the host's pinned version",
    ),
    PinnedValue(
        path="cdi.enabled",
        default=True,
        wanted=False,
        # transformDevicePluginCtrForCDI in controllers/object_controls.go at v26.7.0.
        reason="makes the device plugin use cdi-annotations and cdi-cri instead of the host's legacy runtime",
    ),
    PinnedValue(
        path="cdi.nriPluginEnabled",
        default=False,
        wanted=False,
        reason="is rejected by the chart without its toolkit and without CDI",
    ),
    PinnedValue(
        path="driver.enabled",
        default=True,
        wanted=False,
        reason="installs a second driver in /run/nvidia/driver, where the host's toolkit does not find it",
    ),
    PinnedValue(
        path="operator.runtimeClass",
        default="nvidia",
        wanted="nvidia",
        reason="also names the runtime's handler, but nvidia-ctk on the host configures the handler nvidia",
    ),
    PinnedValue(
        path="gpuCluster.deployCR",
        default=False,
        wanted=False,
        reason="allocates GPUs by Dynamic Resource Allocation, which requires CDI",
    ),
)
"""Values required by a host toolkit. With `driver.enabled` and `toolkit.enabled` false, NVIDIA requires the host's
default runtime to be `nvidia` ("Pre-Installed NVIDIA GPU Drivers and NVIDIA Container Toolkit",
gpu-operator/getting-started.rst of NVIDIA/cloud-native-docs). Toolkit 1.17.8 defaults to legacy mode
(internal/info/auto.go at v1.17.8 of NVIDIA/nvidia-container-toolkit); from 25.10 on, the operator defaults to CDI."""


@dataclass(frozen=True, kw_only=True)
class NvidiaGpuOperatorArgs:
    """Arguments of `NvidiaGpuOperator`. `host_toolkit_pinned` has no default: if it were wrongly False, the operator
    would replace the hosts' toolkit."""

    host_toolkit_pinned: bool
    """Whether the hosts have a container toolkit at a pinned version. The operator then installs none and does not use
    CDI."""
    host_default_runtime: Literal["nvidia", "runc"] = "nvidia"
    """Default runtime of the hosts' container engine. A pinned toolkit requires `nvidia` (`nvidia-ctk runtime configure
    --set-as-default`); otherwise the operator configures it."""
    driver_enabled: bool = False
    """Whether to install the driver as well. If False, the hosts or their machine images provide it."""
    namespace: str = "gpu-operator"
    """Namespace of the operator and its workloads; created and owned by the component."""
    release: str = "gpu-operator"
    """Helm release name."""
    version: str = NVIDIA_GPU_OPERATOR_VERSION
    """Chart version, equal to the operator's version."""
    chart_mirror: str | None = None
    """Folder or registry of the chart, instead of NVIDIA's repository."""
    sharing: TimeSlicing | None = None
    """GPU sharing; None gives each GPU to one pod. MPS and MIG are not supported. With sharing, DCGM metrics do not
    distinguish containers."""
    nfd: bool = True
    """Whether to install node feature discovery with this release. The operator requires exactly one per cluster to
    find GPU nodes."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Additional tolerations of the operator's pods; `nvidia.com/gpu` with effect NoSchedule is always tolerated."""
    validation: GpuValidation | None = None
    """Validation of each node's GPUs after a boot, before pods can request them; None for none. The component then
    installs the device plugin instead of the operator, which allows no init containers. Requires
    `host_toolkit_pinned`, and no `sharing`."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Additional chart values. A top-level key replaces the component's own."""


class NvidiaGpuOperator(pulumi.ComponentResource):
    """The NVIDIA GPU operator with its namespace.

    A Helm release instead of rendered objects, because its hooks upgrade and clean up the operator's CRDs. One per
    cluster, and not together with `NvidiaDevicePlugin`. The operator creates the RuntimeClass `nvidia`.
    """

    ready: pulumi.Resource
    """The Helm release; depend on it to wait for a running operator. GPUs become available when the operator has set up
    the nodes."""
    resource: str
    """Resource name by which pods request GPUs."""
    host_requirements: Sequence[str]
    """Requirements that the hosts must meet beforehand, as text."""

    def __init__(self, name: str, args: NvidiaGpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        refuse(name, operator_problems(args))
        super().__init__("gpu-runners:index:NvidiaGpuOperator", name, None, opts)
        self.ready = chart_release(
            name,
            args,
            self,
            chart="gpu-operator",
            registry=NVIDIA_GPU_OPERATOR_REPOSITORY,
            needs=[privileged_namespace(name, args, self)],
            values=operator_values(args),
            # The hook that upgrades CRDs requires it (operator.upgradeCRD in the chart's values.yaml).
            disable_openapi_validation=True,
            timeout=600,
        )
        if args.validation:
            child = pulumi.ResourceOptions(parent=self, depends_on=[self.ready])
            tolerations = gpu_tolerations(args.tolerations)
            validated_device_plugin(name, args.namespace, args.validation, tolerations, child)
        self.resource = resource_name(args.sharing)
        self.host_requirements = host_requirements(args)
        self.register_outputs(
            {"version": args.version, "resource": self.resource, "hostRequirements": self.host_requirements}
        )


def host_requirements(args: NvidiaGpuOperatorArgs) -> list[str]:
    """Return the requirements that the operator leaves to the hosts."""
    found = [] if args.driver_enabled else ["the NVIDIA driver is installed"]
    if args.host_toolkit_pinned:
        found += [
            "the NVIDIA container toolkit is installed, all four packages at the pinned version and held",
            "the container engine's default runtime is nvidia",
        ]
    return found


def operator_problems(args: NvidiaGpuOperatorArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    # Invalid sharing has no chart values, and none of these checks depends on it.
    values = operator_values(replace(args, sharing=None))
    yield from namespace_problems(args.namespace)
    yield from sharing_problems(args.sharing)
    if isinstance(args.sharing, Mps | Mig):
        message = "must be TimeSlicing; for MPS and MIG, use NvidiaDevicePlugin"
        yield Problem(("sharing",), "no-time-slicing", message)
    yield from mig_problems(("values", "mig", "strategy"), str(value_at(values, "mig.strategy", "single")))
    if args.sharing and "devicePlugin" in args.values:
        message = "would replace the configuration with the argument sharing; set only one of the two"
        yield Problem(("values", "devicePlugin"), "sharing-replaced", message)
    if args.host_toolkit_pinned:
        yield from _pin_problems(args, values)
    yield from validation_problems(args.validation)
    if args.validation:
        yield from _plugin_problems(args)


def _plugin_problems(args: NvidiaGpuOperatorArgs) -> Iterator[Problem]:
    """Yield arguments that the component's own device plugin does not support."""
    if not args.host_toolkit_pinned:
        message = "requires a toolkit on the hosts (host_toolkit_pinned); the operator's own toolkit uses CDI"
        yield Problem(("validation",), "validation-with-cdi", message)
    if args.sharing:
        yield Problem(("validation",), "validation-of-shared-gpus", "does not support sharing; use only one of the two")
    if "devicePlugin" in args.values:
        message = "would install a second device plugin beside that of the argument validation; set only one of the two"
        yield Problem(("values", "devicePlugin"), "second-device-plugin", message)


def _pin_problems(args: NvidiaGpuOperatorArgs, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield chart values and arguments that override a toolkit pinned by the host."""
    for pinned in PINNED:
        found = value_at(values, pinned.path, pinned.default)
        if found != pinned.wanted:
            message = f"{found!r} {pinned.reason}; a pinned toolkit requires {pinned.wanted!r}"
            yield Problem(("values", *pinned.path.split(".")), "pin-undone", message)
    if args.host_default_runtime != "nvidia":
        message = f"{args.host_default_runtime!r} gives pods no GPU; a pinned toolkit requires 'nvidia'"
        yield Problem(("host_default_runtime",), "pin-without-runtime", message)
    environment = value_at(values, "devicePlugin.env", [])
    variables = {entry.get("name"): entry.get("value") for entry in environment if isinstance(entry, Mapping)}
    if "cdi" in str(variables.get("DEVICE_LIST_STRATEGY", "")):
        message = "DEVICE_LIST_STRATEGY selects CDI; a pinned toolkit requires 'envvar'"
        yield Problem(("values", "devicePlugin", "env"), "pin-with-cdi", message)


def value_at(values: Mapping[str, Any], path: str, default: Any) -> Any:
    """Return the value at a dotted path, or the chart's default if there is none."""
    found: Any = values
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            return default
        found = found[key]
    return found


def operator_values(args: NvidiaGpuOperatorArgs) -> dict[str, Any]:
    """Return the chart values of the operator.

    The chart passes `mig.strategy` to the device plugin as an environment variable, which overrides its configuration
    file; the chart's default is `single`. Without MIG, the MIG manager would only reset what a host has set up.
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
    if args.validation:
        # Removes the validator's check of the plugin too (TransformValidatorComponent at v26.7.0).
        values["devicePlugin"] = {"enabled": False}
    return {**values, **args.values}


def sharing_values(sharing: TimeSlicing) -> dict[str, Any]:
    """Return `devicePlugin.config`: a ConfigMap of the release, named after its content. The operator does not watch it
    (gpu-operator/gpu-sharing.rst of NVIDIA/cloud-native-docs); only a new name restarts the plugin."""
    text = device_plugin_config({"migStrategy": "none"}, sharing)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return {
        "create": True,
        "name": f"device-plugin-config-{digest}",
        "default": "default",
        "data": {"default": text},
    }
