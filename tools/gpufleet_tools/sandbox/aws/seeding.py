"""The account of a stack, made in a simulated AWS by AWS's own calls."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import boto3  # type: ignore[import-untyped]

from gpufleet_tools.sandbox.aws.account import TYPES, Account


class _Making:
    """An account that is being made: clients, and the ids of what is there already."""

    def __init__(self, account: Account, endpoint: str) -> None:
        self.account = account
        self.ids: dict[str, str] = {}
        """By URN."""
        self._endpoint = endpoint

    def client(self, service: str) -> Any:
        # Whatever the user's own credentials are, they are not used here.
        keys = {"aws_access_key_id": "sandbox", "aws_secret_access_key": "sandbox", "aws_session_token": "sandbox"}
        session = boto3.Session(region_name=self.account.region, **keys)
        return session.client(service, endpoint_url=self._endpoint)

    def network_of(self, resource: Mapping[str, Any]) -> str:
        """Id of the VPC that a resource is in: the one it depends on, or else one that stands for another's."""
        networks = {urn: made for urn, made in self.ids.items() if made.startswith("vpc-")}
        return next((networks[urn] for urn in resource["depends_on"] if urn in networks), self.existing_network)

    @functools.cached_property
    def existing_network(self) -> str:
        """Id of a VPC in place of one that exists already, which nothing is known of but its id."""
        return str(self.client("ec2").create_vpc(CidrBlock="10.255.0.0/16")["Vpc"]["VpcId"])


def make(account: Account, endpoint: str) -> None:
    """Makes the account at an endpoint, which holds nothing yet."""
    making = _Making(account, endpoint)
    for resource in account.resources:
        making.ids[resource["urn"]] = _MAKERS[resource["type"]](making, resource)
    _make_cluster(making)


def _make_cluster(making: _Making) -> None:
    """The cluster, which programs make in more ways than one: Karpenter asks for its addresses."""
    making.client("eks").create_cluster(
        name=making.account.cluster,
        roleArn="arn:aws:iam::123456789012:role/cluster",
        resourcesVpcConfig={"subnetIds": [made for made in making.ids.values() if made.startswith("subnet-")]},
    )


def _tags(resource: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    tags = [{"Key": key, "Value": value} for key, value in resource["inputs"].get("tags", {}).items()]
    return [{"ResourceType": kind, "Tags": tags}] if tags else []


def _vpc(making: _Making, resource: Mapping[str, Any]) -> str:
    made = making.client("ec2").create_vpc(
        CidrBlock=resource["inputs"]["cidrBlock"], TagSpecifications=_tags(resource, "vpc")
    )
    return str(made["Vpc"]["VpcId"])


def _subnet(making: _Making, resource: Mapping[str, Any]) -> str:
    inputs = resource["inputs"]
    zone = {"AvailabilityZone": inputs["availabilityZone"]} if "availabilityZone" in inputs else {}
    made = making.client("ec2").create_subnet(
        VpcId=making.network_of(resource),
        CidrBlock=inputs["cidrBlock"],
        TagSpecifications=_tags(resource, "subnet"),
        **zone,
    )
    return str(made["Subnet"]["SubnetId"])


def _tag(making: _Making, resource: Mapping[str, Any]) -> str:
    """A tag on a subnet that exists already: a subnet in its place, in the zone that the tag is named after."""
    zone = resource["name"][-len(f"{making.account.region}a") :]
    number = len(making.ids)
    made = making.client("ec2").create_subnet(
        VpcId=making.existing_network,
        CidrBlock=f"10.255.{number}.0/24",
        AvailabilityZone=zone,
        TagSpecifications=[
            {
                "ResourceType": "subnet",
                "Tags": [{"Key": resource["inputs"]["key"], "Value": resource["inputs"]["value"]}],
            }
        ],
    )
    return str(made["Subnet"]["SubnetId"])


def _security_group(making: _Making, resource: Mapping[str, Any]) -> str:
    inputs = resource["inputs"]
    made = making.client("ec2").create_security_group(
        GroupName=inputs.get("name") or resource["name"],
        Description=inputs.get("description") or resource["name"],
        VpcId=making.network_of(resource),
        TagSpecifications=_tags(resource, "security-group"),
    )
    return str(made["GroupId"])


def _role(making: _Making, resource: Mapping[str, Any]) -> str:
    inputs = resource["inputs"]
    name = inputs.get("name") or resource["name"]
    policy = inputs.get("assumeRolePolicy") or json.dumps({"Version": "2012-10-17", "Statement": []})
    making.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=policy)
    return str(name)


def _instance_profile(making: _Making, resource: Mapping[str, Any]) -> str:
    name = resource["inputs"].get("name") or resource["name"]
    making.client("iam").create_instance_profile(InstanceProfileName=name)
    if "role" in resource["inputs"]:
        making.client("iam").add_role_to_instance_profile(InstanceProfileName=name, RoleName=resource["inputs"]["role"])
    return str(name)


def _queue(making: _Making, resource: Mapping[str, Any]) -> str:
    return str(making.client("sqs").create_queue(QueueName=resource["inputs"]["name"])["QueueUrl"])


_Maker = Callable[[_Making, Mapping[str, Any]], str]

_MAKERS: Mapping[str, _Maker] = dict(
    zip(TYPES, (_vpc, _subnet, _tag, _security_group, _role, _instance_profile, _queue), strict=True)
)
"""By Pulumi type. Each gives the id of what it made."""
