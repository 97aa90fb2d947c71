"""Rules for EKS clusters: EKS's own, and costly mistakes that AWS accepts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import get_args

from gpufleet.aws.eks.access import access_problems
from gpufleet.aws.eks.addons import addon_problems
from gpufleet.aws.eks.cluster_args import (
    ACCOUNT,
    FEWEST_SYSTEM_NODES,
    MINOR_VERSION,
    ApiEndpoint,
    EksClusterArgs,
    LogType,
    SystemAmiType,
    SystemNodes,
)
from gpufleet.aws.eks.network_rules import control_plane_zone_problems, zone_problems
from gpufleet.aws.karpenter.policies import CLUSTER_NAME_LIMIT, partition_of
from gpufleet.problem import Problem, under

WIDEST_PREFIX = 8
"""Shortest prefix that a company network may have; two ranges of /1 already include every address."""

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""Retention days that CloudWatch Logs accepts (API reference of PutRetentionPolicy)."""

_GRAVITON = re.compile(r"(?:a1|[a-z]+[0-9]+g[a-z]*)\..+")
"""Instance types with AWS processors, recognised by the letter after the generation
(https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html)."""
_CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]*")


def cluster_problems(args: EksClusterArgs) -> Iterator[Problem]:
    """Yield every problem of a cluster."""
    yield from cluster_name_problems(args.cluster_name)
    yield from _place(args)
    subnets = args.network.private_subnets
    yield from zone_problems(("network", "private_subnets"), [(zone, zone) for zone in subnets], args.region)
    zones = args.network.control_plane_zones
    yield from control_plane_zone_problems(("network", "control_plane_zones"), zones, [*subnets])
    yield from _version(args.kubernetes_version)
    yield from addon_problems(args)
    yield from under(("endpoint",), _endpoint(args.endpoint))
    yield from under(("endpoint",), _private_networks(args.endpoint, args.network.cidr))
    yield from under(("system_nodes",), _system_nodes(args.system_nodes, args.kubernetes_version))
    yield from access_problems(args.admins, args.access, args.partition)
    yield from _logs(args)


def cluster_name_problems(name: str) -> Iterator[Problem]:
    """Yield problems of a cluster's name, which IAM and EKS would only reject in the middle of an update."""
    if not _CLUSTER_NAME.fullmatch(name):
        message = f"{name!r} is not valid; use letters, digits, '-' and '_', with a letter or digit first"
        yield Problem(("cluster_name",), "cluster-name", message)
    if len(name) > CLUSTER_NAME_LIMIT:
        message = (
            f"{name!r} has {len(name)} characters; at most {CLUSTER_NAME_LIMIT} are allowed, so that the role name"
            " KarpenterNodeRole-<cluster> fits IAM's limit; shorten it"
        )
        yield Problem(("cluster_name",), "cluster-name-too-long", message)


def _place(args: EksClusterArgs) -> Iterator[Problem]:
    if not isinstance(args.account_id, str) or not re.fullmatch(ACCOUNT, args.account_id):
        message = f"{args.account_id!r} is not an account ID; write 12 digits as text"
        yield Problem(("account_id",), "account", message)
    found = partition_of(args.region)
    if args.partition != found:
        message = f"{args.partition!r} is not the partition of region {args.region!r}; use {found!r}"
        yield Problem(("partition",), "partition", message)


def _version(version: str) -> Iterator[Problem]:
    if not _known(version):
        message = f"{version!r} is not a minor version; write it as text, for example '1.33'"
        yield Problem(("kubernetes_version",), "kubernetes-version", message)


def _known(version: object) -> bool:
    return isinstance(version, str) and re.fullmatch(MINOR_VERSION, version) is not None


def _endpoint(endpoint: ApiEndpoint) -> Iterator[Problem]:
    if endpoint.public and not endpoint.cidrs:
        message = "is empty, but the endpoint is public, so it would be open to the world; list the allowed ranges"
        yield Problem(("cidrs",), "endpoint-open", message)
    if endpoint.cidrs and not endpoint.public:
        message = "only applies to a public endpoint; remove it, or set public"
        yield Problem(("cidrs",), "endpoint-private", message)
    for index, cidr in enumerate(endpoint.cidrs):
        try:
            network = ipaddress.IPv4Network(cidr)
        except ValueError as error:
            message = f"CIDR {cidr!r} is not an IPv4 network ({error}); write for example '192.0.2.0/24'"
            yield Problem(("cidrs", index), "endpoint-cidr-malformed", message)
            continue
        if network.prefixlen < WIDEST_PREFIX and not endpoint.open_to_the_world:
            message = (
                f"CIDR {cidr!r} is wider than /{WIDEST_PREFIX}; list the networks of the cluster's users, or set"
                " open_to_the_world"
            )
            facts = {"cidr": cidr, "widest": WIDEST_PREFIX}
            yield Problem(("cidrs", index), "endpoint-cidr-too-wide", message, facts)


