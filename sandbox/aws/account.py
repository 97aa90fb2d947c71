"""The AWS account of a stack: what its program registers there, made in a simulated one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3

from fleet.plan import UNKNOWN, Plan, Resource, revealed

DISCOVERY_TAG = "karpenter.sh/discovery"
_PROVIDER = "pulumi:providers:aws"
_DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class Account:
    """What an account has to hold before Karpenter starts. Plain data: it is handed to another process as JSON."""

    region: str
    cluster: str
    """Name of the EKS cluster."""
    resources: tuple[Mapping[str, Any], ...] = field(default_factory=tuple)
    """By order of making: `urn`, `type`, `name`, `inputs` without what only a provider could tell, and `depends_on`."""


def account_of(plan: Plan, cluster: str) -> Account:
    """The account that a stack's program would make, as far as Karpenter looks at it."""
    resources = [resource for kind in _MAKERS for resource in plan.owned() if resource.type == kind]
    return Account(region_of(plan), cluster, tuple(_plain(resource) for resource in resources))


def region_of(plan: Plan) -> str:
    """The region of the stack's account."""
    regions = (resource.inputs.get("region") for resource in plan.owned() if resource.type == _PROVIDER)
    return next((region for region in regions if isinstance(region, str)), _DEFAULT_REGION)


def _plain(resource: Resource) -> dict[str, Any]:
    return {
        "urn": resource.urn,
        "type": resource.type,
        "name": resource.name,
        "inputs": _known(revealed(resource.inputs)),
        "depends_on": list(resource.depends_on),
    }


def _known(value: Any) -> Any:
    """The value without the leaves that only a provider could tell."""
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items() if item is not UNKNOWN}
    if isinstance(value, list):
        return [_known(item) for item in value if item is not UNKNOWN]
    return value


# -- making it --------------------------------------------------------------------------------------------------------


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
        """Id of the VPC that a resource is in: the one it depends on, or else the only one."""
        if "vpcId" in resource["inputs"]:
            return str(resource["inputs"]["vpcId"])
        networks = {urn: made for urn, made in self.ids.items() if made.startswith("vpc-")}
        for urn in resource["depends_on"]:
            if urn in networks:
                return networks[urn]
        return next(iter(networks.values()))


def make(account: Account, endpoint: str) -> None:
    """Makes the account at an endpoint, which holds nothing yet."""
    making = _Making(account, endpoint)
    for resource in account.resources:
        making.ids[resource["urn"]] = _MAKERS[resource["type"]](making, resource)
    _complete(making)


def _complete(making: _Making) -> None:
    """What is there before the stack or beside it: the cluster, where the program makes it in a way of its own."""
    eks = making.client("eks")
    if making.account.cluster in eks.list_clusters()["clusters"]:
        return
    subnets = [made for made in making.ids.values() if made.startswith("subnet-")]
    eks.create_cluster(
        name=making.account.cluster,
        roleArn="arn:aws:iam::123456789012:role/cluster",
        resourcesVpcConfig={"subnetIds": subnets},
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
        making.client("iam").add_role_to_instance_profile(
            InstanceProfileName=name, RoleName=resource["inputs"]["role"]
        )
    return str(name)


def _queue(making: _Making, resource: Mapping[str, Any]) -> str:
    return str(making.client("sqs").create_queue(QueueName=resource["inputs"]["name"])["QueueUrl"])


_Maker = Callable[[_Making, Mapping[str, Any]], str]

_MAKERS: Mapping[str, _Maker] = {
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/subnet:Subnet": _subnet,
    "aws:ec2/securityGroup:SecurityGroup": _security_group,
    "aws:iam/role:Role": _role,
    "aws:iam/instanceProfile:InstanceProfile": _instance_profile,
    "aws:sqs/queue:Queue": _queue,
}
"""What Karpenter looks at, by Pulumi type, in the order of making. Each gives the id of what it made."""
