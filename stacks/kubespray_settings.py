"""The part of a stack file that has kubespray make the cluster, and says how its machines are reached."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from components.kubespray_args import (
    KUBERNETES_VERSION,
    KUBESPRAY_URL,
    KUBESPRAY_VERSION,
    ContainerManager,
    Encapsulation,
    EtcdDeployment,
    NetworkPlugin,
    ProxyMode,
)
from stacks.value_types import MOST, Address, Filled, Model, Name, Switch, Text, Version

SSH_KEY = "ssh-privateKey"
"""Key of the stack's secret with the private key of whoever logs in."""

Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Seconds = Annotated[int, Field(strict=True, ge=1, le=MOST)]
HostKey = Annotated[
    str, Text(r"[a-z0-9-]+ [A-Za-z0-9+/]+=*( .*)?", 1024, "a host's public key, the line that ends in .pub has it")
]
UserName = Annotated[str, Text(r"[a-z_][a-z0-9_-]{0,31}", 32, "a user's name")]
Socket = Annotated[str, Text(r"/[^\s\"'#%$\\]*", 512, "the absolute path of a socket, without blanks")]
Url = Annotated[str, Text(r"https?://[^\s\"'#\[\]]+", 512, "a URL: it begins with https://")]


SecretKey = Annotated[
    str, Text(r"kubespray-[A-Za-z0-9][A-Za-z0-9-]*", 63, "the key of a secret of this stack: kubespray-NAME")
]


class Jump(Model):
    """A host to go through. The user and the key are those of the login."""

    name: Name = "jump"
    """What it is called; no node is called the same."""
    address: Address
    """Its address."""
    host_keys: tuple[HostKey, ...]
    """Its public host keys."""
    port: Port = 22
    """Port of its SSH server."""


class Ssh(Model):
    """How the machines are reached by SSH. The private key is the stack's secret `ssh-privateKey`, unless an agent has
    it."""

    user: UserName
    """User on the machines: root, or one with sudo without a password."""
    agent_socket: Socket | None = None
    """Socket of an SSH agent that has the key; left out, the key is the stack's secret `ssh-privateKey`."""
    jump: Jump | None = None
    """Host to go through; left out, the machines are reached directly."""


class RunHere(Model):
    """The machine that runs Pulumi."""

    kind: Literal["here"]
    """The machine that runs Pulumi. It has to be the same one each time: kubespray's journal lies on it."""


class RunOnBastion(Model):
    """A machine near the nodes, with the login's user. It needs Python 3.11 to 3.13, git, and the way to every node."""

    kind: Literal["bastion"]
    """A machine near the nodes, which everybody who runs Pulumi reaches."""
    name: Name = "bastion"
    """What it is called; no node is called the same."""
    address: Address
    """Its address."""
    host_keys: tuple[HostKey, ...]
    """Its public host keys."""
    port: Port = 22
    """Port of its SSH server."""
    agent_socket: Socket | None = None
    """Socket of an SSH agent on the machine that runs Pulumi, with the key for the bastion; left out, it is the stack's
    secret `ssh-privateKey`."""


RunOn = Annotated[RunHere | RunOnBastion, Field(discriminator="kind")]


class KubespraySource(Model):
    """Which kubespray, and where it comes from."""

    version: Annotated[str, Text(r"v[0-9]+\.[0-9]+\.[0-9]+", 32, f"a tag such as {KUBESPRAY_VERSION}")] = (
        KUBESPRAY_VERSION
    )
    """Its tag."""
    url: Filled = KUBESPRAY_URL
    """Git repository, or a mirror of it."""
    commit: Annotated[str, Text(r"[0-9a-f]{40}", 40, "a commit: 40 hexadecimal digits")] | None = None
    """Commit that the tag has to be; left out, the tag is believed."""
    folder: Filled | None = None
    """Folder with its source where it runs, in place of a clone."""
    venv: Filled | None = None
    """Python environment with its requirements there, in place of one that is made."""
    python: Filled = "python3"
    """Python that this environment is made with, 3.11 to 3.13."""
    package_index: Url | None = None
    """Index that its requirements come from; left out, pip's own setting there."""


