"""What the network of an EKS cluster cannot be."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import get_args

from components.eks_network_args import INDISPENSABLE_ENDPOINTS, ZONE_LETTERS, EksNetworkArgs, Nat

_PRIVATE_RANGES = [
    ipaddress.IPv4Network(cidr)
    for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15")
]
"""RFC 1918, and the two further ranges that EKS takes for pods
(https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html)."""

_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]")
_ENDPOINT = re.compile(r"[a-z0-9][-a-z0-9]*(?:\.[a-z0-9][-a-z0-9]*)*")

Fault = Iterator[str]


def network_violations(args: EksNetworkArgs) -> list[str]:
    """Every fault of a network, one line each: what, what was got, what is allowed, what to do."""
    return [
        *_wrong_region(args.region),
        *wrong_zones(args.zones, args.region),
        *_wrong_letters(args.zones),
        *_wrong_cidr(args.cidr),
        *_wrong_ways_out(args),
    ]


def _wrong_region(region: str) -> Fault:
    if not _REGION.fullmatch(region):
        yield f"region: {region!r}; a region's code is allowed; write it as 'eu-west-1'"


def wrong_zones(zones: Sequence[str], region: str) -> Fault:
    """Faults of a cluster's zones; EKS wants two."""
    if len(set(zones)) < 2:
        yield f"zones: {len(set(zones))}; EKS takes no fewer than 2; name three, as '{region}a'"
    for zone in sorted({zone for zone in zones if list(zones).count(zone) > 1}):
        yield f"zone {zone!r}: named twice; each zone is allowed once; remove one"
    for zone in zones:
        if not re.fullmatch(rf"{re.escape(region)}[a-z]", zone):
            yield f"zone {zone!r}: not of region {region!r}; its zones are allowed; write one as '{region}a'"


def _wrong_letters(zones: Sequence[str]) -> Fault:
    for zone in zones:
        if zone and zone[-1].islower() and zone[-1] not in ZONE_LETTERS:
            yield f"zone {zone!r}: the VPC has room for zones a to {ZONE_LETTERS[-1]}; choose among them"


def _wrong_cidr(cidr: str) -> Fault:
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        yield f"CIDR {cidr!r}: {error}; an IPv4 network is allowed; write it as '10.0.0.0/16'"
        return
    if not 16 <= network.prefixlen <= 20:
        yield f"CIDR {cidr!r}: /{network.prefixlen}; /16 to /20 is allowed; a pod takes an address, so take /16"
    if not any(network.subnet_of(allowed) for allowed in _PRIVATE_RANGES):
        allowed = ", ".join(map(str, _PRIVATE_RANGES))
        yield f"CIDR {cidr!r}: no private addresses; part of {allowed} is allowed; take '10.0.0.0/16'"


def _wrong_ways_out(args: EksNetworkArgs) -> Fault:
    endpoints = list(args.interface_endpoints)
    if args.nat not in get_args(Nat):
        yield f"NAT: {args.nat!r}; {', '.join(get_args(Nat))} are allowed; choose one"
    missing = [service for service in INDISPENSABLE_ENDPOINTS if service not in endpoints]
    if args.nat == "none" and missing:
        yield f"interface endpoints: no {', '.join(missing)}; without NAT they are all needed; add them"
    if endpoints and args.region.startswith("cn-"):
        yield "interface endpoints: in China names differ from service to service; none are allowed; make them yourself"
    for service in sorted(set(endpoints)):
        if endpoints.count(service) > 1:
            yield f"interface endpoint {service!r}: named twice; each service is allowed once; remove one"
        if not _ENDPOINT.fullmatch(service):
            yield f"interface endpoint {service!r}: no service; a service's name is allowed; write it as 'ecr.api'"
        if service == "s3":
            yield "interface endpoint 's3': the gateway endpoint is there already; others are allowed; remove it"
        if service in ("iam", "pricing"):
            yield f"interface endpoint {service!r}: AWS has none in a region; others are allowed; remove it"
