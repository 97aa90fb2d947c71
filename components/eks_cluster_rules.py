"""What an EKS cluster cannot be: EKS's own rules, and what would cost dear though AWS takes it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import get_args

from components.eks_cluster_args import REQUIRED_ADDONS, EksClusterArgs, LogType, SystemAmiType
from components.eks_network_rules import wrong_zones
from components.karpenter_policies import CLUSTER_NAME_LIMIT, partition_of

WIDEST_PREFIX = 8
"""Networks with a shorter prefix are no company's: two of /1 are everybody."""

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""Days that CloudWatch Logs can be told (API reference of PutRetentionPolicy)."""

_GRAVITON = re.compile(r"(?:a1|[a-z]+[0-9]+g[a-z]*)\..+")
"""Instance types of AWS's own processors, told by the letter after the generation
(https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html)."""
_CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]*")
_KUBERNETES_VERSION = re.compile(r"1\.[0-9]+")
_ADDON_VERSION = re.compile(r"v[0-9]+\.([0-9]+)\.[0-9]+(?:-[0-9a-z.]+)?-eksbuild\.[0-9]+")
_PRINCIPAL = re.compile(r"arn:([a-z-]+):iam::[0-9]{12}:(?:role|user)/[\w+=,.@/-]+", re.ASCII)
_KEY = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")

Fault = Iterator[str]


def cluster_violations(args: EksClusterArgs) -> list[str]:
    """Every fault of a cluster, one line each: what, what was got, what is allowed, what to do."""
    return [
        *_wrong_name(args.cluster_name),
        *_wrong_place(args),
        *wrong_zones(list(args.network.private_subnets), args.region),
        *_wrong_versions(args),
        *_wrong_endpoint(args),
        *_wrong_nodes(args),
        *_wrong_admins(args),
        *_wrong_logs(args),
    ]


def _wrong_name(name: str) -> Fault:
    if not _CLUSTER_NAME.fullmatch(name):
        yield f"cluster name: {name!r}; letters, digits, - and _ are allowed, a letter or digit first; rename it"
    if len(name) > CLUSTER_NAME_LIMIT:
        yield (
            f"cluster name: {len(name)} characters; at most {CLUSTER_NAME_LIMIT} leave room for the role"
            " KarpenterNodeRole-<cluster>; shorten it"
        )


def _wrong_place(args: EksClusterArgs) -> Fault:
    if not isinstance(args.account_id, str) or not re.fullmatch(r"[0-9]{12}", args.account_id):
        yield f"account: {args.account_id!r}; an account of 12 digits is allowed; write it as text"
    found = partition_of(args.region)
    if args.partition != found:
        yield f"partition: {args.partition!r}; region {args.region!r} is in {found!r}; set it to that"


def _wrong_versions(args: EksClusterArgs) -> Fault:
    version = args.kubernetes_version
    known = isinstance(version, str) and bool(_KUBERNETES_VERSION.fullmatch(version))
    if not known:
        yield f"Kubernetes version: {version!r}; a minor version is allowed; write it as text, as '1.33'"
    missing = [addon for addon in REQUIRED_ADDONS if addon not in args.addons]
    if missing:
        yield f"addons: no {', '.join(missing)}; nodes or Karpenter cannot do without; add them with their versions"
    for addon, pinned in args.addons.items():
        match = _ADDON_VERSION.fullmatch(pinned)
        if not match:
            yield f"addon {addon!r}: version {pinned!r}; an exact version is allowed; write it as 'v1.20.4-eksbuild.2'"
        elif addon == "kube-proxy" and known and int(match[1]) > int(version.removeprefix("1.")):
            yield f"addon 'kube-proxy': {pinned}, newer than Kubernetes {version}; its own minor version; take that"


def _wrong_endpoint(args: EksClusterArgs) -> Fault:
    endpoint = args.endpoint
    if endpoint.public and not endpoint.cidrs:
        yield "endpoint: public without CIDRs, which is open to the world; name those who may reach it"
    if endpoint.cidrs and not endpoint.public:
        yield "endpoint: CIDRs without a public endpoint; they hold for that alone; remove them, or set public"
    for cidr in endpoint.cidrs:
        try:
            network = ipaddress.IPv4Network(cidr)
        except ValueError as error:
            yield f"endpoint: CIDR {cidr!r}: {error}; IPv4 networks are allowed; write one as '192.0.2.0/24'"
            continue
        if network.prefixlen < WIDEST_PREFIX and not endpoint.open_to_the_world:
            yield (
                f"endpoint: CIDR {cidr!r} is wider than /{WIDEST_PREFIX}; so much is allowed with open_to_the_world;"
                " name the networks of those who use the cluster"
            )


def _wrong_nodes(args: EksClusterArgs) -> Fault:
    nodes = args.system_nodes
    if not 1 <= nodes.min_size <= nodes.desired_size <= nodes.max_size:
        sizes = f"min {nodes.min_size}, desired {nodes.desired_size}, max {nodes.max_size}"
        yield f"system nodes: {sizes}; 1 <= min <= desired <= max is allowed; put them in order"
    if nodes.min_size < 2:
        yield (
            f"system nodes: min {nodes.min_size}; Karpenter's two replicas refuse to share a node, so at least 2;"
            " raise it"
        )
    if nodes.ami_type not in get_args(SystemAmiType):
        yield f"system nodes: AMI type {nodes.ami_type!r}; {', '.join(get_args(SystemAmiType))} are allowed; choose one"
    for instance_type in nodes.instance_types:
        if bool(_GRAVITON.fullmatch(instance_type)) != ("ARM_64" in nodes.ami_type):
            yield f"system nodes: {instance_type} cannot start {nodes.ami_type}; its architecture's types can; take one"
    release = nodes.release_version
    if release is not None and not release.startswith(f"{args.kubernetes_version}."):
        yield f"system nodes: release {release!r}; one of Kubernetes {args.kubernetes_version} is allowed; take that"
    if not nodes.instance_types:
        yield "system nodes: no instance types; at least one is needed; name one, as 'm6i.large'"
    if nodes.disk_gib < 20:
        yield f"system nodes: disk of {nodes.disk_gib} GiB; at least 20, the image's own, are allowed; take 50"


def _wrong_admins(args: EksClusterArgs) -> Fault:
    for key, arn in args.admins.items():
        match = _PRINCIPAL.fullmatch(arn)
        if not _KEY.fullmatch(key):
            yield f"admin {key!r}: no such name; lower-case letters, digits and - are allowed; rename it"
        if not match:
            yield f"admin {key!r}: {arn!r}; the ARN of an IAM role or user is allowed; no session's, and no account's"
        elif match[1] != args.partition:
            yield f"admin {key!r}: of partition {match[1]!r}; {args.partition!r} is allowed; correct the ARN"
    for arn in sorted({arn for arn in args.admins.values() if list(args.admins.values()).count(arn) > 1}):
        yield f"admins: {arn} is named twice; each is allowed once; remove one"


def _wrong_logs(args: EksClusterArgs) -> Fault:
    for log_type in args.log_types:
        if log_type not in get_args(LogType):
            yield f"log type {log_type!r}: unknown; {', '.join(get_args(LogType))} are allowed; choose among them"
    if args.log_retention_days not in LOG_RETENTION_DAYS:
        days = ", ".join(map(str, LOG_RETENTION_DAYS))
        yield f"log retention: {args.log_retention_days} days; {days} are allowed; choose one"
