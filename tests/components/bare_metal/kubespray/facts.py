"""What kubespray v2.31.0 does, line by line, as far as the driver and the stand-in of these tests rely on it.

test_checkout.py compares the record with kubespray's source; the fast tests compare the stand-in and the driver with
the record.
"""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """A line of kubespray's source."""

    file: str
    line: int
    text: str


_PRE_REMOVE = "roles/remove_node/pre_remove/tasks/main.yml"
_PRE_UPGRADE = "roles/upgrade/pre-upgrade/tasks/main.yml"
_DEFAULTS = "roles/kubespray_defaults/defaults/main/main.yml"
_ENGINES = "roles/container-engine/validate-container-engine/tasks/main.yml"

DRAIN = (
    Fact(_PRE_REMOVE, 17, "--grace-period {{ drain_grace_period }}"),
    Fact(_PRE_REMOVE, 18, "--timeout {{ drain_timeout }}"),
    Fact(_PRE_REMOVE, 26, "register: result"),
    Fact(_PRE_REMOVE, 27, "failed_when: result.rc != 0 and not allow_ungraceful_removal"),
    Fact(_PRE_REMOVE, 29, "until: result.rc == 0 or allow_ungraceful_removal"),
    Fact(_PRE_REMOVE, 30, 'retries: "{{ drain_retries }}"'),
    Fact("roles/remove_node/pre_remove/defaults/main.yml", 5, "drain_retries: 3"),
    Fact(_PRE_UPGRADE, 58, "--grace-period {{ drain_grace_period }}"),
    Fact(_PRE_UPGRADE, 59, "--timeout {{ drain_timeout }}"),
    Fact(_PRE_UPGRADE, 70, 'retries: "{{ drain_retries }}"'),
    Fact("roles/upgrade/pre-upgrade/defaults/main.yml", 6, "drain_retries: 3"),
)
"""A drain that timed out is started again `drain_retries` times; its failure is ignored in an ungraceful removal."""

VOLUMES = (
    Fact(_PRE_REMOVE, 40, "retries: 3"),
    Fact(_PRE_REMOVE, 41, 'delay: "{{ drain_grace_period }}"'),
    Fact(_PRE_REMOVE, 44, "- not allow_ungraceful_removal"),
)
"""After the drain of a removal, `drain_grace_period` is the pause between looks at the node's volumes."""

AFTER_REMOVAL = (
    Fact("playbooks/remove_node.yml", 48, "- { role: remove_node/pre_remove, tags: pre-remove }"),
    Fact(
        "roles/remove-node/post-remove/tasks/main.yml",
        8,
        "- ('k8s_cluster' in group_names) and kube_override_hostname in nodes.stdout_lines",
    ),
)
"""The tag `pre-remove` cannot be skipped: the role that follows uses a variable that it registers."""

DOCKER = (
    Fact(_ENGINES, 103, "- name: Uninstall docker"),
    Fact(_ENGINES, 108, '- container_manager != "docker"'),
    Fact(_ENGINES, 109, "- docker_installed.matched > 0"),
)
"""Docker that runs is removed from a machine whose container manager is another."""

IMMUTABLES = (
    Fact(_DEFAULTS, 119, "cluster_name: cluster.local"),
    Fact(_DEFAULTS, 212, "kube_network_plugin: calico"),
    Fact(_DEFAULTS, 338, "container_manager: containerd"),
    Fact(_DEFAULTS, 437, "etcd_deployment_type: host"),
    Fact(_DEFAULTS, 243, "kube_service_addresses: 10.233.0.0/18"),
    Fact(_DEFAULTS, 248, "kube_pods_subnet: 10.233.64.0/18"),
    Fact(_DEFAULTS, 265, "kube_network_node_prefix: 24"),
    Fact(_DEFAULTS, 278, "kube_service_addresses_ipv6: fd85:ee78:d8a6:8607::1000/116"),
    Fact(_DEFAULTS, 284, "kube_pods_subnet_ipv6: fd85:ee78:d8a6:8607::1:0000/112"),
    Fact(_DEFAULTS, 289, "kube_network_node_prefix_ipv6: 120"),
)
"""Defaults of what a live cluster cannot change."""

