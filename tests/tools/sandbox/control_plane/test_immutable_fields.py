"""What the tables of replacements say, against a real API server: it refuses in place what they replace, and takes what
they update."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.diff.replacement import judged
from gpufleet_tools.sandbox.control_plane.objects import apply
from gpufleet_tools.sandbox.errors import SandboxError
from tests.tools.sandbox.dry_run import dry_run

Object = dict[str, Any]

NAMESPACE = "replacement"

LABELS = {"app": "one"}
POD = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "one", "image": "example.test/one"}]}}
WORKLOAD = {"selector": {"matchLabels": LABELS}, "template": POD}
ONCE = {"template": {"spec": POD["spec"] | {"restartPolicy": "Never"}}}
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}


def the(api_version: str, kind: str, *, namespaced: bool = True, **body: Any) -> Object:
    metadata = {"name": f"one-{kind.lower()}"} | ({"namespace": NAMESPACE} if namespaced else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


OBJECTS = {
    each["kind"]: each
    for each in (
        the("apps/v1", "DaemonSet", spec=WORKLOAD),
        the("apps/v1", "Deployment", spec=WORKLOAD | {"replicas": 0}),
        the("apps/v1", "StatefulSet", spec=WORKLOAD | {"serviceName": "one", "replicas": 0}),
        the("batch/v1", "Job", spec=ONCE | {"suspend": True, "parallelism": 1}),
        the("rbac.authorization.k8s.io/v1", "RoleBinding", roleRef=ROLE, subjects=[]),
        the("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", namespaced=False, roleRef=ROLE, subjects=[]),
        the("storage.k8s.io/v1", "StorageClass", namespaced=False, provisioner="example.test/one"),
        the("v1", "Service", spec={"ports": [{"port": 80}], "clusterIP": "None", "selector": LABELS}),
        the("v1", "Secret", type="Opaque", data={"a": "YQ=="}),
        the("v1", "ConfigMap", data={"a": "a"}),
        the("node.k8s.io/v1", "RuntimeClass", namespaced=False, handler="nvidia"),
        the("scheduling.k8s.io/v1", "PriorityClass", namespaced=False, value=10),
        the("v1", "ServiceAccount", automountServiceAccountToken=True),
        the("rbac.authorization.k8s.io/v1", "ClusterRole", namespaced=False, rules=[]),
    )
}

CHANGES = [
    ("DaemonSet", "spec.selector.matchLabels.app", "two", "replace", "immutable"),
    ("DaemonSet", "spec.template.spec.containers.0.image", "example.test/two", "update", None),
    ("DaemonSet", "spec.template.spec.nodeSelector", {"a": "b"}, "update", None),
    ("Deployment", "spec.selector.matchLabels.app", "two", "replace", "immutable"),
    ("Deployment", "spec.replicas", 1, "update", None),
    ("StatefulSet", "spec.serviceName", "two", "replace", "forbidden"),
    ("StatefulSet", "spec.podManagementPolicy", "Parallel", "replace", "forbidden"),
    ("StatefulSet", "spec.template.spec.containers.0.image", "example.test/two", "update", None),
    ("Job", "spec.template.spec.containers.0.name", "two", "replace", "immutable"),
    ("Job", "spec.suspend", False, "update", None),
    ("RoleBinding", "roleRef.name", "edit", "replace", "cannot change roleRef"),
    ("RoleBinding", "subjects", [{"kind": "Group", "name": "g", "apiGroup": ROLE["apiGroup"]}], "update", None),
    ("ClusterRoleBinding", "roleRef.name", "edit", "replace", "cannot change roleRef"),
    ("StorageClass", "provisioner", "example.test/two", "replace", "immutable"),
    ("StorageClass", "parameters", {"a": "b"}, "replace", "immutable"),
    ("StorageClass", "allowVolumeExpansion", True, "update", None),
    ("Service", "spec.clusterIP", "10.0.0.7", "replace", "may not change once set"),
    ("Service", "spec.ports.0.port", 81, "update", None),
    ("Secret", "type", "example.test/two", "replace", "immutable"),
    ("ServiceAccount", "automountServiceAccountToken", False, "update", None),
    ("ClusterRole", "rules", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}], "update", None),
    # What the provider does not know.
    ("StorageClass", "reclaimPolicy", "Retain", "refused", "immutable"),
    ("StorageClass", "volumeBindingMode", "WaitForFirstConsumer", "refused", "immutable"),
    ("RuntimeClass", "handler", "runc", "refused", "immutable"),
    ("PriorityClass", "value", 11, "refused", "may not be changed"),
    ("PriorityClass", "preemptionPolicy", "Never", "refused", "immutable"),
    ("PriorityClass", "description", "two", "update", None),
    # The provider's own rules, not the server's. Whoever mounts new content sees it at once that way.
    ("StatefulSet", "spec.revisionHistoryLimit", 3, "replace", None),
    ("Secret", "data.a", "Yg==", "replace", None),
    ("ConfigMap", "data.a", "b", "replace", None),
]
"""Kind, path, another value, what the tables say, and what the API server says to it in place."""


@pytest.fixture(scope="module")
def there(control_plane: Any) -> Path:
    """The objects, on a real API server."""
    control_plane.up()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    apply(control_plane.kubeconfig, [namespace, *OBJECTS.values()], "replacement")
    kubeconfig: Path = control_plane.kubeconfig
    return kubeconfig


def with_value(before: Object, path: str, value: Any) -> Object:
    after = copy.deepcopy(before)
    *steps, last = path.split(".")
    inner: Any = after
    for step in steps:
        inner = inner[int(step)] if step.isdigit() else inner[step]
    inner[last] = value
    return after


@pytest.mark.parametrize(("kind", "path", "value", "verdict", "answer"), CHANGES)
def test_a_change(there: Path, kind: str, path: str, value: Any, verdict: str, answer: str | None) -> None:
    before = OBJECTS[kind]
    after = with_value(before, path, value)
    group, _, version = before["apiVersion"].rpartition("/")
    assert judged(f"kubernetes:{group or 'core'}/{version}:{kind}", before, after).verdict == verdict
    if answer is None:
        dry_run(there, [after])
    else:
        with pytest.raises(SandboxError, match=answer):
            dry_run(there, [after])