def _private_networks(endpoint: ApiEndpoint, vpc: object) -> Iterator[Problem]:
    """Yield problems of private ranges. AWS rejects a second security group rule for the same range, such as the VPC's.
    Only AWS knows the range of an existing VPC."""
    seen = {vpc} if isinstance(vpc, str) else set()
    for index, cidr in enumerate(endpoint.private_cidrs):
        where = ("private_cidrs", index)
        try:
            network = ipaddress.IPv4Network(cidr)
        except ValueError as error:
            message = f"CIDR {cidr!r} is not an IPv4 network ({error}); write for example '10.8.0.0/16'"
            yield Problem(where, "private-cidr-malformed", message)
            continue
        if network.prefixlen < WIDEST_PREFIX:
            message = (
                f"CIDR {cidr!r} is wider than /{WIDEST_PREFIX}, as no private network is; list the networks of the"
                " cluster's users"
            )
            yield Problem(where, "private-cidr-too-wide", message)
        if cidr in seen:
            message = f"CIDR {cidr!r} is listed twice, or is the VPC's own range; remove it"
            yield Problem(where, "private-cidr-twice", message)
        seen.add(cidr)


def _system_nodes(nodes: SystemNodes, kubernetes: str) -> Iterator[Problem]:
    if not 1 <= nodes.min_size <= nodes.desired_size <= nodes.max_size:
        sizes = f"min {nodes.min_size}, desired {nodes.desired_size}, max {nodes.max_size}"
        yield Problem(("min_size",), "sizes", f"{sizes}; 1 <= min <= desired <= max is required; correct them")
    if nodes.min_size < FEWEST_SYSTEM_NODES:
        message = (
            f"min {nodes.min_size} is too small; Karpenter's two replicas never share a node, so at least"
            f" {FEWEST_SYSTEM_NODES} are required; raise it"
        )
        yield Problem(("min_size",), "too-few-system-nodes", message)
    if nodes.ami_type not in get_args(SystemAmiType):
        message = f"{nodes.ami_type!r} is not valid; allowed: {', '.join(get_args(SystemAmiType))}"
        yield Problem(("ami_type",), "ami-type", message)
    for index, instance_type in enumerate(nodes.instance_types):
        if bool(_GRAVITON.fullmatch(instance_type)) != ("ARM_64" in nodes.ami_type):
            message = f"{instance_type} cannot run {nodes.ami_type}; use a type of the AMI's architecture"
            yield Problem(("instance_types", index), "architecture", message)
    if not nodes.instance_types:
        message = "is empty; at least one type is required; add for example 'm6i.large'"
        yield Problem(("instance_types",), "no-instance-types", message)
    release = nodes.release_version
    if release is not None and not release.startswith(f"{kubernetes}."):
        message = f"{release!r} is not a release for Kubernetes {kubernetes}; use one that is"
        yield Problem(("release_version",), "release-version", message)
    if nodes.disk_gib < 20:
        message = f"{nodes.disk_gib} GiB is smaller than the AMI's 20 GiB; use for example 50"
        yield Problem(("disk_gib",), "disk-too-small", message)


def _logs(args: EksClusterArgs) -> Iterator[Problem]:
    for index, log_type in enumerate(args.log_types):
        if log_type not in get_args(LogType):
            message = f"{log_type!r} is not valid; allowed: {', '.join(get_args(LogType))}"
            yield Problem(("log_types", index), "log-type", message)
    if args.log_retention_days not in LOG_RETENTION_DAYS:
        days = ", ".join(map(str, LOG_RETENTION_DAYS))
        message = f"{args.log_retention_days} days is not supported by CloudWatch Logs; allowed: {days}"
        yield Problem(("log_retention_days",), "log-retention", message)
