"""Settings that cluster.yml alone does not apply to an existing cluster, and how to apply them.

Sent unchanged to the machine that runs kubespray: standard library only. Sources are files of kubespray v2.31.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

UPGRADE: Mapping[str, Any] = {"upgrade_cluster_setup": True}
"""Variables with which cluster.yml rewrites the files that kubeadm manages, without a drain
(roles/kubernetes/control-plane/tasks/kubeadm-setup.yml:259-263). The default is false; only upgrade-cluster.yml, which
drains every node, sets them itself."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """Way in which kubespray applies a group of variables to an existing cluster."""

    variables: tuple[str, ...]
    """Names of the variables; `*` matches the rest of a name."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Extra variables that cluster.yml requires."""
    task: str
    """Task that applies the variables, or that writes a file which is only read at a restart."""
    source: str
    """File and line of the task."""
    effect: str
    """Effect on a running cluster. None of these drains a node."""
    by_hand: str = ""
    """Command to run manually, because no playbook runs it."""


WAYS: tuple[Way, ...] = (
    Way(
        variables=("kube_proxy_*",),
        extra=UPGRADE,
        task="Update kube-proxy configmap after upgrade",
        source="roles/kubernetes/control-plane/tasks/kubeadm-upgrade.yml:36",
        effect="kube-proxy restarts on every node",
    ),
    Way(
        variables=(
            "kube_scheduler_client_conn_extra_opts",
            "kube_scheduler_config_extra_opts",
            "kube_scheduler_extenders",
            "kube_scheduler_leader_elect_*",
            "kube_scheduler_profiles",
        ),
        task="Create kube-scheduler config",
        source="roles/kubernetes/control-plane/tasks/main.yml:46",
        effect="the scheduler's configuration file changes; the scheduler reads it when it restarts",
        by_hand="crictl rmp -f $(crictl pods -q --name kube-scheduler)",
    ),
    Way(
        variables=(
            *("apiserver_extra_volumes", "audit_*", "authorization_modes", "calico_ipam_host_local"),
            *("controller_manager_extra_volumes", "event_ttl_duration", "ipv4_stack", "ipv6_stack", "kube_api_*"),
            *("kube_apiserver_*", "kube_controller_*", "kube_encrypt_secret_data", "kube_feature_gates"),
            *("kube_image_repo", "kube_kubeadm_*", "kube_oidc_*", "kube_profiling", "kube_scheduler_*"),
            *("kube_token_auth", "kube_webhook_*", "kubeadm_feature_gates", "kubeadm_image_repo"),
            *("kubelet_flexvolumes_plugins_dir", "kubelet_preferred_address_types"),
            *("kubelet_rotate_server_certificates", "kubernetes_audit*", "loadbalancer_apiserver*"),
            *("scheduler_extra_volumes", "ssl_ca_dirs", "tls_cipher_suites", "tls_min_version"),
        ),
        extra=UPGRADE,
        task="Rewrite kubernetes control plane static pod manifests with updated configmap",
        source="roles/kubernetes/control-plane/tasks/kubeadm-upgrade.yml:52",
        effect="API servers, controller managers and schedulers restart on all control planes at once",
    ),
    Way(
        variables=("etcd_*",),
        extra=UPGRADE,
        task="Rewrite kubeadm managed etcd static pod manifests with updated configmap",
        source="roles/kubernetes/control-plane/tasks/kubeadm-upgrade.yml:46",
        effect="etcd restarts, fewer than half of its members at once, and the API servers with it",
    ),
    Way(
        variables=("auto_renew_certificates",),
        task="Renew K8S control plane certificates monthly 2/2",
        source="roles/kubernetes/control-plane/tasks/main.yml:149",
        effect="true starts the timer; false does not stop it",
        by_hand="systemctl disable --now k8s-certs-renew.timer",
    ),
)
"""Ways according to kubespray's files. Variables of no row are applied by cluster.yml alone, or by scale.yml on a
worker."""

MEMBERS = WAYS[2]
"""Row of the API server's `--etcd-servers`, which changes when etcd members are added or removed. kubespray leaves that
to an administrator (docs/operations/nodes.md:144, :163)."""


def ways(variables: Iterable[str]) -> Iterator[Way]:
    """Yield the rows of the table that match these variables. Each variable belongs to the first matching row."""
    rows = [
        next((way for way in WAYS if any(fnmatchcase(name, pattern) for pattern in way.variables)), None)
        for name in variables
    ]
    yield from (way for way in WAYS if way in rows)


def extra(variables: Iterable[str]) -> dict[str, Any]:
    """Return the extra variables that cluster.yml requires to apply these variables."""
    return {name: value for way in ways(variables) for name, value in way.extra.items()}


def left_by_hand(changes: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each changed variable that no playbook applies. `changes` are the new values by name."""
    for name, value in sorted(changes.items()):
        for way in ways([name]):
            if way.by_hand and value is not True:
                yield f"{name}: {way.effect}; to apply it, run on each control plane node: {way.by_hand}"
