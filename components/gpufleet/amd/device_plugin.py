"""AMD device plugin and node labeller, which make GPUs schedulable."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ConfigMap, ServiceAccount
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, PolicyRuleArgs, RoleRefArgs, SubjectArgs

from gpufleet import gpu_validation
from gpufleet.gpu_validation import GpuValidation, validation_problems
from gpufleet.problem import refuse

PLUGIN_IMAGE = "docker.io/rocm/k8s-device-plugin:1.31.0.9"
LABELLER_IMAGE = "docker.io/rocm/k8s-device-plugin:labeller-1.31.0.9"
TEST_IMAGE = "docker.io/rocm/test-runner:v1.5.1"
"""Image with the ROCm Validation Suite, which AMD's GPU operator uses too (docs/test/test-runner-overview.md of
ROCm/gpu-operator at v1.5.1)."""

VALIDATION_SCRIPT = pathlib.Path(__file__).with_name("gpu_validation.sh")

LABELLER_PROPERTIES = (
    "family",
    "device-id",
    "product-name",
    "driver-version",
    "vram",
    "cu-count",
    "simd-count",
    "compute-memory-partition",
    "compute-partitioning-supported",
    "memory-partitioning-supported",
)
"""GPU properties that the labeller reports, each as a label `amd.com/gpu.<property>`. The upstream chart omits product
name and partitions. `firmware` and `driver-src-version` are omitted, because they add one label per firmware file."""

Manifest = Any
"""Part of a manifest in Kubernetes syntax; the SDK's types only support snake case."""

PLUGIN, LABELLER = "amd-gpu-device-plugin", "amd-gpu-node-labeller"

DECLARED = "amd-gpu-declared"
"""Name of the ConfigMap with the expected GPUs of each node."""

ResourceNaming = Literal["single", "mixed"]
ComputePartition = Literal["SPX", "DPX", "QPX", "CPX"]
MemoryPartition = Literal["NPS1", "NPS4"]

PARTITIONS_PER_GPU: Mapping[str, int] = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
"""Number of devices of one MI300X under each compute partition (its eight XCDs in one, two, four or eight parts)."""


@dataclass(frozen=True, kw_only=True)
class AmdGpuDevicePluginArgs:
    """Arguments of `AmdGpuDevicePlugin`."""

    namespace: str = "kube-system"
    """Namespace of both DaemonSets; it must exist already."""
    plugin_image: str = PLUGIN_IMAGE
    """Container image of the plugin."""
    labeller_image: str = LABELLER_IMAGE
    """Container image of the labeller."""
    resource_naming: ResourceNaming = "single"
    """Resource names of GPUs. `single`: every device is `amd.com/gpu`, and all GPUs of a node are partitioned alike.
    `mixed`: devices are named after their partition, such as `amd.com/cpx_nps4`."""
    health_check_seconds: int = 30
    """Interval of GPU health checks in seconds; 0 disables them. The plugin's own default is 0."""
    node_selector: Mapping[str, str] = field(default_factory=lambda: {"kubernetes.io/arch": "amd64"})
    """Labels of the nodes with AMD GPUs. The upstream chart selects PCI class 0300, which excludes Instinct
    accelerators."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Additional tolerations of both DaemonSets. The upstream chart only tolerates `CriticalAddonsOnly`."""
    validation: GpuValidation | None = None
    """Validation of each node's GPUs after a boot, before pods can request them; None for none. Level `quick` needs no
    further image; the others use AMD's image with the ROCm Validation Suite."""


