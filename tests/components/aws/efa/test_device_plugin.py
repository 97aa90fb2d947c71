"""The EFA device plugin: where it runs, and which values it takes."""

from __future__ import annotations

import pytest

from gpufleet.aws import EfaDevicePlugin, EfaDevicePluginArgs
from gpufleet.aws.efa.device_plugin import EFA_DEVICE_PLUGIN_VERSION, plugin_problems, plugin_values
from tests.recording import on_cluster, recorded

TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def test_it_runs_on_nodes_with_its_label_whatever_their_type() -> None:
    """The chart has one affinity for each key, of all values."""
    values = plugin_values(EfaDevicePluginArgs(tolerations=[TAINT]))
    assert values == {
        "supportedInstanceLabels": {"keys": ["vpc.amazonaws.com/efa.present"], "values": ["true"]},
        "tolerations": [TAINT],
    }


def test_the_release_is_awss_at_the_pinned_version() -> None:
    plan = recorded(lambda: EfaDevicePlugin("efa", None, on_cluster()))
    (release,) = plan.releases()
    assert (release.chart, release.version, release.namespace) == (
        "aws-efa-k8s-device-plugin",
        EFA_DEVICE_PLUGIN_VERSION,
        "kube-system",
    )
    assert release.repository == "https://aws.github.io/eks-charts"


@pytest.mark.parametrize("key", ["supportedInstanceLabels", "tolerations"])
def test_values_do_not_override_arguments(key: str) -> None:
    (problem,) = plugin_problems(EfaDevicePluginArgs(values={key: []}))
    assert str(problem) == f"values.{key}: follows from the arguments; set those instead"


def test_further_values_are_merged() -> None:
    assert plugin_values(EfaDevicePluginArgs(values={"resources": {}}))["resources"] == {}
