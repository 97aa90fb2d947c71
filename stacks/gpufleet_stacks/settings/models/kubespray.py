"""Settings of kubespray, and of the SSH access to its machines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpufleet.bare_metal.container_toolkit import URL
from gpufleet.bare_metal.etcd_snapshots import BUCKET, ENDPOINT, FOLDER, PREFIX, EveryHours
from gpufleet.bare_metal.kubespray.args import (
    COMMIT,
    KUBERNETES_VERSION,
    KUBESPRAY_URL,
    KUBESPRAY_VERSION,
    MTUS,
    TAG,
    ContainerManager,
    Encapsulation,
    EtcdDeployment,
    NetworkPlugin,
    ProxyMode,
)
from gpufleet.bare_metal.ssh import PORTS, SOCKET, USER_NAME
from gpufleet_stacks.settings.models.value_types import MOST, Address, Filled, Model, Name, Switch, Text, Version

SSH_KEY = "ssh-privateKey"
"""Key of the stack secret that holds the private SSH key."""

SNAPSHOT_KEYS = ("kubespray-etcdSnapshotsAccessKeyId", "kubespray-etcdSnapshotsSecretAccessKey")
"""Keys of the stack secrets with which members of etcd write snapshots to S3."""

Port = Annotated[int, Field(strict=True, ge=PORTS[0], le=PORTS[1])]
Seconds = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Percent = Annotated[int, Field(strict=True, ge=0, le=100)]
HostKey = Annotated[
    str,
    Text(r"[a-z0-9-]+ [A-Za-z0-9+/]+=*( .*)?", 1024, "a public SSH host key; copy the line of the host's .pub file"),
]
UserName = Annotated[str, Text(USER_NAME, 32, "a user name")]
Socket = Annotated[str, Text(SOCKET, 512, "the absolute path of a socket, without spaces")]
Url = Annotated[str, Text(URL, 512, "a URL that begins with https://")]


SecretKey = Annotated[
    str, Text(r"kubespray-[A-Za-z0-9][A-Za-z0-9-]*", 63, "the key of a secret of this stack: kubespray-NAME")
]


class Jump(Model):
    """An SSH jump host. User and key are those of the login."""

    name: Name = "jump"
    """Name of the jump host; no node may have the same name."""
    address: Address
    """Address of the jump host."""
    host_keys: tuple[HostKey, ...]
    """Public SSH host keys of the jump host."""
    port: Port = 22
    """SSH port of the jump host."""


class Ssh(Model):
    """SSH access to the machines. The private key is held by an SSH agent or by the stack's secret `ssh-privateKey`."""

    user: UserName
    """User on the machines: root, or a user with passwordless sudo."""
    agent_socket: Socket | None = None
    """Socket of an SSH agent that holds the key; if omitted, the stack's secret `ssh-privateKey` is used."""
    jump: Jump | None = None
    """Jump host; if omitted, the machines are reached directly."""


class RunHere(Model):
    """The machine that runs Pulumi."""

    kind: Literal["here"]
    """The machine that runs Pulumi. Always use the same one: it stores kubespray's journal."""


class RunOnBastion(Model):
    """A machine near the nodes, accessed as the login's user. It needs Python 3.11 to 3.13, git, and network access to
    every node."""

    kind: Literal["bastion"]
    """A machine near the nodes, reachable by everybody who runs Pulumi."""
    name: Name = "bastion"
    """Name of the bastion; no node may have the same name."""
    address: Address
    """Address of the bastion."""
    host_keys: tuple[HostKey, ...]
    """Public SSH host keys of the bastion."""
    port: Port = 22
    """SSH port of the bastion."""
    agent_socket: Socket | None = None
    """Socket of an SSH agent that holds the bastion's key, on the machine that runs Pulumi. If omitted, the stack's
    secret `ssh-privateKey` is used."""


RunOn = Annotated[RunHere | RunOnBastion, Field(discriminator="kind")]


