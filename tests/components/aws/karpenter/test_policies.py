"""What Karpenter may and may not do: verdicts on the calls of its own source, v1.14.1, and on calls it must not make.

The verdicts are an evaluator's (tests/iam.py), not AWS's: nothing here has been asked of an account.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpufleet.aws.karpenter.policies import (
    Scope,
    as_text,
    controller_policies,
    node_trust,
    pod_identity_trust,
    queue_policy,
    web_identity_trust,
)
from tests.iam import Request, Values, allowed

CI = Scope(cluster="ci", region="eu-west-1", account="111122223333", partition="aws")
POLICIES = controller_policies(CI)

STATEMENTS: dict[str, dict[str, list[str]]] = {
    "NodeLifecycle": {
        "AllowScopedEC2InstanceAccessActions": ["ec2:RunInstances", "ec2:CreateFleet"],
        "AllowScopedEC2LaunchTemplateAccessActions": ["ec2:RunInstances", "ec2:CreateFleet"],
        "AllowScopedEC2InstanceActionsWithTags": ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
        "AllowScopedResourceCreationTagging": ["ec2:CreateTags"],
        "AllowScopedResourceTagging": ["ec2:CreateTags"],
        "AllowScopedDeletion": ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
    },
    "IAMIntegration": {
        "AllowPassingInstanceRole": ["iam:PassRole"],
        "AllowScopedInstanceProfileCreationActions": ["iam:CreateInstanceProfile"],
        "AllowScopedInstanceProfileTagActions": ["iam:TagInstanceProfile"],
        "AllowScopedInstanceProfileActions": [
            "iam:AddRoleToInstanceProfile",
            "iam:RemoveRoleFromInstanceProfile",
            "iam:DeleteInstanceProfile",
        ],
    },
    "EKSIntegration": {"AllowAPIServerEndpointDiscovery": ["eks:DescribeCluster"]},
    "Interruption": {
        "AllowInterruptionQueueActions": ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
    },
    "ZonalShift": {"AllowZonalShiftStatusReadOnly": ["arc-zonal-shift:GetManagedResource"]},
    "ResourceDiscovery": {
        "AllowRegionalReadActions": [
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstances",
            "ec2:DescribeInstanceStatus",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribePlacementGroups",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSpotPriceHistory",
            "ec2:DescribeSubnets",
        ],
        "AllowSSMReadActions": ["ssm:GetParameter"],
        "AllowPricingReadActions": ["pricing:GetProducts"],
        "AllowUnscopedInstanceProfileListAction": ["iam:ListInstanceProfiles"],
        "AllowInstanceProfileReadActions": ["iam:GetInstanceProfile"],
    },
}
"""Statements and their actions, copied by hand from website/content/en/docs/getting-started/
getting-started-with-karpenter/cloudformation.yaml of aws/karpenter-provider-aws at v1.14.1."""


def actions(statement: dict[str, Any]) -> list[str]:
    given = statement["Action"]
    return [given] if isinstance(given, str) else given


def test_statements_and_actions_are_those_of_karpenters_template() -> None:
    found = {
        part: {statement["Sid"]: actions(statement) for statement in policy["Statement"]}
        for part, policy in POLICIES.items()
    }
    assert found == STATEMENTS
    assert sum(map(len, found.values())) == 18


@pytest.mark.parametrize("part", STATEMENTS)
def test_a_policy_is_short_enough_for_iam(part: str) -> None:
    """With the longest names that there are: 46 characters of a cluster, and the longest region and partition."""
    longest = Scope(cluster="c" * 46, region="ap-southeast-1", account="1" * 12, partition="aws-us-gov")
    assert len(as_text(controller_policies(longest)[part])) < 6144


def test_without_a_queue_there_is_no_leave_to_read_it() -> None:
    assert controller_policies(CI, interruption_queue=False).keys() == POLICIES.keys() - {"Interruption"}


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_every_arn_is_of_the_partition(partition: Any) -> None:
    scope = Scope(cluster="ci", region="r", account="111122223333", partition=partition)
    texts = json.dumps([*controller_policies(scope).values(), queue_policy(scope)]).split('"')
    arns = [text for text in texts if text.startswith("arn:")]
    assert arns
    assert {arn.split(":")[1] for arn in arns} == {partition}


# -- calls of the controller ------------------------------------------------------------------------------------------


def ec2(kind: str, *, account: str = "111122223333", region: str = "eu-west-1") -> str:
    return f"arn:aws:ec2:{region}:{account}:{kind}/one"


def iam(resource: str) -> str:
    return f"arn:aws:iam::111122223333:{resource}"


PROFILE = iam("instance-profile/karpenter/eu-west-1/ci/uid/ci_1")
NODE_ROLE = iam("role/KarpenterNodeRole-ci")
CLUSTER = "arn:aws:eks:eu-west-1:111122223333:cluster/ci"
QUEUE = "arn:aws:sqs:eu-west-1:111122223333:ci"
PARAMETER = "arn:aws:ssm:eu-west-1::parameter/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/image_id"

HERE = {"aws:RequestedRegion": "eu-west-1"}
NEW = {
    "aws:RequestTag/kubernetes.io/cluster/ci": "owned",
    "aws:RequestTag/eks:eks-cluster-name": "ci",
    "aws:RequestTag/karpenter.sh/nodepool": "gpu",
}
"""Tags of everything that starts with an instance (GetTags in pkg/utils/utils.go)."""
OURS = {"aws:ResourceTag/kubernetes.io/cluster/ci": "owned", "aws:ResourceTag/karpenter.sh/nodepool": "gpu"}
LATE = {"aws:RequestTag/eks:eks-cluster-name": "ci", "aws:TagKeys": ["Name", "karpenter.sh/nodeclaim"]}
NEW_PROFILE = {
    "aws:RequestTag/kubernetes.io/cluster/ci": "owned",
    "aws:RequestTag/eks:eks-cluster-name": "ci",
    "aws:RequestTag/topology.kubernetes.io/region": "eu-west-1",
    "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": "gpu",
}
"""InstanceProfileTags in pkg/apis/v1/ec2nodeclass.go."""
OUR_PROFILE = {
    "aws:ResourceTag/kubernetes.io/cluster/ci": "owned",
    "aws:ResourceTag/topology.kubernetes.io/region": "eu-west-1",
    "aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass": "gpu",
}

Call = tuple[str, str, dict[str, Values]]

STARTED = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")


def calls() -> Iterator[tuple[str, Call]]:
    """What Karpenter asks of AWS, by the line that asks."""
    # A fleet, and the dry run of a single instance by which a node class is validated.
    starting = {
        "pkg/batcher/createfleet.go:61": "ec2:CreateFleet",
        "pkg/controllers/nodeclass/validation.go:309": "ec2:RunInstances",
    }
    for line, action in starting.items():
        for kind in ("image", "snapshot"):
            yield line, (action, ec2(kind, account=""), {})
        for kind in ("security-group", "subnet", "capacity-reservation", "placement-group"):
            yield line, (action, ec2(kind), {})
            yield line, (action, ec2(kind, account="444455556666"), {})
        yield line, (action, ec2("launch-template"), OURS)
        for kind in STARTED:
            yield line, (action, ec2(kind), NEW)
            # pkg/providers/instance/types.go:171 and pkg/controllers/nodeclass/validation.go:394
            yield line, ("ec2:CreateTags", ec2(kind), NEW | {"ec2:CreateAction": action.removeprefix("ec2:")})
        yield line, ("iam:PassRole", NODE_ROLE, {"iam:PassedToService": "ec2.amazonaws.com"})
    template = "pkg/providers/launchtemplate/launchtemplate.go:291"
    yield template, ("ec2:CreateLaunchTemplate", ec2("launch-template"), NEW)
    tags = NEW | {"ec2:CreateAction": "CreateLaunchTemplate"}
    yield template, ("ec2:CreateTags", ec2("launch-template"), tags)
    yield (
        "pkg/providers/launchtemplate/launchtemplate.go:482",
        ("ec2:DeleteLaunchTemplate", ec2("launch-template"), OURS),
    )
    yield "pkg/batcher/terminateinstances.go:71", ("ec2:TerminateInstances", ec2("instance"), OURS)
    yield "pkg/providers/instance/instance.go:308", ("ec2:CreateTags", ec2("instance"), OURS | LATE)
    yield from profile_calls()
    yield from queue_and_cluster_calls()
    yield from reads()


def profile_calls() -> Iterator[tuple[str, Call]]:
    file = "pkg/providers/instanceprofile/instanceprofile.go"
    yield f"{file}:85", ("iam:GetInstanceProfile", PROFILE, {})
    yield f"{file}:122", ("iam:CreateInstanceProfile", PROFILE, NEW_PROFILE)
    # Nothing in the source calls it by itself; the template grants it beside the making of a profile with tags.
    yield f"{file}:122", ("iam:TagInstanceProfile", PROFILE, NEW_PROFILE | OUR_PROFILE)
    yield f"{file}:156", ("iam:RemoveRoleFromInstanceProfile", PROFILE, OUR_PROFILE)
    yield f"{file}:171", ("iam:AddRoleToInstanceProfile", PROFILE, OUR_PROFILE)
    yield f"{file}:171", ("iam:PassRole", NODE_ROLE, {"iam:PassedToService": "ec2.amazonaws.com"})
    yield f"{file}:206", ("iam:DeleteInstanceProfile", PROFILE, OUR_PROFILE)
    yield f"{file}:221", ("iam:ListInstanceProfiles", "*", {})


def queue_and_cluster_calls() -> Iterator[tuple[str, Call]]:
    yield "pkg/providers/sqs/sqs.go:71", ("sqs:ReceiveMessage", QUEUE, {})
    yield "pkg/providers/sqs/sqs.go:101", ("sqs:DeleteMessage", QUEUE, {})
    yield "pkg/providers/sqs/sqs.go:108", ("sqs:GetQueueUrl", QUEUE, {})
    yield "pkg/providers/version/version.go:132", ("eks:DescribeCluster", CLUSTER, {})
    shift = {"arc-zonal-shift:ResourceIdentifier": CLUSTER}
    yield "pkg/providers/arczonalshift/arczonalshift.go:66", ("arc-zonal-shift:GetManagedResource", CLUSTER, shift)


def reads() -> Iterator[tuple[str, Call]]:
    lines = {
        "amifamily/ami.go:186": "ec2:DescribeImages",
        "capacityreservation/provider.go:81": "ec2:DescribeCapacityReservations",
        "instance/instance.go:222": "ec2:DescribeInstances",
        "instancestatus/instancestatus.go:99": "ec2:DescribeInstanceStatus",
        "instancetype/instancetype.go:268": "ec2:DescribeInstanceTypes",
        "instancetype/instancetype.go:314": "ec2:DescribeInstanceTypeOfferings",
        "launchtemplate/launchtemplate.go:254": "ec2:DescribeLaunchTemplates",
        "placementgroup/provider.go:80": "ec2:DescribePlacementGroups",
        "pricing/pricing.go:405": "ec2:DescribeSpotPriceHistory",
        "securitygroup/securitygroup.go:83": "ec2:DescribeSecurityGroups",
        "subnet/subnet.go:97": "ec2:DescribeSubnets",
    }
    for line, action in lines.items():
        yield f"pkg/providers/{line}", (action, "*", HERE)
    # Prices are asked of us-east-1, eu-central-1, ap-south-1 or cn-northwest-1, wherever the cluster is.
    yield "pkg/providers/pricing/pricing.go:300", ("pricing:GetProducts", "*", {"aws:RequestedRegion": "eu-central-1"})
    yield "pkg/providers/ssm/provider.go:53", ("ssm:GetParameter", PARAMETER, {})


CALLS = list(calls())

OTHER_CLUSTER = {"aws:ResourceTag/kubernetes.io/cluster/other": "owned", "aws:ResourceTag/karpenter.sh/nodepool": "gpu"}

FORBIDDEN: dict[str, Call] = {
    "end an instance of another cluster": ("ec2:TerminateInstances", ec2("instance"), OTHER_CLUSTER),
    "end a node of the system node group": (
        "ec2:TerminateInstances",
        ec2("instance"),
        {"aws:ResourceTag/kubernetes.io/cluster/ci": "owned"},
    ),
    "end an instance of another region": ("ec2:TerminateInstances", ec2("instance", region="eu-west-2"), OURS),
    "end anything but an instance": ("ec2:TerminateInstances", ec2("volume"), OURS),
    "start an instance from a template that is not its own": (
        "ec2:RunInstances",
        ec2("launch-template"),
        OTHER_CLUSTER,
    ),
    "start an instance of another cluster": (
        "ec2:RunInstances",
        ec2("instance"),
        NEW | {"aws:RequestTag/eks:eks-cluster-name": "other"},
    ),
    "take over an instance by tagging it": ("ec2:CreateTags", ec2("instance"), NEW),
    "take over an instance by tagging it when another call begins": (
        "ec2:CreateTags",
        ec2("instance"),
        NEW | {"ec2:CreateAction": "CreateVolume"},
    ),
    "move its own instance to another pool": (
        "ec2:CreateTags",
        ec2("instance"),
        OURS | {"aws:TagKeys": ["karpenter.sh/nodepool"]},
    ),
    "give its own instance to another cluster": (
        "ec2:CreateTags",
        ec2("instance"),
        OURS | LATE | {"aws:RequestTag/eks:eks-cluster-name": "other"},
    ),
    "tag a subnet": ("ec2:CreateTags", ec2("subnet"), OURS | LATE),
    "pass another role": ("iam:PassRole", iam("role/admin"), {"iam:PassedToService": "ec2.amazonaws.com"}),
    "pass the node role to another service": (
        "iam:PassRole",
        NODE_ROLE,
        {"iam:PassedToService": "lambda.amazonaws.com"},
    ),
    "add a role to a profile of another region's cluster": (
        "iam:AddRoleToInstanceProfile",
        PROFILE,
        OUR_PROFILE | {"aws:ResourceTag/topology.kubernetes.io/region": "eu-west-2"},
    ),
    "adopt a profile by tagging it": ("iam:TagInstanceProfile", PROFILE, NEW_PROFILE),
    "make a role": ("iam:CreateRole", iam("role/new"), {}),
    "attach a policy to its own role": ("iam:AttachRolePolicy", iam("role/ci-karpenter"), {}),
    "take another cluster's events": ("sqs:ReceiveMessage", QUEUE.replace(":ci", ":other"), {}),
    "send an event": ("sqs:SendMessage", QUEUE, {}),
    "empty the queue": ("sqs:PurgeQueue", QUEUE, {}),
    "describe another cluster": ("eks:DescribeCluster", CLUSTER.replace("/ci", "/other"), {}),
    "change the cluster": ("eks:UpdateClusterConfig", CLUSTER, {}),
    "ask of another cluster's zones": (
        "arc-zonal-shift:GetManagedResource",
        "*",
        {"arc-zonal-shift:ResourceIdentifier": CLUSTER.replace("/ci", "/other")},
    ),
    "shift a zone": ("arc-zonal-shift:StartZonalShift", CLUSTER, {"arc-zonal-shift:ResourceIdentifier": CLUSTER}),
    "read another region": ("ec2:DescribeInstances", "*", {"aws:RequestedRegion": "eu-west-2"}),
    "read the account's own parameters": (
        "ssm:GetParameter",
        "arn:aws:ssm:eu-west-1:111122223333:parameter/secret",
        {},
    ),
    "delete a subnet": ("ec2:DeleteSubnet", ec2("subnet"), OURS),
}


def may(call: Call, policies: dict[str, dict[str, Any]] = POLICIES) -> bool:
    action, resource, context = call
    return allowed(policies.values(), Request(action=action, resource=resource, context=context))


@pytest.mark.parametrize(("line", "call"), CALLS, ids=[f"{call[0]} {line}" for line, call in CALLS])
def test_karpenter_may_what_its_source_does(line: str, call: Call) -> None:
    assert may(call), line


@pytest.mark.parametrize("call", FORBIDDEN.values(), ids=list(FORBIDDEN))
def test_karpenter_may_not(call: Call) -> None:
    assert not may(call)


def test_everything_granted_is_called() -> None:
    """Otherwise the table above would be short of a line, or the policies longer than they need to be."""
    granted = {action for policy in STATEMENTS.values() for given in policy.values() for action in given}
    assert granted == {call[0] for _, call in CALLS}


# -- whether these tables would notice --------------------------------------------------------------------------------


def without_a_key() -> list[Call]:
    """Each call that has to say more than its action and resource, with one key of what it says left out. Tags that an
    instance is given late may each be left out, and prices are nobody's."""
    return [
        (action, resource, {key: value for key, value in context.items() if key != left_out})
        for _, (action, resource, context) in CALLS
        for left_out in context
        if action != "pricing:GetProducts" and not ("aws:TagKeys" in context and left_out in LATE)
    ]


