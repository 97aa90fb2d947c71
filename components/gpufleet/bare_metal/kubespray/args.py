"""Arguments of `KubesprayCluster`: its machines, its options, and the machine that runs kubespray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi

from gpufleet.bare_metal.ssh import SshHost, SshLogin
from gpufleet.taint import Taint

KUBESPRAY_VERSION = "v2.31.0"
KUBERNETES_VERSION = "1.35.4"
KUBESPRAY_URL = "https://github.com/kubernetes-sigs/kubespray"

TAG = r"v[0-9]+\.[0-9]+\.[0-9]+"
"""Pattern of a kubespray tag."""
COMMIT = r"[0-9a-f]{40}"
"""Pattern of a full commit hash."""
MTUS = (1280, 9216)
"""Smallest and largest MTU of the nodes' network."""
IMAGE_GC = (85, 80)
"""Default thresholds of the kubelet's image garbage collection: high and low, in percent of the disk."""

Role = Literal["control_plane", "etcd", "worker"]
ContainerManager = Literal["containerd", "crio", "docker"]
NetworkPlugin = Literal[
    "calico", "cilium", "flannel", "kube-ovn", "kube-router", "macvlan", "cni", "custom_cni", "cloud", "none"
]
ProxyMode = Literal["ipvs", "iptables", "nftables"]
EtcdDeployment = Literal["host", "docker", "kubeadm"]
Encapsulation = Literal["vxlan", "ipip", "none"]

Variables = Mapping[str, Any]
"""kubespray variables, by name."""


@dataclass(frozen=True, kw_only=True)
class KubesprayNode:
    """A machine with its roles in the cluster."""

    name: str
    """Name in the cluster and the inventory: lower-case letters, digits and inner hyphens, at most 63. Two clusters on
    one runner may both have a node of the same name."""
    address: str
    """SSH address, as seen by the machine that runs kubespray: an IP address or a DNS name."""
    roles: Sequence[Role] = ("worker",)
    """Roles of the machine in the cluster."""
    internal_address: str | None = None
    """Address of the machine that its services listen on (`ip`); None for that of its default route."""
    access_address: str | None = None
    """Address at which other nodes reach the machine (`access_ip`); None for `internal_address`."""
    host_keys: Sequence[str] = ()
    """Public SSH host keys, as in `SshHost`; required for every machine reached by SSH."""
    port: int = 22
    """Port of the SSH server."""
    user: str | None = None
    """SSH user on this machine; None for the login's."""
    generation: int = 1
    """Generation of the machine's installation. Increase it after the machine was reinstalled: the next run sets it up
    again. A member of etcd or of the control plane is first removed as a lost one; increase it for one at a time."""
    site: str | None = None
    """Location of the machine; becomes its label `topology.kubernetes.io/region`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the node. kubespray adds labels but never removes any; use `kubectl label node NAME KEY-`."""
    taints: Sequence[Taint] = ()
    """Taints of the node. kubespray adds taints but never removes any."""
    variables: Variables = field(default_factory=dict)
    """Additional variables of this host. Variables that have an argument of their own are not allowed."""
    secret_variables: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Secret variables of this host, such as `ansible_become_password`. They override those of all hosts."""


@dataclass(frozen=True, kw_only=True)
class Kubespray:
    """Version and source of kubespray."""

    version: str = KUBESPRAY_VERSION
    """Git tag of the kubespray release."""
    url: str = KUBESPRAY_URL
    """URL of the Git repository or its mirror, without user and password: the state shows it."""
    commit: str | None = None
    """Commit that the tag must point to, 40 hexadecimal digits; None trusts the tag."""
    folder: str | None = None
    """Folder with kubespray's source on the machine that runs it, used instead of a clone. It must be of `version`."""
    venv: str | None = None
    """Virtual environment with kubespray's requirements on that machine, used instead of a new one."""
    python: str = "python3"
    """Python command on that machine that creates the virtual environment; Python 3.11 to 3.13."""
    package_index: str | None = None
    """Package index for kubespray's requirements; None for pip's own configuration."""


