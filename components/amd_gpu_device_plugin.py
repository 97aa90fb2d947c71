"""AMD's device plugin and node labeller: what makes GPUs a resource that pods can ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ServiceAccount
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, PolicyRuleArgs, RoleRefArgs, SubjectArgs

PLUGIN_IMAGE = "docker.io/rocm/k8s-device-plugin:1.31.0.9"
LABELLER_IMAGE = "docker.io/rocm/k8s-device-plugin:labeller-1.31.0.9"

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
"""What the labeller tells of a node's GPUs, each as a label `amd.com/gpu.<property>`; the chart leaves out the product
name and the partitions. `firmware` and `driver-src-version` are left out: one label per firmware file."""

Manifest = Any
"""A part of a manifest, as Kubernetes writes it; the SDK's types know the same in snake case only."""

LABELLER = "amd-gpu-node-labeller"

ResourceNaming = Literal["single", "mixed"]
ComputePartition = Literal["SPX", "DPX", "QPX", "CPX"]
MemoryPartition = Literal["NPS1", "NPS4"]

PARTITIONS_PER_GPU: Mapping[str, int] = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
"""Devices that one MI300X offers under each compute partition (its eight XCDs in one, two, four or eight parts)."""


@dataclass(frozen=True, kw_only=True)
class AmdGpuDevicePluginArgs:
    """What plugin and labeller need to know."""

    namespace: str = "kube-system"
    """Namespace of both DaemonSets; it exists already."""
    plugin_image: str = PLUGIN_IMAGE
    """Image of the plugin."""
    labeller_image: str = LABELLER_IMAGE
    """Image of the labeller."""
    resource_naming: ResourceNaming = "single"
    """`single`: every device is `amd.com/gpu`, and all GPUs of a node are partitioned alike. `mixed`: a device is named
    after its partition, `amd.com/cpx_nps4`."""
    health_check_seconds: int = 30
    """Seconds between health checks of the GPUs; 0 turns them off. The plugin's own default is 0."""
    node_selector: Mapping[str, str] = field(default_factory=lambda: {"kubernetes.io/arch": "amd64"})
    """Labels of the nodes that have AMD GPUs. The upstream chart's own selector names PCI class 0300, which Instinct
    accelerators are not."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Taints of those nodes. The upstream chart tolerates none but `CriticalAddonsOnly`."""


class AmdGpuDevicePlugin(pulumi.ComponentResource):
    """The two DaemonSets and the labeller's permission to label nodes.

    Not the upstream chart: it cannot be given arguments, so neither resource naming nor health checks.
    One per cluster.
    """

    ready: pulumi.Resource
    """The plugin's DaemonSet: depend on it for "GPUs can be asked for"."""

    def __init__(
        self, name: str, args: AmdGpuDevicePluginArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or AmdGpuDevicePluginArgs()
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
        self.ready = DaemonSet(
            name,
            metadata=ObjectMetaArgs(name="amd-gpu-device-plugin", namespace=args.namespace),
            spec=plugin_spec(args),
            opts=child,
        )
        self.register_outputs({"resourceNaming": args.resource_naming})


def gpu_resource(naming: ResourceNaming, compute: ComputePartition, memory: MemoryPartition) -> str:
    """Name under which the plugin offers one GPU, or one partition of it."""
    return "amd.com/gpu" if naming == "single" else f"amd.com/{compute}_{memory}".lower()


def plugin_spec(args: AmdGpuDevicePluginArgs) -> Manifest:
    """Spec of the plugin's DaemonSet."""
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
    return _daemon_set_spec("amd-gpu-device-plugin", args, {"containers": [container], "volumes": volumes})


def labeller_spec(args: AmdGpuDevicePluginArgs) -> Manifest:
    """Spec of the labeller's DaemonSet."""
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
