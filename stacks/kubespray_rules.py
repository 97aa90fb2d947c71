"""Rules about clusters that kubespray makes, and about what else is done on machines: what the components refuse, at
its line of the stack file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from components import kubespray_args, kubespray_rules
from components.nvidia_container_toolkit import NvidiaContainerToolkitArgs, toolkit_refusals
from components.nvidia_gpu_operator import operator_refusals
from components.ssh import SshHost
from stacks.bare_metal_settings import BareMetalCluster, BareMetalSettings, secret_variables
from stacks.fault import Breach, Path
from stacks.kubespray_cluster import cluster_args, operator_args, toolkit_args
from stacks.kubespray_settings import SSH_KEY, RunOnBastion
from stacks.settings import GithubAppCredentials, Settings

STAND_IN_KEY = "stand-in"
"""The private key, as long as nobody has decrypted it."""

_WORDS = {
    field.name: to_camel(field.name)
    for model in (
        kubespray_args.KubesprayClusterArgs,
        kubespray_args.KubesprayNode,
        kubespray_args.Calico,
        NvidiaContainerToolkitArgs,
        SshHost,
    )
    for field in dataclasses.fields(model)
    if "_" in field.name
}
"""Arguments of components by which a message names a setting, and what a stack file calls them."""

_PLACES: dict[str, Path] = {
    "cluster": ("cluster", "name"),
    "nodes": ("cluster", "nodePools"),
    "hosts": ("cluster", "nodePools"),
    "login": ("cluster", "ssh"),
    "runner": ("cluster", "kubespray", "runOn"),
    "kubespray": ("cluster", "kubespray", "source"),
    "kubernetes version": ("cluster", "kubespray", "kubernetesVersion"),
    "kubespray version": ("cluster", "kubespray", "source", "version"),
    "nvidia_runtime": ("cluster", "nvidiaContainerToolkit", "runtime"),
    "engine": ("cluster", "nvidiaContainerToolkit", "runtime"),
}
"""Where arguments stand in a stack file that are called otherwise there."""


def sections_go_together(settings: BareMetalSettings) -> Iterator[Breach]:
    """The section `kubespray` goes with its kind of kubeconfig, and whatever logs in with the section `ssh`."""
    cluster = settings.cluster
    kind = cluster.kubeconfig.kind
    if kind == "kubespray" and cluster.kubespray is None:
        yield ("cluster", "kubespray"), "is missing, and the kubeconfig is that of its cluster; write: kubespray: {}"
    if kind != "kubespray" and cluster.kubespray is not None:
        yield (
            ("cluster", "kubeconfig", "kind"),
            f"{kind} is for a cluster that exists; write kind: kubespray, or remove the section 'kubespray'",
        )
    if cluster.makes_use_of_ssh and cluster.ssh is None:
        what = "kubespray" if cluster.kubespray else "nvidiaContainerToolkit"
        yield ("cluster", "ssh"), f"is missing, and '{what}' logs in to the machines; say as whom: ssh: {{user: NAME}}"
    if SSH_KEY in settings.secret_keys():
        for name, project in settings.projects.items():
            if name == "ssh" and isinstance(project.credentials, GithubAppCredentials):
                yield ("projects", name), f"its secret would be '{SSH_KEY}', which is that of the machines; rename it"
    of_projects = Settings.secret_keys(settings)
    for key, setting in secret_variables(cluster):
        if key in of_projects:
            yield tuple(setting.split(".")), f"'{key}' is the secret of {of_projects[key]}; name another"


def vendors_have_pools(settings: BareMetalSettings) -> Iterator[Breach]:
    """What serves a vendor's GPUs is told of where there are some."""
    cluster = settings.cluster
    for vendor, section, written in (
        ("amd", ("devicePlugin",), "device_plugin" in settings.model_fields_set),
        ("nvidia", ("gpuOperator",), "gpu_operator" in settings.model_fields_set),
        ("nvidia", ("cluster", "nvidiaContainerToolkit"), cluster.nvidia_container_toolkit is not None),
    ):
        if written and not cluster.pools_of(vendor):
            yield (
                section,
                f"no node pool has GPUs of {vendor}; remove the section, or declare a pool with vendor: {vendor}",
            )
    for name, pool in cluster.pools_of("nvidia").items():
        if pool.accelerator.devices != pool.accelerator.count:
            where = ("cluster", "nodePools", name, "accelerator", "partition")
            yield where, "is for AMD's GPUs; NVIDIA's are not partitioned here, remove it"


