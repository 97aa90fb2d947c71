"""Arguments of components that work on machines, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import pulumi

from gpufleet.bare_metal.container_toolkit import NvidiaContainerToolkitArgs
from gpufleet.bare_metal.etcd_snapshots import EtcdSnapshotsArgs, SnapshotBucket, SnapshotFolder
from gpufleet.bare_metal.kubespray.args import (
    Calico,
    ImageGc,
    Kubespray,
    KubesprayClusterArgs,
    KubesprayNode,
    KubesprayRunner,
    Mirrors,
    NvidiaRuntime,
)
from gpufleet.bare_metal.kubespray.inventory import SITE_LABEL
from gpufleet.bare_metal.ssh import SshHost, SshLogin
from gpufleet.gpu_validation import ExpectedGpus, GpuValidation
from gpufleet.nvidia.gpu_operator import NvidiaGpuOperatorArgs
from gpufleet.taint import Taint
from gpufleet_stacks.settings.models.bare_metal import (
    Accelerator,
    BareMetalCluster,
    BareMetalSettings,
    NodePool,
    NodeSettings,
)
from gpufleet_stacks.settings.models.gpus import ContainerToolkit, NvidiaValidation, Validation
from gpufleet_stacks.settings.models.kubespray import (
    SNAPSHOT_KEYS,
    BucketOfSnapshots,
    FolderOfSnapshots,
    Jump,
    KubespraySettings,
    RunHere,
    RunOnBastion,
    Ssh,
)
from gpufleet_stacks.settings.models.taints import tolerations

Key = pulumi.Input[str] | None
"""Private SSH key; None if no login needs it."""

Secret = Callable[[str], pulumi.Input[str]]
"""Function that returns the stack's secret of a configuration key."""


def cluster_args(
    cluster: BareMetalCluster, key: Key, needs: Sequence[pulumi.Resource] = (), secret: Secret = lambda key: key
) -> KubesprayClusterArgs | None:
    """Return the arguments of the kubespray cluster; None for an existing cluster. By default, the keys of secrets
    replace their values, which is enough for callers that read no secret."""
    kubespray, ssh = cluster.kubespray, cluster.ssh
    if kubespray is None or ssh is None:
        return None
    return KubesprayClusterArgs(
        cluster=cluster.name,
        nodes=[node_args(name, node, pool, secret) for name, node, pool in machines(cluster)],
        login=login(ssh, key),
        runner=runner(kubespray.run_on, ssh, key),
        moved_from=moved_from(kubespray, ssh, key),
        directory=kubespray.directory,
        # These sections have the same fields as the components' arguments.
        kubespray=Kubespray(**dict(kubespray.source)),
        kubernetes_version=kubespray.kubernetes_version,
        container_manager=kubespray.container_manager,
        network_plugin=kubespray.network_plugin,
        calico=Calico(**dict(kubespray.calico)),
        proxy_mode=kubespray.proxy_mode,
        strict_arp=kubespray.strict_arp,
        etcd_deployment=kubespray.etcd_deployment,
        auto_renew_certificates=kubespray.auto_renew_certificates,
        image_gc=ImageGc(**dict(kubespray.image_gc)),
        nvidia_runtime=nvidia_runtime(cluster),
        mirrors=Mirrors(**dict(kubespray.mirrors)),
        variables=kubespray.variables,
        secret_variables={variable: secret(key) for variable, key in kubespray.secret_variables.items()},
        api_server=kubespray.api_server,
        kubeconfig_generation=kubespray.kubeconfig_generation,
        drain_seconds=kubespray.drain_seconds,
        drain_grace_seconds=kubespray.drain_grace_seconds,
        forks=kubespray.forks,
        upgrade_serial=kubespray.upgrade_serial,
        lost=kubespray.lost,
        protect=kubespray.protect,
        needs=needs,
    )


def machines(cluster: BareMetalCluster) -> Iterator[tuple[str, NodeSettings, NodePool]]:
    """Yield every machine with its pool, in the order of the file: kubespray cannot remove the first control plane
    node."""
    for pool in cluster.node_pools.values():
        for name, node in pool.nodes.items():
            yield name, node, pool


def node_args(name: str, node: NodeSettings, pool: NodePool, secret: Secret) -> KubesprayNode:
    """Return the arguments of a machine, with the labels and taints of its pool."""
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
        # An explicit label sets the site too, so that findings about sites include it.
        site=labels.pop(SITE_LABEL, None),
        labels=labels,
        taints=[Taint(key=taint.key, value=taint.value or None, effect=taint.effect) for taint in pool.taints],
        generation=node.generation,
        variables=node.variables,
        secret_variables={variable: secret(key) for variable, key in node.secret_variables.items()},
    )


# -- SSH --------------------------------------------------------------------------------------------------------------


def login(ssh: Ssh, key: Key) -> SshLogin:
    """Return the login with which the machine that runs kubespray reaches the others."""
    return SshLogin(
        user=ssh.user,
        private_key=None if ssh.agent_socket else key,
        agent_socket=ssh.agent_socket,
        jump=_jump(ssh.jump) if ssh.jump else None,
    )


def login_from_here(cluster: BareMetalCluster, ssh: Ssh, key: Key) -> SshLogin:
    """Return the login with which the machine that runs Pulumi reaches the others: if a bastion runs kubespray, through
    the bastion."""
    bastion = cluster.kubespray.run_on if cluster.kubespray else None
    if not isinstance(bastion, RunOnBastion):
        return login(ssh, key)
    return SshLogin(
        user=ssh.user,
        private_key=None if bastion.agent_socket else key,
        agent_socket=bastion.agent_socket,
        jump=_jump(bastion),
    )


