"""IAM's decision on one request, for as much of its language as our policies use; everything else is an error here.

Rules: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html and
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Values = str | list[str]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call, as IAM sees it: an API call that touches several resources is one request for each."""

    action: str
    """Service and action: `ec2:RunInstances`."""
    resource: str = "*"
    """ARN; `*` for actions that know no resources."""
    context: Mapping[str, Values] = field(default_factory=dict)
    """Condition keys that the call comes with."""
    principal: tuple[str, str] | None = None
    """Kind and name of who calls, such as `Service` and `ec2.amazonaws.com`; asked for by trust and queue policies."""


def allowed(policies: Iterable[Mapping[str, Any]], request: Request) -> bool:
    """Whether a statement allows the request and none denies it."""
    applying = [each["Effect"] for policy in policies for each in policy["Statement"] if applies(each, request)]
    return "Allow" in applying and "Deny" not in applying


def applies(statement: Mapping[str, Any], request: Request) -> bool:
    """Whether the statement is about the request."""
    unknown = statement.keys() - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
    assert not unknown, f"a statement with {', '.join(unknown)} is more than this evaluator knows"
    return (
        any(like(action.lower(), request.action.lower()) for action in listed(statement["Action"]))
        and ("Resource" not in statement or any(covers(arn, request.resource) for arn in listed(statement["Resource"])))
        and ("Principal" not in statement or is_principal(statement["Principal"], request.principal))
        and all(met(name, test, request.context) for name, test in statement.get("Condition", {}).items())
    )


def covers(wanted: str, resource: str) -> bool:
    return wanted == "*" or arn_like(wanted, resource)


def is_principal(wanted: str | Mapping[str, Values], principal: tuple[str, str] | None) -> bool:
    if wanted == "*":
        return True
    assert not isinstance(wanted, str), f"principal {wanted!r}"
    return principal is not None and principal[1] in listed(wanted.get(principal[0], []))


def met(name: str, test: Mapping[str, Values], context: Mapping[str, Values]) -> bool:
    """Whether every key of one condition has one of the values asked for. Case does not count in keys and tag names."""
    for_all, _, operator = name.rpartition(":")
    assert for_all in ("", "ForAllValues"), name
    if_exists = operator.endswith("IfExists")
    compare = OPERATORS[operator.removesuffix("IfExists")]
    known = {key.lower(): listed(value) for key, value in context.items()}
    return all(
        matches(known.get(key.lower()), listed(wanted), compare, absent=if_exists or bool(for_all))
        for key, wanted in test.items()
    )


def matches(given: list[str] | None, wanted: list[str], compare: Callable[[str, str], bool], *, absent: bool) -> bool:
    """Whether each given value is one of those wanted; `absent` is the answer where the request lacks the key."""
    if given is None:
        return absent
    return all(any(compare(pattern, value) for pattern in wanted) for value in given)


def like(pattern: str, value: str) -> bool:
    """Wildcards of IAM: `*` is any text, `?` any one character, and nothing else is special."""
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), value, re.DOTALL))


def arn_like(pattern: str, value: str) -> bool:
    """Each of an ARN's six parts by itself: a wildcard does not reach over a colon, except in the last."""
    parts, others = pattern.split(":", 5), value.split(":", 5)
    return len(parts) == len(others) == 6 and all(map(like, parts, others))


def listed(value: Values) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringLike": like,
    "ArnLike": arn_like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
}
