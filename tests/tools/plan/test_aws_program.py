"""The program of a stack on EKS, as it is recorded: what stays until what is gone, what is protected, and what the
settings of its pools become elsewhere: gates, overlays, plugins, pods.

That a preview and an update register the same is in `test_plan.py`, for every stack.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet_tools.plan import arc_releases, stack
from gpufleet_tools.plan.plan import UNKNOWN, Plan, Resource, revealed
from tests.conftest import ROOT, MakeProject
from tests.recording import release, stays_for, the

DEV = (ROOT / "Pulumi.dev.yaml").read_text()
EVERY = (ROOT / "tests/settings/eks-every-setting.ok.yaml").read_text()
SMALLEST = (ROOT / "tests/settings/eks-smallest.ok.yaml").read_text()

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def dev() -> Plan:
    return stack.read(ROOT, "dev").plan()


Planned = Callable[[str], Plan]
"""Records the program of a stack file with that text."""


@pytest.fixture
def planned(project: MakeProject) -> Planned:
    # Under its own name: of another stack with its labels the program has something to say.
    return lambda text: stack.read(project({"dev": text}), "dev").plan()


def of(plan: Plan, *kinds: str) -> list[Resource]:
    """Resources of these kinds: the last part of their type."""
    return [each for each in plan.resources if each.type.rpartition(":")[2] in kinds]


def manifest(plan: Plan, kind: str, name: str) -> Any:
    """The Kubernetes object of that kind and name."""
    (found,) = [each for each in plan.objects() if each["kind"] == kind and each["metadata"]["name"] == name]
    return revealed(found)


# -- network ----------------------------------------------------------------------------------------------------------


def test_the_addresses_of_an_existing_network_are_looked_up(planned: Planned, dev: Plan) -> None:
    """They are no setting that could be wrong: Pulumi reads the VPC, and the API server is reached from it."""
    plan = planned(SMALLEST)
    vpc = the(plan, "Vpc")
    rule = the(plan, "SecurityGroupIngressRule", "lab-control-plane-from-vpc")
    assert (vpc.kind, vpc.read_id) == ("lookup", "vpc-0123456789abcdef0")
    assert (rule.inputs["cidrIpv4"], vpc.urn in rule.depends_on) == (UNKNOWN, True)
    assert the(dev, "SecurityGroupIngressRule", "gpu-dev-control-plane-from-vpc").inputs["cidrIpv4"] == ("10.0.0.0/16")


def test_the_pods_of_the_system_are_on_the_system_nodes(dev: Plan) -> None:
    """They would keep a node of Karpenter's otherwise, jobs or none: the controller, every listener, and CoreDNS."""
    (group,) = of(dev, "NodeGroup")
    selector = {"gpu-runners/nodes": "system"}
    assert selector.items() <= group.inputs["labels"].items()
    controller = arc_releases.controller(dev)
    assert controller is not None
    assert controller.values["nodeSelector"] == selector
    templates = {each.name: each.values["listenerTemplate"]["spec"] for each in arc_releases.scale_sets(dev)}
    assert templates.keys() == {"linux-cpu-4", "linux-nvidia-gpu"}
    for spec in templates.values():
        assert (spec["nodeSelector"], [each["name"] for each in spec["containers"]]) == (selector, ["listener"])
    addons = {each.inputs["addonName"]: each.inputs.get("configurationValues") for each in of(dev, "Addon")}
    assert json.loads(addons.pop("coredns")) == {"nodeSelector": selector}
    assert set(addons.values()) == {None}, "DaemonSets run everywhere"


def test_machines_of_ones_own_have_no_system_nodes() -> None:
    plan = stack.read(ROOT, "mi300").plan()
    listeners = [each.values.get("listenerTemplate", {}).get("spec", {}) for each in arc_releases.scale_sets(plan)]
    assert listeners
    assert all("nodeSelector" not in spec for spec in listeners)
    controller = arc_releases.controller(plan)
    assert controller is not None
    assert "nodeSelector" not in controller.values