@dataclass(frozen=True, kw_only=True)
class KubesprayRunner:
    """A machine that runs kubespray, instead of the one that runs Pulumi."""

    host: SshHost
    """The machine. It needs Python 3.11 to 3.13, git, and network access to every node."""
    login: SshLogin
    """Login with which Pulumi connects to it."""


@dataclass(frozen=True, kw_only=True)
class Calico:
    """Settings of Calico."""

    encapsulation: Encapsulation = "vxlan"
    """Encapsulation of packets between nodes. `none` requires a network that routes pod addresses."""
    cross_subnet_only: bool = False
    """Whether to encapsulate only traffic between subnets. Saves overhead within a site; every site must be a subnet of
    its own."""
    mtu: int | None = None
    """MTU of the nodes' network, in bytes; pods get 50 less with vxlan, 20 less with ipip. With None, Calico detects
    it, which works if all nodes' networks are alike."""


@dataclass(frozen=True, kw_only=True)
class ImageGc:
    """Removal of unused images by the kubelet, in percent of the disk that holds images."""

    high_percent: int | None = None
    """Usage above which the kubelet removes unused images; None for its default, 85."""
    low_percent: int | None = None
    """Usage at which it stops; None for its default, 80."""


@dataclass(frozen=True, kw_only=True)
class NvidiaRuntime:
    """NVIDIA container runtime as an additional runtime of containerd. Its packages must be installed on the nodes
    first.

    kubespray rewrites containerd's configuration in every run and drops edits of `nvidia-ctk`; this runtime remains.
    kubespray's own `nvidia_accelerator_enabled` is rejected, because it installs a driver from 2018.
    """

    name: str = "nvidia"
    """Name of the runtime, used as handler of a RuntimeClass."""
    binary: str = "/usr/bin/nvidia-container-runtime"
    """Path of the runtime on the nodes."""
    default: bool = False
    """Whether to make it the default runtime of all pods. On nodes without its packages, no pod starts."""
    drop_ins: bool = True
    """Whether to import `/etc/containerd/conf.d/*.toml` in containerd, where nvidia-ctk writes from 1.18 on.
    kubespray's own template imports nothing."""


