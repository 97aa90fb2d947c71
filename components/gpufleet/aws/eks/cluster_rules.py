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
from gpufleet.aws.eks.network_rules import zone_problems
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
        message = f"{name!r}; letters, digits, - and _ are allowed, a letter or digit first; rename it"
        yield Problem(("cluster_name",), "cluster-name", message)
    if len(name) > CLUSTER_NAME_LIMIT:
        message = (
            f"{name!r} has {len(name)} characters; at most {CLUSTER_NAME_LIMIT} leave room for the role"
            " KarpenterNodeRole-<cluster>; shorten it"
        )
        yield Problem(("cluster_name",), "cluster-name-too-long", message)


def _place(args: EksClusterArgs) -> Iterator[Problem]:
    if not isinstance(args.account_id, str) or not re.fullmatch(ACCOUNT, args.account_id):
        message = f"{args.account_id!r}; an account of 12 digits is allowed; write it as text"
        yield Problem(("account_id",), "account", message)
    found = partition_of(args.region)
    if args.partition != found:
        message = f"{args.partition!r}; region {args.region!r} is in {found!r}; set it to that"
        yield Problem(("partition",), "partition", message)


def _version(version: str) -> Iterator[Problem]:
    if not _known(version):
        message = f"{version!r}; a minor version is allowed; write it as text, as '1.33'"
        yield Problem(("kubernetes_version",), "kubernetes-version", message)


def _known(version: object) -> bool:
    return isinstance(version, str) and re.fullmatch(MINOR_VERSION, version) is not None


def _endpoint(endpoint: ApiEndpoint) -> Iterator[Problem]:
    if endpoint.public and not endpoint.cidrs:
        message = "none, and the endpoint is public, which is open to the world; name those who may reach it"
        yield Problem(("cidrs",), "endpoint-open", message)
    if endpoint.cidrs and not endpoint.public:
        message = "given without a public endpoint; they hold for that alone; remove them, or set public"
        yield Problem(("cidrs",), "endpoint-private", message)
    for index, cidr in enumerate(endpoint.cidrs):
        try:
            network = ipaddress.IPv4Network(cidr)
        except ValueError as error:
            message = f"CIDR {cidr!r}: {error}; IPv4 networks are allowed; write one as '192.0.2.0/24'"
            yield Problem(("cidrs", index), "endpoint-cidr-malformed", message)
            continue
        if network.prefixlen < WIDEST_PREFIX and not endpoint.open_to_the_world:
            message = (
                f"CIDR {cidr!r} is wider than /{WIDEST_PREFIX}; so much is allowed with open_to_the_world;"
                " name the networks of those who use the cluster"
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
            message = f"CIDR {cidr!r}: {error}; IPv4 networks are allowed; write one as '10.8.0.0/16'"
            yield Problem(where, "private-cidr-malformed", message)
            continue
        if network.prefixlen < WIDEST_PREFIX:
            message = (
                f"CIDR {cidr!r} is wider than /{WIDEST_PREFIX}, and no private network is; name the networks of those"
                " who use the cluster"
            )
            yield Problem(where, "private-cidr-too-wide", message)
        if cidr in seen:
            message = f"CIDR {cidr!r} is named twice, or is the VPC's own; each is allowed once; remove it"
            yield Problem(where, "private-cidr-twice", message)
        seen.add(cidr)


def _system_nodes(nodes: SystemNodes, kubernetes: str) -> Iterator[Problem]:
    if not 1 <= nodes.min_size <= nodes.desired_size <= nodes.max_size:
        sizes = f"min {nodes.min_size}, desired {nodes.desired_size}, max {nodes.max_size}"
        yield Problem(("min_size",), "sizes", f"{sizes}; 1 <= min <= desired <= max is allowed; put them in order")
    if nodes.min_size < FEWEST_SYSTEM_NODES:
        message = (
            f"min {nodes.min_size}; Karpenter's two replicas refuse to share a node, so at least {FEWEST_SYSTEM_NODES};"
            " raise it"
        )
        yield Problem(("min_size",), "too-few-system-nodes", message)
    if nodes.ami_type not in get_args(SystemAmiType):
        message = f"{nodes.ami_type!r}; {', '.join(get_args(SystemAmiType))} are allowed; choose one"
        yield Problem(("ami_type",), "ami-type", message)
    for index, instance_type in enumerate(nodes.instance_types):
        if bool(_GRAVITON.fullmatch(instance_type)) != ("ARM_64" in nodes.ami_type):
            message = f"{instance_type} cannot start {nodes.ami_type}; its architecture's types can; take one"
            yield Problem(("instance_types", index), "architecture", message)
    if not nodes.instance_types:
        message = "no instance types; at least one is required; name one, as 'm6i.large'"
        yield Problem(("instance_types",), "no-instance-types", message)
    release = nodes.release_version
    if release is not None and not release.startswith(f"{kubernetes}."):
        message = f"{release!r}; one of Kubernetes {kubernetes} is allowed; take that"
        yield Problem(("release_version",), "release-version", message)
    if nodes.disk_gib < 20:
        message = f"{nodes.disk_gib} GiB; at least 20, the image's own, are allowed; take 50"
        yield Problem(("disk_gib",), "disk-too-small", message)


def _logs(args: EksClusterArgs) -> Iterator[Problem]:
    for index, log_type in enumerate(args.log_types):
        if log_type not in get_args(LogType):
            message = f"{log_type!r} is unknown; {', '.join(get_args(LogType))} are allowed; choose among them"
            yield Problem(("log_types", index), "log-type", message)
    if args.log_retention_days not in LOG_RETENTION_DAYS:
        days = ", ".join(map(str, LOG_RETENTION_DAYS))
        message = f"{args.log_retention_days} days; {days} are allowed; choose one"
        yield Problem(("log_retention_days",), "log-retention", message)
