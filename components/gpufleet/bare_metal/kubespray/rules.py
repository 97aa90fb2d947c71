"""What a kubespray cluster cannot be, which changes it cannot make, and what is unwise though it would work."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

from gpufleet.bare_metal.kubespray.args import (
    COMMIT,
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

SUPPORTED = {
    (2, 28): ((1, 30), (1, 32)),
    (2, 29): ((1, 31), (1, 33)),
    (2, 30): ((1, 32), (1, 34)),
    (2, 31): ((1, 33), (1, 35)),
}
"""First and last minor of Kubernetes, by minor of kubespray (roles/kubespray_defaults/vars/main/checksums.yml at
v2.28.1, v2.29.1, v2.30.0 and v2.31.0)."""

FOSSILS = {
    "nvidia_accelerator_enabled": "it installs a driver from 2018; use nvidia_runtime, with its packages on the nodes"
}
"""Variables of kubespray that do harm, and what to do instead."""

VARIABLE_GROUPS = ("all", "k8s_cluster", *GROUPS.values())

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KUBERNETES = re.compile(r"\d+\.\d+\.\d+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIRECTORY = re.compile(r"(~|)(/[A-Za-z0-9._+-]+)+")
_SERVER = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?")


def cluster_problems(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield every reason why such a cluster cannot be."""
    for rule in (
        *(_cluster_name, _source, _node_names, _lost, _labels, _roles, _addresses),
        *(
            _host_keys,
            network_problems,
            _ways,
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
    """Yield changes that kubespray cannot make to the cluster of that journal. Requires arguments without problems."""
    for problem in steps.change_problems(journal, desired(args)):
        path = _argument(problem.path, args)
        # The path does not name a variable that has kubespray's default: the message does.
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
    """The journal of a cluster that is just as the arguments say."""
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
        message = f"{args.cluster!r}; lower-case letters, digits and '-' are allowed, not 'kubespray'; rename it"
        yield Problem(("cluster",), "cluster-name", message)
    if not _DIRECTORY.fullmatch(args.directory) or "/.." in args.directory:
        message = f"{args.directory!r}; an absolute path or one from '~/' on is allowed, no blanks; correct it"
        yield Problem(("directory",), "directory", message)


def _source(args: KubesprayClusterArgs) -> Iterator[Problem]:
    source, where = args.kubespray, ("kubespray",)
    if not re.fullmatch(TAG, source.version):
        message = f"{source.version!r}; a tag such as v2.31.0 is allowed; name one"
        yield Problem((*where, "version"), "kubespray-version", message)
    if re.match(r"[a-z+]+://[^/]*@", source.url):
        message = "contains a user name, which would be visible in the state; use git's credential store instead"
        yield Problem((*where, "url"), "user-in-url", message)
    if source.commit is not None and not re.fullmatch(COMMIT, source.commit):
        message = f"{source.commit!r}; 40 hexadecimal digits are allowed; give the whole commit"
        yield Problem((*where, "commit"), "commit", message)
    for argument, path in (("folder", source.folder), ("venv", source.venv)):
        if path is not None and not path.startswith("/"):
            message = f"{path!r}; an absolute path is allowed; correct it"
            yield Problem((*where, argument), "relative-path", message)


def _node_names(args: KubesprayClusterArgs) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, node in enumerate(args.nodes):
        where = ("nodes", index, "name")
        if node.name in seen:
            message = f"{node.name!r} is the name of another node; each name is allowed once; rename one of them"
            yield Problem(where, "node-name-twice", message)
        seen.add(node.name)
        if not HOST_NAME.fullmatch(node.name):
            message = f"{node.name!r}; 1 to 63 lower-case letters, digits and inner hyphens are allowed; rename it"
            yield Problem(where, "node-name", message)


def _lost(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for index, name in enumerate(args.lost):
        if name in {node.name for node in args.nodes}:
            message = f"{name} is among the nodes; only removed nodes can be lost; remove it from one of the two"
            yield Problem(("lost", index), "lost-node-is-there", message)


def _labels(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for index, node in enumerate(args.nodes):
        where: Path = ("nodes", index)
        for key, value in node.labels.items():
            yield from under((*where, "labels", key), _label(key, value))
        for number, taint in enumerate(node.taints):
            yield from under((*where, "taints", number), _label(taint.key, taint.value or ""))
        if node.site is not None and not _NAME.fullmatch(node.site):
            message = f"{node.site!r}; it becomes a label's value, of at most 63 characters; rename it"
            yield Problem((*where, "site"), "site", message)


def _label(key: str, value: object) -> Iterator[Problem]:
    if not _LABEL.fullmatch(key):
        message = f"{key!r} is not a valid key of a label or taint; [domain/]name is allowed; correct it"
        yield Problem((), "label-key", message)
    if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
        message = f"{key}: {value!r}; at most 63 letters, digits, '-', '_' and '.' are allowed; correct it"
        yield Problem((), "label-value", message)


def _roles(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for index, node in enumerate(args.nodes):
        unknown = [role for role in node.roles if role not in get_args(Role)]
        if unknown or not node.roles or len(set(node.roles)) < len(node.roles):
            message = (
                f"{list(node.roles)}; one or more of {', '.join(get_args(Role))}, each once, are allowed; correct them"
            )
            yield Problem(("nodes", index, "roles"), "roles", message)
    count, where = Counter(str(role) for node in args.nodes for role in node.roles), ("nodes",)
    if not count[CONTROL_PLANE]:
        message = f"no node has the role {CONTROL_PLANE}; at least one is required; give it to one"
        yield Problem(where, "no-control-plane", message)
    if not count[ETCD] and args.etcd_deployment != "kubeadm":
        yield Problem(
            where, "no-etcd", f"no node has the role {ETCD}; one, three or five are required; give it to them"
        )
    if count[ETCD] and count[ETCD] % 2 == 0:
        message = (
            f"{count[ETCD]} have the role {ETCD}; they tolerate no more failures than {count[ETCD] - 1}, and kubespray"
            " refuses an even number; use an odd one"
        )
        yield Problem(where, "even-etcd", message)


def _addresses(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Two machines with one address: kubespray would set both up as one, or one as both."""
    owners: dict[str, str] = {}
    for index, node in enumerate(args.nodes):
        for argument in ("address", "internal_address", "access_address"):
            address = getattr(node, argument)
            if not address or (address == node.address and "ansible_connection" in node.variables):
                continue
            owner = owners.setdefault(_canonical(address), node.name)
            if owner != node.name:
                message = f"{owner} and {node.name} have the address {address}; each has its own; correct one of them"
                yield Problem(("nodes", index, argument), "address-twice", message)


def _canonical(address: str) -> str:
    """The address as it is written first: IPv6 has many ways to write one."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower()


def _host_keys(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Machines with one host key were cloned with it: each can pose as the other, and is often the same machine."""
    owners: dict[str, str] = {}
    for index, node in enumerate(args.nodes):
        for key in {" ".join(key.split()[:2]) for key in node.host_keys}:
            owner = owners.setdefault(key, node.name)
            if owner != node.name:
                message = (
                    f"{owner} and {node.name} have the same host key; each machine has its own; correct one of them, or"
                    " make new keys on a cloned machine: ssh-keygen -A, after removal of the old ones"
                )
                yield Problem(("nodes", index, "host_keys"), "host-key-twice", message)


def _ways(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """How hosts are reached. Those with a connection of their own are the caller's affair."""
    by_ssh = [(index, node) for index, node in enumerate(args.nodes) if "ansible_connection" not in node.variables]
    if args.login is None:
        if by_ssh:
            message = f"is missing, and {by_ssh[0][1].name} is reached by SSH; set the login"
            yield Problem(("login",), "login-missing", message)
    else:
        for problem in ssh_problems([ssh_host(node) for _, node in by_ssh], args.login):
            # Names and addresses of nodes are judged above, of all nodes together; one of them can be the jump host.
            if problem.code in ("host-name-twice", "host-address-twice"):
                continue
            match problem.path:
                case ("hosts", int(number), *rest):
                    if problem.code != "host-name":
                        yield replace(problem, path=("nodes", by_ssh[number][0], *rest))
                case _:
                    yield problem
    if args.runner:
        for problem in ssh_problems([args.runner.host], args.runner.login):
            first, *rest = problem.path
            part: Path = ("host", *rest[1:]) if first == "hosts" else ("login", *rest)
            yield replace(problem, path=("runner", *part))


def _versions(args: KubesprayClusterArgs) -> Iterator[Problem]:
    version, where = args.kubernetes_version, ("kubernetes_version",)
    if not _KUBERNETES.fullmatch(version):
        message = f"{version!r}; a version such as 1.35.4, without a 'v', is allowed; correct it"
        yield Problem(where, "kubernetes-version", message)
        return
    tag = args.kubespray.version
    window = SUPPORTED.get(numbers(tag)[:2]) if re.fullmatch(TAG, tag) else None
    if window and not window[0] <= numbers(version)[:2] <= window[1]:
        first, last = (".".join(str(part) for part in each) for each in window)
        message = f"{version}; kubespray {tag} brings {first} to {last}; use one of those, or another kubespray"
        yield Problem(where, "kubernetes-unsupported", message)


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
            yield Problem(path, "choice", f"{value!r}; {', '.join(allowed)} are allowed; choose one")
    if args.etcd_deployment == "docker" and args.container_manager != "docker":
        message = "docker requires container_manager docker; use host"
        yield Problem(("etcd_deployment",), "etcd-without-docker", message)
    outside = {**args.variables.get("all", {}), **args.variables.get("k8s_cluster", {})}.get("kube_external_ca_mode")
    if outside and args.auto_renew_certificates:
        # kubespray refuses the two together (roles/validate_inventory/tasks/main.yml:209-212 at v2.31.0).
        message = "is enabled, but kube_external_ca_mode has certificates issued elsewhere; disable it"
        yield Problem(("auto_renew_certificates",), "certificates-from-elsewhere", message)
    if args.nvidia_runtime and args.container_manager != "containerd":
        message = f"requires containerd, but container_manager is {args.container_manager}; use containerd"
        facts = {"container_manager": args.container_manager}
        yield Problem(("nvidia_runtime",), "runtime-without-containerd", message, facts)


def _api_server(args: KubesprayClusterArgs) -> Iterator[Problem]:
    if args.api_server is None:
        return
    if not _SERVER.fullmatch(args.api_server):
        message = f"{args.api_server!r}; a host, or a host and a port, is allowed: 'k8s.example:6443'"
        yield Problem(("api_server",), "api-server", message)
    elif not _has_port(args):
        message = f"{args.api_server!r}; ports from 1 to 65535 are allowed; correct it"
        yield Problem(("api_server",), "api-server-port", message)


def _has_port(args: KubesprayClusterArgs) -> bool:
    try:
        return bool(server_url(args))
    except ValueError:
        return False


def _variables(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for group, given in args.variables.items():
        if group not in VARIABLE_GROUPS:
            message = f"is not a group; {', '.join(VARIABLE_GROUPS)} are allowed; move them to one"
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
            message = "is not a valid variable name; letters, digits and '_' are allowed; correct it"
            yield Problem((variable,), "variable-name", message)
        elif variable in arguments:
            argument = arguments[variable]
            message = f"the argument {argument} sets it; use that, and remove this"
            yield Problem((variable,), "variable-of-an-argument", message, {"argument": argument})
        elif variable in FOSSILS:
            yield Problem((variable,), "harmful-variable", FOSSILS[variable])


def _secrets_in_the_open(args: KubesprayClusterArgs) -> Iterator[Problem]:
    places: list[tuple[Path, Mapping[str, object], Mapping[str, object]]] = [
        (("variables", "all"), args.variables.get("all", {}), args.secret_variables),
        *((("nodes", i, "variables"), node.variables, node.secret_variables) for i, node in enumerate(args.nodes)),
    ]
    for where, open_ones, secret_ones in places:
        for variable in [each for each in secret_ones if each in open_ones]:
            message = "is a secret variable too, and only one of the two would apply; remove one"
            yield Problem((*where, variable), "variable-twice", message)


def _numbers(args: KubesprayClusterArgs) -> Iterator[Problem]:
    for argument, number, fewest, advice in (
        ("drain_seconds", args.drain_seconds, 1, "give the longest job's"),
        ("drain_grace_seconds", args.drain_grace_seconds, -1, "correct it"),
        ("kubeconfig_generation", args.kubeconfig_generation, 1, "count up"),
    ):
        if number < fewest:
            yield Problem((argument,), "number-too-small", f"{number}; {fewest} or more is allowed; {advice}")
    if not re.fullmatch(r"[1-9]\d*|(100|[1-9]\d?)%", args.upgrade_serial):
        message = f"{args.upgrade_serial!r}; a number of nodes or a percentage is allowed: '1', '20%'"
        yield Problem(("upgrade_serial",), "upgrade-serial", message)
    smallest, largest = MTUS
    if args.calico.mtu is not None and not smallest <= args.calico.mtu <= largest:
        message = f"{args.calico.mtu}; {smallest} to {largest} bytes are allowed; give that of the nodes' network"
        yield Problem(("calico", "mtu"), "mtu", message)


# -- what is unwise ---------------------------------------------------------------------------------------------------


def site_findings(args: KubesprayClusterArgs) -> Iterator[Problem]:
    """Yield what works, and is unwise, of machines that are far apart. Wants arguments without problems."""
    for role, code, why in (
        (
            ETCD,
            "etcd-across-sites",
            "every write waits for another site, and its defaults (100 ms heartbeat) are made for one",
        ),
        (
            CONTROL_PLANE,
            "control-plane-across-sites",
            "a cut between them leaves one side without an API server, or both without etcd",
        ),
    ):
        sites = sorted({node.site for node in args.nodes if role in node.roles and node.site})
        if len(sites) > 1:
            yield Problem(("nodes",), code, f"{role} spans {', '.join(sites)}: {why}; keep it at one site")
    sites = sorted({node.site for node in args.nodes if node.site})
    if len(sites) > 1 and args.network_plugin == "calico" and args.calico.encapsulation == "none":
        message = (
            f"none, across {', '.join(sites)}: pods reach each other only if the network between routes their"
            " addresses; take vxlan with cross_subnet_only"
        )
        yield Problem(("calico", "encapsulation"), "unrouted-pods", message, {"sites": ", ".join(sites)})
