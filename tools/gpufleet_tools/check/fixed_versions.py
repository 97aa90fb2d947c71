"""The versions, and the other facts of the compatibility matrix, that a stack file fixes, each with its setting."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gpufleet.problem import Path
from gpufleet_stacks.settings.models.settings import GithubAppCredentials, Settings
from gpufleet_tools.check import compatibility

if TYPE_CHECKING:
    from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster, BareMetalSettings
    from gpufleet_stacks.settings.models.eks import EksSettings


@dataclass(frozen=True)
class Fixed:
    """A version, or a word such as `on`."""

    value: str
    """As the stack has it."""
    path: Path
    """The setting that it follows from."""


Facts = Mapping[str, Fixed]
"""What is so in one place, by the names of the matrix."""


def facts(settings: Settings) -> Iterator[Facts]:
    """What is so together: in the whole cluster, then in each of its parts with what is so there beside it."""
    everywhere = dict(_of_arc(settings))
    parts: list[Facts] = [dict(_of_docker(settings, label)) for label in settings.runners]
    parts += [dict(_of_project(settings, name)) for name in settings.projects]
    if settings.cluster.kind == "eks":
        bought = cast("EksSettings", settings)
        everywhere |= _of_eks(bought)
        parts += _of_images(bought)
    else:
        owned = cast("BareMetalSettings", settings)
        everywhere |= _with_what_comes(dict(_of_kubespray(owned.cluster)))
        everywhere |= dict(_of_nvidia(owned)) | dict(_of_amd(owned))
        parts += _of_partitions(owned)
    yield everywhere
    for part in parts:
        if part:
            yield everywhere | dict(part)


def _with_what_comes(found: dict[str, Fixed]) -> dict[str, Fixed]:
    values = {name: each.value for name, each in found.items()}
    more = compatibility.brought(values)
    return found | {name: Fixed(value, found["kubespray"].path) for name, value in more.items()}


# -- every cluster ----------------------------------------------------------------------------------------------------


def _of_arc(settings: Settings) -> Iterator[tuple[str, Fixed]]:
    version = Fixed(settings.arc.version, ("arc", "version"))
    yield from (("arc", version), ("arc-scale-set", version))


def _of_docker(settings: Settings, label: str) -> Iterator[tuple[str, Fixed]]:
    if settings.has_docker_daemon(settings.runners[label]):
        yield "docker", Fixed("sidecar", ("runners", label, "docker"))


def _of_project(settings: Settings, name: str) -> Iterator[tuple[str, Fixed]]:
    credentials = settings.projects[name].credentials
    if isinstance(credentials, GithubAppCredentials):
        word = "app-id" if str(credentials.app_id).isdigit() else "client-id"
        yield "github-app-id", Fixed(word, ("projects", name, "credentials", "appId"))


# -- EKS --------------------------------------------------------------------------------------------------------------


def _of_eks(settings: EksSettings) -> dict[str, Fixed]:
    from gpufleet_stacks.settings.args.node_pools import pools_with_gpus

    cluster = settings.cluster
    found = {
        "kubernetes": Fixed(cluster.kubernetes_version, ("cluster", "kubernetesVersion")),
        "karpenter": Fixed(cluster.karpenter.version, ("cluster", "karpenter", "version")),
    }
    if pools_with_gpus(cluster):
        found["nvidia-device-plugin"] = Fixed(settings.nvidia_plugin.version, ("nvidiaPlugin", "version"))
    return found


def _of_images(settings: EksSettings) -> list[Facts]:
    from gpufleet_stacks.settings.args.node_pools import pools_with_gpus

    with_gpus = pools_with_gpus(settings.cluster)
    parts: list[Facts] = []
    for name, pool in settings.cluster.node_pools.items():
        for index, ami in enumerate(pool.amis):
            family = ((ami.alias or "").partition("@")[0] or pool.ami_family or "").casefold()
            # AWS makes an image of its own for NVIDIA's GPUs, with other things on it.
            own = name in with_gpus and family in ("al2023", "bottlerocket")
            where = ("cluster", "nodePools", name, "amis", index, "alias" if ami.alias else "id")
            if family:
                parts.append({"eks-ami-family": Fixed(f"{family}-nvidia" if own else family, where)})
    return parts


# -- machines that somebody owns --------------------------------------------------------------------------------------


def _of_kubespray(cluster: BareMetalCluster) -> Iterator[tuple[str, Fixed]]:
    from gpufleet.bare_metal.kubespray.driver.install import ANSIBLE

    made, where = cluster.kubespray, ("cluster", "kubespray")
    if made is None:
        return
    source = (*where, "source", "version")
    yield "kubespray", Fixed(made.source.version, source)
    yield "kubernetes", Fixed(made.kubernetes_version, (*where, "kubernetesVersion"))
    # The pattern of what the bootstrap takes: 2\.18\.
    yield "ansible-core", Fixed(ANSIBLE.pattern.replace("\\", "").rstrip("."), source)
    yield "kube-proxy-mode", Fixed(made.proxy_mode, (*where, "proxyMode"))
    yield "container-manager", Fixed(made.container_manager, (*where, "containerManager"))
    # Which Python `python3` is only its host knows; the bootstrap asks it.
    if named := re.fullmatch(r"python(3\.\d+)", pathlib.PurePath(made.source.python).name):
        yield "python", Fixed(named[1], (*where, "source", "python"))
    for group, variables in made.variables.items():
        if "containerd_version" in variables:
            version = str(variables["containerd_version"])
            yield "containerd", Fixed(version, (*where, "variables", group, "containerd_version"))


def _of_nvidia(settings: BareMetalSettings) -> Iterator[tuple[str, Fixed]]:
    cluster, toolkit = settings.cluster, settings.cluster.nvidia_container_toolkit
    if not cluster.pools_of("nvidia"):
        return
    from gpufleet_stacks.settings.args.machines import operator_args

    operator, where = operator_args(settings), ("gpuOperator", "version")
    yield "nvidia-gpu-operator", Fixed(operator.version, where)
    yield "operator-toolkit", Fixed("off" if operator.host_toolkit_pinned else "on", where)
    yield "operator-device-plugin", Fixed("on", where)
    if toolkit:
        section = ("cluster", "nvidiaContainerToolkit")
        yield "nvidia-container-toolkit", Fixed(toolkit.version, (*section, "version"))
        yield "cdi", Fixed("on" if toolkit.cdi else "off", (*section, "cdi"))
        if toolkit.nvkind:
            yield "nvkind", Fixed("any", (*section, "nvkind"))


def _of_amd(settings: BareMetalSettings) -> Iterator[tuple[str, Fixed]]:
    from gpufleet.amd.device_plugin import PLUGIN_IMAGE

    if settings.cluster.pools_of("amd"):
        yield "amd-device-plugin", Fixed(PLUGIN_IMAGE.rpartition(":")[2], ("devicePlugin",))


def _of_partitions(settings: BareMetalSettings) -> list[Facts]:
    parts: list[Facts] = []
    for name, pool in settings.cluster.pools_of("amd").items():
        where = ("cluster", "nodePools", name, "accelerator", "partition")
        partition = pool.accelerator.partition
        parts.append(
            {
                "partition-compute": Fixed(partition.compute, (*where, "compute")),
                "partition-memory": Fixed(partition.memory, (*where, "memory")),
            }
        )
    return parts