class CalicoNetwork(Model):
    """Settings of calico, where it is the network plugin."""

    encapsulation: Encapsulation = "vxlan"
    """How packets between nodes are wrapped: `none` needs a network that routes pods' addresses."""
    cross_subnet_only: Switch = False
    """Wrap only what leaves a subnet; every site has to be a subnet of its own."""
    mtu: Annotated[int, Field(strict=True, ge=1280, le=9216)] | None = None
    """MTU of the nodes' network, in bytes; left out, calico finds out."""


class MirrorSites(Model):
    """Where nodes without the internet get things."""

    image_registry: Filled | None = None
    """Registry that stands for all that kubespray pulls from."""
    files_url: Url | None = None
    """Server of files, with the folders `github.com`, `dl.k8s.io`, `storage.googleapis.com` and `get.helm.sh`."""
    ubuntu_url: Url | None = None
    """Server of Ubuntu's packages."""
    debian_url: Url | None = None
    """Server of Debian's packages."""
    yum_url: Url | None = None
    """Server of packages for Red Hat and its likes."""
    registry_mirrors: dict[Filled, tuple[Url, ...]] = {}
    """URLs that containerd asks first, by the registry that they stand for: `docker.io`."""


class KubesprayCluster(Model):
    """How kubespray makes the cluster. The machines are those of the node pools."""

    run_on: RunOn = RunHere(kind="here")
    """Where kubespray runs."""
    directory: Filled = "~/.kubespray"
    """Folder there for kubespray and for the cluster's inventory, journal, logs and secrets."""
    source: KubespraySource = KubespraySource()
    """Which kubespray."""
    kubernetes_version: Version = KUBERNETES_VERSION
    """Version of Kubernetes, without a `v`. One minor at a time."""
    container_manager: ContainerManager = "containerd"
    """What runs containers."""
    network_plugin: NetworkPlugin = "calico"
    """What joins pods' networks."""
    calico: CalicoNetwork = CalicoNetwork()
    """Settings of calico."""
    proxy_mode: ProxyMode = "ipvs"
    """How kube-proxy balances services. `ipvs` is deprecated from Kubernetes 1.35 on."""
    strict_arp: Switch = False
    """Answer ARP for nothing but a machine's own addresses; MetalLB and kube-vip need it with ipvs."""
    etcd_deployment: EtcdDeployment = "host"
    """How etcd runs: as a service of its hosts, or as kubeadm has it."""
    mirrors: MirrorSites = MirrorSites()
    """Where nodes without the internet get things."""
    variables: dict[Filled, dict[Filled, Any]] = {}
    """Further variables of kubespray, by group: `all`, `kube_control_plane`, `etcd`, `kube_node` or `k8s_cluster`. None
    that another setting stands for."""
    secret_variables: dict[Filled, SecretKey] = {}
    """Variables of all machines that are secret, each with the key of the stack's secret that has it:
    `{registry_password: kubespray-registryPassword}`."""
    api_server: Filled | None = None
    """Host, or host and port, by which Pulumi reaches the API server; left out, the first node of the control plane."""
    kubeconfig_generation: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 1
    """Count up to have a new kubeconfig. Its certificate is valid for a year."""
    drain_seconds: Seconds = 21600
    """How long a removal or an upgrade waits for a node's pods to go."""
    drain_grace_seconds: Annotated[int, Field(strict=True, ge=-1, le=MOST)] = 21600
    """How long a pod has to end once it is told to; -1 for each pod's own."""
    upgrade_serial: Filled = "20%"
    """How many workers are upgraded at once: a number, in quotes, or a percentage."""
    lost: tuple[Name, ...] = ()
    """Names of removed nodes that will not be reached again: they are removed without draining and resetting them."""
    protect: Switch = True
    """Keep `pulumi destroy` from resetting the cluster."""