class KubespraySource(Model):
    """Version and source of kubespray."""

    version: Annotated[str, Text(TAG, 32, f"a tag such as {KUBESPRAY_VERSION}")] = KUBESPRAY_VERSION
    """Git tag of the kubespray release."""
    url: Filled = KUBESPRAY_URL
    """URL of the Git repository or its mirror."""
    commit: Annotated[str, Text(COMMIT, 40, "a commit: 40 hexadecimal digits")] | None = None
    """Commit that the tag must point to; if omitted, the tag is trusted."""
    folder: Filled | None = None
    """Folder with kubespray's source on the machine that runs it, used instead of a clone."""
    venv: Filled | None = None
    """Virtual environment with kubespray's requirements on that machine, used instead of a new one."""
    python: Filled = "python3"
    """Python command that creates the virtual environment; Python 3.11 to 3.13."""
    package_index: Url | None = None
    """Package index for kubespray's requirements; if omitted, pip's own configuration applies."""


class CalicoNetwork(Model):
    """Settings of Calico; only with the network plugin `calico`."""

    encapsulation: Encapsulation = "vxlan"
    """Encapsulation of packets between nodes. `none` requires a network that routes pod addresses."""
    cross_subnet_only: Switch = False
    """Whether to encapsulate only traffic between subnets; every site must be a subnet of its own."""
    mtu: Annotated[int, Field(strict=True, ge=MTUS[0], le=MTUS[1])] | None = None
    """MTU of the nodes' network, in bytes; if omitted, Calico detects it."""


class ImageGarbageCollection(Model):
    """Removal of unused images by the kubelet, in percent of the disk that holds images."""

    high_percent: Percent | None = None
    """Usage above which the kubelet removes unused images; if omitted, its default, 85."""
    low_percent: Percent | None = None
    """Usage at which it stops; if omitted, its default, 80."""


class MirrorSites(Model):
    """Download sources for nodes without internet access."""

    image_registry: Filled | None = None
    """Registry that replaces all registries that kubespray pulls from."""
    files_url: Url | None = None
    """File server with the folders `github.com`, `dl.k8s.io`, `storage.googleapis.com` and `get.helm.sh`."""
    ubuntu_url: Url | None = None
    """Ubuntu package repository."""
    debian_url: Url | None = None
    """Debian package repository."""
    yum_url: Url | None = None
    """Package repository for Red Hat and compatible distributions."""
    registry_mirrors: dict[Filled, tuple[Url, ...]] = {}
    """Mirrors that containerd tries first, by the registry that they replace, such as `docker.io`."""


class FolderOfSnapshots(Model):
    """A folder on each member, on a disk that is not the member's own: a mounted network file system."""

    kind: Literal["folder"]
    """A mounted folder."""
    path: Annotated[str, Text(FOLDER, 256, "an absolute path such as /mnt/etcd-snapshots")]
    """Path of the folder. Members may share it."""


class BucketOfSnapshots(Model):
    """A bucket of S3 or of a compatible store. The members require rclone. The access key is in the stack's secrets
    `kubespray-etcdSnapshotsAccessKeyId` and `kubespray-etcdSnapshotsSecretAccessKey`."""

    kind: Literal["s3"]
    """A bucket of S3 or of a compatible store."""
    bucket: Annotated[str, Text(BUCKET, 63, "the name of a bucket")]
    """Name of the bucket."""
    region: Filled
    """Region of the bucket."""
    prefix: Annotated[str, Text(PREFIX, 256, "a prefix without a slash at its end")] = "etcd"
    """Prefix of the objects."""
    endpoint: Annotated[str, Text(ENDPOINT, 256, "a URL such as https://minio.lab.example")] | None = None
    """URL of a compatible store; if omitted, AWS."""