def runner(bastion: RunHere | RunOnBastion, ssh: Ssh, key: Key) -> KubesprayRunner | None:
    """Return a machine that runs kubespray; None if it is the one that runs Pulumi."""
    if not isinstance(bastion, RunOnBastion):
        return None
    own = None if bastion.agent_socket else key
    return KubesprayRunner(
        host=_jump(bastion), login=SshLogin(user=ssh.user, private_key=own, agent_socket=bastion.agent_socket)
    )


def moved_from(kubespray: KubespraySettings, ssh: Ssh, key: Key) -> KubesprayRunner | Literal["here"] | None:
    """Return the machine from which the journal moves; None if it does not move."""
    return None if kubespray.moved_from is None else runner(kubespray.moved_from, ssh, key) or "here"


def _jump(host: Jump | RunOnBastion) -> SshHost:
    return SshHost(name=host.name, address=host.address, host_keys=host.host_keys, port=host.port)


def ssh_host(name: str, node: NodeSettings) -> SshHost:
    """Return the SSH host of a machine."""
    return SshHost(name=name, address=node.address, host_keys=node.host_keys, port=node.port, user=node.user)


# -- etcd -------------------------------------------------------------------------------------------------------------


def snapshots_args(
    cluster: BareMetalCluster, key: Key, needs: Sequence[pulumi.Resource] = (), secret: Secret = lambda key: key
) -> EtcdSnapshotsArgs | None:
    """Return the arguments of the snapshots of etcd; None if the stack takes none."""
    snapshots, ssh = cluster.kubespray.etcd_snapshots if cluster.kubespray else None, cluster.ssh
    if snapshots is None or ssh is None:
        return None
    return EtcdSnapshotsArgs(
        hosts=[ssh_host(name, node) for name, node, _ in machines(cluster) if "etcd" in node.roles],
        login=login_from_here(cluster, ssh, key),
        target=_snapshot_target(snapshots.to, secret),
        every_hours=snapshots.every_hours,
        keep=snapshots.keep,
        needs=needs,
    )


def _snapshot_target(to: FolderOfSnapshots | BucketOfSnapshots, secret: Secret) -> SnapshotFolder | SnapshotBucket:
    if isinstance(to, FolderOfSnapshots):
        return SnapshotFolder(path=to.path)
    access_key_id, secret_access_key = (secret(key) for key in SNAPSHOT_KEYS)
    return SnapshotBucket(
        bucket=to.bucket,
        region=to.region,
        prefix=to.prefix,
        endpoint=to.endpoint,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
    )


# -- GPUs --------------------------------------------------------------------------------------------------------------


def gpu_validation(
    cluster: BareMetalCluster, vendor: str, validation: Validation | NvidiaValidation
) -> GpuValidation | None:
    """Return the validation of a vendor's GPUs; None for none. If all machines have the same GPUs, it names no machine,
    so that a further one is validated before `pulumi up` has ended."""
    if validation.level == "none":
        return None
    pools = cluster.pools_of(vendor).values()
    nodes = {name: expected_gpus(pool.accelerator) for pool in pools for name in pool.nodes}
    alike = len({*nodes.values()}) == 1
    return GpuValidation(
        nodes={} if alike else nodes,
        default=next(iter(nodes.values())) if alike else None,
        level=validation.level,
        image=validation.image,
        timeout_seconds=validation.timeout_seconds,
    )


def expected_gpus(accelerator: Accelerator) -> ExpectedGpus:
    """Return the GPUs that a machine must have."""
    is_amd = accelerator.vendor == "amd"
    return ExpectedGpus(
        count=accelerator.count,
        devices=accelerator.devices,
        compute_partition=accelerator.partition.compute if is_amd else None,
        memory_partition=accelerator.partition.memory if is_amd else None,
    )


# -- NVIDIA -----------------------------------------------------------------------------------------------------------


def toolkit_args(
    cluster: BareMetalCluster, key: Key, needs: Sequence[pulumi.Resource] = ()
) -> NvidiaContainerToolkitArgs | None:
    """Return the arguments of the container toolkit on machines with NVIDIA GPUs; None if the stack does not manage
    it."""
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
    """Return whether kubespray configures the toolkit's runtime in containerd. Otherwise its next run would overwrite
    what the toolkit configured there."""
    return cluster.kubespray is not None and toolkit.runtime == "containerd"


def nvidia_runtime(cluster: BareMetalCluster) -> NvidiaRuntime | None:
    """Return the NVIDIA runtime of containerd under kubespray; the default runtime if all machines have NVIDIA GPUs."""
    toolkit = cluster.nvidia_container_toolkit
    if toolkit is None or not configured_by_kubespray(cluster, toolkit):
        return None
    return NvidiaRuntime(default=not cluster.pools_of("amd"))


def operator_args(settings: BareMetalSettings) -> NvidiaGpuOperatorArgs:
    """Return the arguments of the GPU operator, for machines that have a driver and possibly a pinned toolkit."""
    cluster, operator = settings.cluster, settings.gpu_operator
    runtime = nvidia_runtime(cluster)
    return NvidiaGpuOperatorArgs(
        host_toolkit_pinned=cluster.nvidia_container_toolkit is not None,
        host_default_runtime="nvidia" if runtime is None or runtime.default else "runc",
        namespace=operator.namespace,
        release=operator.release,
        version=operator.version,
        chart_mirror=settings.charts.mirror if settings.charts else None,
        nfd=operator.feature_discovery,
        tolerations=tolerations(taint for pool in cluster.pools_of("nvidia").values() for taint in pool.taints),
        validation=gpu_validation(cluster, "nvidia", operator.validation),
    )
