"""Machines of a stack file as the components take them that do something on machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pulumi

from gpufleet.bare_metal.container_toolkit import NvidiaContainerToolkitArgs
from gpufleet.bare_metal.kubespray.args import (
    Calico,
    Kubespray,
    KubesprayClusterArgs,
    KubesprayNode,
    KubesprayRunner,
    Mirrors,
    NvidiaRuntime,
)
from gpufleet.bare_metal.kubespray.inventory import SITE_LABEL
from gpufleet.bare_metal.ssh import SshHost, SshLogin
from gpufleet.nvidia.gpu_operator import NvidiaGpuOperatorArgs
from gpufleet.taint import Taint
from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster, BareMetalSettings, NodePool, NodeSettings
from gpufleet_stacks.settings.models.kubespray import Jump, KubespraySettings, RunOnBastion, Ssh
from gpufleet_stacks.settings.models.nvidia import ContainerToolkit

Key = pulumi.Input[str] | None
"""Private key of whoever logs in; None where nobody needs it."""


Secret = Callable[[str], pulumi.Input[str]]
"""Gives the stack's secret of a key."""


def cluster_args(
    cluster: BareMetalCluster, key: Key, needs: Sequence[pulumi.Resource] = (), secret: Secret = lambda key: key
) -> KubesprayClusterArgs | None:
    """The cluster as kubespray is to make it; None where it exists. Without `secret`, keys stand in for secrets: enough
    for all that looks at no value."""
    made, ssh = cluster.kubespray, cluster.ssh
    if made is None or ssh is None:
        return None
    return KubesprayClusterArgs(
        cluster=cluster.name,
        nodes=[node_args(name, node, pool, secret) for name, node, pool in machines(cluster)],
        login=login(ssh, key),
        runner=runner(made, ssh, key),
        directory=made.directory,
        kubespray=source(made),
        kubernetes_version=made.kubernetes_version,
        container_manager=made.container_manager,
        network_plugin=made.network_plugin,
        calico=Calico(
            encapsulation=made.calico.encapsulation,
            cross_subnet_only=made.calico.cross_subnet_only,
            mtu=made.calico.mtu,
        ),
        proxy_mode=made.proxy_mode,
        strict_arp=made.strict_arp,
        etcd_deployment=made.etcd_deployment,
        auto_renew_certificates=made.auto_renew_certificates,
        nvidia_runtime=nvidia_runtime(cluster),
        mirrors=mirrors(made),
        variables=made.variables,
        secret_variables={variable: secret(key) for variable, key in made.secret_variables.items()},
        api_server=made.api_server,
        kubeconfig_generation=made.kubeconfig_generation,
        drain_seconds=made.drain_seconds,
        drain_grace_seconds=made.drain_grace_seconds,
        upgrade_serial=made.upgrade_serial,
        lost=made.lost,
        protect=made.protect,
        needs=needs,
    )


def machines(cluster: BareMetalCluster) -> Iterator[tuple[str, NodeSettings, NodePool]]:
    """Every machine with its pool, in the order of the file: the first of the control plane stays for good."""
    for pool in cluster.node_pools.values():
        for name, node in pool.nodes.items():
            yield name, node, pool


def node_args(name: str, node: NodeSettings, pool: NodePool, secret: Secret) -> KubesprayNode:
    """A machine with the labels and taints of its pool."""
    labels = pool.node_labels(node)
    return KubesprayNode(
        name=name,
        address=node.address,
        roles=node.roles,
        internal_address=node.internal_address,
        access_address=node.access_address,
        host_keys=node.host_keys,
        port=node.port,
        user=node.user,
        # A label that says so is a site too: findings ask for it.
        site=labels.pop(SITE_LABEL, None),
        labels=labels,
        taints=[Taint(key=taint.key, value=taint.value or None, effect=taint.effect) for taint in pool.taints],
        generation=node.generation,
        variables=node.variables,
        secret_variables={variable: secret(key) for variable, key in node.secret_variables.items()},
    )


def source(made: KubespraySettings) -> Kubespray:
    """Which kubespray."""
    return Kubespray(
        version=made.source.version,
        url=made.source.url,
        commit=made.source.commit,
        folder=made.source.folder,
        venv=made.source.venv,
        python=made.source.python,
        package_index=made.source.package_index,
    )


def mirrors(made: KubespraySettings) -> Mirrors:
    """Where nodes get things."""
    return Mirrors(
        image_registry=made.mirrors.image_registry,
        files_url=made.mirrors.files_url,
        ubuntu_url=made.mirrors.ubuntu_url,
        debian_url=made.mirrors.debian_url,
        yum_url=made.mirrors.yum_url,
        registry_mirrors=made.mirrors.registry_mirrors,
    )