def test_karpenter_asks_for_no_prices_where_no_way_leads_out(planned: Planned, dev: Plan) -> None:
    endpoints = "[ec2, ecr.api, ecr.dkr, eks, eks-auth, sts, ssm, sqs]"
    network = f"zones: [us-east-1a, us-east-1b, us-east-1c], natGateways: none, interfaceEndpoints: {endpoints}"
    isolated = planned(DEV.replace("zones: [us-east-1a, us-east-1b, us-east-1c]", network))
    assert release(isolated, "karpenter").values["settings"]["isolatedVPC"] is True
    assert "isolatedVPC" not in release(dev, "karpenter").values["settings"]


# -- order ------------------------------------------------------------------------------------------------------------

TIERS: dict[str, Any] = {
    "scale sets and the smoke workload": lambda each: each.name in ("linux-cpu-4", "linux-nvidia-gpu", "smoke"),
    "node pools": lambda each: each.type.endswith(":NodePool"),
    "their machines and overlays": lambda each: each.type.endswith((":EC2NodeClass", ":NodeOverlay")),
    "Karpenter's controller": lambda each: each.name == "karpenter" and each.type.endswith(":Release"),
    "what it works with": lambda each: each.name.startswith("karpenter-"),
    "the provider of the cluster": lambda each: each.name == "gpu-dev-kubernetes",
    "nodes, addons and the way out": lambda each: each.type.endswith(
        (":NodeGroup", ":Addon", ":NatGateway", ":Route", ":InternetGateway")
    ),
    "the control plane": lambda each: each.type == "eks:index:Cluster",
    "its role, key, log and subnets": lambda each: (
        each.name in ("gpu-dev-role", "gpu-dev-secrets", "gpu-dev-logs", "gpu-dev-network")
        or each.type.endswith((":Subnet", ":SecurityGroup"))
    ),
}
"""What a destroy removes, first to last."""

OWN = (":index:EksNetwork", ":index:EksCluster", ":index:Karpenter", ":index:KarpenterNodePool")
"""Components are no resources of AWS or the cluster: they go with the last of their children."""


@pytest.fixture(scope="module")
def stays(dev: Plan) -> dict[str, set[str]]:
    """By URN, what is removed only once that resource is gone."""
    return {each.urn: stays_for(dev, each) for each in dev.resources}


def tier(plan: Plan, name: str) -> list[Resource]:
    return [each for each in plan.resources if TIERS[name](each) and not each.type.endswith(OWN)]


def test_every_tier_has_resources_and_each_is_of_one(dev: Plan) -> None:
    """Or else the next test would prove little."""
    urns = [each.urn for name in TIERS for each in tier(dev, name)]
    assert all(tier(dev, name) for name in TIERS)
    assert len(urns) == len(set(urns))


ORDER = [*TIERS]


@pytest.mark.parametrize("then", ORDER[1:])
def test_a_destroy_goes_tier_by_tier(dev: Plan, stays: dict[str, set[str]], then: str) -> None:
    """All of a tier stays until what needs it, of the tiers before, is gone; and nothing of those waits for it."""
    before = [each for name in ORDER[: ORDER.index(then)] for each in tier(dev, name)]
    for later in tier(dev, then):
        assert not any(each.urn in stays[later.urn] for each in before), later.urn
        assert any(later.urn in stays[each.urn] for each in before), later.urn


def test_each_pool_stays_for_its_own_runners(dev: Plan) -> None:
    """A runner that is going needs its node for as long as its finalizer does."""
    for label, pool in (("linux-nvidia-gpu", "gpu"), ("linux-cpu-4", "default"), ("smoke", "gpu")):
        (registered,) = [each for each in dev.resources if each.name == label and not each.component]
        assert the(dev, "NodePool", pool).urn in stays_for(dev, registered)


@pytest.mark.parametrize("name", ["default", "gpu"])
def test_the_whole_of_karpenter_and_below_stays_for_each_pool(dev: Plan, name: str) -> None:
    """Whatever is above in the order: instances are ended by a controller with roles, queue, nodes and a way out."""
    stays = stays_for(dev, the(dev, "NodePool", name))
    for below in ORDER[3:]:
        assert {each.urn for each in tier(dev, below)} <= stays


def test_the_smoke_workload_goes_before_the_plugin(dev: Plan) -> None:
    assert the(dev, "Release", "nvidia-device-plugin").urn in stays_for(dev, the(dev, "Deployment"))


