"""The checks of API calls themselves: what is taken over from botocore, and what is added to it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.validate import ParamValidator

from gpufleet_tools.plan.plan import Plan
from tests.aws.api_calls import api_calls, beyond, operation

ENTRY = {"clusterName": "ci", "principalArn": "arn:aws:iam::111122223333:role/nodes"}
GROUP = {"clusterName": "ci", "nodegroupName": "n", "subnets": ["subnet-1"], "nodeRole": "arn"}


@pytest.mark.parametrize(
    ("call", "parameters", "problem"),
    [
        ("eks.CreateNodegroup", GROUP | {"amiType": "AL2"}, "input.amiType: 'AL2' is none of"),
        ("eks.CreateNodegroup", GROUP | {"taints": [{"effect": "no"}]}, "input.taints[0].effect: 'no' is none of"),
        (
            "iam.CreateRole",
            {"RoleName": "n" * 65, "AssumeRolePolicyDocument": "{}"},
            "input.RoleName: 65 is more than 64",
        ),
        (
            "iam.CreateRole",
            {"RoleName": "a b", "AssumeRolePolicyDocument": "{}"},
            "input.RoleName: 'a b' does not match",
        ),
        ("eks.CreateAccessEntry", ENTRY | {"tags": {"k" * 129: ""}}, "input.tags key: 129 is more than 128"),
    ],
)
def test_botocore_lets_pass_what_is_found_here(call: str, parameters: dict[str, Any], problem: str) -> None:
    shape = operation(call).input_shape
    assert not ParamValidator().validate(parameters, shape).has_errors()
    (found,) = beyond(parameters, shape)
    assert found.startswith(problem)


@pytest.mark.parametrize("call", ["eks.CreateAccessEntry", "eks.CreateNodegroup"])
def test_nothing_is_found_in_what_is_right(call: str) -> None:
    parameters = ENTRY if call.endswith("Entry") else GROUP
    assert list(beyond(parameters, operation(call).input_shape)) == []


def test_every_call_comes_after_what_it_refers_to(of_resources: Plan) -> None:
    """The order in which an account is made; otherwise ids would be made up where there are some."""
    calls, _ = api_calls(of_resources)
    order = [call.name for call in calls if call.operation.startswith("ec2.Create")]
    assert order.index("vpc") < order.index("private-eu-west-1a") < order.index("nodes")


def test_a_resource_may_take_several_calls(of_resources: Plan) -> None:
    calls, _ = api_calls(of_resources)
    assert [call.operation for call in calls if call.name == "vpc"] == [
        "ec2.CreateVpc",
        "ec2.ModifyVpcAttribute",
        "ec2.ModifyVpcAttribute",
        "ec2.CreateTags",
    ]
