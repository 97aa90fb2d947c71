"""Karpenter: its resources, the values of its chart, and the order of deletion."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest
from pulumi_aws.eks import AccessEntry
from pulumi_aws.sqs import Queue

from gpufleet.aws import FeatureGates, Irsa, Karpenter, KarpenterArgs, ServiceMonitor
from gpufleet.aws.karpenter.controller import KARPENTER_REGISTRY, KARPENTER_VERSION
from gpufleet_tools.plan.plan import UNKNOWN, Plan, Resource
from tests.input_types import wrong_inputs
from tests.recording import on_aws, recorded, release, stays_for, the

ON_EKS: dict[str, Any] = {
    "cluster_name": "ci",
    "region": "eu-west-1",
    "account_id": "111122223333",
    "cluster_endpoint": "https://ci.example",
}

POLICIES = ("NodeLifecycle", "IAMIntegration", "EKSIntegration", "Interruption", "ZonalShift", "ResourceDiscovery")

OIDC = Irsa(
    provider_arn="arn:aws:iam::111122223333:oidc-provider/oidc.example/id/1", provider_url="https://oidc.example"
)


def karpenter(*, unknown_outputs: bool = True, **args: Any) -> tuple[Karpenter, Plan]:
    """Karpenter with these arguments, and the plan that it is all of."""
    made: list[Karpenter] = []
    plan = recorded(
        lambda: made.append(Karpenter("karpenter", KarpenterArgs(**(ON_EKS | args)), on_aws())),
        unknown_outputs=unknown_outputs,
    )
    return made[0], plan


def values(**args: Any) -> dict[str, Any]:
    """Chart values of the controller with these arguments."""
    _, plan = karpenter(**args)
    return dict(release(plan, "karpenter").values)


def of_kind(plan: Plan, kind: str) -> list[Resource]:
    return [resource for resource in plan.resources if resource.type.split(":")[-1] == kind]


def resources(plan: Plan) -> list[Resource]:
    """What it owns: the component itself and the providers left out."""
    return [resource for resource in plan.resources if resource.kind == "resource"]


# -- what is registered -----------------------------------------------------------------------------------------------


def test_it_registers_no_more_and_no_less() -> None:
    _, plan = karpenter()
    kinds = [resource.type.split(":")[-1] for resource in resources(plan)]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "AccessEntry": 1,
        "EventRule": 5,
        "EventTarget": 5,
        "PodIdentityAssociation": 1,
        "Policy": 6,
        "Queue": 1,
        "QueuePolicy": 1,
        "Release": 2,
        "Role": 2,
        "RolePolicyAttachment": 10,
    }


def test_its_names_are_those_of_karpenters_documentation() -> None:
    """cloudformation.yaml and scripts/step02-create-cluster.sh at v1.14.1: other tools look for them."""
    _, plan = karpenter()
    assert {role.inputs["name"] for role in of_kind(plan, "Role")} == {"KarpenterNodeRole-ci", "ci-karpenter"}
    names = {policy.inputs["name"] for policy in of_kind(plan, "Policy")}
    assert names == {f"KarpenterController{part}Policy-ci" for part in POLICIES}
    assert the(plan, "Queue").inputs["name"] == "ci"
    assert {each.name for each in plan.releases()} == {"karpenter", "karpenter-crd"}


@pytest.mark.parametrize("args", [{}, {"identity": OIDC}, {"spot_service_linked_role": True}])
def test_inputs_are_what_the_sdk_expects(args: dict[str, Any]) -> None:
    _, plan = karpenter(**args)
    assert wrong_inputs(plan) == []


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda opts: Queue("q", message_retention_seconds="300", opts=opts), "messageRetentionSeconds: '300' is"),
        (
            lambda opts: AccessEntry("q", cluster_name="ci", principal_arn="arn", kubernetes_groups="a", opts=opts),
            "kubernetesGroups: 'a' is",
        ),
    ],
)
def test_a_wrong_input_of_aws_is_found(build: Any, problem: str) -> None:
    (found,) = wrong_inputs(recorded(lambda: build(on_aws())))
    assert found.startswith(f"q.{problem}")


def test_the_same_is_registered_when_outputs_are_known() -> None:
    _, before = karpenter()
    _, after = karpenter(unknown_outputs=False)
    assert [resource.urn for resource in before.resources] == [resource.urn for resource in after.resources]


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_may_join() -> None:
    """Without the entry, and of this type, instances run and never become nodes."""
    _, plan = karpenter()
    entry, role = the(plan, "AccessEntry"), the(plan, "Role", "karpenter-node-role")
    assert entry.inputs["type"] == "EC2_LINUX"
    assert entry.inputs["clusterName"] == "ci"
    assert entry.inputs["principalArn"] is UNKNOWN
    assert role.urn in entry.depends_on


def test_nodes_have_the_four_policies_of_aws() -> None:
    _, plan = karpenter(partition="aws-us-gov", region="us-gov-west-1")
    role = the(plan, "Role", "karpenter-node-role")
    found = {each.inputs["policyArn"] for each in of_kind(plan, "RolePolicyAttachment") if role.urn in each.depends_on}
    assert found == {
        "arn:aws-us-gov:iam::aws:policy/AmazonEKS_CNI_Policy",
        "arn:aws-us-gov:iam::aws:policy/AmazonEKSWorkerNodePolicy",
        "arn:aws-us-gov:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly",
        "arn:aws-us-gov:iam::aws:policy/AmazonSSMManagedInstanceCore",
    }


# -- the controller's identity ----------------------------------------------------------------------------------------


def test_every_policy_is_attached_to_the_controller() -> None:
    _, plan = karpenter()
    role = the(plan, "Role", "karpenter-controller-role")
    for policy in of_kind(plan, "Policy"):
        attachment = the(plan, "RolePolicyAttachment", f"{policy.name}-attachment")
        assert set(attachment.depends_on) == {role.urn, policy.urn}


def test_the_association_is_with_the_account_of_the_chart() -> None:
    _, plan = karpenter(namespace="karpenter", service_account="scaler")
    association = the(plan, "PodIdentityAssociation")
    assert association.inputs["clusterName"] == "ci"
    assert association.inputs["namespace"] == release(plan, "karpenter").namespace == "karpenter"
    account = release(plan, "karpenter").values["serviceAccount"]
    assert account == {"create": True, "name": "scaler"}
    assert association.inputs["serviceAccount"] == "scaler"
    assert the(plan, "Role", "karpenter-controller-role").urn in association.depends_on


def test_a_token_of_the_service_account_needs_no_association() -> None:
    _, plan = karpenter(identity=OIDC)
    assert of_kind(plan, "PodIdentityAssociation") == []
    account = release(plan, "karpenter").values["serviceAccount"]
    assert account["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/ci-karpenter"}


def test_the_trust_waits_for_a_provider_that_is_not_there_yet() -> None:
    """The cluster's issuer is known once the cluster is."""

    def trust(url: object) -> Any:
        def build() -> None:
            identity = Irsa(provider_arn="arn", provider_url=pulumi.Output.from_input(url))
            Karpenter("karpenter", KarpenterArgs(**ON_EKS, identity=identity), on_aws())

        return the(recorded(build), "Role", "karpenter-controller-role").inputs["assumeRolePolicy"]

    assert trust(pulumi.output.Unknown()) is UNKNOWN
    assert "oidc.example:sub" in trust("https://oidc.example")


