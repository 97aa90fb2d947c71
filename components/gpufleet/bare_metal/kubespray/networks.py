"""Rules for the networks of pods and services: problems that kubespray detects late, or not at all."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs
from gpufleet.bare_metal.kubespray.driver.steps import IMMUTABLE, immutable
from gpufleet.bare_metal.kubespray.inventory import CLUSTER_ARGUMENTS
from gpufleet.problem import Path, Problem

NETWORKS = {
    "kube_service_addresses": 4,
    "kube_pods_subnet": 4,
    "kube_service_addresses_ipv6": 6,
    "kube_pods_subnet_ipv6": 6,
}
"""IP versions of network variables, by name."""

NODE_PREFIXES = {
    "kube_network_node_prefix": "kube_pods_subnet",
    "kube_network_node_prefix_ipv6": "kube_pods_subnet_ipv6",
}
"""Pod networks, by the variable with the prefix length of a node's part."""

CLUSTER_GROUPS = ("all", "k8s_cluster")
"""Groups whose variables apply to the whole cluster."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def network_problems(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield problems of the networks. kubespray only compares pod and service networks with each other, and only after
    it has connected to the machines (roles/validate_inventory/tasks/main.yml:94-150 at v2.31.0)."""
    yield from _scattered(args)
    values = {name: value for name, value in immutable(args.variables).items() if "{{" not in str(value)}
    networks: dict[str, Network] = {}
    for name, version in NETWORKS.items():
        if name in values:
            network = _network(values[name], version)
            if network is None:
                message = f"{values[name]!r} is not an IPv{version} network; write ADDRESS/PREFIX without host bits"
                yield Problem(_place(args, name), "network", message)
            else:
                networks[name] = network
    yield from _overlaps(args, networks)
    yield from _node_prefixes(args, values, networks)


def _network(value: object, version: int) -> Network | None:
    try:
        network = ipaddress.ip_network(str(value))
    except ValueError:
        return None
    return network if network.version == version and "/" in str(value) else None


def _place(args: KubesprayClusterArgs, name: str) -> Path:
    groups = [group for group in CLUSTER_GROUPS if name in args.variables.get(group, {})]
    return ("variables", groups[-1], name) if groups else ("variables",)


def _overlaps(args: KubesprayClusterArgs, networks: Mapping[str, Network]) -> Iterator[Problem]:
    for services, pods in (
        ("kube_service_addresses", "kube_pods_subnet"),
        ("kube_service_addresses_ipv6", "kube_pods_subnet_ipv6"),
    ):
        if services in networks and pods in networks and _meet(networks[services], networks[pods]):
            message = f"{networks[pods]} overlaps with {services} ({networks[services]}); choose another network"
            yield Problem(_place(args, pods), "networks-overlap", message)
    for index, node in enumerate(args.nodes):
        for argument in ("address", "internal_address", "access_address"):
            address = _address(getattr(node, argument))
            for name, network in networks.items():
                if address and address in network:
                    message = (
                        f"the address {address} of {node.name} is inside {name} ({network}); choose a network without"
                        " machines"
                    )
                    yield Problem(("nodes", index, argument), "network-of-a-machine", message)


def _meet(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text or "")
    except ValueError:
        return None


def _node_prefixes(
    args: KubesprayClusterArgs, values: Mapping[str, Any], networks: Mapping[str, Network]
) -> Iterator[Problem]:
    for name, pods in NODE_PREFIXES.items():
        if name in values and pods in networks:
            first, last, value = networks[pods].prefixlen, networks[pods].max_prefixlen, str(values[name])
            if not value.isdecimal() or not first <= int(value) <= last:
                message = f"{value} does not fit {pods} ({networks[pods]}); use {first} to {last}"
                yield Problem(_place(args, name), "node-prefix", message)


def _scattered(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield variables of the whole cluster that are set for some of its machines."""
    places: list[tuple[Path, Mapping[str, Any]]] = [
        *((("variables", group), given) for group, given in args.variables.items() if group not in CLUSTER_GROUPS),
        *((("nodes", index, "variables"), node.variables) for index, node in enumerate(args.nodes)),
        (("secret_variables",), args.secret_variables),
        *((("nodes", index, "secret_variables"), node.secret_variables) for index, node in enumerate(args.nodes)),
    ]
    for place, given in places:
        for name in given:
            if name in IMMUTABLE and name not in CLUSTER_ARGUMENTS:
                message = f"applies to the whole cluster; move it to the group {' or '.join(CLUSTER_GROUPS)}"
                yield Problem((*place, name), "variable-of-the-cluster", message)
