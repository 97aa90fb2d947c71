"""What a kubespray cluster cannot be, which changes it cannot make, and what is unwise though it would work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from components.kubespray_args import (
    ContainerManager,
    Encapsulation,
    EtcdDeployment,
    KubesprayClusterArgs,
    KubesprayNode,
    NetworkPlugin,
    ProxyMode,
    Role,
)
from components.kubespray_inventory import (
    CLUSTER_ARGUMENTS,
    GROUP_ARGUMENTS,
    HOST_ARGUMENTS,
    desired,
    server_url,
    ssh_host,
)
from components.kubespray_steps import CONTROL_PLANE, ETCD, GROUPS, Desired, Journal, numbers, refusals
from components.ssh import HOST_NAME, ssh_refusals

SUPPORTED = {
    (2, 28): ((1, 30), (1, 32)),
    (2, 29): ((1, 31), (1, 33)),
    (2, 30): ((1, 32), (1, 34)),
    (2, 31): ((1, 33), (1, 35)),
}
"""First and last minor of Kubernetes, by minor of kubespray (roles/kubespray_defaults/vars/main/checksums.yml at
v2.28.1, v2.29.1, v2.30.0 and v2.31.0)."""

FOSSILS = {
    "nvidia_accelerator_enabled": "it installs a driver of 2018; give nvidia_runtime, with its packages on the nodes"
}
"""Variables of kubespray that do harm, and what to do instead."""

VARIABLE_GROUPS = ("all", "k8s_cluster", *GROUPS.values())

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TAG = re.compile(r"v\d+\.\d+\.\d+")
_KUBERNETES = re.compile(r"\d+\.\d+\.\d+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIRECTORY = re.compile(r"(~|)(/[A-Za-z0-9._+-]+)+")
_SERVER = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?")

Fault = Iterator[str]


def violations(args: KubesprayClusterArgs, previous: KubesprayClusterArgs | None = None) -> list[str]:
    """Why such a cluster cannot be, one line for each reason; with what it was told before, also which changes
    kubespray cannot make. Empty when all is well."""
    checks: tuple[Callable[[KubesprayClusterArgs], Fault], ...] = (
        _wrong_place,
        _wrong_nodes,
        _wrong_roles,
        _wrong_addresses,
        _wrong_ways,
        _wrong_versions,
        _wrong_choices,
        _wrong_variables,
        _wrong_numbers,
    )
    found = [fault for check in checks for fault in check(args)]
    return found if found or previous is None else refusals(grown(previous), desired(args))


def grown(args: KubesprayClusterArgs) -> Journal:
    """The journal of a cluster that is just as the arguments say."""
    return settled(desired(args))


def settled(told: Desired) -> Journal:
    """The journal of a cluster that is just as it was wanted."""
    return {
        "identity": "",
        "members": told["nodes"],
        "touched": {},
        "settings": None,
        "secrets": None,
        "kubespray": told["kubespray"],
        "kubernetes": told["kubernetes"],
    }


def _wrong_place(args: KubesprayClusterArgs) -> Fault:
    if not HOST_NAME.fullmatch(args.cluster) or args.cluster == "kubespray":
        yield f"cluster: {args.cluster!r}; lower-case letters, digits and '-' are allowed, not 'kubespray'; rename it"
    if not _DIRECTORY.fullmatch(args.directory) or "/.." in args.directory:
        yield f"directory: {args.directory!r}; an absolute path or one from '~/' on is allowed, no blanks; correct it"
    source = args.kubespray
    if not _TAG.fullmatch(source.version):
        yield f"kubespray.version: {source.version!r}; a tag such as v2.31.0 is allowed; name one"
    if re.match(r"[a-z+]+://[^/]*@", source.url):
        yield "kubespray.url: has a user in it, who would be seen in the state; use git's own credential store there"
    if source.commit is not None and not re.fullmatch(r"[0-9a-f]{40}", source.commit):
        yield f"kubespray.commit: {source.commit!r}; 40 hexadecimal digits are allowed; give the whole commit"
    for what, path in (("folder", source.folder), ("venv", source.venv)):
        if path is not None and not path.startswith("/"):
            yield f"kubespray.{what}: {path!r}; an absolute path is allowed; correct it"


def _wrong_nodes(args: KubesprayClusterArgs) -> Fault:
    for name, times in Counter(node.name for node in args.nodes).items():
        if times > 1:
            yield f"nodes: {times} are called {name!r}; each name is allowed once; rename all but one"
    for node in args.nodes:
        where = f"nodes.{node.name}"
        if not HOST_NAME.fullmatch(node.name):
            yield f"{where}: is no name; 1 to 63 lower-case letters, digits and inner hyphens are allowed; rename it"
        yield from _wrong_labels(where, node)
    for name in args.lost:
        if name in {node.name for node in args.nodes}:
            yield f"lost: {name} is among the nodes; only what is removed can be lost; remove it from one of the two"


def _wrong_labels(where: str, node: KubesprayNode) -> Fault:
    for key, value in [*node.labels.items(), *((taint.key, taint.value or "") for taint in node.taints)]:
        if not _LABEL.fullmatch(key):
            yield f"{where}: {key!r} is no key of a label or taint; [domain/]name is allowed; correct it"
        if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
            yield f"{where}: {key}: {value!r}; at most 63 letters, digits, '-', '_' and '.' are allowed; correct it"
    if node.site is not None and not _NAME.fullmatch(node.site):
        yield f"{where}.site: {node.site!r}; it becomes a label's value, of at most 63 characters; rename it"


def _wrong_roles(args: KubesprayClusterArgs) -> Fault:
    for node in args.nodes:
        unknown = [role for role in node.roles if role not in get_args(Role)]
        if unknown or not node.roles or len(set(node.roles)) < len(node.roles):
            yield (
                f"nodes.{node.name}.roles: {list(node.roles)}; one or more of {', '.join(get_args(Role))}, each once,"
                " are allowed; correct them"
            )
    count = Counter(str(role) for node in args.nodes for role in node.roles)
    if not count[CONTROL_PLANE]:
        yield f"nodes: none has the role {CONTROL_PLANE}; at least one is needed; give it to one"
    if not count[ETCD] and args.etcd_deployment != "kubeadm":
        yield f"nodes: none has the role {ETCD}; one, three or five are needed; give it to them"
    if count[ETCD] and count[ETCD] % 2 == 0:
        yield (
            f"nodes: {count[ETCD]} have the role {ETCD}; an even number bears no more losses than one fewer, and"
            " kubespray refuses it; make it odd"
        )


def _wrong_addresses(args: KubesprayClusterArgs) -> Fault:
    """Two machines with one address: kubespray would set both up as one, or one as both."""
    owners: dict[str, set[str]] = {}
    for node in args.nodes:
        for address in (node.address, node.internal_address, node.access_address):
            if address and not (address == node.address and "ansible_connection" in node.variables):
                owners.setdefault(address, set()).add(node.name)
    for address, names in owners.items():
        if len(names) > 1:
            yield f"nodes: {', '.join(sorted(names))} have the address {address}; each has its own; correct all but one"


def _wrong_ways(args: KubesprayClusterArgs) -> Fault:
    """How hosts are reached. Those with a connection of their own are the caller's affair."""
    by_ssh = [node for node in args.nodes if "ansible_connection" not in node.variables]
    if args.login is None:
        if by_ssh:
            yield f"login: is missing, and {by_ssh[0].name} is reached by SSH; say who logs in"
    else:
        for reason in ssh_refusals([ssh_host(node) for node in by_ssh], args.login):
            if not reason.startswith("hosts: two have"):
                yield f"nodes: {reason}" if not reason.startswith("login") else reason
    if args.runner:
        yield from (f"runner: {reason}" for reason in ssh_refusals([args.runner.host], args.runner.login))


