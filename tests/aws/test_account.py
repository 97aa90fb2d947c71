"""The network and the events of a program in an account in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpufleet_tools.plan.plan import Plan
from tests.aws.account import EVENTS, NEAR_MISSES, Account, account, client, cut_off, delivered
from tests.aws.programs import PROGRAMS
from tests.aws.references import Reference, kind_of
from tests.aws.said import aws_resources
from tests.components.aws.karpenter.test_controller import EVENTS as READ

QUEUE = Reference("Queue", "karpenter-interruption", "url")


@pytest.fixture(scope="module", params=PROGRAMS)
def made(request: pytest.FixtureRequest, plans: dict[str, Plan]) -> Iterator[tuple[Account, Plan]]:
    """The account of each program, and the program's plan."""
    plan = plans[request.param]
    with account(plan) as there:
        yield there, plan


def test_the_account_has_the_subnets_of_the_plan(made: tuple[Account, Plan]) -> None:
    """And so the lists of what is refused and cut off are not empty for want of a network."""
    there, plan = made
    assert there.refused == []
    planned = {
        (each.inputs["cidrBlock"], each.inputs["availabilityZone"])
        for each in aws_resources(plan)
        if kind_of(each) == "Subnet"
    }
    filters = [{"Name": "default-for-az", "Values": ["false"]}]
    subnets = client("ec2").describe_subnets(Filters=filters)["Subnets"]
    assert {(each["CidrBlock"], each["AvailabilityZone"]) for each in subnets} == planned
    assert len(planned) == 4
    assert cut_off() == []


def test_the_events_are_those_that_karpenter_reads() -> None:
    assert set(EVENTS) == set(READ.values())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event[1])
def test_an_event_reaches_karpenter_whole(made: tuple[Account, Plan], event: tuple[str, str]) -> None:
    there, _ = made
    (message,) = delivered(*event, EVENTS[event], there.values[QUEUE])
    assert (message["source"], message["detail-type"], message["detail"]) == (*event, EVENTS[event])


@pytest.mark.parametrize("event", NEAR_MISSES, ids=lambda event: f"{event[1]} of {event[0]}")
def test_another_event_does_not(made: tuple[Account, Plan], event: tuple[str, str]) -> None:
    there, _ = made
    detail: dict[str, Any] = {"instance-id": "i-0123456789abcdef0"}
    assert delivered(*event, detail, there.values[QUEUE]) == []