def test_scale_sets_go_before_credentials_and_controller_and_these_before_namespaces(dev: Plan) -> None:
    controller, secret = the(dev, "Release", "arc"), the(dev, "Secret")
    for each in arc_releases.scale_sets(dev):
        assert {controller.urn, secret.urn} <= stays_for(dev, each.resource)
    assert the(dev, "Namespace", "arc-namespace").urn in stays_for(dev, controller)
    assert the(dev, "Namespace", "gpu-test-cluster-namespace").urn in stays_for(dev, secret)


def test_nothing_on_the_cluster_outlives_its_way_there(dev: Plan, stays: dict[str, set[str]]) -> None:
    """The provider, the API server behind it, and the nodes and addons that finalizers need."""
    provider = the(dev, "kubernetes", "gpu-dev-kubernetes")
    needed = {each.urn for each in [provider, *of(dev, "Cluster", "NodeGroup", "Addon", "NatGateway", "Route")]}
    on_it = [each for each in dev.resources if each.type.startswith("kubernetes:")]
    assert len(on_it) > 10
    for each in on_it:
        assert each.provider == provider.urn
        assert needed <= stays[each.urn]


def test_what_is_in_the_account_is_reached_by_its_provider(dev: Plan) -> None:
    (account,) = [each for each in dev.resources if each.type == "pulumi:providers:aws"]
    assert account.inputs["allowedAccountIds"] in (["111122223333"], '["111122223333"]')
    assert {each.provider for each in dev.resources if each.type.startswith("aws:")} == {account.urn}


def test_no_order_is_a_circle(dev: Plan, stays: dict[str, set[str]]) -> None:
    for each in dev.resources:
        assert each.urn not in stays[each.urn]


def test_nothing_on_the_cluster_makes_what_pulumi_does_not_know_of(dev: Plan) -> None:
    """Load balancers and volumes are made by controllers, and outlive a cluster that is gone before them."""
    for each in dev.objects():
        assert each["kind"] not in ("Service", "Ingress", "PersistentVolumeClaim", "StatefulSet")
    for each in dev.releases():
        text = str(revealed(dict(each.values)))
        assert "LoadBalancer" not in text
        assert "volumeClaimTemplate" not in text


# -- protection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", [True, False])
def test_control_plane_and_network_are_protected_as_long_as_deletion_is(planned: Planned, protection: bool) -> None:
    plan = planned(
        DEV.replace("    name: gpu-dev\n", f"    name: gpu-dev\n    deletionProtection: {str(protection).lower()}\n")
    )
    protected = {each.name for each in plan.resources if each.options.get("protect")}
    # Nothing else: an addon can be removed and a node group replaced on any day.
    assert protected == ({the(plan, "Cluster").name, the(plan, "Vpc").name} if protection else set())
    assert the(plan, "Cluster").inputs["deletionProtection"] is protection


# -- what follows from a pool -----------------------------------------------------------------------------------------


def shared(text: str, replicas: int | None) -> str:
    """The stack with GPUs that so many pods share, or none."""
    sharing = f"sharing: {{timeSlicing: {{replicas: {replicas}}}}}\n" if replicas else "weight: 1\n"
    assert "sharing: {timeSlicing: {replicas: 10}}\n" in text
    return text.replace("sharing: {timeSlicing: {replicas: 10}}\n", sharing)


@pytest.mark.parametrize("replicas", [None, 2, 10])
def test_sharing_is_told_to_plugin_overlays_limits_and_gate_alike(planned: Planned, replicas: int | None) -> None:
    """If one of them lacked it, Karpenter would provision a GPU for each pod, or none."""
    plan = planned(shared(DEV, replicas))
    config = yaml.safe_load(release(plan, "nvdp").values["config"]["map"]["default"])
    overlays = [revealed(each["spec"]) for each in plan.objects() if each["kind"] == "NodeOverlay"]
    gate = release(plan, "karpenter").values["settings"]["featureGates"]["nodeOverlay"]
    assert manifest(plan, "NodePool", "gpu")["spec"]["limits"][GPU] == str(4 * (replicas or 1))
    assert gate is (replicas is not None)
    if replicas is None:
        assert "sharing" not in config
        assert overlays == []
        return
    sliced = config["sharing"]["timeSlicing"]
    assert (sliced["resources"], sliced["failRequestsGreaterThanOne"]) == ([{"name": GPU, "replicas": replicas}], True)
    assert [each["capacity"] for each in overlays] == [{GPU: str(replicas)}]


