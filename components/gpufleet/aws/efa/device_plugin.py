"""AWS's EFA device plugin, which makes EFA interfaces schedulable as `vpc.amazonaws.com/efa`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpufleet.aws.efa.interfaces import EFA_LABEL
from gpufleet.chart import Chart, laid_over
from gpufleet.problem import Problem, refuse

EKS_CHARTS = "https://aws.github.io/eks-charts"
EFA_DEVICE_PLUGIN_VERSION = "v0.5.30"
EFA_DEVICE_PLUGIN_CHART = "aws-efa-k8s-device-plugin"

OWN_VALUES = ("supportedInstanceLabels", "tolerations")
"""Chart values that follow from the arguments."""


@dataclass(frozen=True, kw_only=True)
class EfaDevicePluginArgs:
    """Arguments of `EfaDevicePlugin`."""

    version: str = EFA_DEVICE_PLUGIN_VERSION
    """Version of the chart."""
    chart_mirror: str | None = None
    """Folder or registry of the chart, instead of AWS's."""
    namespace: str = "kube-system"
    """Namespace of the plugin; it must exist, and allow privileged pods."""
    release: str = EFA_DEVICE_PLUGIN_CHART
    """Name of the Helm release."""
    node_label: tuple[str, str] = (EFA_LABEL, "true")
    """Label of the nodes that have EFA interfaces."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Tolerations of the nodes' taints, in Kubernetes syntax; `CriticalAddonsOnly` is always tolerated."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Additional chart values, merged key by key."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before the plugin and outlive it."""


class EfaDevicePlugin(pulumi.ComponentResource):
    """The EFA device plugin's Helm release. AWS's images for GPUs include the EFA driver, but not this plugin."""

    ready: pulumi.Resource
    """The release."""

    def __init__(
        self, name: str, args: EfaDevicePluginArgs | None = None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = args or EfaDevicePluginArgs()
        refuse(name, plugin_problems(args))
        super().__init__("gpu-runners:index:EfaDevicePlugin", name, None, opts)
        chart = Chart(name=EFA_DEVICE_PLUGIN_CHART, registry=EKS_CHARTS, version=args.version, mirror=args.chart_mirror)
        self.ready = chart.release(
            name,
            release=args.release,
            namespace=args.namespace,
            values=plugin_values(args),
            timeout=300,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.needs]),
        )
        self.register_outputs({"version": args.version})


def plugin_problems(args: EfaDevicePluginArgs) -> Iterator[Problem]:
    """Yield every problem of the arguments."""
    for key in OWN_VALUES:
        if key in args.values:
            yield Problem(("values", key), "value-of-an-argument", "follows from the arguments; set those instead")


def plugin_values(args: EfaDevicePluginArgs) -> dict[str, Any]:
    """Return the chart values. The chart selects nodes by a list of instance types, so that the plugin would also run
    where no interface is an EFA (templates/daemonset.yaml at v0.5.30)."""
    key, value = args.node_label
    own = {
        "supportedInstanceLabels": {"keys": [key], "values": [value]},
        "tolerations": [dict(toleration) for toleration in args.tolerations],
    }
    return laid_over(own, args.values)
