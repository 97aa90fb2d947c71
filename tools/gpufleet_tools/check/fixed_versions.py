"""Versions that a stack pins, and its other facts for the compatibility matrix, each with its setting."""

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
class Fact:
    """A version, or a word such as `on`."""

    value: str
    """Value in the stack file, or the default."""
    path: Path
    """Setting that determines the value."""


Facts = Mapping[str, Fact]
"""Facts that hold together, by their name in the matrix."""


def facts(settings: Settings) -> Iterator[Facts]:
    """Yield the facts of the whole cluster, then the same with those of each label, project, image or partition."""
    everywhere = dict(_of_arc(settings))
    parts: list[Facts] = [dict(_of_docker(settings, label)) for label in settings.runners]
    parts += [dict(_of_project(settings, name)) for name in settings.projects]
    if settings.cluster.kind == "eks":
        eks = cast("EksSettings", settings)
        everywhere |= _of_eks(eks)
        parts += _of_images(eks)
    else:
        bare_metal = cast("BareMetalSettings", settings)
        everywhere |= _with_bundled(dict(_of_kubespray(bare_metal.cluster)))
        everywhere |= dict(_of_nvidia(bare_metal)) | dict(_of_amd(bare_metal))
        parts += _of_partitions(bare_metal)
    yield everywhere
    for part in parts:
        if part:
            yield everywhere | dict(part)


def _with_bundled(found: dict[str, Fact]) -> dict[str, Fact]:
    values = {name: each.value for name, each in found.items()}
    bundled = compatibility.bundled(values)
    return found | {name: Fact(value, found["kubespray"].path) for name, value in bundled.items()}


# -- every cluster ----------------------------------------------------------------------------------------------------


def _of_arc(settings: Settings) -> Iterator[tuple[str, Fact]]:
    version = Fact(settings.arc.version, ("arc", "version"))
    yield from (("arc", version), ("arc-scale-set", version))


def _of_docker(settings: Settings, label: str) -> Iterator[tuple[str, Fact]]:
    if settings.has_docker_daemon(settings.runners[label]):
        yield "docker", Fact("sidecar", ("runners", label, "docker"))


def _of_project(settings: Settings, name: str) -> Iterator[tuple[str, Fact]]:
    credentials = settings.projects[name].credentials
    if isinstance(credentials, GithubAppCredentials):
        word = "app-id" if str(credentials.app_id).isdigit() else "client-id"
        yield "github-app-id", Fact(word, ("projects", name, "credentials", "appId"))


# -- EKS --------------------------------------------------------------------------------------------------------------


def _of_eks(settings: EksSettings) -> dict[str, Fact]:
    from gpufleet_stacks.settings.args.node_pools import plugin_pools

    cluster = settings.cluster
    found = {
        "kubernetes": Fact(cluster.kubernetes_version, ("cluster", "kubernetesVersion")),
        "karpenter": Fact(cluster.karpenter.version, ("cluster", "karpenter", "version")),
    }
    if plugin_pools(cluster):
        found["nvidia-device-plugin"] = Fact(settings.nvidia_plugin.version, ("nvidiaPlugin", "version"))
    return found


def _of_images(settings: EksSettings) -> list[Facts]:
    from gpufleet_stacks.settings.args.node_pools import pools_with_gpus

    with_gpus = pools_with_gpus(settings.cluster)
    parts: list[Facts] = []
    for name, pool in settings.cluster.node_pools.items():
        for index, ami in enumerate(pool.amis):
            family = ((ami.alias or "").partition("@")[0] or pool.ami_family or "").casefold()
            # AWS publishes a separate image for NVIDIA GPUs, with other software.
            nvidia = name in with_gpus and family in ("al2023", "bottlerocket")
            where = ("cluster", "nodePools", name, "amis", index, "alias" if ami.alias else "id")
            if family:
                parts.append({"eks-ami-family": Fact(f"{family}-nvidia" if nvidia else family, where)})
    return parts


# -- bare metal -------------------------------------------------------------------------------------------------------


def _of_kubespray(cluster: BareMetalCluster) -> Iterator[tuple[str, Fact]]:
    from gpufleet.bare_metal.kubespray.driver.install import ANSIBLE

    kubespray, where = cluster.kubespray, ("cluster", "kubespray")
    if kubespray is None:
        return
    source = (*where, "source", "version")
    yield "kubespray", Fact(kubespray.source.version, source)
    yield "kubernetes", Fact(kubespray.kubernetes_version, (*where, "kubernetesVersion"))
    # ANSIBLE is the pattern of versions that the driver accepts: 2\.18\.
    yield "ansible-core", Fact(ANSIBLE.pattern.replace("\\", "").rstrip("."), source)
    yield "kube-proxy-mode", Fact(kubespray.proxy_mode, (*where, "proxyMode"))
    yield "container-manager", Fact(kubespray.container_manager, (*where, "containerManager"))
    # The version of a plain `python3` is known on its host only; the driver checks it there.
    if named := re.fullmatch(r"python(3\.\d+)", pathlib.PurePath(kubespray.source.python).name):
        yield "python", Fact(named[1], (*where, "source", "python"))
    for group, variables in kubespray.variables.items():
        if "containerd_version" in variables:
            version = str(variables["containerd_version"])
            yield "containerd", Fact(version, (*where, "variables", group, "containerd_version"))


def _of_nvidia(settings: BareMetalSettings) -> Iterator[tuple[str, Fact]]:
    cluster, toolkit = settings.cluster, settings.cluster.nvidia_container_toolkit
    if not cluster.pools_of("nvidia"):
        return
    from gpufleet_stacks.settings.args.machines import operator_args

    operator, where = operator_args(settings), ("gpuOperator", "version")
    yield "nvidia-gpu-operator", Fact(operator.version, where)
    yield "operator-toolkit", Fact("off" if operator.host_toolkit_pinned else "on", where)
    yield "operator-device-plugin", Fact("on", where)
    if toolkit:
        section = ("cluster", "nvidiaContainerToolkit")
        yield "nvidia-container-toolkit", Fact(toolkit.version, (*section, "version"))
        yield "cdi", Fact("on" if toolkit.cdi else "off", (*section, "cdi"))
        if toolkit.nvkind:
            yield "nvkind", Fact("any", (*section, "nvkind"))


def _of_amd(settings: BareMetalSettings) -> Iterator[tuple[str, Fact]]:
    from gpufleet.amd.device_plugin import PLUGIN_IMAGE

    if settings.cluster.pools_of("amd"):
        yield "amd-device-plugin", Fact(PLUGIN_IMAGE.rpartition(":")[2], ("devicePlugin",))


def _of_partitions(settings: BareMetalSettings) -> list[Facts]:
    parts: list[Facts] = []
    for name, pool in settings.cluster.pools_of("amd").items():
        where = ("cluster", "nodePools", name, "accelerator", "partition")
        partition = pool.accelerator.partition
        parts.append(
            {
                "partition-compute": Fact(partition.compute, (*where, "compute")),
                "partition-memory": Fact(partition.memory, (*where, "memory")),
            }
        )
    return parts