EVERY_WAY = (ROOT / "tests/settings/eks-pools-share-differently.ok.yaml").read_text()


def test_pools_may_share_differently(planned: Planned) -> None:
    """The first is the plugin's default, and needs no label; others select a configuration by a label of theirs."""
    plan = planned(EVERY_WAY)
    files = release(plan, "nvdp").values["config"]["map"]
    assert set(files) == {"default", "time-slicing-4", "mps-6", "mig-1g.10gb"}
    pools = {each["metadata"]["name"]: revealed(each["spec"]) for each in plan.objects() if each["kind"] == "NodePool"}
    labels = {name: pool["template"]["metadata"]["labels"] for name, pool in pools.items()}
    assert {name: each.get("nvidia.com/device-plugin.config") for name, each in labels.items()} == {
        "gpu": None,
        "shared": "time-slicing-4",
        "together": "mps-6",
        "parts": "mig-1g.10gb",
    }
    assert [name for name, each in labels.items() if each.get("nvidia.com/mps.capable") == "true"] == ["together"]
    overlays = {
        each["metadata"]["name"]: revealed(each["spec"]) for each in plan.objects() if each["kind"] == "NodeOverlay"
    }
    assert {name: each["capacity"][GPU] for name, each in overlays.items()} == {
        "shared-1-gpus": "4",
        "together-1-gpus": "6",
        "parts-8-gpus": "56",
    }
    assert {name: pool["limits"][GPU] for name, pool in pools.items()} == {
        "gpu": "4",
        "shared": "8",
        "together": "12",
        "parts": "112",
    }
    assert release(plan, "karpenter").values["settings"]["featureGates"]["nodeOverlay"] is True


AGENT = ("      coredns:", "      eks-node-monitoring-agent: v1.7.0-eksbuild.1\n      coredns:")


def agent(plan: Plan) -> Any:
    """Configuration values of the monitoring agent."""
    (addon,) = (each for each in plan.resources if each.inputs.get("addonName") == "eks-node-monitoring-agent")
    return json.loads(addon.inputs.get("configurationValues") or "null")


REPAIR = "    karpenter: {nodeRepair: true}\n"
OWN = "    addonConfiguration: {eks-node-monitoring-agent: {dcgmAgent: {tolerations: [{operator: Exists}]}}}\n"
ON_GPUS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("settings", "repair", "tolerations"),
    [("", False, None), (REPAIR, True, [ON_GPUS]), (REPAIR + OWN, True, [{"operator": "Exists"}])],
)
def test_with_node_repair_dcgm_runs_on_tainted_nodes_with_gpus(
    planned: Planned, settings: str, repair: bool, tolerations: list[dict[str, str]] | None
) -> None:
    """The add-on's default tolerates no taint, and without DCGM no fault of a GPU is reported."""
    plan = planned(DEV.replace(*AGENT).replace("    nodePools:\n", f"{settings}    nodePools:\n", 1))
    assert release(plan, "karpenter").values["settings"]["featureGates"]["nodeRepair"] is repair
    assert agent(plan) == (None if tolerations is None else {"dcgmAgent": {"tolerations": tolerations}})


PLAIN = (ROOT / "tests/settings/eks-bottlerocket-with-gpus.ok.yaml").read_text()
BESIDE = """\
      plain:
        instances: {families: [g4dn], sizes: [2xlarge]}
        amis: [{alias: al2023@v20260512}]
        labels: {nvidia.com/gpu.present: "true"}
        taints: [{key: team, effect: NoSchedule}]
        limits: {gpus: 4}
        terminationGracePeriod: 6h
  gpu-runners:profiles:
    gpu: {pool: gpu}
  gpu-runners:projects:
"""


def test_bottlerockets_gpus_have_a_plugin_without_a_daemon_set(planned: Planned) -> None:
    plan = planned(PLAIN)
    assert "nvidia-device-plugin" not in {each.chart_name for each in plan.releases()}
    assert [each["kind"] for each in plan.objects()].count("NodeOverlay") == 2
    assert "time-slicing" in manifest(plan, "EC2NodeClass", "gpu")["spec"]["userData"]