CERTIFICATES = (
    Fact("roles/kubernetes/control-plane/tasks/main.yml", 147, "when: auto_renew_certificates"),
    Fact("roles/kubernetes/control-plane/defaults/main/main.yml", 238, "auto_renew_certificates: false"),
    Fact("roles/validate_inventory/tasks/main.yml", 211, "that: not auto_renew_certificates"),
)
"""Certificates are renewed by a timer on request, and never where they are issued elsewhere."""

_CONTROL_PLANE = "roles/kubernetes/control-plane/tasks/main.yml"
_UPGRADE = "roles/kubernetes/control-plane/tasks/kubeadm-upgrade.yml"
_SETUP = "roles/kubernetes/control-plane/tasks/kubeadm-setup.yml"
_KUBEADM = "roles/kubernetes/kubeadm/tasks/main.yml"

APPLIED = (
    Fact("roles/kubernetes/control-plane/defaults/main/main.yml", 3, "upgrade_cluster_setup: false"),
    Fact(_SETUP, 259, "- name: Kubeadm | upgrade kubernetes cluster to {{ kube_version }}"),
    Fact(_SETUP, 262, "- upgrade_cluster_setup"),
    Fact(_SETUP, 263, "- kubeadm_already_run.stat.exists"),
    Fact(_UPGRADE, 36, "- name: Update kube-proxy configmap after upgrade"),
    Fact(_UPGRADE, 46, "- name: Rewrite kubeadm managed etcd static pod manifests with updated configmap"),
    Fact(_UPGRADE, 52, "- name: Rewrite kubernetes control plane static pod manifests with updated configmap"),
    Fact(_CONTROL_PLANE, 46, "- name: Create kube-scheduler config"),
    Fact(_CONTROL_PLANE, 149, "- name: Renew K8S control plane certificates monthly 2/2"),
    Fact(_KUBEADM, 191, "- name: Restart all kube-proxy pods to ensure that they load the new configmap"),
    Fact(_KUBEADM, 200, "- original_configmap_resource_version.stdout != new_configmap_resource_version.stdout"),
)
"""Tasks that rewrite settings of kube-proxy and the control plane in a live cluster, if a variable asks for it."""

DEAD = (
    Fact(
        "roles/validate_inventory/tasks/main.yml",
        60,
        "that: groups.get('etcd', groups.kube_control_plane) | length is not divisibleby 2",
    ),
    Fact("roles/validate_inventory/tasks/main.yml", 63, "- not ignore_assert_errors"),
    Fact(_PRE_REMOVE, 8, "delegate_to: \"{{ groups['kube_control_plane'] | first }}\""),
    Fact("roles/remove-node/remove-etcd-node/tasks/main.yml", 9, "delegate_to: \"{{ groups['etcd'] | first }}\""),
    Fact("playbooks/recover_control_plane.yml", 6, "hosts: etcd[0]"),
    Fact("playbooks/recover_control_plane.yml", 14, "hosts: kube_control_plane[0]"),
    Fact(
        "roles/recover_control_plane/etcd/tasks/main.yml",
        94,
        "- hostvars[item[0]]['etcd_member_name'] == item[1].replace(' ', '').split(',')[2]",
    ),
    Fact("roles/network_facts/tasks/main.yaml", 26, "cacheable: true"),
    Fact("docs/operations/nodes.md", 116, "`kubectl  edit cm -n kube-public cluster-info`"),
)
"""Survivors remove a dead member; an even number of members has to be let pass."""

_CLIENT = "roles/kubernetes/client/tasks/main.yml"
_KUBELET = "roles/kubernetes/node/templates/kubelet-config.v1beta1.yaml.j2"

ISSUED = (
    Fact("playbooks/cluster.yml", 42, "- { role: kubernetes/client, tags: client }"),
    Fact(_CLIENT, 66, "delegate_to: \"{{ groups['kube_control_plane'][0] }}\""),
)
"""The first machine of the control plane issues the kubeconfig."""

IMAGES = (
    Fact(_KUBELET, 110, "imageGCHighThresholdPercent: {{ kubelet_image_gc_high_threshold }}"),
    Fact(_KUBELET, 113, "imageGCLowThresholdPercent: {{ kubelet_image_gc_low_threshold }}"),
)
"""Thresholds of the kubelet's image garbage collection, which have no defaults."""

FACTS = (*ISSUED, *IMAGES, *DRAIN, *VOLUMES, *AFTER_REMOVAL, *DOCKER, *IMMUTABLES, *CERTIFICATES, *APPLIED, *DEAD)
