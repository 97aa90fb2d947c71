"""What changed inputs do: the tables, and where AWS's comes from."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from gpufleet_tools.diff import replacement
from gpufleet_tools.diff.replacement import Judgement, changed, judged, written
from tests.conftest import Generated

# -- what AWS cannot change -------------------------------------------------------------------------------------------

TYPES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "cloudwatch.EventRule": ("AWS::Events::Rule", {}),
    "ec2.Eip": ("AWS::EC2::EIP", {"publicIpv4Pool": "PublicIpv4Pool"}),
    "ec2.InternetGateway": ("AWS::EC2::InternetGateway", {}),
    "ec2.NatGateway": ("AWS::EC2::NatGateway", {"privateIp": "PrivateIpAddress"}),
    "ec2.RouteTable": ("AWS::EC2::RouteTable", {}),
    "ec2.SecurityGroup": ("AWS::EC2::SecurityGroup", {"name": "GroupName", "description": "GroupDescription"}),
    "ec2.Subnet": ("AWS::EC2::Subnet", {}),
    "ec2.Vpc": ("AWS::EC2::VPC", {}),
    "eks.AccessEntry": ("AWS::EKS::AccessEntry", {"userName": "Username"}),
    "eks.Addon": ("AWS::EKS::Addon", {}),
    "eks.Cluster": ("AWS::EKS::Cluster", {"vpcConfig": "ResourcesVpcConfig"}),
    "eks.NodeGroup": (
        "AWS::EKS::Nodegroup",
        {"nodeGroupName": "NodegroupName", "nodeRoleArn": "NodeRole", "subnetIds": "Subnets"},
    ),
    "eks.PodIdentityAssociation": ("AWS::EKS::PodIdentityAssociation", {}),
    "iam.InstanceProfile": ("AWS::IAM::InstanceProfile", {"name": "InstanceProfileName"}),
    "iam.OpenIdConnectProvider": (
        "AWS::IAM::OIDCProvider",
        {"clientIdLists": "ClientIdList", "thumbprintLists": "ThumbprintList"},
    ),
    "iam.Policy": ("AWS::IAM::ManagedPolicy", {"name": "ManagedPolicyName", "policy": "PolicyDocument"}),
    "iam.Role": ("AWS::IAM::Role", {"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"}),
    "iam.ServiceLinkedRole": ("AWS::IAM::ServiceLinkedRole", {"awsServiceName": "AWSServiceName"}),
    "sqs.Queue": (
        "AWS::SQS::Queue",
        {
            "name": "QueueName",
            "messageRetentionSeconds": "MessageRetentionPeriod",
            "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
            "visibilityTimeoutSeconds": "VisibilityTimeout",
            "maxMessageSize": "MaximumMessageSize",
            "sqsManagedSseEnabled": "SqsManagedSseEnabled",
        },
    ),
    "sqs.QueuePolicy": ("AWS::SQS::QueuePolicy", {"policy": "PolicyDocument"}),
}
"""Classes of the AWS SDK, each with its CloudFormation type and with inputs that have another name there."""

# Found without an import, which takes half a second.
SCHEMAS = pathlib.Path(str(importlib.util.find_spec("cfnlint").origin)).parent / "data/schemas"  # type: ignore[union-attr]


def schema(kind: str) -> dict[str, Any]:
    """The CloudFormation schema of a type, as cfn-lint ships it."""
    file = json.loads((SCHEMAS / "providers/us-east-1.json").read_text())[kind]
    found: dict[str, Any] = json.loads((SCHEMAS / f"resources/{file}.json").read_text())
    return found


def inputs(path: str) -> tuple[str, list[str]]:
    """Type token and inputs of a class of the AWS SDK."""
    module, name = path.split(".")
    with warnings.catch_warnings():
        # The SDK warns of its own deprecated classes as soon as their module is imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        package = importlib.import_module(f"pulumi_aws.{module}")
        token, arguments = getattr(package, name).pulumi_type, getattr(package, f"{name}Args").__init__
    return token, sorted(
        to_camel(argument) for argument in inspect.signature(arguments).parameters if argument != "self"
    )


def weighed(path: str) -> tuple[str, dict[str, Any]]:
    """Which inputs of a class replace its resource, and which update it; what is in neither list, nobody knows."""
    kind, other_names = TYPES[path]
    token, names = inputs(path)
    assert other_names.keys() <= set(names), f"{path} has no inputs {other_names.keys() - set(names)}"
    found = schema(kind)
    only = {each.removeprefix("/properties/") for each in found.get("createOnlyProperties", [])}
    unsure = {each.removeprefix("/properties/") for each in found.get("conditionalCreateOnlyProperties", [])}
    # Of a property that is create-only in part, its change alone does not tell.
    unsure |= {each.split("/")[0] for each in only if "/" in each}
    there = {name: other_names.get(name, name[0].upper() + name[1:]) for name in names}
    known = {name: there[name] for name in names if there[name] in found["properties"]}
    return token, {
        "cloudFormation": kind,
        "replace": [name for name, other in known.items() if other in only],
        "update": [name for name, other in known.items() if other not in only | unsure],
    }


@pytest.mark.generated
def test_the_table_of_aws_is_current(generated: Generated) -> None:
    date = json.loads((SCHEMAS / "version.json").read_text())["schema_date"]
    table = {"source": f"CloudFormation schemas of {date[:10]}, as cfn-lint ships them"}
    text = json.dumps(table | {"types": dict(weighed(path) for path in TYPES)}, indent=2)
    generated(replacement._AWS_DATA, f"{text}\n")


def test_every_other_name_is_a_property() -> None:
    for path, (kind, other_names) in TYPES.items():
        assert set(other_names.values()) <= schema(kind)["properties"].keys(), path


CREATE_ONLY, MAYBE, UNKNOWN = "is create-only", "AWS can change", "the effect of changing"


@pytest.mark.parametrize(
    ("token", "name", "verdict", "says"),
    [
        ("aws:iam/role:Role", "name", "replace", CREATE_ONLY),
        ("aws:iam/role:Role", "assumeRolePolicy", "unknown", MAYBE),
        ("aws:iam/role:Role", "namePrefix", "unknown", UNKNOWN),
        ("aws:iam/role:Role", "tags", "update", ""),
        ("aws:iam/policy:Policy", "description", "replace", CREATE_ONLY),
        ("aws:sqs/queue:Queue", "messageRetentionSeconds", "unknown", MAYBE),
        ("aws:eks/cluster:Cluster", "version", "unknown", MAYBE),
        ("aws:eks/cluster:Cluster", "roleArn", "replace", CREATE_ONLY),
        ("aws:eks/cluster:Cluster", "accessConfig", "unknown", UNKNOWN),
        ("aws:ec2/vpc:Vpc", "instanceTenancy", "unknown", UNKNOWN),
        ("aws:ec2/subnet:Subnet", "cidrBlock", "replace", CREATE_ONLY),
        ("aws:s3/bucket:Bucket", "bucket", "unknown", UNKNOWN),
    ],
)
def test_aws(token: str, name: str, verdict: str, says: str) -> None:
    found = judged(token, {name: "a", "other": 1}, {name: "b", "other": 1})
    assert found.verdict == verdict
    assert all(says in reason and name in reason for reason in found.reasons)
    assert len(found.reasons) == (verdict != "update")


def test_one_create_only_input_is_enough() -> None:
    found = judged("aws:iam/role:Role", {"name": "a", "tags": {}}, {"name": "b", "tags": {"x": "y"}})
    assert found == Judgement("replace", ("name is create-only",))


# -- Kubernetes -------------------------------------------------------------------------------------------------------


def the(kind: str, name: str | None = "one", **body: Any) -> dict[str, Any]:
    metadata = {"namespace": "n"} | ({"name": name} if name else {"generateName": "one-"})
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **body}


FIRST = "deleted first, because it keeps its name"
LATER = "deleted after its replacement is created"


def cannot(path: str, order: str = FIRST) -> Judgement:
    return Judgement("replace", (f"{path} cannot be changed in place", order))


SET = {"selector": {"matchLabels": {"app": "one"}}, "template": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}


@pytest.mark.parametrize(
    ("token", "before", "after", "expected"),
    [
        ("core/v1:ConfigMap", the("ConfigMap", data={"a": "1"}), the("ConfigMap", data={"a": "2"}), cannot("data.a")),
        (
            "core/v1:ConfigMap",
            the("ConfigMap", None, data={"a": "1"}),
            the("ConfigMap", None, data={"a": "2"}),
            cannot("data.a", LATER),
        ),
        ("core/v1:Namespace", the("Namespace"), the("Namespace", "two"), cannot("metadata.name", LATER)),
        (
            "core/v1:Secret",
            the("Secret", data={"a": "<secret:1>"}),
            the("Secret", data={"a": "<secret:2>"}),
            cannot("data.a"),
        ),
        ("core/v1:Secret", the("Secret", type="Opaque"), the("Secret", type="x"), cannot("type")),
        (
            "apps/v1:DaemonSet",
            the("DaemonSet", spec=SET),
            the("DaemonSet", spec=SET | {"selector": {"matchLabels": {"app": "two"}}}),
            cannot("spec.selector.matchLabels.app"),
        ),
        (
            "apps/v1:DaemonSet",
            the("DaemonSet", spec=SET),
            the("DaemonSet", spec=SET | {"template": {}}),
            Judgement("update"),
        ),
        (
            "batch/v1:Job",
            the("Job", spec=SET),
            the("Job", spec=SET | {"template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}),
            cannot("spec.template.spec.containers[0].image"),
        ),
        (
            "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
            the("ClusterRoleBinding", roleRef={"name": "a"}),
            the("ClusterRoleBinding", roleRef={"name": "b"}),
            cannot("roleRef.name"),
        ),
        (
            "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
            the("ClusterRoleBinding", subjects=[{"name": "a"}]),
            the("ClusterRoleBinding", subjects=[{"name": "b"}]),
            Judgement("update"),
        ),
        (
            "node.k8s.io/v1:RuntimeClass",
            the("RuntimeClass", handler="nvidia"),
            the("RuntimeClass", handler="runc"),
            Judgement("refused", ("handler is immutable",)),
        ),
        (
            "karpenter.sh/v1:NodePool",
            the("NodePool", spec={"limits": {"cpu": 1}}),
            the("NodePool", spec={"limits": {"cpu": 2}}),
            Judgement("update"),
        ),
    ],
)
def test_objects(token: str, before: dict[str, Any], after: dict[str, Any], expected: Judgement) -> None:
    assert judged(f"kubernetes:{token}", before, after) == expected


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_content_that_the_provider_may_change(kind: str) -> None:
    provider = {f"enable{kind}Mutable": "true"}
    before, after = the(kind, data={"a": "1"}), the(kind, data={"a": "2"})
    assert judged(f"kubernetes:core/v1:{kind}", before, after, provider) == Judgement("update")
    sealed = after | {"immutable": True}
    assert judged(f"kubernetes:core/v1:{kind}", before, sealed, provider).verdict == "replace"


RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("name", "replace"), ("namespace", "replace"), ("version", "update"), ("chart", "update"), ("values", "update")],
)
def test_releases(name: str, verdict: str) -> None:
    before = {"name": "a", "namespace": "a", "version": "1", "chart": "a", "values": {"name": "a"}}
    assert judged(RELEASE, before, before | {name: {"name": "b"} if name == "values" else "b"}).verdict == verdict


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ({"clusterIdentifier": "a", "context": "x"}, {"clusterIdentifier": "a", "context": "y"}, "update"),
        ({"clusterIdentifier": "a"}, {"clusterIdentifier": "b"}, "replace"),
        ({"context": "x"}, {"context": "y"}, "unknown"),
        ({"context": "x"}, {"context": "x", "clusterIdentifier": "a"}, "update"),
        ({"context": "x"}, {"context": "y", "clusterIdentifier": "a"}, "unknown"),
        ({"context": "x"}, {"context": "x", "namespace": "n"}, "update"),
    ],
)
def test_providers_of_clusters(before: dict[str, Any], after: dict[str, Any], verdict: str) -> None:
    assert judged("pulumi:providers:kubernetes", before, after).verdict == verdict


def test_commands_run_again_by_their_triggers() -> None:
    before = {"create": "true", "triggers": ["a"]}
    assert judged("command:remote:Command", before, before | {"triggers": ["b"]}).verdict == "replace"
    assert judged("command:remote:Command", before, before | {"create": "false"}).verdict == "update"


@pytest.mark.parametrize(
    "token", ["pulumi:providers:aws", "eks:index:Cluster", "random:index:Id", "kubernetes:core/v1:Pod"]
)
def test_what_no_table_has_is_never_an_update(token: str) -> None:
    assert (
        judged(token, {"kind": "Pod", "metadata": {}, "a": 1}, {"kind": "Pod", "metadata": {}, "a": 2}).verdict
        == "unknown"
    )


# -- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3, 4]}}, ["a.b[1]", "a.b[2]"]),
        ({"a": {"b": {"c": 1, "d": 2}}}, {}, ["a.b.c", "a.b.d"]),
        ({}, {"a": {}}, ["a"]),
        ({"a": [1]}, {"a": {"b": 1}}, ["a"]),
        ({"amd.com/gpu": 1}, {"amd.com/gpu": 2}, ['["amd.com/gpu"]']),
    ],
)
def test_changed_paths(before: Any, after: Any, paths: list[str]) -> None:
    assert [written(path) for path in changed(before, after)] == paths


trees = st.recursive(
    st.integers(0, 2) | st.booleans() | st.sampled_from(["x", "y"]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)


def same(one: Any, two: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


@given(trees, trees)
def test_nothing_changed_is_equality(one: Any, two: Any) -> None:
    assert (not changed({"r": one}, {"r": two})) == same(one, two)


EKS_CLUSTER = {"name": "gpu", "version": "1.34", "publicAccessCidrs": ["203.0.113.0/24"], "vpcId": "vpc-1"}


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        (
            {"version": "1.35"},
            "update",
            "Kubernetes 1.34 → 1.35: EKS upgrades one minor version at a time and cannot downgrade",
        ),
        ({"publicAccessCidrs": ["0.0.0.0/0"]}, "update", ""),
        ({"name": "other"}, "replace", "name is create-only; the cluster is replaced"),
        ({"name": "other", "vpcId": "vpc-2"}, "replace", "name is create-only; the cluster is replaced"),
        ({"vpcId": "vpc-2", "version": "1.35"}, "unknown", "the effect of changing vpcId depends on its provider"),
    ],
)
def test_a_cluster_of_eks(change: dict[str, Any], verdict: str, reason: str) -> None:
    found = judged("eks:index:Cluster", EKS_CLUSTER, {**EKS_CLUSTER, **change})
    assert (found.verdict, ", ".join(found.reasons)) == (verdict, reason)
