"""Settings from which the arguments of components on machines come: kubespray, SSH and NVIDIA."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic.alias_generators import to_camel

from gpufleet.bare_metal.container_toolkit import NvidiaContainerToolkitArgs
from gpufleet.bare_metal.kubespray.args import Calico, ImageGc, Kubespray, KubesprayClusterArgs, KubesprayNode, Mirrors
from gpufleet.bare_metal.ssh import SshHost
from gpufleet.nvidia.gpu_operator import NvidiaGpuOperatorArgs
from gpufleet.problem import Path
from gpufleet.taint import Taint
from gpufleet_stacks.settings.args.machines import machines
from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster, NodePool
from gpufleet_stacks.settings.models.kubespray import RunOnBastion
from gpufleet_stacks.settings.rules.places import Places, Words, attributes

_KUBESPRAY: Path = ("cluster", "kubespray")
_TOOLKIT: Path = ("cluster", "nvidiaContainerToolkit")
_POOLS: Path = ("cluster", "nodePools")
_SSH: Path = ("cluster", "ssh")
_RUN_ON: Path = (*_KUBESPRAY, "runOn")

_MISSING_KEY: Words = "requires either agentSocket or the secret ssh-privateKey; set one of them".format_map


def kubespray_places(cluster: BareMetalCluster) -> Places:
    """Return the settings of a cluster that kubespray creates."""
    names = {
        "cluster": None,
        "nodes": None,
        "login": None,
        "runner": None,
        "moved_from": None,
        "kubespray": "source",
        "nvidia_runtime": None,
        "needs": None,
    }
    rows = attributes(KubesprayClusterArgs, (), _KUBESPRAY, names)
    rows |= attributes(Kubespray, ("kubespray",), (*_KUBESPRAY, "source"))
    rows |= attributes(Calico, ("calico",), (*_KUBESPRAY, "calico"))
    rows |= attributes(ImageGc, ("image_gc",), (*_KUBESPRAY, "imageGc"))
    rows |= attributes(Mirrors, ("mirrors",), (*_KUBESPRAY, "mirrors"))
    rows[("cluster",)] = ("cluster", "name")
    rows[("nvidia_runtime",)] = (*_TOOLKIT, "runtime")
    rows[("nodes",)] = _POOLS
    for index, (name, node, pool) in enumerate(machines(cluster)):
        section, where = (*_pool_of(name, cluster), "nodes", name), ("nodes", index)
        rows[where] = rows[*where, "name"] = section
        rows |= attributes(KubesprayNode, where, section, {"name": None, "labels": None, "taints": None})
        rows |= _labels_and_taints(where, section, pool, node.labels)
    rows |= _login(("login",), cluster, bastion=False)
    rows |= _runner(("runner",), _RUN_ON) | _runner(("moved_from",), (*_KUBESPRAY, "movedFrom"))
    return Places(rows, _KUBESPRAY_WORDS)


def _pool_of(node: str, cluster: BareMetalCluster) -> Path:
    return (*_POOLS, next(name for name, pool in cluster.node_pools.items() if node in pool.nodes))


def _labels_and_taints(where: Path, section: Path, pool: NodePool, own: Iterable[str]) -> dict[Path, Path]:
    """Return the settings of a node's labels, which are its own or its pool's, and of its taints, the pool's."""
    of_pool = section[:-2]
    rows: dict[Path, Path] = {(*where, "labels"): (*section, "labels"), (*where, "taints"): (*of_pool, "taints")}
    rows |= {(*where, "labels", key): (*of_pool, "labels", key) for key in pool.labels.keys() - {*own}}
    for index in range(len(pool.taints)):
        rows |= attributes(Taint, (*where, "taints", index), (*of_pool, "taints", index))
    return rows


def _login(where: Path, cluster: BareMetalCluster, *, bastion: bool) -> dict[Path, Path]:
    """Return the settings of the machines' login: the section `ssh`, or the bastion that runs kubespray."""
    section = _RUN_ON if bastion else _SSH
    jump = section if bastion else (*_SSH, "jump")
    return {
        where: section,
        # The key is a secret of the stack, not a setting.
        (*where, "private_key"): section,
        (*where, "user"): (*_SSH, "user"),
        (*where, "agent_socket"): (*section, "agentSocket"),
        (*where, "dial_seconds"): section,
        (*where, "dial_attempts"): section,
        (*where, "jump"): jump,
        **attributes(SshHost, (*where, "jump"), jump),
        (*where, "jump", "user"): (*_SSH, "user"),
    }