class AmdGpuDevicePlugin(pulumi.ComponentResource):
    """The AMD device plugin, the node labeller, and the labeller's permission to label nodes.

    One per cluster. The upstream chart is not used: it cannot pass arguments, and so cannot set resource naming or
    health checks.
    """

    ready: pulumi.Resource
    """The plugin's DaemonSet; depend on it to wait until pods can request GPUs. With validation, it does not wait for
    that: the GPUs of a node may fail, or be tested for long."""

    def __init__(
        self, name: str, args: AmdGpuDevicePluginArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or AmdGpuDevicePluginArgs()
        refuse(name, validation_problems(args.validation))
        super().__init__("gpu-runners:index:AmdGpuDevicePlugin", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        labeller = ObjectMetaArgs(name=LABELLER, namespace=args.namespace)
        ServiceAccount(f"{name}-labeller", metadata=labeller, opts=child)
        role = ClusterRole(
            f"{name}-labeller",
            metadata=ObjectMetaArgs(name=LABELLER),
            rules=[PolicyRuleArgs(api_groups=[""], resources=["nodes"], verbs=["get", "list", "watch", "update"])],
            opts=child,
        )
        binding = ClusterRoleBinding(
            f"{name}-labeller",
            metadata=ObjectMetaArgs(name=LABELLER),
            role_ref=RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=LABELLER),
            subjects=[SubjectArgs(kind="ServiceAccount", name=LABELLER, namespace=args.namespace)],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role]),
        )
        DaemonSet(
            f"{name}-labeller",
            metadata=labeller,
            spec=labeller_spec(args),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[binding]),
        )
        needs = []
        if args.validation:
            declared = ObjectMetaArgs(name=DECLARED, namespace=args.namespace)
            data = gpu_validation.expectations(args.validation)
            needs.append(ConfigMap(f"{name}-declared", metadata=declared, data=data, opts=child))
        annotations = gpu_validation.SKIP_AWAIT if args.validation else None
        self.ready = DaemonSet(
            name,
            metadata=ObjectMetaArgs(name=PLUGIN, namespace=args.namespace, annotations=annotations),
            spec=plugin_spec(args),
            opts=pulumi.ResourceOptions(parent=self, depends_on=needs),
        )
        self.register_outputs({"resourceNaming": args.resource_naming})


def gpu_resource(naming: ResourceNaming, compute: ComputePartition, memory: MemoryPartition) -> str:
    """Return the resource name of one GPU or partition."""
    return "amd.com/gpu" if naming == "single" else f"amd.com/{compute}_{memory}".lower()


def plugin_spec(args: AmdGpuDevicePluginArgs) -> Manifest:
    """Return the spec of the plugin's DaemonSet."""
    arguments = [f"-pulse={args.health_check_seconds}", f"-resource_naming_strategy={args.resource_naming}"]
    container = {
        "name": "device-plugin",
        "image": args.plugin_image,
        "workingDir": "/root",
        "command": ["./k8s-device-plugin", "-logtostderr=true", *arguments],
        # Health checks open the devices themselves; without them, reading /sys is enough.
        "securityContext": {"privileged": True} if args.health_check_seconds else _UNPRIVILEGED,
        "volumeMounts": [
            {"name": "device-plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
            {"name": "sys", "mountPath": "/sys"},
        ],
    }
    volumes = [_host_path("device-plugins", "/var/lib/kubelet/device-plugins"), _host_path("sys", "/sys")]
    pod = {"containers": [container], "volumes": volumes}
    if args.validation is None:
        return _daemon_set_spec(PLUGIN, args, pod)
    # The plugin's image has a shell, busybox (`FROM alpine` in the Dockerfile of ROCm/k8s-device-plugin).
    image = args.plugin_image if args.validation.level == "quick" else TEST_IMAGE
    sys = {"name": "sys", "mountPath": "/sys", "readOnly": True}
    pod["initContainers"] = [gpu_validation.init_container(args.validation, VALIDATION_SCRIPT, image, [sys])]
    volumes += gpu_validation.volumes(DECLARED)
    return {**_daemon_set_spec(PLUGIN, args, pod), "updateStrategy": gpu_validation.UPDATE_STRATEGY}


def labeller_spec(args: AmdGpuDevicePluginArgs) -> Manifest:
    """Return the spec of the labeller's DaemonSet."""
    container = {
        "name": "node-labeller",
        "image": args.labeller_image,
        "workingDir": "/root",
        "command": ["./k8s-node-labeller", *(f"-{label}" for label in LABELLER_PROPERTIES)],
        "env": [{"name": "DS_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        # It opens /dev/kfd and /dev/dri itself.
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "sys", "mountPath": "/sys", "readOnly": True},
            {"name": "dev", "mountPath": "/dev"},
        ],
    }
    volumes = [_host_path("sys", "/sys"), _host_path("dev", "/dev")]
    pod = {"serviceAccountName": LABELLER, "containers": [container], "volumes": volumes}
    return _daemon_set_spec(LABELLER, args, pod)


_UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _daemon_set_spec(app: str, args: AmdGpuDevicePluginArgs, pod: Manifest) -> Manifest:
    labels = {"app.kubernetes.io/name": app}
    critical = {"key": "CriticalAddonsOnly", "operator": "Exists"}
    return {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "priorityClassName": "system-node-critical",
                "nodeSelector": dict(args.node_selector),
                "tolerations": [critical, *(dict(toleration) for toleration in args.tolerations)],
                **pod,
            },
        },
    }


def _host_path(name: str, path: str) -> Manifest:
    return {"name": name, "hostPath": {"path": path}}