def test_the_role_for_spot_instances_is_made_by_choice_and_left_behind() -> None:
    """An account has one, whatever clusters it has."""
    _, plan = karpenter()
    assert of_kind(plan, "ServiceLinkedRole") == []
    _, plan = karpenter(spot_service_linked_role=True)
    role = the(plan, "ServiceLinkedRole")
    assert role.inputs["awsServiceName"] == "spot.amazonaws.com"
    assert role.options["retainOnDelete"]
    assert role.urn in stays_for(plan, the(plan, "Release", "karpenter"))


# -- interruptions ----------------------------------------------------------------------------------------------------

EVENTS = {
    "karpenter-scheduled-change": ("aws.health", "AWS Health Event"),
    "karpenter-spot-interruption": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "karpenter-rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "karpenter-instance-state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
    "karpenter-capacity-reservation": (
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
    ),
}
"""Source() and DetailType() of the five parsers in pkg/controllers/interruption/messages at v1.14.1."""


def test_the_rules_catch_what_karpenter_reads() -> None:
    _, plan = karpenter()
    patterns = {rule.name: json.loads(rule.inputs["eventPattern"]) for rule in of_kind(plan, "EventRule")}
    assert patterns == {
        name: {"source": [source], "detail-type": [detail_type]} for name, (source, detail_type) in EVENTS.items()
    }


