"""Rules for kubespray clusters and for other work on machines. Problems of the components are reported at the lines of
the settings."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.bare_metal.container_toolkit import toolkit_problems
from gpufleet.bare_metal.kubespray.rules import cluster_problems
from gpufleet.nvidia.gpu_operator import operator_problems
from gpufleet.problem import Problem
from gpufleet_stacks.settings.args.machines import cluster_args, operator_args, toolkit_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings, secret_variables
from gpufleet_stacks.settings.models.kubespray import SSH_KEY
from gpufleet_stacks.settings.models.settings import GithubAppCredentials, Settings
from gpufleet_stacks.settings.rules.machine_places import OPERATOR, kubespray_places, toolkit_places

STAND_IN_KEY = "stand-in"
"""Placeholder for the private key, which rules do not decrypt."""


def sections_go_together(settings: BareMetalSettings) -> Iterator[Problem]:
    """Require `kubespray` together with its kind of kubeconfig, and `ssh` for everything that logs in."""
    cluster = settings.cluster
    kind = cluster.kubeconfig.kind
    if kind == "kubespray" and cluster.kubespray is None:
        message = "is missing, but required by kubeconfig: {kind: kubespray}; add: kubespray: {}"
        yield Problem(("cluster", "kubespray"), "kubespray-missing", message)
    if kind != "kubespray" and cluster.kubespray is not None:
        message = f"{kind} is for an existing cluster; write kind: kubespray, or remove the section 'kubespray'"
        yield Problem(("cluster", "kubeconfig", "kind"), "kubeconfig-of-another-cluster", message)
    if cluster.makes_use_of_ssh and cluster.ssh is None:
        what = "kubespray" if cluster.kubespray else "nvidiaContainerToolkit"
        message = f"is missing, but required by '{what}'; add: ssh: {{user: NAME}}"
        yield Problem(("cluster", "ssh"), "ssh-missing", message)
    if SSH_KEY in settings.secret_keys():
        for name, project in settings.projects.items():
            if name == "ssh" and isinstance(project.credentials, GithubAppCredentials):
                message = f"its secret would be '{SSH_KEY}', which cluster.ssh uses; rename the project"
                yield Problem(("projects", name), "secret-of-the-machines", message)
    of_projects = Settings.secret_keys(settings)
    for key, setting in secret_variables(cluster):
        if key in of_projects:
            message = f"'{key}' is already the secret of {of_projects[key]}; use another key"
            yield Problem(tuple(setting.split(".")), "secret-of-a-project", message)


def docker_stays(settings: BareMetalSettings) -> Iterator[Problem]:
    """Reject the runtime `docker` with another container manager, because kubespray then uninstalls Docker
    (roles/container-engine/validate-container-engine/tasks/main.yml:103-127 at v2.31.0)."""
    cluster = settings.cluster
    toolkit, kubespray = cluster.nvidia_container_toolkit, cluster.kubespray
    if toolkit is None or kubespray is None or toolkit.runtime != "docker" or kubespray.container_manager == "docker":
        return
    manager = kubespray.container_manager
    remedies = ["write containerManager: docker in the section kubespray"]
    if manager == "containerd" and not toolkit.nvkind:
        remedies.append("write runtime: containerd")
    message = f"docker, but kubespray uninstalls Docker if containerManager is {manager}; {' or '.join(remedies)}"
    yield Problem(("cluster", "nvidiaContainerToolkit", "runtime"), "docker-beside-kubespray", message)


def etcd_has_tools(settings: BareMetalSettings) -> Iterator[Problem]:
    """Reject snapshots of an etcd that runs as static pods: its members have no `/etc/etcd.env`."""
    kubespray = settings.cluster.kubespray
    if kubespray and kubespray.etcd_snapshots and kubespray.etcd_deployment == "kubeadm":
        message = "etcdDeployment is kubeadm, whose members have no /etc/etcd.env; use host, or remove the snapshots"
        yield Problem(("cluster", "kubespray", "etcdSnapshots"), "snapshots-of-static-pods", message)


def vendors_have_pools(settings: BareMetalSettings) -> Iterator[Problem]:
    """Reject sections for GPUs of a vendor that no pool has."""
    cluster = settings.cluster
    for vendor, section, written in (
        ("amd", ("devicePlugin",), "device_plugin" in settings.model_fields_set),
        ("nvidia", ("gpuOperator",), "gpu_operator" in settings.model_fields_set),
        ("nvidia", ("cluster", "nvidiaContainerToolkit"), cluster.nvidia_container_toolkit is not None),
    ):
        if written and not cluster.pools_of(vendor):
            message = f"no node pool has GPUs of {vendor}; remove the section, or declare a pool with vendor: {vendor}"
            yield Problem(section, "vendor-without-pool", message)
    for name, pool in cluster.pools_of("nvidia").items():
        if pool.accelerator.devices != pool.accelerator.count:
            where = ("cluster", "nodePools", name, "accelerator", "partition")
            yield Problem(where, "partition-of-nvidia", "applies to AMD GPUs only; remove it")


def tested_gpus_are_whole(settings: BareMetalSettings) -> Iterator[Problem]:
    """Reject a test of partitions: the targets of RVS's levels are those of whole GPUs (rvs/conf/*/levels of
    ROCm/ROCmValidationSuite at v1.7.0)."""
    level = settings.device_plugin.validation.level
    for name, pool in settings.cluster.pools_of("amd").items():
        compute = pool.accelerator.partition.compute
        if level in ("medium", "long") and compute != "SPX":
            message = (
                f"{level} tests whole GPUs, but those of the pool '{name}' are partitioned ({compute}); write quick"
            )
            yield Problem(("devicePlugin", "validation", "level"), "test-of-partitions", message)


def the_cluster_can_be_made(settings: BareMetalSettings) -> Iterator[Problem]:
    """Yield problems of the kubespray component."""
    args = cluster_args(settings.cluster, STAND_IN_KEY)
    if args:
        yield from kubespray_places(settings.cluster).placed(cluster_problems(args))


def the_toolkit_can_be_installed(settings: BareMetalSettings) -> Iterator[Problem]:
    """Yield problems of the container toolkit's component, and of the GPU operator together with it."""
    if not settings.cluster.pools_of("nvidia"):
        return
    args = toolkit_args(settings.cluster, STAND_IN_KEY)
    if args:
        yield from toolkit_places(settings.cluster).placed(toolkit_problems(args))
    yield from OPERATOR.placed(operator_problems(operator_args(settings)))


RULES = (sections_go_together, docker_stays, etcd_has_tools, vendors_have_pools, tested_gpus_are_whole)
MACHINE_RULES = (the_cluster_can_be_made, the_toolkit_can_be_installed)
"""Rules for all machines together, which require that each machine is valid."""
