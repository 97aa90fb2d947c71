"""Rules for kubespray clusters: problems of the arguments, changes that kubespray cannot make, and findings."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

from gpufleet.bare_metal.kubespray.args import (
    COMMIT,
    IMAGE_GC,
    KUBESPRAY_VERSION,
    MTUS,
    TAG,
    ContainerManager,
    Encapsulation,
    EtcdDeployment,
    KubesprayClusterArgs,
    NetworkPlugin,
    ProxyMode,
    Role,
)
from gpufleet.bare_metal.kubespray.driver import steps
from gpufleet.bare_metal.kubespray.driver.steps import (
    CONTROL_PLANE,
    ETCD,
    GROUPS,
    Desired,
    Journal,
    immutable,
    numbers,
)
from gpufleet.bare_metal.kubespray.inventory import (
    CLUSTER_ARGUMENTS,
    GROUP_ARGUMENTS,
    HOST_ARGUMENTS,
    desired,
    server_url,
    ssh_host,
)
from gpufleet.bare_metal.kubespray.networks import network_problems
from gpufleet.bare_metal.ssh import HOST_NAME, ssh_problems
from gpufleet.problem import Path, Problem, under

LAST_PATCHES = {KUBESPRAY_VERSION: {(1, 33): 11, (1, 34): 7, (1, 35): 4}}
"""Last patch of each minor version of Kubernetes, by kubespray release: each has checksums of all patches from 0 on
(kubelet_checksums in roles/kubespray_defaults/vars/main/checksums.yml:70 at v2.31.0). Older releases require another
Ansible than the driver installs (install.py)."""

HARMFUL = {
    "nvidia_accelerator_enabled": (
        "installs an NVIDIA driver from 2018; use nvidia_runtime instead, with its packages on the nodes"
    )
}
"""Messages about harmful kubespray variables, by name."""

VARIABLE_GROUPS = ("all", "k8s_cluster", *GROUPS.values())

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KUBERNETES = re.compile(r"\d+\.\d+\.\d+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIRECTORY = re.compile(r"(~|)(/[A-Za-z0-9._+-]+)+")
_SERVER = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?")


def cluster_problems(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield every problem of a cluster."""
    for rule in (
        *(_cluster_name, _source, _node_names, _lost, _labels, _roles, _addresses),
        *(
            _host_keys,
            network_problems,
            _logins,
            _move,
            _versions,
            _choices,
            _api_server,
            _variables,
            _secrets_in_the_open,
            _numbers,
        ),
    ):
        yield from rule(args)


def change_problems(args: KubesprayClusterArgs, journal: Journal) -> Iterator[Problem]:
    """Yield changes that kubespray cannot make to the journal's cluster. Requires arguments without problems."""
    for problem in steps.change_problems(journal, desired(args)):
        path = _argument(problem.path, args)
        # The path of a variable with kubespray's default does not name it, so the message must.
        yield replace(problem, path=path, message=str(problem) if path == ("variables",) else problem.message)


def _argument(path: Path, args: KubesprayClusterArgs) -> Path:
    """Return the argument from which a part of the desired state comes."""
    match path:
        case ("kubernetes",):
            return ("kubernetes_version",)
        case ("kubespray",):
            return ("kubespray", "version")
        case ("nodes", name):
            return ("nodes", next(index for index, node in enumerate(args.nodes) if node.name == name))
        case ("variables", str(group), str(variable)):
            if variable in CLUSTER_ARGUMENTS:
                return (CLUSTER_ARGUMENTS[variable],)
            return path if variable in args.variables.get(group, {}) else ("variables",)
        case _:
            return path


def grown(args: KubesprayClusterArgs) -> Journal:
    """Return the journal of a cluster that matches its arguments."""
    return settled(desired(args))


def settled(wanted: Desired) -> Journal:
    """Return the journal of a cluster that matches its desired state."""
    return {
        "identity": "",
        "members": wanted["nodes"],
        "touched": {},
        "secrets": None,
        "kubespray": wanted["kubespray"],
        "kubernetes": wanted["kubernetes"],
        "variables": wanted["variables"],
        "immutable": immutable(wanted["variables"]),
    }