def _runner(where: Path, section: Path) -> dict[Path, Path]:
    """Return the settings of a machine that runs kubespray, or ran it before."""
    return {
        where: section,
        (*where, "host"): section,
        **attributes(SshHost, (*where, "host"), section),
        (*where, "host", "user"): (*_SSH, "user"),
        (*where, "login"): section,
        (*where, "login", "private_key"): section,
        (*where, "login", "user"): (*_SSH, "user"),
        (*where, "login", "agent_socket"): (*section, "agentSocket"),
        (*where, "login", "jump"): section,
        (*where, "login", "dial_seconds"): section,
        (*where, "login", "dial_attempts"): section,
    }


_RENAMED = {"login": "ssh", "nvidia_runtime": "nvidiaContainerToolkit"}
"""Names of settings that differ from those of the arguments that set kubespray variables."""

_KUBESPRAY_WORDS: dict[str, Words] = {
    "login-ways": _MISSING_KEY,
    "moved-from-itself": "is the machine in runOn; name the one that ran kubespray before, or remove it".format_map,
    "etcd-without-docker": "docker requires containerManager: docker; use host".format_map,
    "runtime-without-containerd": (
        "requires containerd, but containerManager is {container_manager}; use containerd"
    ).format_map,
    "variable-of-an-argument": lambda facts: (
        f"is set by the setting {_RENAMED.get(facts['argument'], to_camel(facts['argument']))}; use that, and remove"
        " the variable"
    ),
    "harmful-variable": (
        "installs an NVIDIA driver from 2018; use cluster.nvidiaContainerToolkit instead, and remove the variable"
    ).format_map,
    "unrouted-pods": (
        "none, with nodes at several sites ({sites}): pods reach each other only if the network between the sites"
        " routes pod addresses; use vxlan with crossSubnetOnly"
    ).format_map,
}


def ssh_places(cluster: BareMetalCluster, hosts: Iterable[str]) -> Places:
    """Return the settings of the machines with the names `hosts`, and of the login with which this machine reaches
    them."""
    rows: dict[Path, Path] = {("hosts",): _POOLS}
    for index, name in enumerate(hosts):
        where, section = ("hosts", index), (*_pool_of(name, cluster), "nodes", name)
        rows[where] = rows[*where, "name"] = section
        rows |= attributes(SshHost, where, section, {"name": None})
    bastion = isinstance(cluster.kubespray.run_on, RunOnBastion) if cluster.kubespray else False
    return Places(rows | _login(("login",), cluster, bastion=bastion), {"login-ways": _MISSING_KEY})


def toolkit_places(cluster: BareMetalCluster) -> Places:
    """Return the settings of NVIDIA's container toolkit."""
    hosts = [name for pool in cluster.pools_of("nvidia").values() for name in pool.nodes]
    ssh = ssh_places(cluster, hosts)
    names = {"hosts": None, "login": None, "engine": "runtime", "needs": None}
    rows = attributes(NvidiaContainerToolkitArgs, (), _TOOLKIT, names)
    words: dict[str, Words] = {
        "key-sum-missing": (
            "is required unless keyUrl is https://, because others on the network could replace the key"
        ).format_map,
    }
    return Places({**ssh.rows, **rows}, {**ssh.words, **words})


OPERATOR = Places(
    {
        **attributes(
            NvidiaGpuOperatorArgs,
            (),
            ("gpuOperator",),
            {
                "nfd": "featureDiscovery",
                # These have no settings, or follow from other settings.
                **dict.fromkeys(
                    ("driver_enabled", "chart_mirror", "sharing", "tolerations", "values"),
                ),
            },
        ),
        ("host_toolkit_pinned",): _TOOLKIT,
        ("host_default_runtime",): (*_TOOLKIT, "runtime"),
        ("chart_mirror",): ("charts", "mirror"),
    },
    {
        "pin-without-runtime": (
            "containerd has the same default runtime on all machines, but those with AMD GPUs have no NVIDIA runtime;"
            " use separate clusters for AMD and NVIDIA, or let the GPU operator install the toolkit"
        ).format_map,
        "validation-with-cdi": (
            "requires the section cluster.nvidiaContainerToolkit; the GPU operator's own toolkit uses CDI, which the"
            " validated device plugin does not"
        ).format_map,
    },
)
"""Settings of NVIDIA's GPU operator."""
