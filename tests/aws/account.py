"""An AWS account in memory (moto), in which recorded resources are made by the calls that the provider makes.

moto is asked only about what it really does: networks, whose address ranges, zones and ids it checks, and events that
go by rules to queues. Its EKS checks nothing and is left out. Whom policies allow it decides wrongly; the evaluator of
this project does that.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
import jmespath
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError
from moto import mock_aws

from gpufleet_tools.plan.plan import Plan
from tests.aws.api_calls import ApiCall, api_calls
from tests.aws.references import Reference, replaced
from tests.aws.resource_type import REGION
from tests.aws.resource_types import TYPES
from tests.aws.said import value_of

SERVICES = frozenset({"ec2", "events", "sqs"})
"""Services whose calls are made. The others know no more here than botocore's models do."""

MISSING = frozenset({"ec2.CreatePlacementGroup"})
"""Calls of these services that moto does not implement."""


def is_made(call: str) -> bool:
    """Whether a call is made here."""
    return call.partition(".")[0] in SERVICES and call not in MISSING


@dataclass
class Account:
    """What became of the calls."""

    values: dict[Reference, str] = field(default_factory=dict)
    """Outputs, as the account returned them."""
    refused: list[str] = field(default_factory=list)
    """Calls that failed, by resource."""


@contextlib.contextmanager
def account(plan: Plan) -> Iterator[Account]:
    """The account, with the plan's network, queues and rules in it. It ends with the context."""
    with mock_aws():
        made = Account()
        value = value_of(plan, made.values)
        for call in api_calls(plan)[0]:
            service, _, operation = call.operation.partition(".")
            if is_made(call.operation):
                make(call, service, operation, replaced(call.parameters, value), made)
        yield made


def make(call: ApiCall, service: str, operation: str, parameters: Mapping[str, Any], made: Account) -> None:
    """Makes one call, and keeps what it tells."""
    api = client(service)
    try:
        answer = getattr(api, xform_name(operation))(**parameters)
        if operation == "CreateSecurityGroup":
            # A new group lets everything out; the provider takes that back first.
            everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
            api.revoke_security_group_egress(GroupId=answer["GroupId"], IpPermissions=everything)
    except (ClientError, BotoCoreError) as error:
        made.refused.append(f"{call.name}: {call.operation}: {error}")
        return
    if call.operation == TYPES[call.kind].calls[0].of:
        kind = call.kind.rpartition(":")[2]
        for output, path in TYPES[call.kind].answers.items():
            made.values[Reference(kind, call.name, output)] = jmespath.search(path, answer)


@functools.cache
def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION)


def refused_by_account(plan: Plan) -> list[str]:
    """Calls that an account in memory refuses, subnets from which nothing goes out, and events that do not reach
    Karpenter's queue, or reach it and should not."""
    with account(plan) as made:
        return [*made.refused, *cut_off(), *misdelivered(made)]


# -- network ----------------------------------------------------------------------------------------------------------


def cut_off() -> list[str]:
    """Subnets of the account whose way out ends before it is out: through an internet gateway of the same network, or
    through a NAT gateway in a subnet that has such a way itself. Asked of the account's own route tables."""
    ec2 = client("ec2")
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["false"]}])["Subnets"]
    gateways = {
        (attachment["VpcId"], each["InternetGatewayId"])
        for each in ec2.describe_internet_gateways()["InternetGateways"]
        for attachment in each["Attachments"]
    }
    nats = {each["NatGatewayId"]: each["SubnetId"] for each in ec2.describe_nat_gateways()["NatGateways"]}
    ways = {
        association["SubnetId"]: route
        for table in ec2.describe_route_tables()["RouteTables"]
        for association in table["Associations"]
        if "SubnetId" in association
        for route in table["Routes"]
        if route.get("DestinationCidrBlock") == "0.0.0.0/0"
    }

    def out(subnet: Mapping[str, Any]) -> bool:
        return (subnet["VpcId"], ways.get(subnet["SubnetId"], {}).get("GatewayId")) in gateways

    public = {each["SubnetId"] for each in subnets if out(each)}
    return [
        f"{each['SubnetId']}: {each['CidrBlock']} has no way out"
        for each in subnets
        if each["SubnetId"] not in public
        and nats.get(ways.get(each["SubnetId"], {}).get("NatGatewayId", "")) not in public
    ]


# -- events -----------------------------------------------------------------------------------------------------------


INSTANCE = "i-0123456789abcdef0"

EVENTS: dict[tuple[str, str], dict[str, Any]] = {
    ("aws.health", "AWS Health Event"): {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{"entityValue": INSTANCE}],
    },
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): {"instance-id": INSTANCE, "instance-action": "terminate"},
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): {"instance-id": INSTANCE},
    ("aws.ec2", "EC2 Instance State-change Notification"): {"instance-id": INSTANCE, "state": "stopping"},
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): {"instance-id": INSTANCE},
}
"""Events that Karpenter reads, by source and detail type, with what it reads in them: the five parsers in
pkg/controllers/interruption/messages at v1.14.1."""

NEAR_MISSES = [
    ("aws.ec2", "AWS Health Event"),
    ("aws.health", "EC2 Spot Instance Interruption Warning"),
    ("aws.ec2", "EC2 Spot Instance Request Fulfillment"),
    ("aws.ec2", "EC2 Instance Launch Successful"),
    ("aws.autoscaling", "EC2 Instance Rebalance Recommendation"),
    ("aws.ec2", "ec2 instance state-change notification"),
]
"""Events of an ordinary account that are none of Karpenter's."""


def misdelivered(made: Account) -> list[str]:
    """Events of Karpenter's that its queue does not receive, once and whole, and others that it does."""
    queue = made.values.get(Reference("Queue", "karpenter-interruption", "url"))
    if queue is None:
        return []
    found = []
    for (source, detail_type), detail in EVENTS.items():
        received = delivered(source, detail_type, detail, queue)
        if [each["detail"] for each in received] != [detail]:
            found.append(f"{detail_type} of {source} is received {len(received)} times")
    for source, detail_type in NEAR_MISSES:
        if delivered(source, detail_type, {"instance-id": INSTANCE}, queue):
            found.append(f"{detail_type} of {source} is received, and is not Karpenter's")
    return found


def delivered(source: str, detail_type: str, detail: Mapping[str, Any], queue_url: str) -> list[dict[str, Any]]:
    """What the queue receives once the event has happened."""
    event = {"Source": source, "DetailType": detail_type, "Detail": json.dumps(detail), "Resources": []}
    client("events").put_events(Entries=[event])
    queue = client("sqs")
    found = []
    while messages := queue.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages", []):
        for message in messages:
            found.append(json.loads(message["Body"]))
            queue.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    return found
