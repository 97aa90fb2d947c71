"""Karpenter as a process of the sandbox: told what its chart would tell its pod, and where AWS is."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpufleet_stacks.settings import quantity
from gpufleet_tools.plan.plan import Hidden, Plan, Release, Unknown, revealed
from gpufleet_tools.sandbox.errors import SandboxError

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "sandbox",
    "AWS_SECRET_ACCESS_KEY": "sandbox",
    "AWS_SESSION_TOKEN": "sandbox",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""No credentials of anybody's, and no looking for any."""

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
What is not in the values keeps the program's own default, which is the chart's."""


def release_of(plan: Plan) -> Release | None:
    """Karpenter's release; None in a stack that has none."""
    return next((each for each in plan.releases() if each.chart_name == "karpenter"), None)


def cluster_of(release: Release) -> str:
    """Name of the cluster that Karpenter is told. Raises SandboxError when it is not known."""
    name = release.values.get("settings", {}).get("clusterName")
    if not isinstance(name, str):
        raise SandboxError(f"release {release.name}: settings.clusterName is not known before it is deployed")
    return name


def from_values(release: Release) -> dict[str, str]:
    """What the chart's template makes of its values: the environment of Karpenter's container."""
    values = revealed(release.values)
    settings = values.get("settings", {})
    gates = settings.get("featureGates", {})
    environment = {
        "KARPENTER_SERVICE": release.name,
        "SYSTEM_NAMESPACE": release.namespace,
        **{variable: _text(settings[key]) for key, variable in SETTINGS.items() if _said(settings.get(key))},
        **dict(_resources(values.get("controller", {}).get("resources", {}))),
    }
    if gates:
        # The program's own defaults are the chart's, so that gates which are not named need not be.
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
    """What is different on this machine: addresses, one replica, and credentials that open nothing."""
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


def definitions(karpenter: Path) -> list[dict[str, Any]]:
    """Karpenter's CRDs, from the directory of its build."""
    files = sorted([*karpenter.glob("karpenter.*.yaml"), *karpenter.glob("autoscaling.x-k8s.io_*.yaml")])
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in files]


def _resources(resources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if cpu := resources.get("requests", {}).get("cpu"):
        yield "CPU_REQUESTS", str(int(quantity.parse(str(cpu)) * 1000))
    if memory := resources.get("limits", {}).get("memory"):
        yield "MEMORY_LIMIT", str(int(quantity.parse(str(memory))))


def _said(value: Any) -> bool:
    """Whether Helm's `with` lets a value through, and it is known."""
    return bool(value) and not isinstance(value, Unknown | Hidden)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
