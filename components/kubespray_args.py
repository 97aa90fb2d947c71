"""What a cluster that kubespray makes is told: its machines, its choices, and where kubespray runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi

from components.ssh import SshHost, SshLogin
from components.taint import Taint

KUBESPRAY_VERSION = "v2.31.0"
KUBERNETES_VERSION = "1.35.4"
KUBESPRAY_URL = "https://github.com/kubernetes-sigs/kubespray"

Role = Literal["control_plane", "etcd", "worker"]
ContainerManager = Literal["containerd", "crio", "docker"]
NetworkPlugin = Literal[
    "calico", "cilium", "flannel", "kube-ovn", "kube-router", "macvlan", "cni", "custom_cni", "cloud", "none"
]
ProxyMode = Literal["ipvs", "iptables", "nftables"]
EtcdDeployment = Literal["host", "docker", "kubeadm"]
Encapsulation = Literal["vxlan", "ipip", "none"]

Variables = Mapping[str, Any]
"""Variables of kubespray, by name."""


@dataclass(frozen=True, kw_only=True)
class KubesprayNode:
    """A machine, and what it is in the cluster."""

    name: str
    """Name in the cluster and in the inventory: lower-case letters, digits and inner hyphens, at most 63. Two clusters
    on one runner may share it."""
    address: str
    """Where the machine that runs kubespray reaches it by SSH: an IP address or a DNS name."""
    roles: Sequence[Role] = ("worker",)
    """What it is."""
    internal_address: str | None = None
    """Address that its services listen on (`ip`): has to be one of its own. None for that of its default route."""
    access_address: str | None = None
    """Address by which the other nodes reach it (`access_ip`). None for `internal_address`."""
    host_keys: Sequence[str] = ()
    """Its public host keys, as in SshHost; needed wherever it is reached by SSH."""
    port: int = 22
    """Port of its SSH server."""
    user: str | None = None
    """User to log in as, where it is not the login's."""
    site: str | None = None
    """Where it stands; becomes its label `topology.kubernetes.io/region`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the node. kubespray sets them, and takes none away: `kubectl label node NAME KEY-` does."""
    taints: Sequence[Taint] = ()
    """Taints of the node. kubespray sets them, and takes none away."""
    variables: Variables = field(default_factory=dict)
    """Further variables of this host. None that another argument stands for."""
    secret_variables: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Variables of it that are secret, such as `ansible_become_password`. They come before those of all hosts."""


@dataclass(frozen=True, kw_only=True)
class Kubespray:
    """Which kubespray, and where it comes from."""

    version: str = KUBESPRAY_VERSION
    """Its tag."""
    url: str = KUBESPRAY_URL
    """Git repository or mirror. Without a user or password in it: it is seen in the state."""
    commit: str | None = None
    """Commit that the tag has to be, 40 hexadecimal digits; None believes the tag."""
    folder: str | None = None
    """Folder with its source on the machine that runs it, in place of a clone. It has to be of `version`."""
    venv: str | None = None
    """Python environment with its requirements on that machine, in place of one that is made."""
    python: str = "python3"
    """Python of that machine, 3.11 to 3.13, that the environment is made with."""
    package_index: str | None = None
    """Index that its requirements come from; None for pip's own setting there."""


@dataclass(frozen=True, kw_only=True)
class KubesprayRunner:
    """A machine that runs kubespray, in place of the one that runs Pulumi."""

    host: SshHost
    """The machine. It needs Python 3.11 to 3.13, git, and the way to every node."""
    login: SshLogin
    """How Pulumi logs in to it."""


@dataclass(frozen=True, kw_only=True)
class Calico:
    """Settings of the network plugin calico."""

    encapsulation: Encapsulation = "vxlan"
    """How packets between nodes are wrapped: `none` needs a network that routes pods' addresses."""
    cross_subnet_only: bool = False
    """Wrap only what leaves a subnet. Saves the cost within a site, and needs every site to be a subnet of its own."""
    mtu: int | None = None
    """MTU of the nodes' network, in bytes; pods get 50 less with vxlan, 20 less with ipip. None lets calico find out,
    which is right where all nodes' networks are alike."""


@dataclass(frozen=True, kw_only=True)
class NvidiaRuntime:
    """The NVIDIA container runtime as a further runtime of containerd. Its packages have to be on the nodes first.

    kubespray writes containerd's configuration anew in every run: what `nvidia-ctk` edits into it is gone afterwards,
    and this is not. kubespray's own `nvidia_accelerator_enabled` installs a driver of 2018 and is refused.
    """

    name: str = "nvidia"
    """Name of the runtime, which a RuntimeClass has as its handler."""
    binary: str = "/usr/bin/nvidia-container-runtime"
    """Path of it on the nodes."""
    default: bool = False
    """Make it the runtime of every pod. On a node without its packages then no pod starts at all."""
    drop_ins: bool = True
    """Have containerd read `/etc/containerd/conf.d/*.toml`, where nvidia-ctk from 1.18 on writes; kubespray's own
    template imports nothing."""