def test_no_call_may_leave_out_a_tag_or_its_region() -> None:
    assert [call for call in without_a_key() if may(call)] == []


DENIED = [*FORBIDDEN.values(), *without_a_key()]


def noticed(policies: dict[str, dict[str, Any]]) -> bool:
    return not all(may(call, policies) for _, call in CALLS) or any(may(call, policies) for call in DENIED)


def statements(policies: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {statement["Sid"]: statement for policy in policies.values() for statement in policy["Statement"]}


def test_nothing_is_noticed_in_the_policies_themselves() -> None:
    assert not noticed(POLICIES)


@pytest.mark.parametrize(
    ("sid", "action"), [(sid, action) for sid, found in statements(POLICIES).items() for action in actions(found)]
)
def test_a_lost_action_is_noticed(sid: str, action: str) -> None:
    mutant = copy.deepcopy(POLICIES)
    statement = statements(mutant)[sid]
    statement["Action"] = [other for other in actions(statement) if other != action]
    assert noticed(mutant)


@pytest.mark.parametrize(
    ("sid", "operator", "key"),
    [
        (sid, operator, key)
        for sid, statement in statements(POLICIES).items()
        for operator, test in statement.get("Condition", {}).items()
        for key in test
    ],
)
def test_a_lost_condition_is_noticed(sid: str, operator: str, key: str) -> None:
    mutant = copy.deepcopy(POLICIES)
    del statements(mutant)[sid]["Condition"][operator][key]
    assert noticed(mutant)


@pytest.mark.parametrize(
    ("sid", "arn"),
    [
        (sid, arn)
        for sid, statement in statements(POLICIES).items()
        for arn in ([statement["Resource"]] if isinstance(statement["Resource"], str) else statement["Resource"])
    ],
)
def test_a_lost_resource_is_noticed(sid: str, arn: str) -> None:
    mutant = copy.deepcopy(POLICIES)
    statement = statements(mutant)[sid]
    given = statement["Resource"]
    statement["Resource"] = [other for other in ([given] if isinstance(given, str) else given) if other != arn]
    assert noticed(mutant)


# -- trust ------------------------------------------------------------------------------------------------------------

PODS = ("Service", "pods.eks.amazonaws.com")
EC2 = ("Service", "ec2.amazonaws.com")
PROVIDER = "arn:aws:iam::111122223333:oidc-provider/oidc.example/id/1"
ISSUER = "oidc.example/id/1"
TOKEN = {f"{ISSUER}:sub": "system:serviceaccount:kube-system:karpenter", f"{ISSUER}:aud": "sts.amazonaws.com"}


@pytest.mark.parametrize(
    ("action", "principal", "verdict"),
    [
        ("sts:AssumeRole", PODS, True),
        ("sts:TagSession", PODS, True),
        ("sts:AssumeRole", EC2, False),
        ("sts:AssumeRole", ("AWS", "arn:aws:iam::111122223333:root"), False),
        ("sts:AssumeRoleWithWebIdentity", PODS, False),
    ],
)
def test_trust_in_pod_identity(action: str, principal: tuple[str, str], verdict: bool) -> None:
    assert allowed([pod_identity_trust()], Request(action=action, principal=principal)) is verdict


@pytest.mark.parametrize("url", [f"https://{ISSUER}", ISSUER])
@pytest.mark.parametrize(
    ("action", "principal", "context", "verdict"),
    [
        ("sts:AssumeRoleWithWebIdentity", PROVIDER, TOKEN, True),
        ("sts:AssumeRoleWithWebIdentity", f"{PROVIDER}0", TOKEN, False),
        ("sts:AssumeRole", PROVIDER, TOKEN, False),
        ("sts:AssumeRoleWithWebIdentity", PROVIDER, {}, False),
        (
            "sts:AssumeRoleWithWebIdentity",
            PROVIDER,
            TOKEN | {f"{ISSUER}:sub": "system:serviceaccount:runners:default"},
            False,
        ),
        ("sts:AssumeRoleWithWebIdentity", PROVIDER, TOKEN | {f"{ISSUER}:aud": "vault"}, False),
    ],
)
def test_trust_in_a_service_accounts_token(
    url: str, action: str, principal: str, context: dict[str, Values], verdict: bool
) -> None:
    trust = web_identity_trust(PROVIDER, url, "kube-system", "karpenter")
    assert allowed([trust], Request(action=action, principal=("Federated", principal), context=context)) is verdict


@pytest.mark.parametrize(
    ("partition", "service", "verdict"),
    [
        ("aws", "ec2.amazonaws.com", True),
        ("aws-us-gov", "ec2.amazonaws.com", True),
        ("aws-cn", "ec2.amazonaws.com.cn", True),
        ("aws", "pods.eks.amazonaws.com", False),
        ("aws", "ec2.amazonaws.com.cn", False),
    ],
)
def test_trust_in_nodes(partition: Any, service: str, verdict: bool) -> None:
    trust = node_trust(Scope(cluster="ci", region="r", account="1", partition=partition))
    assert allowed([trust], Request(action="sts:AssumeRole", principal=("Service", service))) is verdict


# -- the queue --------------------------------------------------------------------------------------------------------

EVENTS = ("Service", "events.amazonaws.com")
ENCRYPTED, PLAIN = {"aws:SecureTransport": "true"}, {"aws:SecureTransport": "false"}


@pytest.mark.parametrize(
    ("action", "principal", "context", "verdict"),
    [
        ("sqs:SendMessage", EVENTS, ENCRYPTED, True),
        ("sqs:SendMessage", ("Service", "sqs.amazonaws.com"), ENCRYPTED, True),
        ("sqs:SendMessage", EVENTS, PLAIN, False),
        ("sqs:SendMessage", ("Service", "sns.amazonaws.com"), ENCRYPTED, False),
        ("sqs:SendMessage", ("AWS", "arn:aws:iam::444455556666:root"), ENCRYPTED, False),
        ("sqs:ReceiveMessage", EVENTS, ENCRYPTED, False),
        ("sqs:DeleteQueue", EVENTS, ENCRYPTED, False),
    ],
)
def test_who_may_use_the_queue(
    action: str, principal: tuple[str, str], context: dict[str, Values], verdict: bool
) -> None:
    request = Request(action=action, resource=QUEUE, principal=principal, context=context)
    assert allowed([queue_policy(CI)], request) is verdict


@pytest.mark.parametrize("action", ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:SendMessage"])
def test_nobody_uses_the_queue_in_plain_text(action: str) -> None:
    """Not even who may by a policy of their own."""
    everything = {"Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}
    for context, verdict in ((ENCRYPTED, True), (PLAIN, False)):
        request = Request(action=action, resource=QUEUE, principal=("AWS", "anyone"), context=context)
        assert allowed([queue_policy(CI), everything], request) is verdict


def test_the_policy_is_about_this_queue_alone() -> None:
    request = Request(action="sqs:SendMessage", resource=f"{QUEUE}-2", principal=EVENTS, context=ENCRYPTED)
    assert not allowed([queue_policy(CI)], request)
