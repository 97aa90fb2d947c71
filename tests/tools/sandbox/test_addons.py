"""DaemonSets of EKS's addons in the sandbox: they take what `capacity` subtracts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gpufleet import quantity
from gpufleet_stacks.settings.daemon_requests import daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.system_requests import system_requests
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import addons, arc_stand_in
from gpufleet_tools.sandbox.aws import karpenter
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


CONFIGURED = (
    "    nodePools:\n",
    "    addonConfiguration:\n"
    "      vpc-cni: {resources: {requests: {cpu: 90m}}}\n"
    "      coredns: {replicaCount: 3}\n"
    "    nodePools:\n",
)


def test_they_request_what_the_addon_is_configured_with(project: MakeProject) -> None:
    settings, specs = pods(project, CONFIGURED)
    assert specs["vpc-cni"]["containers"][0]["resources"]["requests"] == {"cpu": "180m"}
    assert daemon_requests(settings, "default")["cpu"] == quantity.parsed("280m")


def test_system_nodes_hold_what_check_counts_there(project: MakeProject) -> None:
    """Karpenter, CoreDNS and ARC: the same number of pods, with the same requests."""
    read = stack.read(project({"dev": DEV.replace(*CONFIGURED, 1)}), "dev")
    assert isinstance(read.settings, EksSettings)
    plan = read.plan()
    release = karpenter.release_of(plan)
    assert release
    jobs = [karpenter.pods(release), *addons.deployments(plan), *arc_stand_in.pods(plan)]
    number = {job["metadata"]["name"]: job["spec"].get("parallelism", 1) for job in jobs}
    found = {"pods": Decimal(sum(number.values()))}
    for resource in ("cpu", "memory"):
        found[resource] = Decimal(0)
        for job in jobs:
            (container,) = job["spec"]["template"]["spec"]["containers"]
            requested = quantity.parsed(container["resources"]["requests"][resource])
            found[resource] += number[job["metadata"]["name"]] * requested
    assert found == system_requests(read.settings)


@pytest.mark.parametrize(("edits", "tolerated"), [((AGENT,), []), ((AGENT, REPAIR), ["nvidia.com/gpu"])])
def test_dcgm_tolerates_what_its_addon_is_configured_with(
    project: MakeProject, edits: tuple[tuple[str, str], ...], tolerated: list[str]
) -> None:
    _, specs = pods(project, *edits)
    assert [each["key"] for each in specs["dcgm-server"]["tolerations"]] == tolerated
    assert specs["dcgm-server"]["nodeSelector"] == {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}
    assert specs["vpc-cni"]["tolerations"] == [{"operator": "Exists"}]