class SnapshotsOfEtcd(Model):
    """Snapshots of etcd on a schedule, by each member, stored away from it."""

    to: Annotated[FolderOfSnapshots | BucketOfSnapshots, Field(discriminator="kind")]
    """Storage of the snapshots."""
    every_hours: EveryHours = 6
    """Hours between two snapshots of a member; a divisor of 24."""
    keep: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 28
    """Number of snapshots of each member that are kept."""


class KubespraySettings(Model):
    """Settings of the cluster that kubespray creates. Its machines are those of the node pools."""

    run_on: RunOn = RunHere(kind="here")
    """Machine that runs kubespray. For an existing cluster, change it together with `movedFrom`."""
    moved_from: RunOn | None = None
    """Machine that ran kubespray before `runOn` changed, written like `runOn`. The next `pulumi up` moves the cluster's
    journal from it; remove the setting afterwards."""
    directory: Filled = "~/.kubespray"
    """Folder on that machine for kubespray and for the cluster's inventory, journal, logs and secrets."""
    source: KubespraySource = KubespraySource()
    """Version and source of kubespray."""
    kubernetes_version: Version = KUBERNETES_VERSION
    """Kubernetes version, without a `v`. Upgrade one minor version at a time."""
    container_manager: ContainerManager = "containerd"
    """Container runtime of the nodes."""
    network_plugin: NetworkPlugin = "calico"
    """Network plugin (CNI)."""
    calico: CalicoNetwork = CalicoNetwork()
    """Settings of Calico."""
    proxy_mode: ProxyMode = "ipvs"
    """Mode of kube-proxy. `ipvs` is deprecated from Kubernetes 1.35 on."""
    strict_arp: Switch = False
    """Whether to answer ARP requests only for the interface's own addresses. MetalLB and kube-vip require it with
    `ipvs`."""
    etcd_deployment: EtcdDeployment = "host"
    """Deployment of etcd: `host` as a systemd service, `docker` as a container, `kubeadm` as static pods."""
    etcd_snapshots: SnapshotsOfEtcd | None = None
    """Snapshots of etcd on a schedule; if omitted, none. kubespray itself only saves one on the member's own disk
    before it restarts etcd."""
    auto_renew_certificates: Switch = True
    """Whether a timer on the control plane renews its certificates every month. They are valid for a year."""
    image_gc: ImageGarbageCollection = ImageGarbageCollection()
    """Removal of unused images. Machines whose jobs use large images may need lower thresholds."""
    mirrors: MirrorSites = MirrorSites()
    """Download sources for nodes without internet access."""
    variables: dict[Filled, dict[Filled, Any]] = {}
    """Additional kubespray variables, by group: `all`, `kube_control_plane`, `etcd`, `kube_node` or `k8s_cluster`.
    Variables that have a setting of their own are not allowed."""
    secret_variables: dict[Filled, SecretKey] = {}
    """Secret variables of all machines. Each names the key of a stack secret: `{registry_password:
    kubespray-registryPassword}`."""
    api_server: Filled | None = None
    """Host, or host and port, at which Pulumi reaches the API server; if omitted, the first control plane node."""
    kubeconfig_generation: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 1
    """Generation of the kubeconfig; increase it to issue a new one. Its certificate is valid for one year."""
    drain_seconds: Seconds = 21600
    """Maximum wait in seconds for a node's pods to end, before its removal or upgrade."""
    drain_grace_seconds: Annotated[int, Field(strict=True, ge=-1, le=MOST)] = 21600
    """Grace period in seconds for every pod on a drained node; -1 uses each pod's own."""
    forks: Annotated[int, Field(strict=True, ge=1, le=MOST)] | None = None
    """Number of machines that kubespray works on at once; if omitted, as many as there are, from 5 to 50."""
    upgrade_serial: Filled = "20%"
    """Number of workers upgraded at once, in quotes, or a percentage."""
    lost: tuple[Name, ...] = ()
    """Names of removed nodes that are permanently unreachable. They are removed without drain or reset."""
    protect: Switch = True
    """Whether to prevent `pulumi destroy` from resetting the cluster."""
