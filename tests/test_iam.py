"""The evaluator of IAM policies itself: what a table of verdicts stands on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.iam import Request, allowed, arn_like

QUEUE = "arn:aws:sqs:eu-west-1:111122223333:ci"


def verdict(statement: dict[str, Any], *others: dict[str, Any], **request: Any) -> bool:
    """The decision on a request by statements that are about `sqs:SendMessage` unless they say otherwise."""
    basis = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
    policies = [{"Statement": [basis | each]} for each in (statement, *others)]
    return allowed(policies, Request(**({"action": "sqs:SendMessage", "resource": QUEUE} | request)))


def test_what_nobody_allows_is_denied() -> None:
    assert not allowed([], Request(action="sqs:SendMessage"))
    assert verdict({})
    assert not verdict({}, action="sqs:DeleteQueue")


def test_a_denial_wins_wherever_it_stands() -> None:
    assert not verdict({}, {"Effect": "Deny"})
    assert not verdict({"Effect": "Deny"}, {})


@pytest.mark.parametrize(
    ("pattern", "arn", "fits"),
    [
        ("arn:aws:sqs:*:111122223333:ci", QUEUE, True),
        ("arn:aws:sqs:*:ci", QUEUE, False),
        ("arn:aws:sqs:eu-west-?:111122223333:c*", QUEUE, True),
        ("arn:aws:sqs:eu-west-1:111122223333:c", QUEUE, False),
        ("arn:aws:ec2:r::image/*", "arn:aws:ec2:r:111122223333:image/ami-1", False),
        ("no arn", "no arn", False),
    ],
)
def test_arns_are_compared_part_by_part(pattern: str, arn: str, fits: bool) -> None:
    assert arn_like(pattern, arn) is fits
    assert verdict({"Resource": pattern}, resource=arn) is fits


@pytest.mark.parametrize(
    ("test", "context", "is_met"),
    [
        ({"StringEquals": {"k": "v"}}, {"k": "v"}, True),
        ({"StringEquals": {"k": "v"}}, {"K": "v"}, True),
        ({"StringEquals": {"k": "v"}}, {"k": "V"}, False),
        ({"StringEquals": {"k": "v"}}, {}, False),
        ({"StringEquals": {"k": ["v", "w"]}}, {"k": "w"}, True),
        ({"StringEquals": {"k": "v", "l": "w"}}, {"k": "v"}, False),
        ({"StringEquals": {"k": "*"}}, {"k": "v"}, False),
        ({"StringLike": {"k": "*"}}, {"k": "v"}, True),
        ({"StringLike": {"k": "*"}}, {}, False),
        ({"StringEqualsIfExists": {"k": "v"}}, {}, True),
        ({"StringEqualsIfExists": {"k": "v"}}, {"k": "w"}, False),
        ({"ForAllValues:StringEquals": {"k": ["v", "w"]}}, {"k": ["v"]}, True),
        ({"ForAllValues:StringEquals": {"k": ["v", "w"]}}, {"k": ["v", "x"]}, False),
        ({"ForAllValues:StringEquals": {"k": ["v", "w"]}}, {}, True),
        ({"ArnLike": {"k": "arn:aws:events:*:1:rule/*"}}, {"k": "arn:aws:events:r:1:rule/x"}, True),
        ({"ArnLike": {"k": "arn:aws:events:*:1:rule/*"}}, {"k": "arn:aws:events:r:2:rule/x"}, False),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:SecureTransport": "false"}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:SecureTransport": "true"}, False),
        ({"StringEquals": {"k": "v"}, "StringLike": {"l": "*"}}, {"k": "v"}, False),
    ],
)
def test_conditions(test: dict[str, Any], context: dict[str, Any], is_met: bool) -> None:
    assert verdict({"Condition": test}, context=context) is is_met


@pytest.mark.parametrize(
    ("principal", "caller", "fits"),
    [
        ({"Service": "events.amazonaws.com"}, ("Service", "events.amazonaws.com"), True),
        ({"Service": ["sqs.amazonaws.com", "events.amazonaws.com"]}, ("Service", "events.amazonaws.com"), True),
        ({"Service": "events.amazonaws.com"}, ("Service", "sns.amazonaws.com"), False),
        ({"Service": "events.amazonaws.com"}, ("AWS", "events.amazonaws.com"), False),
        ({"Service": "events.amazonaws.com"}, None, False),
        ("*", ("AWS", "anyone"), True),
    ],
)
def test_principals(principal: Any, caller: tuple[str, str] | None, fits: bool) -> None:
    assert verdict({"Principal": principal}, principal=caller) is fits


@pytest.mark.parametrize(
    "statement", [{"NotAction": "*"}, {"Condition": {"ForAnyValue:StringEquals": {"k": "v"}}}, {"Principal": "me"}]
)
def test_what_it_does_not_know_is_no_verdict(statement: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        verdict(statement)
    with pytest.raises(KeyError):
        verdict({"Condition": {"DateLessThan": {"k": "v"}}})
