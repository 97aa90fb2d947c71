"""Security groups as a packet meets them: who reaches whom, at which port, in the network that a program makes.

A packet passes when a group of its source lets it out and a group of its target lets it in; answers pass by themselves.
The group that EKS itself gives to a control plane is left out, so that nothing relies on it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet_tools.plan.plan import Plan, Resource, revealed
from tests.aws.references import Reference, kind_of, referred
from tests.aws.said import aws_resources, inputs_of

CONTROL_PLANE_TO_NODES = (443, 4443, 8443, 9443, 10250)
"""Webhooks and aggregated APIs at the ports that charts give them, and the kubelet."""
AMONG_NODES = (("udp", 53), ("tcp", 53), ("tcp", 8080), ("tcp", 10250))
"""CoreDNS, metrics, and metrics-server's questions to kubelets."""
OF_NODES_ALONE = (22, 53, 8080, 10250, 30000)
"""Ports of nodes that nobody but nodes and the control plane has to do with: SSH, kubelet, NodePorts."""


@dataclass(frozen=True)
class Machine:
    """One side of a conversation."""

    name: str
    """Name, for people."""
    address: str
    """One of its addresses."""
    groups: frozenset[str] | None
    """References to its security groups; None where they are no matter of the program's, and let everything out."""


def blocked(plan: Plan) -> list[str]:
    """Packets that should pass and do not, and packets that should not pass and do."""
    found = [f"{packet} does not pass" for packet in required(plan) if not passes(plan, packet)]
    return found + [f"{packet} passes" for packet in forbidden(plan) if passes(plan, packet)]


@dataclass(frozen=True)
class Packet:
    """The first packet of a conversation."""

    source: Machine
    target: Machine
    protocol: str
    port: int

    def __str__(self) -> str:
        return f"{self.source.name} to {self.target.name}, {self.protocol} {self.port}"


def required(plan: Plan) -> Iterator[Packet]:
    """Conversations without which the cluster does not work, or nobody can use it."""
    planes, nodes, endpoints = control_planes(plan), [*system_nodes(plan), *karpenter_nodes(plan)], interfaces(plan)
    for plane in planes:
        yield from (Packet(node, plane, "tcp", 443) for node in nodes)
        yield Packet(in_vpc(plan), plane, "tcp", 443)
        yield from (Packet(plane, node, "tcp", port) for node in nodes for port in CONTROL_PLANE_TO_NODES)
    yield from (Packet(one, other, *port) for one in nodes for other in nodes for port in AMONG_NODES)
    yield from (Packet(node, INTERNET, "tcp", 443) for node in nodes)
    yield from (Packet(node, endpoint, "tcp", 443) for node in nodes for endpoint in endpoints)


def forbidden(plan: Plan) -> Iterator[Packet]:
    """Conversations that nobody needs but who breaks in."""
    planes, nodes, endpoints = control_planes(plan), [*system_nodes(plan), *karpenter_nodes(plan)], interfaces(plan)
    for stranger in (INTERNET, in_vpc(plan)):
        yield from (Packet(stranger, node, "tcp", port) for node in nodes for port in OF_NODES_ALONE)
        yield from (Packet(stranger, plane, "tcp", port) for plane in planes for port in (22, 2379, 10250))
    yield from (Packet(INTERNET, each, "tcp", 443) for each in (*planes, *endpoints))
    yield from (Packet(node, plane, "tcp", 10250) for node in nodes for plane in planes)


# -- machines ---------------------------------------------------------------------------------------------------------

INTERNET = Machine("the internet", "198.51.100.7", None)


def in_vpc(plan: Plan) -> Machine:
    """A bastion, or a VPN's machine, with an address of the VPC."""
    return Machine("a machine in the VPC", _address(plan, 4), None)


def control_planes(plan: Plan) -> list[Machine]:
    """Interfaces of the control plane, with its security groups."""
    found = [each for each in plan.owned() if each.type in ("eks:index:Cluster", "aws:eks/cluster:Cluster")]
    return [Machine("the control plane", _address(plan, 5), _groups(_of_control_plane(each))) for each in found]