@dataclass(frozen=True, kw_only=True)
class Mirrors:
    """Download sources for nodes without internet access (docs/operations/offline-environment.md at v2.31.0)."""

    image_registry: str | None = None
    """Registry that replaces all five registries that kubespray pulls from."""
    files_url: str | None = None
    """File server with the folders `github.com`, `dl.k8s.io`, `storage.googleapis.com` and `get.helm.sh`."""
    ubuntu_url: str | None = None
    """Ubuntu package repository."""
    debian_url: str | None = None
    """Debian package repository."""
    yum_url: str | None = None
    """Package repository for Red Hat and compatible distributions."""
    registry_mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Mirrors that containerd tries first, by the registry that they replace, such as `docker.io`."""


@dataclass(frozen=True, kw_only=True)
class KubesprayClusterArgs:
    """Arguments of `KubesprayCluster`. The defaults are those of kubespray v2.31.0 and of the MI300 cluster."""

    cluster: str
    """Name of the cluster. It names the folder on the machine that runs kubespray, and nothing in Kubernetes."""
    nodes: Sequence[KubesprayNode]
    """Machines of the cluster. The first control plane node and the first etcd node cannot be removed; append new ones
    of either role."""
    login: SshLogin | None = None
    """Login for the nodes, used by the machine that runs kubespray. The user needs passwordless sudo. None if variables
    define a connection for every node."""
    runner: KubesprayRunner | None = None
    """Machine that runs kubespray; None for the one that runs Pulumi. For an existing cluster, change it together with
    `moved_from`."""
    moved_from: KubesprayRunner | Literal["here"] | None = None
    """Machine that ran kubespray before `runner` changed; `here` for the one that runs Pulumi. The cluster's journal
    moves from it; set None afterwards."""
    directory: str = "~/.kubespray"
    """Folder on that machine for kubespray and for the cluster's inventory, journal, logs, facts and secrets."""
    kubespray: Kubespray = Kubespray()
    """Version and source of kubespray."""
    kubernetes_version: str = KUBERNETES_VERSION
    """Kubernetes version, without a `v`. Upgrade one minor version at a time."""
    container_manager: ContainerManager = "containerd"
    """Container runtime of the nodes."""
    network_plugin: NetworkPlugin = "calico"
    """Network plugin (CNI)."""
    calico: Calico = Calico()
    """Settings of Calico; only with the network plugin `calico`."""
    proxy_mode: ProxyMode = "ipvs"
    """Mode of kube-proxy. `ipvs` is deprecated from Kubernetes 1.35 on; `nftables` also switches Calico to nftables."""
    strict_arp: bool = False
    """Whether to answer ARP requests only for the interface's own addresses. MetalLB and kube-vip require it with
    `ipvs`."""
    etcd_deployment: EtcdDeployment = "host"
    """Deployment of etcd: `host` as a systemd service, `docker` as a container, `kubeadm` as static pods."""
    auto_renew_certificates: bool = True
    """Whether a timer on the control plane renews its certificates every month. They are valid for a year, and
    otherwise only an upgrade of Kubernetes renews them (roles/kubernetes/control-plane/tasks/main.yml:147 and
    defaults/main/main.yml:238-240 at v2.31.0)."""
    image_gc: ImageGc = ImageGc()
    """Removal of unused images by the kubelet."""
    nvidia_runtime: NvidiaRuntime | None = None
    """NVIDIA container runtime, if nodes have it."""
    mirrors: Mirrors = Mirrors()
    """Download sources for nodes without internet access."""
    variables: Mapping[str, Variables] = field(default_factory=dict)
    """Additional kubespray variables, by group: `all`, `kube_control_plane`, `etcd`, `kube_node` or `k8s_cluster`.
    Variables that have an argument of their own are not allowed."""
    secret_variables: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Secret variables of all hosts. They are stored on the machine that runs kubespray, readable only by its user, and
    encrypted in the state."""
    api_server: str | None = None
    """Host, or host and port, at which Pulumi reaches the API server, such as a load balancer. It is added to the
    server's certificate. None for the address of the first control plane node."""
    kubeconfig_generation: int = 1
    """Generation of the kubeconfig; increase it to issue a new one. Its certificate is valid for one year and is not
    renewed otherwise."""
    drain_seconds: int = 21600
    """Maximum wait in seconds for a node's pods to end, before its removal or upgrade. kubespray's own 360 kills GPU
    jobs."""
    drain_grace_seconds: int = 21600
    """Grace period in seconds for every pod on a drained node; it overrides the pod's own. Idle runners that ignore the
    signal take all of it. -1 uses each pod's own."""
    forks: int | None = None
    """Number of machines that kubespray works on at once; None for as many as there are, from 5 to 50. Each takes about
    100 MB of memory where kubespray runs."""
    upgrade_serial: str = "20%"
    """Number or percentage of workers upgraded at once."""
    lost: Sequence[str] = ()
    """Names of removed nodes that are permanently unreachable. They are removed without drain or reset, members of etcd
    and the control plane before anything else. Where those leave etcd without quorum, or the first of them is lost,
    recover-control-plane.yml removes them."""
    protect: bool = True
    """Whether to prevent `pulumi destroy` from resetting the cluster. To destroy it, set this to False, run `pulumi
    up`, then destroy."""
    needs: Sequence[pulumi.Resource] = ()
    """Resources that must exist before kubespray runs, such as drivers and the container toolkit on the nodes."""
