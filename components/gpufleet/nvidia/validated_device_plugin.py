"""NVIDIA device plugin with a validation of GPUs, in place of the one that the GPU operator installs.

Neither the operator nor the plugin's chart allows init containers, and the operator overwrites what others add to its
DaemonSets (`DaemonSet` in controllers/object_controls.go of NVIDIA/gpu-operator at v26.7.0). The operator's own
validator runs a vector addition; it compares no number of GPUs and reads no error counters.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ConfigMap
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from gpufleet import gpu_validation
from gpufleet.gpu_validation import GpuValidation
from gpufleet.nvidia.device_plugin import NVIDIA_DEVICE_PLUGIN_VERSION

PLUGIN_IMAGE = f"nvcr.io/nvidia/k8s-device-plugin:v{NVIDIA_DEVICE_PLUGIN_VERSION}"
"""Image of the plugin, which GPU operator v26.7.0 uses too; it has a shell."""

TEST_IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04"
"""Image with DCGM's diagnostics (`dcgm` in values.yaml of GPU operator v26.7.0)."""

SCRIPT = pathlib.Path(__file__).with_name("gpu_validation.sh")

NAME, DECLARED = "nvidia-device-plugin", "nvidia-gpu-declared"

_ALL_GPUS = (
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
)


def validated_device_plugin(
    name: str,
    namespace: str,
    validation: GpuValidation,
    tolerations: Sequence[Mapping[str, Any]],
    opts: pulumi.ResourceOptions,
) -> DaemonSet:
    """Create the plugin's DaemonSet and the ConfigMap with the expected GPUs."""
    declared = ConfigMap(
        f"{name}-declared",
        metadata=ObjectMetaArgs(name=DECLARED, namespace=namespace),
        data=gpu_validation.expectations(validation),
        opts=opts,
    )
    return DaemonSet(
        f"{name}-device-plugin",
        metadata=ObjectMetaArgs(name=NAME, namespace=namespace, annotations=gpu_validation.SKIP_AWAIT),
        spec=plugin_spec(validation, tolerations),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[declared])),
    )


def plugin_spec(validation: GpuValidation, tolerations: Sequence[Mapping[str, Any]]) -> Any:
    """Return the spec of the DaemonSet. The plugin is configured as the operator does without CDI and MIG
    (assets/state-device-plugin/0500_daemonset.yaml), on the nodes that the operator labels."""
    flags = {
        "MIG_STRATEGY": "none",
        "FAIL_ON_INIT_ERROR": "true",
        "PASS_DEVICE_SPECS": "true",
        "DEVICE_LIST_STRATEGY": "envvar",
        "DEVICE_ID_STRATEGY": "uuid",
    }
    folder = "/var/lib/kubelet/device-plugins"
    container = {
        "name": "nvidia-device-plugin",
        "image": PLUGIN_IMAGE,
        "command": ["nvidia-device-plugin"],
        "env": [*({"name": name, "value": value} for name, value in flags.items()), *_ALL_GPUS],
        # Required by PASS_DEVICE_SPECS.
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "device-plugins", "mountPath": folder}],
    }
    image = PLUGIN_IMAGE if validation.level == "quick" else TEST_IMAGE
    init_container = gpu_validation.init_container(validation, SCRIPT, image)
    init_container["env"] += _ALL_GPUS
    labels = {"app.kubernetes.io/name": NAME}
    pod = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"nvidia.com/gpu.deploy.device-plugin": "true"},
        "tolerations": [dict(toleration) for toleration in tolerations],
        "initContainers": [init_container],
        "containers": [container],
        "volumes": [{"name": "device-plugins", "hostPath": {"path": folder}}, *gpu_validation.volumes(DECLARED)],
    }
    return {
        "selector": {"matchLabels": labels},
        "updateStrategy": gpu_validation.UPDATE_STRATEGY,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