@pytest.mark.parametrize("name", EVENTS)
def test_each_rule_sends_to_the_queue_once_it_may(name: str) -> None:
    _, plan = karpenter()
    target = the(plan, "EventTarget", f"{name}-target")
    assert set(target.depends_on) == {
        the(plan, "EventRule", name).urn,
        the(plan, "Queue").urn,
        the(plan, "QueuePolicy").urn,
    }


def test_the_queue_is_encrypted_and_forgets_soon() -> None:
    _, plan = karpenter()
    assert the(plan, "Queue").inputs == {"name": "ci", "messageRetentionSeconds": 300, "sqsManagedSseEnabled": True}


def test_without_a_queue_nothing_is_left_of_it() -> None:
    _, plan = karpenter(interruption_queue=False)
    assert not {"Queue", "QueuePolicy", "EventRule", "EventTarget"} & {
        resource.type.split(":")[-1] for resource in plan.resources
    }
    assert len(of_kind(plan, "Policy")) == len(POLICIES) - 1
    assert release(plan, "karpenter").values["settings"]["interruptionQueue"] == ""


# -- releases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["karpenter", "karpenter-crd"])
@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        (None, f"{KARPENTER_REGISTRY}/{{name}}", None),
        ("oci://registry.example/aws", "oci://registry.example/aws/{name}", None),
        ("https://charts.example", "{name}", "https://charts.example"),
        ("/srv/charts", f"/srv/charts/{{name}}-{KARPENTER_VERSION}.tgz", None),
    ],
)
def test_both_charts_come_by_one_exact_version(
    name: str, mirror: str | None, chart: str, repository: str | None
) -> None:
    _, plan = karpenter(chart_mirror=mirror)
    found = release(plan, name)
    assert (found.chart, found.version, found.repository) == (chart.format(name=name), KARPENTER_VERSION, repository)
    assert found.namespace == "kube-system"


def test_another_version_is_that_of_both() -> None:
    made, plan = karpenter(version="1.14.0")
    assert {each.version for each in plan.releases()} == {made.reference.version} == {"1.14.0"}


def test_the_crds_have_one_owner() -> None:
    """Those in the controller's chart are installed once and never updated."""
    _, plan = karpenter()
    assert the(plan, "Release", "karpenter").inputs["skipCrds"] is True
    assert "skipCrds" not in the(plan, "Release", "karpenter-crd").inputs


def test_its_chart_is_told_of_the_cluster() -> None:
    settings = values()["settings"]
    assert settings == {
        "clusterName": "ci",
        "clusterEndpoint": "https://ci.example",
        "interruptionQueue": "ci",
        "featureGates": {
            "nodeRepair": False,
            "nodeOverlay": False,
            "reservedCapacity": True,
            "spotToSpotConsolidation": False,
            "staticCapacity": False,
            "capacityBuffer": False,
        },
    }


def test_gates_are_switched_and_told_to_pools() -> None:
    gates = FeatureGates(node_overlay=True, reserved_capacity=False)
    made, plan = karpenter(feature_gates=gates)
    given = release(plan, "karpenter").values["settings"]["featureGates"]
    assert {name for name, on in given.items() if on} == {"nodeOverlay"}
    assert made.reference.feature_gates == gates


def test_gates_and_their_defaults_are_the_charts(karpenter_chart: Any) -> None:
    """A gate that the chart has and we lack could not be switched; another default would change a cluster unasked."""
    gates = karpenter_chart.defaults["settings"]["featureGates"]
    assert values()["settings"]["featureGates"] == gates


def test_its_values_are_known_to_the_chart(karpenter_chart: Any) -> None:
    free = (("controller", "resources"), ("serviceAccount", "annotations"))
    monitored = ServiceMonitor(labels={"release": "prometheus"})
    free = (*free, ("serviceMonitor", "additionalLabels"))
    assert karpenter_chart.unknown(values(identity=OIDC, service_monitor=monitored), free=free) == []