@dataclass(frozen=True, kw_only=True)
class Mirrors:
    """Where nodes without the internet get things (docs/operations/offline-environment.md at v2.31.0)."""

    image_registry: str | None = None
    """Registry that stands for all five that kubespray pulls from."""
    files_url: str | None = None
    """Server of files, with the folders `github.com`, `dl.k8s.io`, `storage.googleapis.com` and `get.helm.sh`."""
    ubuntu_url: str | None = None
    """Server of Ubuntu's packages."""
    debian_url: str | None = None
    """Server of Debian's packages."""
    yum_url: str | None = None
    """Server of packages for Red Hat and its likes."""
    registry_mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """URLs that containerd asks first, by the registry that they stand for: `docker.io`."""


@dataclass(frozen=True, kw_only=True)
class KubesprayClusterArgs:
    """What the cluster needs to know. Its choices are those of kubespray v2.31.0 and of the MI300 cluster."""

    cluster: str
    """Name of the cluster: of its folder on the machine that runs kubespray, and of nothing in Kubernetes."""
    nodes: Sequence[KubesprayNode]
    """Its machines. The first of the control plane and of etcd stays for good; new ones of either are appended."""
    login: SshLogin | None = None
    """How the machine that runs kubespray logs in to the nodes; the user needs sudo without a password. None where
    variables say another way for every node."""
    runner: KubesprayRunner | None = None
    """The machine that runs kubespray; None for the one that runs Pulumi."""
    directory: str = "~/.kubespray"
    """Folder on that machine for kubespray and for the cluster's inventory, journal, logs, facts and secrets."""
    kubespray: Kubespray = Kubespray()
    """Which kubespray."""
    kubernetes_version: str = KUBERNETES_VERSION
    """Version of Kubernetes, without a `v`. One minor at a time."""
    container_manager: ContainerManager = "containerd"
    """What runs containers."""
    network_plugin: NetworkPlugin = "calico"
    """What joins pods' networks."""
    calico: Calico = Calico()
    """Settings of calico, where it is the network plugin."""
    proxy_mode: ProxyMode = "ipvs"
    """How kube-proxy balances services. `ipvs` is deprecated from Kubernetes 1.35 on; `nftables` switches calico over
    too."""
    strict_arp: bool = False
    """Answer ARP for nothing but a machine's own addresses: MetalLB and kube-vip need it with ipvs."""
    etcd_deployment: EtcdDeployment = "host"
    """How etcd runs: as a service of its hosts, or as kubeadm has it."""
    nvidia_runtime: NvidiaRuntime | None = None
    """The NVIDIA runtime, where nodes have it."""
    mirrors: Mirrors = Mirrors()
    """Where nodes without the internet get things."""
    variables: Mapping[str, Variables] = field(default_factory=dict)
    """Further variables of kubespray, by group: `all`, `kube_control_plane`, `etcd`, `kube_node` or `k8s_cluster`. None
    that another argument stands for."""
    secret_variables: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Variables of all hosts that are secret. They lie on the machine that runs kubespray, readable for its user alone,
    and in the state encrypted."""
    api_server: str | None = None
    """Host, or host and port, by which Pulumi reaches the API server: a load balancer, say. It becomes a name of the
    server's certificate. None for the address of the first node of the control plane."""
    kubeconfig_generation: int = 1
    """Count up to have a new kubeconfig. Its certificate is valid for a year and is renewed for no other reason."""
    drain_seconds: int = 21600
    """How long a removal or an upgrade waits for a node's pods to go, in seconds; kubespray's own 360 ends GPU jobs."""
    drain_grace_seconds: int = 21600
    """How long a pod has to end once it is told to, whatever it says itself. An idle runner that does not listen waits
    it out too. -1 for each pod's own."""
    upgrade_serial: str = "20%"
    """How many workers are upgraded at once."""
    lost: Sequence[str] = ()
    """Names of removed nodes that will not be reached again: they are removed without draining and resetting them."""
    protect: bool = True
    """Keep `pulumi destroy` from resetting the cluster. Set it to False, run `pulumi up`, then destroy."""
    needs: Sequence[pulumi.Resource] = ()
    """What has to be there before kubespray runs: drivers and the container toolkit on the nodes, say."""
