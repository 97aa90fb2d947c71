"""kubespray's inventory and variables, derived from a cluster's arguments."""

from __future__ import annotations

import urllib.parse
from typing import Any

from gpufleet.bare_metal.kubespray.args import (
    Calico,
    ImageGc,
    KubesprayClusterArgs,
    KubesprayNode,
    Mirrors,
    NvidiaRuntime,
)
from gpufleet.bare_metal.kubespray.driver.steps import CONTROL_PLANE, ETCD, Desired, Node
from gpufleet.bare_metal.ssh import SshHost
from gpufleet.taint import Taint

API_PORT = 6443

CERTIFICATE_NAMES = "supplementary_addresses_in_ssl_keys"

SITE_LABEL = "topology.kubernetes.io/region"

HOST_ARGUMENTS = {
    "ansible_host": "address",
    "ansible_ssh_host": "address",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_host_key_checking": "host_keys",
    "ansible_ssh_host_key_checking": "host_keys",
    "ansible_ssh_args": "login",
    "ansible_ssh_common_args": "login",
    "ansible_ssh_extra_args": "login",
    "ansible_private_key_file": "login",
    "ansible_ssh_private_key_file": "login",
    "ip": "internal_address",
    "access_ip": "access_address",
    "etcd_member_name": "name",
    "node_labels": "labels",
    "node_taints": "taints",
}
"""Arguments of a node, by the kubespray or Ansible variable that they set."""

GROUP_ARGUMENTS = {
    variable: argument for variable, argument in HOST_ARGUMENTS.items() if argument not in ("labels", "taints")
}
"""Arguments by group variable. Labels and taints are excluded: a group may have its own."""

CLUSTER_ARGUMENTS = {
    "kube_version": "kubernetes_version",
    "container_manager": "container_manager",
    "kube_network_plugin": "network_plugin",
    "calico_network_backend": "calico",
    "calico_ipip_mode": "calico",
    "calico_vxlan_mode": "calico",
    "calico_mtu": "calico",
    "calico_nftable_mode": "proxy_mode",
    "kube_proxy_mode": "proxy_mode",
    "kube_proxy_strict_arp": "strict_arp",
    "etcd_deployment_type": "etcd_deployment",
    "auto_renew_certificates": "auto_renew_certificates",
    "kubelet_image_gc_high_threshold": "image_gc",
    "kubelet_image_gc_low_threshold": "image_gc",
    "containerd_additional_runtimes": "nvidia_runtime",
    "containerd_default_runtime": "nvidia_runtime",
    "containerd_extra_args": "nvidia_runtime",
    "enable_cdi": "nvidia_runtime",
    "registry_host": "mirrors",
    "files_repo": "mirrors",
    "ubuntu_repo": "mirrors",
    "debian_repo": "mirrors",
    "yum_repo": "mirrors",
    "kube_image_repo": "mirrors",
    "gcr_image_repo": "mirrors",
    "github_image_repo": "mirrors",
    "docker_image_repo": "mirrors",
    "quay_image_repo": "mirrors",
    "github_url": "mirrors",
    "dl_k8s_io_url": "mirrors",
    "storage_googleapis_url": "mirrors",
    "get_helm_url": "mirrors",
    "containerd_registries_mirrors": "mirrors",
    "kubeconfig_localhost": "api_server",
    "kubeconfig_localhost_ansible_host": "api_server",
    "drain_timeout": "drain_seconds",
    "drain_grace_period": "drain_grace_seconds",
    "serial": "upgrade_serial",
}
"""Arguments of the cluster, by the kubespray variable that they set."""

IMAGE_REPOSITORIES = (
    "kube_image_repo",
    "gcr_image_repo",
    "github_image_repo",
    "docker_image_repo",
    "quay_image_repo",
)
FILE_SERVERS = {
    "github_url": "github.com",
    "dl_k8s_io_url": "dl.k8s.io",
    "storage_googleapis_url": "storage.googleapis.com",
    "get_helm_url": "get.helm.sh",
}
"""Folders of a file mirror, by variable (inventory/sample/group_vars/all/offline.yml at v2.31.0)."""


def desired(args: KubesprayClusterArgs) -> Desired:
    """Return the desired state without secrets, as sent to the machine that runs kubespray."""
    return {
        "nodes": {node.name: described(node) for node in args.nodes},
        "variables": group_variables(args),
        "kubespray": args.kubespray.version,
        "kubernetes": args.kubernetes_version,
        "drain_seconds": args.drain_seconds,
        "drain_grace_seconds": args.drain_grace_seconds,
        "upgrade_serial": args.upgrade_serial,
        "forks": args.forks,
        "lost": sorted(args.lost),
    }


def described(node: KubesprayNode) -> Node:
    """Return a node with its variables. Its etcd member gets the node's name: kubespray would number members by
    position, so every removal would rename those that follow."""
    variables: dict[str, Any] = dict(node.variables) | {"ansible_host": node.address}
    variables |= {"ansible_port": node.port} if node.port != 22 else {}
    for variable, value in (
        ("ansible_user", node.user),
        ("ip", node.internal_address),
        ("access_ip", node.access_address),
    ):
        variables |= {variable: value} if value is not None else {}
    variables |= {"etcd_member_name": node.name} if ETCD in node.roles else {}
    labels = ({SITE_LABEL: node.site} if node.site else {}) | dict(node.labels)
    variables |= {"node_labels": labels} if labels else {}
    variables |= {"node_taints": [taint_text(taint) for taint in node.taints]} if node.taints else {}
    made: Node = {"roles": [*node.roles], "variables": variables}
    return made | {"generation": node.generation} if node.generation != 1 else made