def test_a_service_monitor_is_created_by_choice(karpenter_chart: Any) -> None:
    assert "serviceMonitor" not in values()
    assert karpenter_chart.defaults["serviceMonitor"]["enabled"] is False
    assert values(service_monitor=ServiceMonitor())["serviceMonitor"] == {"enabled": True, "additionalLabels": {}}


def test_its_own_toleration_stays_beside_further_ones(karpenter_chart: Any) -> None:
    """A list in values replaces the chart's."""
    further = {"key": "system", "operator": "Exists", "effect": "NoSchedule"}
    own = karpenter_chart.defaults["tolerations"]
    assert values()["tolerations"] == own
    assert values(tolerations=[further])["tolerations"] == [*own, further]


def test_replicas_and_resources_are_as_asked() -> None:
    given = values(replicas=1, cpu="500m", memory="512Mi")
    assert given["replicas"] == 1
    amounts = {"cpu": "500m", "memory": "512Mi"}
    assert given["controller"]["resources"] == {"requests": amounts, "limits": amounts}
    assert values()["replicas"] == 2


def test_further_values_are_laid_over_its_own_key_by_key() -> None:
    """One setting must not take the cluster's name with it."""
    further = {"dnsPolicy": "Default", "replicas": 3, "tolerations": [], "settings": {"batchMaxDuration": "20s"}}
    given = values(values=further)
    assert (given["dnsPolicy"], given["replicas"], given["tolerations"]) == ("Default", 3, [])
    assert given["settings"] == values()["settings"] | {"batchMaxDuration": "20s"}


# -- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [{}, {"identity": OIDC}], ids=["pod identity", "token"])
def test_the_controller_goes_before_everything_that_it_works_with(args: dict[str, Any]) -> None:
    """It ends its instances with its role, the nodes' and its CRDs; so it comes last, and goes first."""
    _, plan = karpenter(**args)
    controller = the(plan, "Release", "karpenter")
    others = {resource.urn for resource in resources(plan)} - {controller.urn}
    assert others <= stays_for(plan, controller)


def test_the_controller_waits_for_association_policies_and_crds_by_name() -> None:
    _, plan = karpenter()
    needs = set(the(plan, "Release", "karpenter").depends_on)
    awaited = ("PodIdentityAssociation", "RolePolicyAttachment", "AccessEntry", "QueuePolicy", "EventTarget")
    assert {resource.urn for kind in awaited for resource in of_kind(plan, kind)} <= needs
    assert the(plan, "Release", "karpenter-crd").urn in needs


def test_what_is_needed_before_stays_until_it_is_gone() -> None:
    """The cluster, above all: the access entry and the association are in it."""

    def build() -> None:
        opts = on_aws()
        cluster = Queue("stands-for-the-cluster", opts=opts)
        Karpenter("karpenter", KarpenterArgs(**ON_EKS, needs=[cluster]), opts)

    plan = recorded(build)
    cluster = the(plan, "Queue", "stands-for-the-cluster").urn
    for kind in ("AccessEntry", "PodIdentityAssociation", "Release"):
        assert all(cluster in resource.depends_on for resource in of_kind(plan, kind)), kind


def test_a_node_pool_learns_what_it_needs() -> None:
    made, _ = karpenter()
    assert made.reference.cluster_name == "ci"
    assert made.reference.node_role == "KarpenterNodeRole-ci"
    assert list(made.reference.needs) == [made.ready]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_a_cluster_name_too_long_for_the_node_role_is_refused() -> None:
    made, _ = karpenter(cluster_name="c" * 46)
    assert len(made.reference.node_role) == 64
    with pytest.raises(ValueError, match="has 47 characters; at most 46 are allowed"):
        karpenter(cluster_name="c" * 47)


def test_a_gate_among_further_values_is_refused() -> None:
    """Node pools would be validated as if it were off."""
    with pytest.raises(ValueError, match="use the argument feature_gates"):
        karpenter(values={"settings": {"featureGates": {"nodeOverlay": True}}})