def _cluster_name(args: KubesprayClusterArgs) -> Iterator[Problem]:
    if not HOST_NAME.fullmatch(args.cluster) or args.cluster == "kubespray":
        message = f"{args.cluster!r} is not valid; use lower-case letters, digits and '-', and not 'kubespray'"
        yield Problem(("cluster",), "cluster-name", message)
    if not _DIRECTORY.fullmatch(args.directory) or "/.." in args.directory:
        message = f"{args.directory!r} is not valid; write a path without blanks that begins with '/' or '~/'"
        yield Problem(("directory",), "directory", message)


def _source(args: KubesprayClusterArgs) -> Iterator[Problem]:
    source, where = args.kubespray, ("kubespray",)
    if not re.fullmatch(TAG, source.version):
        message = f"{source.version!r} is not a tag; write for example v2.31.0"
        yield Problem((*where, "version"), "kubespray-version", message)
    if re.match(r"[a-z+]+://[^/]*@", source.url):
        message = "contains a user name, which would be visible in the state; use git's credential store instead"
        yield Problem((*where, "url"), "user-in-url", message)
    if source.commit is not None and not re.fullmatch(COMMIT, source.commit):
        message = f"{source.commit!r} is not a full commit hash; write its 40 hexadecimal digits"
        yield Problem((*where, "commit"), "commit", message)
    for argument, path in (("folder", source.folder), ("venv", source.venv)):
        if path is not None and not path.startswith("/"):
            message = f"{path!r} is not an absolute path; begin it with '/'"
            yield Problem((*where, argument), "relative-path", message)


def _node_names(args: KubesprayClusterArgs) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, node in enumerate(args.nodes):
        where = ("nodes", index, "name")
        if node.name in seen:
            message = f"{node.name!r} is already the name of another node; rename one of them"
            yield Problem(where, "node-name-twice", message)
        seen.add(node.name)
        if not HOST_NAME.fullmatch(node.name):
            message = f"{node.name!r} is not valid; use 1 to 63 lower-case letters, digits and inner hyphens"
            yield Problem(where, "node-name", message)