# -- ways to the machines ---------------------------------------------------------------------------------------------


def login(ssh: Ssh, key: Key) -> SshLogin:
    """How the machine that runs kubespray logs in."""
    return SshLogin(
        user=ssh.user,
        private_key=None if ssh.agent_socket else key,
        agent_socket=ssh.agent_socket,
        jump=_jump(ssh.jump) if ssh.jump else None,
    )


def login_from_here(cluster: BareMetalCluster, ssh: Ssh, key: Key) -> SshLogin:
    """How this machine logs in: where a bastion runs kubespray, through that."""
    bastion = cluster.kubespray.run_on if cluster.kubespray else None
    if not isinstance(bastion, RunOnBastion):
        return login(ssh, key)
    return SshLogin(
        user=ssh.user,
        private_key=None if bastion.agent_socket else key,
        agent_socket=bastion.agent_socket,
        jump=_jump(bastion),
    )


def runner(made: KubespraySettings, ssh: Ssh, key: Key) -> KubesprayRunner | None:
    """The machine that runs kubespray; None for this one."""
    bastion = made.run_on
    if not isinstance(bastion, RunOnBastion):
        return None
    own = None if bastion.agent_socket else key
    return KubesprayRunner(
        host=_jump(bastion), login=SshLogin(user=ssh.user, private_key=own, agent_socket=bastion.agent_socket)
    )


def _jump(host: Jump | RunOnBastion) -> SshHost:
    return SshHost(name=host.name, address=host.address, host_keys=host.host_keys, port=host.port)


def ssh_host(name: str, node: NodeSettings) -> SshHost:
    """A machine as SSH reaches it."""
    return SshHost(name=name, address=node.address, host_keys=node.host_keys, port=node.port, user=node.user)


# -- NVIDIA -----------------------------------------------------------------------------------------------------------


def toolkit_args(
    cluster: BareMetalCluster, key: Key, needs: Sequence[pulumi.Resource] = ()
) -> NvidiaContainerToolkitArgs | None:
    """The container toolkit on the machines with NVIDIA's GPUs; None where it is none of this stack's affair."""
    toolkit, ssh = cluster.nvidia_container_toolkit, cluster.ssh
    if toolkit is None or ssh is None:
        return None
    pools = cluster.pools_of("nvidia").values()
    return NvidiaContainerToolkitArgs(
        hosts=[ssh_host(name, node) for pool in pools for name, node in pool.nodes.items()],
        login=login_from_here(cluster, ssh, key),
        nvkind=toolkit.nvkind,
        version=toolkit.version,
        engine=None if configured_by_kubespray(cluster, toolkit) else toolkit.runtime,
        cdi=toolkit.cdi,
        repository=toolkit.repository,
        key_url=toolkit.key_url,
        key_sha256=toolkit.key_sha256,
        checked=toolkit.checked,
        needs=needs,
    )


def configured_by_kubespray(cluster: BareMetalCluster, toolkit: ContainerToolkit) -> bool:
    """Whether it is kubespray that tells containerd of the toolkit's runtime: what the toolkit itself would write there
    is gone with kubespray's next run."""
    return cluster.kubespray is not None and toolkit.runtime == "containerd"


def nvidia_runtime(cluster: BareMetalCluster) -> NvidiaRuntime | None:
    """NVIDIA's runtime in kubespray's containerd: the default one where every machine has it."""
    toolkit = cluster.nvidia_container_toolkit
    if toolkit is None or not configured_by_kubespray(cluster, toolkit):
        return None
    return NvidiaRuntime(default=not cluster.pools_of("amd"))


def operator_args(settings: BareMetalSettings) -> NvidiaGpuOperatorArgs:
    """The GPU operator beside machines that have a driver, and may pin their toolkit."""
    cluster, operator = settings.cluster, settings.gpu_operator
    taints = {(taint.key, taint.effect): None for pool in cluster.pools_of("nvidia").values() for taint in pool.taints}
    runtime = nvidia_runtime(cluster)
    return NvidiaGpuOperatorArgs(
        host_toolkit_pinned=cluster.nvidia_container_toolkit is not None,
        host_default_runtime="nvidia" if runtime is None or runtime.default else "runc",
        namespace=operator.namespace,
        release=operator.release,
        version=operator.version,
        chart_mirror=settings.charts.mirror if settings.charts else None,
        nfd=operator.feature_discovery,
        tolerations=[{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints],
    )