def the_cluster_can_be_made(settings: BareMetalSettings) -> Iterator[Breach]:
    """What kubespray's component refuses."""
    args = cluster_args(settings.cluster, STAND_IN_KEY)
    for fault in kubespray_rules.violations(args) if args else ():
        yield placed(fault, settings.cluster, ("cluster", "kubespray"))


def the_toolkit_can_be_installed(settings: BareMetalSettings) -> Iterator[Breach]:
    """What the component of NVIDIA's container toolkit refuses, and what the GPU operator refuses beside it."""
    if not settings.cluster.pools_of("nvidia"):
        return
    args = toolkit_args(settings.cluster, STAND_IN_KEY)
    for fault in toolkit_refusals(args) if args else ():
        yield placed(fault, settings.cluster, ("cluster", "nvidiaContainerToolkit"))
    for fault in operator_refusals(operator_args(settings)):
        if fault.startswith("host_default_runtime"):
            yield (
                ("cluster", "nvidiaContainerToolkit", "runtime"),
                "containerd's default runtime is the same on all machines, and those with AMD's GPUs have no NVIDIA"
                " runtime; keep the pools in clusters of their own, or leave the toolkit to the GPU operator",
            )
        else:
            yield placed(fault, settings.cluster, ("gpuOperator",))


RULES = (sections_go_together, vendors_have_pools)
MACHINE_RULES = (the_cluster_can_be_made, the_toolkit_can_be_installed)
"""Rules that speak about all machines together, and so want every one of them to be sound."""


def placed(fault: str, cluster: BareMetalCluster, section: Path) -> Breach:
    """A component's refusal at its place in the stack file, in the file's words: `drain_seconds: …`, `nodes: …`,
    `nodes.NAME.roles: …`, `NAME: host_keys[0]: …`; `nodes: NAME: …` and `runner: NAME: …` are about that host."""
    argument, message = _parted(fault)
    hosts = _hosts(cluster)
    if argument in ("nodes", "runner") and _parted(message)[0] in hosts:
        argument, message = _parted(message)
    head, *rest = _PART.findall(argument)
    if head == "nodes" and rest:
        head, *rest = rest
    if head in hosts:
        if not rest and re.match(r"[\w.\[\]]+: ", message):
            argument, message = _parted(message)
            rest = _PART.findall(argument)
        where = hosts[head]
    else:
        where = _PLACES.get(head) or (*section, to_camel(head))
    if {"variables", "secret_variables"} & {head, *rest}:
        # What kubespray calls its own is called the same everywhere.
        return (*where, *(part.replace("secret_variables", "secretVariables") for part in rest)), _in_words(message)
    return (*where, *(int(part) if part.isdecimal() else to_camel(part) for part in rest)), _in_words(message)


_PART = re.compile(r"[^.\[\]]+")


def _parted(fault: str) -> tuple[str, str]:
    argument, _, message = fault.partition(": ")
    return argument, message


def _hosts(cluster: BareMetalCluster) -> dict[str, Path]:
    """Where each host stands that something is said of."""
    jump = cluster.ssh.jump if cluster.ssh else None
    bastion = cluster.kubespray.run_on if cluster.kubespray else None
    found: dict[str, Path] = {jump.name: ("cluster", "ssh", "jump")} if jump else {}
    found |= {bastion.name: ("cluster", "kubespray", "runOn")} if isinstance(bastion, RunOnBastion) else {}
    for pool, members in cluster.node_pools.items():
        found |= {name: ("cluster", "nodePools", pool, "nodes", name) for name in members.nodes}
    return found


def _in_words(message: str) -> str:
    for argument, setting in _WORDS.items():
        message = re.sub(rf"\b{argument}\b", setting, message)
    return message.replace("the argument login ", "the setting ssh ").replace("the argument ", "the setting ")
