"""Pods of EKS add-ons: their containers' requests, by default and as the add-on's configuration values set them.

Defaults come from the manifests that AWS publishes. The chart of an add-on merges configured `resources` into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpufleet import quantity
from gpufleet.aws.eks.cluster_args import EBS_CSI_DRIVER, NODE_MONITORING_AGENT
from gpufleet.chart import laid_over

Configuration = Mapping[str, Any]
"""Configuration values of an add-on."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of an add-on's pod."""

    cpu: str | None = None
    """Default CPU request."""
    memory: str | None = None
    """Default memory request."""
    values: str = "resources"
    """Path of its `resources` in the configuration values."""
    own_values: str | None = None
    """Path of `resources` that replace the others as a whole; None if it has no such path."""

    def requests(self, configuration: Configuration) -> dict[str, Decimal]:
        """Return its requests in cores and bytes. As in Kubernetes, a limit without a request is also the request."""
        default = {name: text for name, text in (("cpu", self.cpu), ("memory", self.memory)) if text}
        shared = laid_over({"requests": default}, _section(configuration, self.values))
        resources = (self.own_values and _section(configuration, self.own_values)) or shared
        amounts = {**_section(resources, "limits"), **_section(resources, "requests")}
        return {name: _parsed(amounts.get(name)) for name in ("cpu", "memory")}


@dataclass(frozen=True, kw_only=True)
class AddonPod:
    """Pods of one kind: a DaemonSet's pod of each node, or the replicas of a Deployment."""

    containers: tuple[Container, ...] = ()
    """Containers that request resources."""
    replicas: int = 1
    """Default number of replicas of a Deployment."""
    replicas_value: str | None = None
    """Path of the number of replicas in the configuration values."""

    def requests(self, configuration: Configuration) -> dict[str, Decimal]:
        """Return the total requests of one pod."""
        found = [each.requests(configuration) for each in self.containers]
        return {name: sum((each[name] for each in found), Decimal(0)) for name in ("cpu", "memory")}

    def count(self, configuration: Configuration) -> int:
        """Return the number of replicas."""
        given = _value(configuration, self.replicas_value) if self.replicas_value else None
        return given if isinstance(given, int) else self.replicas


DAEMONS: Mapping[str, AddonPod | None] = {
    # charts/aws-vpc-cni/values.yaml and templates/daemonset.yaml of aws/amazon-vpc-cni-k8s at v1.20.0, v1.22.4 and
    # v1.23.0: the node agent has the network plugin's `resources`.
    "vpc-cni": AddonPod(containers=(Container(cpu="25m"), Container(cpu="25m"))),
    # Its manifest is published in clusters only: last-applied-configuration at v1.28.1-minimal-eksbuild.1.
    "kube-proxy": AddonPod(containers=(Container(cpu="100m"),)),
    # `resources: {}` at v0.1.20: hack/testdata/expected_eks_pod_identity_agent_default_helm_template.yaml of
    # aws/eks-pod-identity-agent.
    "eks-pod-identity-agent": AddonPod(containers=(Container(),)),
    # charts/aws-ebs-csi-driver/values.yaml and templates/_node.tpl of kubernetes-sigs/aws-ebs-csi-driver.
    EBS_CSI_DRIVER: AddonPod(
        containers=tuple(
            Container(cpu="10m", memory="40Mi", values="node.resources", own_values=own)
            for own in (None, "sidecars.nodeDriverRegistrar.resources", "sidecars.livenessProbe.resources")
        )
    ),
    # charts/eks-node-monitoring-agent/values.yaml of aws/eks-node-monitoring-agent at v1.6.0 and v1.7.0.
    NODE_MONITORING_AGENT: AddonPod(
        containers=(Container(cpu="10m", memory="30Mi", values="monitoringAgent.resources"),)
    ),
    "coredns": None,
    "metrics-server": None,
    "snapshot-controller": None,
}
"""Pod that each EKS add-on runs on every node, whatever its taints; None for add-ons that are Deployments."""

DCGM = AddonPod(containers=(Container(values="dcgmAgent.resources"),))
"""The second DaemonSet of the monitoring agent's chart, `dcgm-server`, on nodes with GPUs: `resources: {}`."""

DEPLOYMENTS: Mapping[str, AddonPod] = {
    # The manifest that EKS installs.
    "coredns": AddonPod(containers=(Container(cpu="100m", memory="70Mi"),), replicas=2, replicas_value="replicaCount"),
    # Six containers with the same `resources` (charts/aws-ebs-csi-driver/values.yaml).
    EBS_CSI_DRIVER: AddonPod(
        containers=(Container(cpu="10m", memory="40Mi", values="controller.resources"),) * 6,
        replicas=2,
        replicas_value="controller.replicaCount",
    ),
}
"""Deployments of EKS add-ons that run on the system nodes only."""


def _value(values: Configuration, path: str) -> Any:
    """Return the value at a path; None if there is none."""
    found: Any = values
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _section(values: Configuration, path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; empty if there is none."""
    found = _value(values, path)
    return found if isinstance(found, Mapping) else {}


def _parsed(amount: object) -> Decimal:
    """Return an amount; 0 for none. A rule of the cluster reports amounts that are no quantities."""
    try:
        return Decimal(0) if amount is None else quantity.parsed(str(amount))
    except ValueError:
        return Decimal(0)
