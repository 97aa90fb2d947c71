"""Karpenter as a process of the sandbox: its environment, as its chart would set it, with the sandbox's addresses."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpufleet import quantity
from gpufleet.aws.karpenter.node_pool_args import NODE_POOL_LABEL
from gpufleet_tools.plan.plan import Hidden, Plan, Release, Unknown, revealed
from gpufleet_tools.sandbox.control_plane.idle_pods import idle_pods
from gpufleet_tools.sandbox.errors import SandboxError

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "sandbox",
    "AWS_SECRET_ACCESS_KEY": "sandbox",
    "AWS_SESSION_TOKEN": "sandbox",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Dummy credentials, so that Karpenter does not look for others."""

SETTINGS = {
    "batchMaxDuration": "BATCH_MAX_DURATION",
    "batchIdleDuration": "BATCH_IDLE_DURATION",
    "preferencePolicy": "PREFERENCE_POLICY",
    "minValuesPolicy": "MIN_VALUES_POLICY",
    "clusterCABundle": "CLUSTER_CA_BUNDLE",
    "clusterName": "CLUSTER_NAME",
    "clusterEndpoint": "CLUSTER_ENDPOINT",
    "isolatedVPC": "ISOLATED_VPC",
    "eksControlPlane": "EKS_CONTROL_PLANE",
    "vmMemoryOverheadPercent": "VM_MEMORY_OVERHEAD_PERCENT",
    "interruptionQueue": "INTERRUPTION_QUEUE",
    "enableZonalShift": "ENABLE_ZONAL_SHIFT",
    "reservedENIs": "RESERVED_ENIS",
    "ignoreDRARequests": "IGNORE_DRA_REQUESTS",
    "disableClusterStateObservability": "DISABLE_CLUSTER_STATE_OBSERVABILITY",
    "disableDryRun": "DISABLE_DRY_RUN",
    "amiRefreshInterval": "AMI_REFRESH_INTERVAL",
    "subnetRefreshInterval": "SUBNET_REFRESH_INTERVAL",
}
"""Environment variables by the chart value under `settings` (charts/karpenter/templates/deployment.yaml at v1.14.1).
Other settings keep the program's default, which is that of the chart."""


def release_of(plan: Plan) -> Release | None:
    """Return Karpenter's release; None if the stack has none."""
    return next((each for each in plan.releases() if each.chart_name == "karpenter"), None)


def cluster_of(release: Release) -> str:
    """Return the name of Karpenter's cluster. Raises SandboxError if it is unknown."""
    name = release.values.get("settings", {}).get("clusterName")
    if not isinstance(name, str):
        raise SandboxError(f"release {release.name}: settings.clusterName is unknown before the deployment")
    return name


def from_values(release: Release) -> dict[str, str]:
    """Return the environment of Karpenter's container, as the chart's template derives it from the values."""
    values = revealed(release.values)
    settings = values.get("settings", {})
    gates = settings.get("featureGates", {})
    environment = {
        "KARPENTER_SERVICE": release.name,
        "SYSTEM_NAMESPACE": release.namespace,
        **{variable: _text(settings[key]) for key, variable in SETTINGS.items() if _is_set(settings.get(key))},
        **dict(_resources(values.get("controller", {}).get("resources", {}))),
    }
    if gates:
        # Other gates keep the program's defaults, which are those of the chart.
        environment["FEATURE_GATES"] = ",".join(
            f"{gate[0].upper()}{gate[1:]}={_text(switched)}" for gate, switched in sorted(gates.items())
        )
    if "logLevel" in values:
        environment["LOG_LEVEL"] = values["logLevel"]
    further = values.get("controller", {}).get("env", [])
    return environment | {each["name"]: str(each["value"]) for each in further if "value" in each}


def of_the_sandbox(
    kubeconfig: Path, certificate: Path, api_server: str, aws: str, region: str, ports: Mapping[str, int]
) -> dict[str, str]:
    """Return the environment that differs in the sandbox: addresses, one replica, and dummy credentials."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(kubeconfig.parent),
        "AWS_ENDPOINT_URL": aws,
        "AWS_REGION": region,
        **CREDENTIALS,
        "CLUSTER_ENDPOINT": api_server,
        "CLUSTER_CA_BUNDLE": base64.b64encode(certificate.read_bytes()).decode(),
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(ports["metrics"]),
        "HEALTH_PROBE_PORT": str(ports["health"]),
    }


def pods(release: Release) -> dict[str, Any]:
    """Return pods in place of the controller's: they take its part of the nodes that are not Karpenter's, and never
    share a node (charts/karpenter/values.yaml at v1.14.1)."""
    values, labels = revealed(release.values), {"app.kubernetes.io/name": "karpenter"}
    elsewhere = {"key": NODE_POOL_LABEL, "operator": "DoesNotExist"}
    alone = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    spec = {
        "tolerations": values.get("tolerations", []),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]},
        },
        "containers": [
            {
                "name": "controller",
                "image": f"public.ecr.aws/karpenter/controller:{release.version}",
                "resources": values.get("controller", {}).get("resources", {}),
            }
        ],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return idle_pods(release.name, release.namespace, template, values.get("replicas", 2))


def definitions(karpenter: Path) -> list[dict[str, Any]]:
    """Return Karpenter's CRDs from the directory of its build."""
    files = sorted([*karpenter.glob("karpenter.*.yaml"), *karpenter.glob("autoscaling.x-k8s.io_*.yaml")])
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in files]


def _resources(resources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if cpu := resources.get("requests", {}).get("cpu"):
        yield "CPU_REQUESTS", str(int(quantity.parsed(str(cpu)) * 1000))
    if memory := resources.get("limits", {}).get("memory"):
        yield "MEMORY_LIMIT", str(int(quantity.parsed(str(memory))))


def _is_set(value: Any) -> bool:
    """Return whether Helm's `with` accepts a value, and it is known."""
    return bool(value) and not isinstance(value, Unknown | Hidden)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
