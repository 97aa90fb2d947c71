"""Creation of a stack's account in a simulated AWS, by calls of the AWS API."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import boto3  # type: ignore[import-untyped]

from gpufleet_tools.sandbox.aws.account import TYPES, Account


class _Creation:
    """State of the creation: clients, and the IDs of created resources."""

    def __init__(self, account: Account, endpoint: str) -> None:
        self.account = account
        self.ids: dict[str, str] = {}
        """IDs by URN."""
        self._endpoint = endpoint

    def client(self, service: str) -> Any:
        # Never use the user's own credentials.
        keys = {"aws_access_key_id": "sandbox", "aws_secret_access_key": "sandbox", "aws_session_token": "sandbox"}
        session = boto3.Session(region_name=self.account.region, **keys)
        return session.client(service, endpoint_url=self._endpoint)

    def network_of(self, resource: Mapping[str, Any]) -> str:
        """Return the ID of a resource's VPC: the one that it depends on, or else the substitute for an existing VPC."""
        networks = {urn: id_ for urn, id_ in self.ids.items() if id_.startswith("vpc-")}
        return next((networks[urn] for urn in resource["depends_on"] if urn in networks), self.existing_network)

    @functools.cached_property
    def existing_network(self) -> str:
        """ID of a substitute for an existing VPC, of which only the ID is known."""
        return str(self.client("ec2").create_vpc(CidrBlock="10.255.0.0/16")["Vpc"]["VpcId"])


def create(account: Account, endpoint: str) -> None:
    """Create the account at an endpoint, which must be empty."""
    creation = _Creation(account, endpoint)
    for resource in account.resources:
        creation.ids[resource["urn"]] = _MAKERS[resource["type"]](creation, resource)
    _make_cluster(creation)


def _make_cluster(creation: _Creation) -> None:
    """Create the cluster, from which Karpenter reads the address ranges. Programs create it with different resource
    types."""
    creation.client("eks").create_cluster(
        name=creation.account.cluster,
        roleArn="arn:aws:iam::123456789012:role/cluster",
        resourcesVpcConfig={"subnetIds": [id_ for id_ in creation.ids.values() if id_.startswith("subnet-")]},
    )


def _tags(resource: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    tags = [{"Key": key, "Value": value} for key, value in resource["inputs"].get("tags", {}).items()]
    return [{"ResourceType": kind, "Tags": tags}] if tags else []


def _vpc(creation: _Creation, resource: Mapping[str, Any]) -> str:
    response = creation.client("ec2").create_vpc(
        CidrBlock=resource["inputs"]["cidrBlock"], TagSpecifications=_tags(resource, "vpc")
    )
    return str(response["Vpc"]["VpcId"])


def _subnet(creation: _Creation, resource: Mapping[str, Any]) -> str:
    inputs = resource["inputs"]
    zone = {"AvailabilityZone": inputs["availabilityZone"]} if "availabilityZone" in inputs else {}
    response = creation.client("ec2").create_subnet(
        VpcId=creation.network_of(resource),
        CidrBlock=inputs["cidrBlock"],
        TagSpecifications=_tags(resource, "subnet"),
        **zone,
    )
    return str(response["Subnet"]["SubnetId"])


def _tag(creation: _Creation, resource: Mapping[str, Any]) -> str:
    """Create a substitute for an existing subnet that gets a tag, in the zone in the tag's name."""
    zone = resource["name"][-len(f"{creation.account.region}a") :]
    number = len(creation.ids)
    response = creation.client("ec2").create_subnet(
        VpcId=creation.existing_network,
        CidrBlock=f"10.255.{number}.0/24",
        AvailabilityZone=zone,
        TagSpecifications=[
            {
                "ResourceType": "subnet",
                "Tags": [{"Key": resource["inputs"]["key"], "Value": resource["inputs"]["value"]}],
            }
        ],
    )
    return str(response["Subnet"]["SubnetId"])


def _security_group(creation: _Creation, resource: Mapping[str, Any]) -> str:
    inputs = resource["inputs"]
    response = creation.client("ec2").create_security_group(
        GroupName=inputs.get("name") or resource["name"],
        Description=inputs.get("description") or resource["name"],
        VpcId=creation.network_of(resource),
        TagSpecifications=_tags(resource, "security-group"),
    )
    return str(response["GroupId"])


def _role(creation: _Creation, resource: Mapping[str, Any]) -> str:
    inputs = resource["inputs"]
    name = inputs.get("name") or resource["name"]
    policy = inputs.get("assumeRolePolicy") or json.dumps({"Version": "2012-10-17", "Statement": []})
    creation.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=policy)
    return str(name)


def _instance_profile(creation: _Creation, resource: Mapping[str, Any]) -> str:
    name = resource["inputs"].get("name") or resource["name"]
    creation.client("iam").create_instance_profile(InstanceProfileName=name)
    if "role" in resource["inputs"]:
        creation.client("iam").add_role_to_instance_profile(
            InstanceProfileName=name, RoleName=resource["inputs"]["role"]
        )
    return str(name)


def _queue(creation: _Creation, resource: Mapping[str, Any]) -> str:
    return str(creation.client("sqs").create_queue(QueueName=resource["inputs"]["name"])["QueueUrl"])


_Maker = Callable[[_Creation, Mapping[str, Any]], str]

_MAKERS: Mapping[str, _Maker] = dict(
    zip(TYPES, (_vpc, _subnet, _tag, _security_group, _role, _instance_profile, _queue), strict=True)
)
"""Functions by Pulumi type. Each creates a resource and returns its ID."""