def _of_control_plane(resource: Resource) -> list[str]:
    inputs = revealed(resource.inputs)
    if resource.type == "eks:index:Cluster":
        # A resource as an argument is recorded by its URN or its reference, or as both.
        given = inputs["clusterSecurityGroup"]
        given = given["id"] if isinstance(given, Mapping) else given
        return [given if referred(given) else str(Reference("SecurityGroup", given.rpartition("::")[2], "id"))]
    return list(inputs.get("vpcConfig", {}).get("securityGroupIds", []))


def system_nodes(plan: Plan) -> list[Machine]:
    """Nodes of managed groups, by their launch templates."""
    templates = [each for each in aws_resources(plan) if kind_of(each) == "LaunchTemplate"]
    return [
        Machine("a system node", _address(plan, 6), _groups(inputs_of(each)["vpcSecurityGroupIds"]))
        for each in templates
    ]


def karpenter_nodes(plan: Plan) -> list[Machine]:
    """Nodes of Karpenter's, with every group of the program that its node class finds by tags."""
    tags = {str(Reference("SecurityGroup", each.name, "id")): dict(each.inputs.get("tags", {})) for each in _own(plan)}
    for tag in aws_resources(plan):
        if kind_of(tag) == "Tag" and tag.inputs["resourceId"] in tags:
            tags[tag.inputs["resourceId"]][tag.inputs["key"]] = tag.inputs["value"]
    classes = [each for each in plan.owned() if each.inputs.get("kind") == "EC2NodeClass"]
    terms = {each.name: revealed(each.inputs["spec"])["securityGroupSelectorTerms"] for each in classes}
    return [
        Machine(
            f"a node of {name}",
            _address(plan, 7),
            frozenset(
                group for group, has in tags.items() if any(term["tags"].items() <= has.items() for term in found)
            ),
        )
        for name, found in terms.items()
    ]


def interfaces(plan: Plan) -> list[Machine]:
    """Interface endpoints of AWS services."""
    return [
        Machine(each.name, _address(plan, 8), _groups(each.inputs["securityGroupIds"]))
        for each in aws_resources(plan)
        if kind_of(each) == "VpcEndpoint" and each.inputs.get("securityGroupIds")
    ]


def _own(plan: Plan) -> list[Resource]:
    return [each for each in aws_resources(plan) if kind_of(each) == "SecurityGroup"]


def _groups(references: list[str]) -> frozenset[str]:
    return frozenset(each for each in references if referred(each))


def _address(plan: Plan, host: int) -> str:
    """An address of the VPC; its range may be no network, which is another check's to find."""
    (vpc,) = (each for each in aws_resources(plan) if kind_of(each) == "Vpc")
    return str(ipaddress.IPv4Network(vpc.inputs["cidrBlock"])[host])


# -- rules ------------------------------------------------------------------------------------------------------------


def passes(plan: Plan, packet: Packet) -> bool:
    """Whether the source's groups let the packet out and the target's let it in."""
    return _admits(plan, "egress", packet.source, packet.target, packet) and _admits(
        plan, "ingress", packet.target, packet.source, packet
    )


def _admits(plan: Plan, direction: str, owner: Machine, peer: Machine, packet: Packet) -> bool:
    if owner.groups is None:
        return True
    return any(
        rule["securityGroupId"] in owner.groups and _is_for(rule, packet) and _is_peer(rule, peer)
        for rule in _rules(plan, direction)
    )


def _rules(plan: Plan, direction: str) -> Iterator[Mapping[str, Any]]:
    """Rules of one direction, those within groups too."""
    kind = "SecurityGroupIngressRule" if direction == "ingress" else "SecurityGroupEgressRule"
    for resource in aws_resources(plan):
        if kind_of(resource) == "SecurityGroup":
            yield from inputs_of(resource)[direction]
        elif kind_of(resource) == kind:
            yield inputs_of(resource)


def _is_for(rule: Mapping[str, Any], packet: Packet) -> bool:
    if rule["ipProtocol"] == "-1":
        return True
    return rule["ipProtocol"] == packet.protocol and rule["fromPort"] <= packet.port <= rule["toPort"]


def _is_peer(rule: Mapping[str, Any], peer: Machine) -> bool:
    if rule.get("referencedSecurityGroupId"):
        return rule["referencedSecurityGroupId"] in (peer.groups or ())
    cidr = rule.get("cidrIpv4")
    return bool(cidr) and ipaddress.IPv4Address(peer.address) in ipaddress.IPv4Network(cidr)