def test_the_daemon_set_serves_the_other_pools_alone(planned: Planned) -> None:
    """It knows neither the taints nor the sharing of Bottlerocket's pool, and its label is not on those nodes."""
    text = PLAIN.replace("  gpu-runners:projects:\n", BESIDE)
    text = text.replace("      project: ml\n", "      project: ml\n      profile: gpu\n")
    plan = planned(text)
    plugin = release(plan, "nvdp").values
    assert set(plugin["config"]["map"]) == {"default"}
    assert "sharing" not in yaml.safe_load(plugin["config"]["map"]["default"])
    assert {"key": "team", "operator": "Exists", "effect": "NoSchedule"} in plugin["tolerations"]
    labels = manifest(plan, "NodePool", "gpu")["spec"]["template"].get("metadata", {}).get("labels", {})
    assert "nvidia.com/gpu.present" not in labels


def test_without_gpus_there_is_no_plugin(planned: Planned) -> None:
    content = yaml.safe_load(DEV)
    config = content["config"]
    del config["gpu-runners:cluster"]["nodePools"]["gpu"], config["gpu-runners:cluster"]["smokeWorkload"]
    del config["gpu-runners:profiles"]["nvidia"], config["gpu-runners:runners"]["linux-nvidia-gpu"]
    plan = planned(yaml.safe_dump(content))
    assert {each.chart_name for each in plan.releases()} == {
        *("karpenter", "karpenter-crd", "gha-runner-scale-set-controller", "gha-runner-scale-set")
    }
    assert release(plan, "karpenter").values["settings"]["featureGates"]["nodeOverlay"] is False


@pytest.mark.parametrize("text", [DEV, EVERY], ids=["dev", "every setting"])
def test_runner_pods_stay_on_their_pool_and_are_not_disturbed(planned: Planned, text: str) -> None:
    plan = planned(text)
    content = yaml.safe_load(text)["config"]
    assert arc_releases.scale_sets(plan)
    for each in arc_releases.scale_sets(plan):
        profile = content["gpu-runners:profiles"][content["gpu-runners:runners"][each.name]["profile"]]
        pod = revealed(each.values["template"])
        assert pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        assert pod["spec"]["nodeSelector"]["karpenter.sh/nodepool"] == profile["pool"]
        assert pod["spec"].get("tolerations", []) == profile.get("tolerations", [])


@pytest.mark.parametrize("text", [DEV, EVERY], ids=["dev", "every setting"])
def test_plugin_and_smoke_workload_run_where_pods_with_gpus_do(planned: Planned, text: str) -> None:
    """Both tolerate every taint of a pool with GPUs, and the plugin selects a label that all of its nodes have."""
    plan = planned(text)
    plugin = release(plan, "nvdp").values
    terms = plugin["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {each["key"]: each["values"] for each in terms[0]["matchExpressions"]}
    deployment = manifest(plan, "Deployment", "gpu")["spec"]["template"]["spec"]
    pools = [each for each in plan.objects() if each["kind"] == "NodePool"]
    with_gpus = [revealed(each["spec"]["template"]) for each in pools if GPU in each["spec"]["limits"]]
    assert with_gpus
    for template in with_gpus:
        assert all(template["metadata"]["labels"].get(key) in values for key, values in wanted.items())
        for taint in template["spec"]["taints"]:
            for tolerations in (plugin["tolerations"], deployment["tolerations"]):
                assert any(
                    each["key"] == taint["key"]
                    and each["operator"] == "Exists"
                    and each.get("effect") in (None, taint["effect"])
                    for each in tolerations
                )
    assert deployment["nodeSelector"] == {"karpenter.sh/nodepool": "gpu"}


def test_further_taints_of_a_pool_with_gpus_are_tolerated(planned: Planned) -> None:
    taint = "taints: [{key: nvidia.com/gpu, effect: NoSchedule}, {key: team, value: vision, effect: NoExecute}]"
    text = DEV.replace("taints: [{key: nvidia.com/gpu, effect: NoSchedule}]", taint)
    profile = "tolerations: [{operator: Exists}]"
    text = text.replace("tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]", profile)
    further = {"key": "team", "operator": "Exists", "effect": "NoExecute"}
    plan = planned(text)
    assert further in release(plan, "nvdp").values["tolerations"]
    assert further in manifest(plan, "Deployment", "gpu")["spec"]["template"]["spec"]["tolerations"]