def _lost(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for index, name in enumerate(args.lost):
        if name in {node.name for node in args.nodes}:
            message = f"{name} is still in nodes; remove it from nodes, or from lost"
            yield Problem(("lost", index), "lost-node-is-there", message)


def _labels(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for index, node in enumerate(args.nodes):
        where: Path = ("nodes", index)
        for key, value in node.labels.items():
            yield from under((*where, "labels", key), _label(key, value))
        for number, taint in enumerate(node.taints):
            yield from under((*where, "taints", number), _label(taint.key, taint.value or ""))
        if node.site is not None and not _NAME.fullmatch(node.site):
            message = f"{node.site!r} is not valid as a label's value; use at most 63 letters, digits, '-', '_' and '.'"
            yield Problem((*where, "site"), "site", message)


def _label(key: str, value: object) -> Iterator[Problem]:
    if not _LABEL.fullmatch(key):
        message = f"{key!r} is not a valid key of a label or taint; write [domain/]name"
        yield Problem((), "label-key", message)
    if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
        message = f"{value!r} is not a valid value of {key}; use at most 63 letters, digits, '-', '_' and '.'"
        yield Problem((), "label-value", message)


def _roles(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for index, node in enumerate(args.nodes):
        unknown = [role for role in node.roles if role not in get_args(Role)]
        if unknown or not node.roles or len(set(node.roles)) < len(node.roles):
            message = f"{list(node.roles)} is not valid; list one or more of {', '.join(get_args(Role))}, each once"
            yield Problem(("nodes", index, "roles"), "roles", message)
    count, where = Counter(str(role) for node in args.nodes for role in node.roles), ("nodes",)
    if not count[CONTROL_PLANE]:
        message = f"no node has the role {CONTROL_PLANE}; at least one node requires it"
        yield Problem(where, "no-control-plane", message)
    if not count[ETCD] and args.etcd_deployment != "kubeadm":
        yield Problem(where, "no-etcd", f"no node has the role {ETCD}; give it to one, three or five nodes")
    if count[ETCD] and count[ETCD] % 2 == 0:
        message = (
            f"{count[ETCD]} nodes have the role {ETCD}; they tolerate no more failures than {count[ETCD] - 1}, and"
            " kubespray rejects even numbers; use an odd number"
        )
        yield Problem(where, "even-etcd", message)


def _addresses(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield nodes that share an address. kubespray would set up one machine as several nodes."""
    owners: dict[str, str] = {}
    for index, node in enumerate(args.nodes):
        for argument in ("address", "internal_address", "access_address"):
            address = getattr(node, argument)
            if not address or (address == node.address and "ansible_connection" in node.variables):
                continue
            owner = owners.setdefault(_canonical(address), node.name)
            if owner != node.name:
                message = f"{owner} and {node.name} have the same address, {address}; correct one of them"
                yield Problem(("nodes", index, argument), "address-twice", message)


def _canonical(address: str) -> str:
    """Return the address in its canonical form; IPv6 addresses can be written in several ways."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower()


def _host_keys(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield nodes that share a host key. They are cloned machines, which can impersonate each other, or one machine."""
    owners: dict[str, str] = {}
    for index, node in enumerate(args.nodes):
        for key in {" ".join(key.split()[:2]) for key in node.host_keys}:
            owner = owners.setdefault(key, node.name)
            if owner != node.name:
                message = (
                    f"{owner} and {node.name} have the same host key; correct one of them, or on a cloned machine"
                    " delete the old keys and create new ones: ssh-keygen -A"
                )
                yield Problem(("nodes", index, "host_keys"), "host-key-twice", message)


def _logins(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield problems of logins. Nodes with their own `ansible_connection` are not checked."""
    by_ssh = [(index, node) for index, node in enumerate(args.nodes) if "ansible_connection" not in node.variables]
    if args.login is None:
        if by_ssh:
            message = f"is missing, but required for SSH to {by_ssh[0][1].name}; set the login"
            yield Problem(("login",), "login-missing", message)
    else:
        for problem in ssh_problems([ssh_host(node) for _, node in by_ssh], args.login):
            # Other rules check names and addresses of nodes. A node may also be the jump host.
            if problem.code in ("host-name-twice", "host-address-twice"):
                continue
            match problem.path:
                case ("hosts", int(number), *rest):
                    if problem.code != "host-name":
                        yield replace(problem, path=("nodes", by_ssh[number][0], *rest))
                case _:
                    yield problem
    runners = {"runner": args.runner, "moved_from": None if args.moved_from == "here" else args.moved_from}
    for argument, runner in runners.items():
        for problem in ssh_problems([runner.host], runner.login) if runner else ():
            first, *rest = problem.path
            part: Path = ("host", *rest[1:]) if first == "hosts" else ("login", *rest)
            yield replace(problem, path=(argument, *part))


def _move(args: KubesprayClusterArgs) -> Iterator[Problem]:
    before, after = args.moved_from, args.runner
    if before is None:
        return
    places = [each and (each.host.address, each.host.port) for each in (None if before == "here" else before, after)]
    if places[0] == places[1]:
        message = "is the machine that runs kubespray now; name the one that ran it before, or remove it"
        yield Problem(("moved_from",), "moved-from-itself", message)


def _versions(args: KubesprayClusterArgs) -> Iterator[Problem]:
    version, where = args.kubernetes_version, ("kubernetes_version",)
    if not _KUBERNETES.fullmatch(version):
        message = f"{version!r} is not a version; write for example 1.35.4, without a 'v'"
        yield Problem(where, "kubernetes-version", message)
        return
    tag = args.kubespray.version
    if not re.fullmatch(TAG, tag):
        return
    patches = {numbers(each)[:2]: minors for each, minors in LAST_PATCHES.items()}.get(numbers(tag)[:2])
    minor, patch = numbers(version)[:2], numbers(version)[2]
    if patches is None:
        message = f"{tag} is not supported, because it requires another Ansible; use {', '.join(LAST_PATCHES)}"
        yield Problem(("kubespray", "version"), "kubespray-unsupported", message)
    elif minor not in patches:
        first, last = (f"{major}.{each}" for major, each in (min(patches), max(patches)))
        message = f"{version} is not supported by kubespray {tag}; use {first} to {last}"
        yield Problem(where, "kubernetes-unsupported", message)
    elif tag in LAST_PATCHES and patch > patches[minor] and not _own_checksums(args):
        newest = ".".join(map(str, (*minor, patches[minor])))
        message = f"{version} has no checksum in kubespray {tag}, so nodes cannot download it; use {newest} or older"
        yield Problem(where, "kubernetes-unsupported", message)


def _own_checksums(args: KubesprayClusterArgs) -> bool:
    """Return whether the caller's variables replace kubespray's checksums of Kubernetes."""
    return any("kubelet_checksums" in args.variables.get(group, {}) for group in ("all", "k8s_cluster"))


def _choices(args: KubesprayClusterArgs) -> Iterator[Problem]:
    choices: tuple[tuple[Path, object, tuple[str, ...]], ...] = (
        (("container_manager",), args.container_manager, get_args(ContainerManager)),
        (("network_plugin",), args.network_plugin, get_args(NetworkPlugin)),
        (("proxy_mode",), args.proxy_mode, get_args(ProxyMode)),
        (("etcd_deployment",), args.etcd_deployment, get_args(EtcdDeployment)),
        (("calico", "encapsulation"), args.calico.encapsulation, get_args(Encapsulation)),
    )
    for path, value, allowed in choices:
        if value not in allowed:
            yield Problem(path, "choice", f"{value!r} is not valid; allowed: {', '.join(allowed)}")
    if args.etcd_deployment == "docker" and args.container_manager != "docker":
        message = "docker requires container_manager docker; use host"
        yield Problem(("etcd_deployment",), "etcd-without-docker", message)
    outside = {**args.variables.get("all", {}), **args.variables.get("k8s_cluster", {})}.get("kube_external_ca_mode")
    if outside and args.auto_renew_certificates:
        # kubespray rejects this combination (roles/validate_inventory/tasks/main.yml:209-212 at v2.31.0).
        message = "is enabled, but with kube_external_ca_mode an external CA issues certificates; disable it"
        yield Problem(("auto_renew_certificates",), "certificates-from-elsewhere", message)
    if args.nvidia_runtime and args.container_manager != "containerd":
        message = f"requires containerd, but container_manager is {args.container_manager}; use containerd"
        facts = {"container_manager": args.container_manager}
        yield Problem(("nvidia_runtime",), "runtime-without-containerd", message, facts)


def _api_server(args: KubesprayClusterArgs) -> Iterator[Problem]:
    if args.api_server is None:
        return
    if not _SERVER.fullmatch(args.api_server):
        message = f"{args.api_server!r} is not valid; write a host, or a host and a port: 'k8s.example:6443'"
        yield Problem(("api_server",), "api-server", message)
    elif not _has_port(args):
        message = f"{args.api_server!r} has an invalid port; use 1 to 65535"
        yield Problem(("api_server",), "api-server-port", message)


def _has_port(args: KubesprayClusterArgs) -> bool:
    try:
        return bool(server_url(args))
    except ValueError:
        return False


def _variables(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for group, given in args.variables.items():
        if group not in VARIABLE_GROUPS:
            message = f"is not a group; move its variables to one of {', '.join(VARIABLE_GROUPS)}"
            yield Problem(("variables", group), "variable-group", message)
        yield from under(("variables", group), _variable_names(given, GROUP_ARGUMENTS))
    yield from under(("secret_variables",), _variable_names(args.secret_variables, HOST_ARGUMENTS))
    for index, node in enumerate(args.nodes):
        yield from under(("nodes", index, "variables"), _variable_names(node.variables, HOST_ARGUMENTS))
        yield from under(("nodes", index, "secret_variables"), _variable_names(node.secret_variables, HOST_ARGUMENTS))


def _variable_names(variables: Mapping[str, object], taken: Mapping[str, str]) -> Iterator[Problem]:
    arguments = {**taken, **CLUSTER_ARGUMENTS}
    for variable in variables:
        if not _VARIABLE.fullmatch(variable):
            message = "is not a valid variable name; use letters, digits and '_'"
            yield Problem((variable,), "variable-name", message)
        elif variable in arguments:
            argument = arguments[variable]
            message = f"is set by the argument {argument}; use that, and remove the variable"
            yield Problem((variable,), "variable-of-an-argument", message, {"argument": argument})
        elif variable in HARMFUL:
            yield Problem((variable,), "harmful-variable", HARMFUL[variable])


def _secrets_in_the_open(args: KubesprayClusterArgs) -> Iterator[Problem]:
    places: list[tuple[Path, Mapping[str, object], Mapping[str, object]]] = [
        (("variables", "all"), args.variables.get("all", {}), args.secret_variables),
        *((("nodes", i, "variables"), node.variables, node.secret_variables) for i, node in enumerate(args.nodes)),
    ]
    for where, open_ones, secret_ones in places:
        for variable in [each for each in secret_ones if each in open_ones]:
            message = "is also a secret variable, and only one of the two would apply; remove one"
            yield Problem((*where, variable), "variable-twice", message)


def _numbers(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for argument, number, least in (
        ("drain_seconds", args.drain_seconds, 1),
        ("drain_grace_seconds", args.drain_grace_seconds, -1),
        ("kubeconfig_generation", args.kubeconfig_generation, 1),
        ("forks", args.forks, 1),
    ):
        if number is not None and number < least:
            yield Problem((argument,), "number-too-small", f"{number} is too small; use {least} or more")
    if not re.fullmatch(r"[1-9]\d*|(100|[1-9]\d?)%", args.upgrade_serial):
        message = f"{args.upgrade_serial!r} is not valid; write a number of nodes or a percentage: '1', '20%'"
        yield Problem(("upgrade_serial",), "upgrade-serial", message)
    gc = args.image_gc
    for argument, percent in (("high_percent", gc.high_percent), ("low_percent", gc.low_percent)):
        if percent is not None and not 0 <= percent <= 100:
            yield Problem(("image_gc", argument), "percent", f"{percent} is not a percentage; use 0 to 100")
    high, low = (
        own if own is not None else default
        for own, default in zip((gc.high_percent, gc.low_percent), IMAGE_GC, strict=True)
    )
    if low >= high:
        # The kubelet does not start with other values (validation.go of its configuration).
        message = f"{low} is not below the high threshold, {high}; use a smaller number, or raise the other"
        yield Problem(("image_gc", "low_percent"), "image-gc", message)
    smallest, largest = MTUS
    if args.calico.mtu is not None and not smallest <= args.calico.mtu <= largest:
        message = f"{args.calico.mtu} is not between {smallest} and {largest}; use the MTU of the nodes' network"
        yield Problem(("calico", "mtu"), "mtu", message)


# -- findings ---------------------------------------------------------------------------------------------------------


def site_findings(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield findings about clusters with several sites. Requires arguments without problems."""
    for role, code, why in (
        (
            ETCD,
            "etcd-across-sites",
            "every write waits for another site, and kubespray's defaults for etcd (250 ms heartbeat, 5 s election"
            " timeout) are made for a single site",
        ),
        (
            CONTROL_PLANE,
            "control-plane-across-sites",
            "a network failure between them leaves one site without an API server, or both without etcd",
        ),
    ):
        sites = sorted({node.site for node in args.nodes if role in node.roles and node.site})
        if len(sites) > 1:
            yield Problem(("nodes",), code, f"{role} spans the sites {', '.join(sites)}: {why}; keep it at one site")
    sites = sorted({node.site for node in args.nodes if node.site})
    if len(sites) > 1 and args.network_plugin == "calico" and args.calico.encapsulation == "none":
        message = (
            f"none, with nodes at several sites ({', '.join(sites)}): pods reach each other only if the network between"
            " the sites routes pod addresses; use vxlan with cross_subnet_only"
        )
        yield Problem(("calico", "encapsulation"), "unrouted-pods", message, {"sites": ", ".join(sites)})
