"""Capacity reservations of a stack file in the simulated EC2, and what is said of a pool that finds none."""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import boto3
import pytest

from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox.aws.account import CapacityReservation, reservations_of
from gpufleet_tools.sandbox.aws.answers import Answers
from gpufleet_tools.sandbox.aws.observation import exhausted_pools
from tests.conftest import MakeProject
from tests.tools.diff.pull_requests import AWS

BLOCK = CapacityReservation(
    id="cr-0123456789abcdef0",
    instance_type="p5.48xlarge",
    zone="us-east-1a",
    instances=2,
    block=True,
    owner="111122223333",
    match_criteria="targeted",
    tags={},
)
OPEN = CapacityReservation(
    id="cr-0123456789abcdef1",
    instance_type="g5.2xlarge",
    zone="us-east-1b",
    instances=3,
    block=False,
    owner="444455556666",
    match_criteria="open",
    tags={"team": "ci"},
)


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def ec2(*reservations: CapacityReservation) -> Iterator[Any]:
    """A client of EC2 with these reservations, and nothing behind it."""
    server = make_server("127.0.0.1", 0, Answers({}, reservations, lambda *_: []), handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    server.shutdown()
    server.server_close()
    thread.join()


ACTIVE = {"Name": "state", "Values": ["active"]}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, [BLOCK, OPEN]),
        ({"CapacityReservationIds": [BLOCK.id]}, [BLOCK]),
        ({"CapacityReservationIds": ["cr-0123456789abcdef9"]}, []),
        ({"Filters": [ACTIVE, {"Name": "owner-id", "Values": ["444455556666"]}]}, [OPEN]),
        ({"Filters": [ACTIVE, {"Name": "tag:team", "Values": ["ci"]}]}, [OPEN]),
        ({"Filters": [ACTIVE, {"Name": "tag-key", "Values": ["team"]}]}, [OPEN]),
        ({"Filters": [ACTIVE, {"Name": "tag:team", "Values": ["research"]}]}, []),
        ({"Filters": [ACTIVE, {"Name": "instance-match-criteria", "Values": ["targeted"]}]}, [BLOCK]),
        ({"Filters": [{"Name": "state", "Values": ["expired"]}]}, []),
    ],
)
def test_reservations_are_found_as_karpenter_asks(asked: dict[str, Any], found: list[CapacityReservation]) -> None:
    with ec2(BLOCK, OPEN) as client:
        answered = client.describe_capacity_reservations(**asked)["CapacityReservations"]
    assert [each["CapacityReservationId"] for each in answered] == [each.id for each in found]


def test_what_karpenter_reads_of_a_reservation() -> None:
    with ec2(BLOCK) as client:
        (answered,) = client.describe_capacity_reservations()["CapacityReservations"]
    assert answered == {
        "CapacityReservationId": "cr-0123456789abcdef0",
        "OwnerId": "111122223333",
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "us-east-1a",
        "Tenancy": "default",
        "TotalInstanceCount": 2,
        "AvailableInstanceCount": 2,
        "State": "active",
        "InstanceMatchCriteria": "targeted",
        "ReservationType": "capacity-block",
    }


def test_a_stack_has_the_reservations_that_it_describes(project: MakeProject) -> None:
    held = "holds: {instanceType: g5.2xlarge, zone: us-east-1b, instances: 3}"
    described = f"""\
        capacity: [reserved, on-demand]
        reservations:
          - {{id: cr-0123456789abcdef0}}
          - {{tags: {{team: ci, purpose: "*"}}, matchCriteria: open, {held}}}
"""
    text = AWS.replace("        sharing: {timeSlicing", described + "        sharing: {timeSlicing")
    settings = stack.read(project({"aws": text}), "aws").settings
    assert isinstance(settings, EksSettings)
    (found,) = reservations_of(settings)
    assert found.id.startswith("cr-")
    assert (found.instance_type, found.zone, found.instances, found.block) == ("g5.2xlarge", "us-east-1b", 3, False)
    assert (found.owner, found.match_criteria) == ("111122223333", "open")
    assert found.tags == {"team": "ci", "purpose": "sandbox"}


# -- what is said -----------------------------------------------------------------------------------------------------

NOW = datetime.datetime(2026, 8, 1, 12, 0, 0, tzinfo=datetime.UTC)
POD = {"metadata": {"uid": "one"}, "spec": {"nodeSelector": {"karpenter.sh/nodepool": "p5"}}}


def event(seconds: int, reason: str, **of: str) -> dict[str, Any]:
    moment = NOW - datetime.timedelta(seconds=seconds)
    return {
        "reason": reason,
        "message": "no type",
        "lastTimestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "involvedObject": of,
    }


REFUSED = {"p5": "NoCompatibleInstanceTypes: no type"}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event(30, "NoCompatibleInstanceTypes", name="p5")], REFUSED),
        ([event(200, "NoCompatibleInstanceTypes", name="p5")], {}),
        ([event(30, "NoCompatibleInstanceTypes", name="p5"), event(10, "Nominated", uid="one")], {}),
        ([event(30, "NoCompatibleInstanceTypes", name="p5"), event(40, "Nominated", uid="one")], REFUSED),
        ([event(30, "NoCompatibleInstanceTypes", name="p5"), event(10, "Nominated", uid="another's")], REFUSED),
    ],
    ids=["now", "long ago", "a pod has a node since", "a pod had a node before", "a pod of another pool has one"],
)
def test_a_pool_without_instance_types(events: list[dict[str, Any]], said: dict[str, str]) -> None:
    assert exhausted_pools(events, [POD], NOW) == said


def test_events_may_have_no_reason() -> None:
    """As Karpenter's "Failed resolving NodeClass" has none."""
    without = {key: value for key, value in event(5, "", name="p5").items() if key != "reason"}
    assert exhausted_pools([without, event(30, "NoCompatibleInstanceTypes", name="p5")], [POD], NOW) == REFUSED