def taint_text(taint: Taint) -> str:
    """Return a taint in the syntax of `kubectl taint`."""
    return f"{taint.key}={taint.value or ''}:{taint.effect}"


def ssh_host(node: KubesprayNode) -> SshHost:
    """Return the SSH host of a node."""
    return SshHost(name=node.name, address=node.address, host_keys=node.host_keys, port=node.port, user=node.user)


def group_variables(args: KubesprayClusterArgs) -> dict[str, dict[str, Any]]:
    """Return variables by group. Groups of kubespray's own only get variables from the caller."""
    groups = {group: dict(variables) for group, variables in args.variables.items()}
    return groups | {"all": groups.get("all", {}) | cluster_variables(args)}


def cluster_variables(args: KubesprayClusterArgs) -> dict[str, Any]:
    """Return the cluster's arguments as kubespray variables."""
    variables: dict[str, Any] = {
        "kube_version": args.kubernetes_version,
        "container_manager": args.container_manager,
        "kube_network_plugin": args.network_plugin,
        "kube_proxy_mode": args.proxy_mode,
        "kube_proxy_strict_arp": args.strict_arp,
        "etcd_deployment_type": args.etcd_deployment,
        "auto_renew_certificates": args.auto_renew_certificates,
        "kubeconfig_localhost": True,
        "kubeconfig_localhost_ansible_host": True,
    }
    if args.network_plugin == "calico":
        variables |= calico_variables(args.calico)
        variables |= {"calico_nftable_mode": "Enabled"} if args.proxy_mode == "nftables" else {}
    variables |= image_gc_variables(args.image_gc)
    variables |= nvidia_variables(args.nvidia_runtime) if args.nvidia_runtime else {}
    variables |= mirror_variables(args.mirrors)
    return variables | {CERTIFICATE_NAMES: certificate_names(args)}


def certificate_names(args: KubesprayClusterArgs) -> list[str]:
    """Return external names of the API server, which its certificate must include, with those of the caller added."""
    outside = [urllib.parse.urlsplit(server_url(args)).hostname or ""] if args.api_server else []
    first = [node.address for node in args.nodes if CONTROL_PLANE in node.roles]
    return list(dict.fromkeys([*outside, *first, *args.variables.get("all", {}).get(CERTIFICATE_NAMES, ())]))


def server_url(args: KubesprayClusterArgs) -> str | None:
    """Return the API server's URL for the kubeconfig; None to keep kubespray's."""
    if args.api_server is None:
        return None
    url = urllib.parse.urlsplit(f"https://{args.api_server}")
    return url.geturl() if url.port else f"{url.geturl()}:{API_PORT}"


def calico_variables(calico: Calico) -> dict[str, Any]:
    """Return the variables of Calico (roles/network_plugin/calico_defaults at v2.31.0)."""
    mode = "CrossSubnet" if calico.cross_subnet_only else "Always"
    variables: dict[str, Any] = {
        "calico_network_backend": "vxlan" if calico.encapsulation == "vxlan" else "bird",
        "calico_vxlan_mode": mode if calico.encapsulation == "vxlan" else "Never",
        "calico_ipip_mode": mode if calico.encapsulation == "ipip" else "Never",
    }
    return variables | ({"calico_mtu": calico.mtu} if calico.mtu is not None else {})


def image_gc_variables(image_gc: ImageGc) -> dict[str, Any]:
    """Return the variables of image garbage collection
    (roles/kubernetes/node/templates/kubelet-config.v1beta1.yaml.j2:109-114 at v2.31.0)."""
    named = {
        "kubelet_image_gc_high_threshold": image_gc.high_percent,
        "kubelet_image_gc_low_threshold": image_gc.low_percent,
    }
    return {variable: value for variable, value in named.items() if value is not None}


def nvidia_variables(runtime: NvidiaRuntime) -> dict[str, Any]:
    """Return the variables of an additional containerd runtime. `options` is required, because the template reads its
    items (roles/container-engine/containerd/templates/config.toml.j2 at v2.31.0)."""
    variables: dict[str, Any] = {
        "containerd_additional_runtimes": [
            {
                "name": runtime.name,
                "type": "io.containerd.runc.v2",
                "base_runtime_spec": "cri-base.json",
                "options": {"BinaryName": runtime.binary, "SystemdCgroup": "true"},
            }
        ],
        "enable_cdi": True,
    }
    variables |= {"containerd_default_runtime": runtime.name} if runtime.default else {}
    return variables | (
        {"containerd_extra_args": 'imports = ["/etc/containerd/conf.d/*.toml"]'} if runtime.drop_ins else {}
    )


def mirror_variables(mirrors: Mirrors) -> dict[str, Any]:
    """Return the variables of mirrors."""
    named = {
        "registry_host": mirrors.image_registry,
        "files_repo": mirrors.files_url,
        "ubuntu_repo": mirrors.ubuntu_url,
        "debian_repo": mirrors.debian_url,
        "yum_repo": mirrors.yum_url,
    }
    variables: dict[str, Any] = {variable: value for variable, value in named.items() if value}
    if mirrors.image_registry:
        variables |= dict.fromkeys(IMAGE_REPOSITORIES, mirrors.image_registry)
    if mirrors.files_url:
        variables |= {key: f"{mirrors.files_url.rstrip('/')}/{folder}" for key, folder in FILE_SERVERS.items()}
    if mirrors.registry_mirrors:
        variables["containerd_registries_mirrors"] = [
            {
                "prefix": prefix,
                "mirrors": [
                    {"host": host, "capabilities": ["pull", "resolve"], "skip_verify": False} for host in hosts
                ],
            }
            for prefix, hosts in mirrors.registry_mirrors.items()
        ]
    return variables