def _wrong_versions(args: KubesprayClusterArgs) -> Fault:
    version = args.kubernetes_version
    if not _KUBERNETES.fullmatch(version):
        yield f"kubernetes_version: {version!r}; a version such as 1.35.4, without a 'v', is allowed; correct it"
        return
    window = SUPPORTED.get(numbers(args.kubespray.version)[:2]) if _TAG.fullmatch(args.kubespray.version) else None
    if window and not window[0] <= numbers(version)[:2] <= window[1]:
        first, last = (".".join(str(part) for part in each) for each in window)
        yield (
            f"kubernetes_version: {version}; kubespray {args.kubespray.version} brings {first} to {last}; take one of"
            " those, or another kubespray"
        )


def _wrong_choices(args: KubesprayClusterArgs) -> Fault:
    for what, value, choices in (
        ("container_manager", args.container_manager, get_args(ContainerManager)),
        ("network_plugin", args.network_plugin, get_args(NetworkPlugin)),
        ("proxy_mode", args.proxy_mode, get_args(ProxyMode)),
        ("etcd_deployment", args.etcd_deployment, get_args(EtcdDeployment)),
        ("calico.encapsulation", args.calico.encapsulation, get_args(Encapsulation)),
    ):
        if value not in choices:
            yield f"{what}: {value!r}; {', '.join(choices)} are allowed; choose one"
    if args.etcd_deployment == "docker" and args.container_manager != "docker":
        yield "etcd_deployment: docker needs container_manager docker; take host"
    if args.nvidia_runtime and args.container_manager != "containerd":
        yield f"nvidia_runtime: is containerd's, and container_manager is {args.container_manager}; take containerd"
    if args.api_server is not None and not _SERVER.fullmatch(args.api_server):
        yield f"api_server: {args.api_server!r}; a host, or a host and a port, is allowed: 'k8s.example:6443'"
    elif args.api_server is not None and not _has_port(args):
        yield f"api_server: {args.api_server!r}; ports from 1 to 65535 are allowed; correct it"


