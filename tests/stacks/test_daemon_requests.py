"""Requests of DaemonSets on provisioned nodes; the program creates no other DaemonSets."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gpufleet_stacks.settings.daemon_requests import addons_of_unknown_requests, daemon_requests
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.system_requests import system_requests
from gpufleet_tools.capacity import stack_capacity as capacity
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import revealed
from gpufleet_tools.plan.stack import Stack
from tests.conftest import MakeProject
from tests.tools.diff.pull_requests import AWS

DISCOVERY = (
    "  gpu-runners:projects:\n",
    "  gpu-runners:nvidiaPlugin: {featureDiscovery: true}\n  gpu-runners:projects:\n",
)
TAINTED = (
    "        limits: {cpu: 64}\n",
    "        limits: {cpu: 64}\n        taints: [{key: ci, effect: NoSchedule}]\n",
)
TOLERATED = ("    cpu: {pool: cpu,", "    cpu: {pool: cpu, tolerations: [{key: ci, operator: Exists}],")
ASKING = ("    taints: [{key: ci, effect: NoSchedule}]", "    taints: [{key: ci, effect: PreferNoSchedule}]")
EBS = ("      coredns:", "      aws-ebs-csi-driver: v1.62.0-eksbuild.1\n      coredns:")
EFA = (
    (
        "families: [g4dn, g5], sizes: [2xlarge], hypervisor: nitro}",
        "families: [p5], sizes: [48xlarge]}\n        efa: always",
    ),
    ("limits: {cpu: 80, gpus: 4}", "limits: {gpus: 8}"),
)
AGENT = ("      coredns:", "      eks-node-monitoring-agent: v1.7.0-eksbuild.1\n      coredns:")


def configured(values: str, *addons: str) -> tuple[tuple[str, str], ...]:
    """Edits: further addons, and their configuration values."""
    further = "".join(f"      {addon}: v1.62.0-eksbuild.1\n" for addon in addons)
    return (
        ("      coredns:", f"{further}      coredns:"),
        ("    nodePools:\n", f"    addonConfiguration: {values}\n    nodePools:\n"),
    )


OTHER = ("      coredns:", "      aws-efs-csi-driver: v2.1.11-eksbuild.1\n      coredns:")
MIB = 1024**2


def read(project: MakeProject, *edits: tuple[str, str]) -> tuple[Stack, EksSettings]:
    text = AWS
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    found = stack.read(project({"aws": text}), "aws")
    assert isinstance(found.settings, EksSettings)
    return found, found.settings


@pytest.mark.parametrize(
    ("edits", "cpu", "gpu"),
    [
        # Thousandths of a core, MiB, pods.
        ((), (150, 0, 3), (150, 0, 4)),
        ((DISCOVERY,), (155, 64, 4), (155, 64, 6)),
        ((DISCOVERY, TAINTED, TOLERATED), (150, 0, 3), (155, 64, 6)),
        ((DISCOVERY, TAINTED, TOLERATED, ASKING), (155, 64, 4), (155, 64, 6)),
        ((EBS,), (180, 120, 4), (180, 120, 5)),
        ((AGENT,), (160, 30, 4), (160, 30, 6)),
        ((OTHER,), (150, 0, 3), (150, 0, 4)),
        (EFA, (150, 0, 3), (160, 20, 5)),
        # Both containers of the network plugin.
        (configured("{vpc-cni: {resources: {requests: {cpu: 100m, memory: 50Mi}}}}"), (300, 100, 3), (300, 100, 4)),
        # A limit is a request, too, unless there is a request: kube-proxy's default remains.
        (
            configured("{kube-proxy: {resources: {limits: {cpu: 900m, memory: 10Mi}}}}"),
            (150, 10, 3),
            (150, 10, 4),
        ),
        (
            configured(
                "{aws-ebs-csi-driver: {node: {resources: {requests: {cpu: 20m}}},"
                " sidecars: {livenessProbe: {resources: {requests: {cpu: 1m}}}}}}",
                "aws-ebs-csi-driver",
            ),
            (191, 80, 4),
            (191, 80, 5),
        ),
        (
            configured(
                "{eks-node-monitoring-agent: {dcgmAgent: {resources: {requests: {cpu: 1}}}}}",
                "eks-node-monitoring-agent",
            ),
            (160, 30, 4),
            (1160, 30, 6),
        ),
    ],
)
def test_what_is_taken(
    project: MakeProject, edits: tuple[tuple[str, str], ...], cpu: tuple[int, int, int], gpu: tuple[int, int, int]
) -> None:
    _, settings = read(project, *edits)
    for pool, (cores, memory, pods) in (("cpu", cpu), ("gpu", gpu)):
        assert daemon_requests(settings, pool) == {
            "cpu": Decimal(cores) / 1000,
            "memory": Decimal(memory) * MIB,
            "pods": Decimal(pods),
        }


def test_system_nodes_hold_what_deployments_are_configured_with(project: MakeProject) -> None:
    """CoreDNS: two replicas of 100m and 70Mi by default."""
    _, changed = read(project, *configured("{coredns: {replicaCount: 5, resources: {requests: {memory: 1Gi}}}}"))
    plain = changed.cluster.model_copy(update={"addon_configuration": {}})
    usual = changed.model_copy(update={"cluster": plain})
    more = {name: amount - system_requests(usual)[name] for name, amount in system_requests(changed).items()}
    assert more == {"cpu": Decimal("0.3"), "memory": Decimal(5 * 1024 - 2 * 70) * MIB, "pods": 3}


@pytest.mark.parametrize("discovery", [True, False])
def test_the_program_makes_no_others(project: MakeProject, discovery: bool) -> None:
    """No DaemonSet of its own, and no chart with one but NVIDIA's, whose requests nobody changes."""
    found, settings = read(project, *((DISCOVERY,) if discovery else ()))
    plan = found.plan()
    assert not [each for each in plan.objects() if each["kind"] == "DaemonSet"]
    charts = {each.chart_name for each in plan.releases()}
    without = {"karpenter-crd", "karpenter", "gha-runner-scale-set-controller", "gha-runner-scale-set"}
    assert charts - without == {"nvidia-device-plugin"}
    (plugin,) = (each for each in plan.releases() if each.chart_name == "nvidia-device-plugin")
    values = revealed(plugin.values)
    assert "resources" not in values
    assert (values["gfd"]["enabled"], values["nfd"]["enabled"]) == (discovery, discovery)
    assert values["nfd"].get("worker", {}).keys() <= {"tolerations"}
    addons = [str(each.inputs["addonName"]) for each in plan.resources if each.type == "aws:eks/addon:Addon"]
    assert sorted(addons) == sorted(settings.cluster.addons)


def test_an_addon_that_is_not_known_is_said(project: MakeProject) -> None:
    _, settings = read(project, OTHER)
    assert addons_of_unknown_requests(settings) == ["aws-efs-csi-driver"]
    said = "requests of aws-efs-csi-driver on each node are unknown and not subtracted\n"
    assert f"pool gpu: {said}" in capacity.text(capacity.capacity("aws", settings))
    known = settings.cluster.model_copy(update={"addons": {"vpc-cni": "v1.22.4-eksbuild.3"}})
    assert said not in capacity.text(capacity.capacity("aws", settings.model_copy(update={"cluster": known})))
