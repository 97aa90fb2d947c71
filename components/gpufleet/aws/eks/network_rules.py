"""Rules for the network of an EKS cluster."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import get_args

from gpufleet.aws.eks.network_args import (
    FEWEST_ZONES,
    INDISPENSABLE_ENDPOINTS,
    REGION,
    ZONE_LETTERS,
    EksNetworkArgs,
    Nat,
)
from gpufleet.problem import Path, Problem, under

_PRIVATE_RANGES = [
    ipaddress.IPv4Network(cidr)
    for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15")
]
"""Private ranges of RFC 1918, and the two other ranges that EKS accepts for pods
(https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html)."""

_ENDPOINT = re.compile(r"[a-z0-9][-a-z0-9]*(?:\.[a-z0-9][-a-z0-9]*)*")


def network_problems(args: EksNetworkArgs) -> Iterator[Problem]:
    """Yield every problem of a network."""
    yield from _region(args.region)
    yield from zone_problems(("zones",), [*enumerate(args.zones)], args.region)
    yield from _zone_letters(args.zones)
    yield from control_plane_zone_problems(("control_plane_zones",), args.control_plane_zones, args.zones)
    yield from _cidr(args.cidr)
    yield from _nat(args)
    yield from _interface_endpoints(args)


def _region(region: str) -> Iterator[Problem]:
    if not re.fullmatch(REGION, region):
        yield Problem(("region",), "region", f"{region!r} is not a region code; write for example 'eu-west-1'")


def zone_problems(path: Path, zones: Sequence[tuple[int | str, str]], region: str) -> Iterator[Problem]:
    """Yield problems of a cluster's zones, each by its index or key under `path`; EKS requires two zones."""
    names = [zone for _, zone in zones]
    if len(set(names)) < FEWEST_ZONES:
        message = (
            f"has {len(set(names))} zones; EKS requires at least {FEWEST_ZONES}; use three, for example '{region}a'"
        )
        yield Problem(path, "too-few-zones", message)
    for index, (key, zone) in enumerate(zones):
        if zone in names[:index]:
            message = f"{zone!r} is listed twice; remove one"
            yield Problem((*path, key), "zone-twice", message)
        if not re.fullmatch(rf"{re.escape(region)}[a-z]", zone):
            message = f"{zone!r} is not a zone of region {region!r}; write for example '{region}a'"
            yield Problem((*path, key), "zone-of-another-region", message)


def control_plane_zone_problems(path: Path, zones: Sequence[str], network: Sequence[str]) -> Iterator[Problem]:
    """Yield problems of the control plane's zones, which are some of the `network`'s; none means all."""
    if zones and len(set(zones)) < FEWEST_ZONES:
        message = f"has {len(set(zones))} of the {FEWEST_ZONES} zones that EKS requires; list those of the cluster"
        yield Problem(path, "too-few-zones", message)
    for index, zone in enumerate(zones):
        if zone not in network:
            message = f"{zone!r} is not a zone of the network; use {', '.join(network)}"
            yield Problem((*path, index), "zone-of-no-network", message)


def _zone_letters(zones: Sequence[str]) -> Iterator[Problem]:
    for index, zone in enumerate(zones):
        if zone and zone[-1].islower() and zone[-1] not in ZONE_LETTERS:
            message = f"{zone!r} has no subnet in the VPC, which has room for zones a to {ZONE_LETTERS[-1]}; use those"
            yield Problem(("zones", index), "zone-letter", message)


def _cidr(cidr: str) -> Iterator[Problem]:
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        message = f"{cidr!r} is not an IPv4 network ({error}); write for example '10.0.0.0/16'"
        yield Problem(("cidr",), "cidr-malformed", message)
        return
    if not 16 <= network.prefixlen <= 20:
        message = f"{cidr!r}: /16 to /20 is allowed; every pod uses an address, so use /16"
        yield Problem(("cidr",), "cidr-size", message)
    if not any(network.subnet_of(allowed) for allowed in _PRIVATE_RANGES):
        allowed = ", ".join(map(str, _PRIVATE_RANGES))
        message = f"{cidr!r} is not private; a part of {allowed} is allowed; use for example '10.0.0.0/16'"
        yield Problem(("cidr",), "cidr-public", message)


def _nat(args: EksNetworkArgs) -> Iterator[Problem]:
    if args.nat not in get_args(Nat):
        yield Problem(("nat",), "nat", f"{args.nat!r} is not valid; allowed: {', '.join(get_args(Nat))}")


def _interface_endpoints(args: EksNetworkArgs) -> Iterator[Problem]:
    endpoints, where = list(args.interface_endpoints), ("interface_endpoints",)
    missing = [service for service in INDISPENSABLE_ENDPOINTS if service not in endpoints]
    if args.nat == "none" and missing:
        message = f"has no {', '.join(missing)}, which are required without NAT gateways; add them"
        yield Problem(where, "endpoints-missing", message)
    if endpoints and args.region.startswith("cn-"):
        message = "not supported in China, where names differ between services; create the endpoints yourself"
        yield Problem(where, "endpoints-in-china", message)
    for index, service in enumerate(endpoints):
        yield from under((*where, index), _interface_endpoint(service, twice=service in endpoints[:index]))


def _interface_endpoint(service: str, *, twice: bool) -> Iterator[Problem]:
    if twice:
        yield Problem((), "endpoint-twice", f"{service!r} is listed twice; remove one")
    if not _ENDPOINT.fullmatch(service):
        message = f"{service!r} is not a service name; write for example 'ecr.api'"
        yield Problem((), "endpoint-name", message)
    if service == "s3":
        message = "'s3' already has a gateway endpoint; remove it"
        yield Problem((), "endpoint-of-s3", message)
    if service in ("iam", "pricing"):
        message = f"{service!r} is not available as an endpoint in a region; remove it"
        yield Problem((), "endpoint-of-no-region", message)