def _has_port(args: KubesprayClusterArgs) -> bool:
    try:
        return bool(server_url(args))
    except ValueError:
        return False


def _wrong_variables(args: KubesprayClusterArgs) -> Fault:
    for group in args.variables:
        if group not in VARIABLE_GROUPS:
            yield f"variables.{group}: is no group; {', '.join(VARIABLE_GROUPS)} are allowed; move them to one"
    for where, variables, taken in (
        *((f"variables.{group}", given, GROUP_ARGUMENTS) for group, given in args.variables.items()),
        *((f"nodes.{node.name}.variables", node.variables, HOST_ARGUMENTS) for node in args.nodes),
        *((f"nodes.{node.name}.secret_variables", node.secret_variables, HOST_ARGUMENTS) for node in args.nodes),
        ("secret_variables", args.secret_variables, HOST_ARGUMENTS),
    ):
        yield from _wrong_names(where, variables, taken | CLUSTER_ARGUMENTS)
    for where, open_ones, secret_ones in (
        ("variables.all", args.variables.get("all", {}), args.secret_variables),
        *((f"nodes.{node.name}.variables", node.variables, node.secret_variables) for node in args.nodes),
    ):
        for variable in [each for each in secret_ones if each in open_ones]:
            yield f"{where}.{variable}: is among the secret ones too; one of the two would win; remove one"


def _wrong_names(where: str, variables: Mapping[str, object], taken: Mapping[str, str]) -> Fault:
    for variable in variables:
        if not _VARIABLE.fullmatch(variable):
            yield f"{where}.{variable}: is no name of a variable; letters, digits and '_' are allowed; correct it"
        elif variable in taken:
            yield f"{where}.{variable}: the argument {taken[variable]} stands for it; give that; remove this"
        elif variable in FOSSILS:
            yield f"{where}.{variable}: {FOSSILS[variable]}"


def _wrong_numbers(args: KubesprayClusterArgs) -> Fault:
    if args.drain_seconds < 1:
        yield f"drain_seconds: {args.drain_seconds}; 1 or more is allowed; give the longest job's"
    if args.drain_grace_seconds < -1:
        yield f"drain_grace_seconds: {args.drain_grace_seconds}; -1 or more is allowed; correct it"
    if args.kubeconfig_generation < 1:
        yield f"kubeconfig_generation: {args.kubeconfig_generation}; 1 or more is allowed; count up"
    if not re.fullmatch(r"[1-9]\d*|(100|[1-9]\d?)%", args.upgrade_serial):
        yield f"upgrade_serial: {args.upgrade_serial!r}; a number of nodes or a percentage is allowed: '1', '20%'"
    if args.calico.mtu is not None and not 1280 <= args.calico.mtu <= 9216:
        yield f"calico.mtu: {args.calico.mtu}; 1280 to 9216 bytes are allowed; give that of the nodes' network"


# -- what is unwise ---------------------------------------------------------------------------------------------------


def site_findings(args: KubesprayClusterArgs) -> list[str]:
    """What works, and is unwise, of machines that are far apart: one line each. Wants arguments without violations."""
    found = []
    for role, why in (
        (ETCD, "every write waits for another site, and its defaults (100 ms heartbeat) are made for one"),
        (CONTROL_PLANE, "a cut between them leaves one side without an API server, or both without etcd"),
    ):
        sites = sorted({node.site for node in args.nodes if role in node.roles and node.site})
        if len(sites) > 1:
            found.append(f"nodes: {role} spans {', '.join(sites)}: {why}; keep it at one site")
    sites = sorted({node.site for node in args.nodes if node.site})
    if len(sites) > 1 and args.network_plugin == "calico" and args.calico.encapsulation == "none":
        found.append(
            f"calico.encapsulation: none, across {', '.join(sites)}: pods reach each other only if the network between"
            " routes their addresses; take vxlan with cross_subnet_only"
        )
    return found
