"""DaemonSets of EKS's addons in the sandbox: they take what `capacity` subtracts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gpufleet import quantity
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import addons
from tests.conftest import ROOT, MakeProject

DEV = (ROOT / "Pulumi.dev.yaml").read_text()
AGENT = ("      coredns:", "      eks-node-monitoring-agent: v1.7.0-eksbuild.1\n      coredns:")
REPAIR = ("    nodePools:\n", "    karpenter: {nodeRepair: true}\n    nodePools:\n")


def pods(project: MakeProject, *edits: tuple[str, str]) -> tuple[EksSettings, dict[str, Any]]:
    """Settings, and the pod's spec of each DaemonSet."""
    text = DEV
    for before, after in edits:
        assert before in text
        text = text.replace(before, after, 1)
    found = stack.read(project({"dev": text}), "dev")
    assert isinstance(found.settings, EksSettings)
    sets = addons.daemon_sets(found.plan())
    return found.settings, {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in sets}


def test_they_request_what_is_subtracted_on_nodes_without_gpus(project: MakeProject) -> None:
    settings, specs = pods(project, AGENT, REPAIR)
    everywhere = [spec for spec in specs.values() if "nodeSelector" not in spec]
    taken = daemon_requests(settings, "default")
    assert taken["pods"] == len(everywhere) == 4
    for resource in ("cpu", "memory"):
        requests = [spec["containers"][0]["resources"]["requests"].get(resource, "0") for spec in everywhere]
        assert sum(map(quantity.parsed, requests), Decimal(0)) == taken[resource]


@pytest.mark.parametrize(("edits", "tolerated"), [((AGENT,), []), ((AGENT, REPAIR), ["nvidia.com/gpu"])])
def test_dcgm_tolerates_what_its_addon_is_configured_with(
    project: MakeProject, edits: tuple[tuple[str, str], ...], tolerated: list[str]
) -> None:
    _, specs = pods(project, *edits)
    assert [each["key"] for each in specs["dcgm-server"]["tolerations"]] == tolerated
    assert specs["dcgm-server"]["nodeSelector"] == {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}
    assert specs["vpc-cni"]["tolerations"] == [{"operator": "Exists"}]
