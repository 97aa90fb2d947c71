"""A fleet for tests of maintenance: machines with SSH servers, a real API server, and doubles of kubelet and ARC.

Real: the API server with its admission and garbage collection, the scheduler, the controllers of Deployments and
DaemonSets, SSH. A double: a machine's reboot, which changes its boot ID; the kubelet, which reports it; ARC's
controller, as far as it ends runners.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufleet_tools.api_server import ApiError, ApiServer
from gpufleet_tools.maintenance.cluster import MARK
from gpufleet_tools.sandbox.control_plane import api_server, objects
from tests.bare_metal import host_key
from tests.hosts.namespaces import Host, Hosts
from tests.hosts.sound import write

PATIENCE = 120.0

BOOT_ID = "/srv/boot_id"
"""File of a host that lies over the kernel's boot ID."""

SYSTEMCTL = f"""#!/bin/sh
# A stand-in: a reboot changes the boot ID, and ends SSH connections as a machine that goes down does.
echo "$*" >> /var/log/stand-ins/systemctl
if [ "$*" = reboot ]; then
  cat /proc/sys/kernel/random/uuid > {BOOT_ID}
  if [ -e /srv/ends-connections ]; then pkill -9 -f 'sshd: ci'; fi
fi
"""

OTHER_KEY = host_key("node-2")

RESOURCE, GPUS = "amd.com/gpu", 8
NAMESPACE, LABEL = "ml", "linux-mi300-gpu-1"
RUNNER = ("actions.github.com/v1alpha1", "EphemeralRunner")
FINALIZER = "ephemeralrunner.actions.github.com/runner-registration-finalizer"

DEFINITION: Mapping[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "ephemeralrunners.actions.github.com"},
    "spec": {
        "group": "actions.github.com",
        "names": {"kind": "EphemeralRunner", "plural": "ephemeralrunners"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""ARC's kind, as far as maintenance reads it."""


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what} in vain"
        time.sleep(0.1)


NODE_INFO = {
    **dict.fromkeys(("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion"), "test"),
    "kubeletVersion": "v1.35.4",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


@dataclass
class Fleet:
    """Nodes of a real API server, some of which are hosts."""

    kubeconfig: Path
    hosts: Mapping[str, Host]
    """Hosts by the name of their node."""
    busy_at_github: set[str] = field(default_factory=set)
    """Runners that GitHub does not let ARC remove, since they have a job."""
    offered: int = GPUS
    """GPUs that nodes offer after a reboot."""
    boot_seconds: float = 0.5
    """Seconds between a reboot and the kubelet's start, until it is ready, and until the device plugin registers."""

    def listed(self, version: str, kind: str) -> list[dict[str, Any]]:
        return api_server.listed(self.kubeconfig, (version, kind))[0]

    def node(self, name: str) -> dict[str, Any]:
        return next(each for each in self.listed("v1", "Node") if each["metadata"]["name"] == name)

    def is_cordoned(self, name: str) -> bool:
        return bool(self.node(name)["spec"].get("unschedulable"))

    def mark(self, name: str) -> str | None:
        found: str | None = self.node(name)["metadata"].get("annotations", {}).get(MARK)
        return found

    def runners(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.listed(*RUNNER)}

    def workloads(self, node: str) -> set[str]:
        """Names of runners and of other workloads with a pod on a node that is not about to end."""
        return {
            each["metadata"].get("labels", {}).get("app", each["metadata"]["name"])
            for each in self.listed("v1", "Pod")
            if each["spec"].get("nodeName") == node and "deletionTimestamp" not in each["metadata"]
        }

    def reboots(self, name: str) -> int:
        return self.hosts[name].calls("systemctl").count("reboot")

    def add_node(self, name: str, *, labels: Mapping[str, str] | None = None, ready: bool = True) -> None:
        # The label keeps kwok from reporting the node as ready.
        labels = {"karpenter.sh/nodepool": "none", **(labels or {})}
        objects.apply(
            self.kubeconfig, [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}], "t"
        )
        self.report(name, boot_id=self.boot_id(name), gpus=GPUS, ready=ready)

    def boot_id(self, name: str) -> str:
        return self.hosts[name].path(BOOT_ID).read_text().strip() if name in self.hosts else str(uuid.uuid4())

    def report(self, name: str, *, boot_id: str, gpus: int, ready: bool) -> None:
        """Report a node's status as its kubelet does."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        amounts = {"cpu": "190", "memory": "2200Gi", "pods": "110", RESOURCE: str(gpus)}
        condition = {"type": "Ready", "status": str(ready), "reason": "test", "lastHeartbeatTime": now}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [condition],
            "nodeInfo": {**NODE_INFO, "bootID": boot_id},
        }
        self.patch(f"/api/v1/nodes/{name}/status", {"apiVersion": "v1", "kind": "Node", "status": status})

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        with api_server.connected(self.kubeconfig) as api:
            name = path.removesuffix("/status").rpartition("/")[2]
            content = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
            api.call("PATCH", path, query={"fieldManager": "kubelet", "force": "true"}, body=content)

    def add_runner(self, name: str, node: str, *, job: str = "") -> None:
        """A runner and its pod, as ARC makes them."""
        path = f"/apis/{RUNNER[0]}/namespaces/{NAMESPACE}/ephemeralrunners"
        metadata = {"name": name, "namespace": NAMESPACE, "finalizers": [FINALIZER]}
        metadata["labels"] = {  # type: ignore[assignment]
            "actions.github.com/scale-set-name": LABEL,
            "actions.github.com/scale-set-namespace": NAMESPACE,
        }
        with api_server.connected(self.kubeconfig) as api:
            body = {"apiVersion": RUNNER[0], "kind": RUNNER[1], "metadata": metadata}
            _, made = api.call("POST", path, body=body)
            owner = {"apiVersion": RUNNER[0], "kind": RUNNER[1], "name": name, "uid": made["metadata"]["uid"]}
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": {"actions-ephemeral-runner": "True"},
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": {"nodeName": node, "containers": [{"name": "runner", "image": "example.test/runner:v1"}]},
            }
            api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=pod)
        if job:
            self.assign(name, job)

    def assign(self, name: str, job: str) -> None:
        """GitHub gives a runner a job, and ARC notes it."""
        self.busy_at_github.add(name)
        body = {"apiVersion": RUNNER[0], "kind": RUNNER[1], "status": {"jobId": job, "phase": "Running"}}
        self.patch(f"/apis/{RUNNER[0]}/namespaces/{NAMESPACE}/ephemeralrunners/{name}/status", body)

    def end_job(self, name: str) -> None:
        """The job ends, and ARC deletes the runner."""
        self.busy_at_github.discard(name)
        with api_server.connected(self.kubeconfig) as api, contextlib.suppress(ApiError):
            api.call("DELETE", f"/apis/{RUNNER[0]}/namespaces/{NAMESPACE}/ephemeralrunners/{name}")

    def merge(self, path: str, body: Mapping[str, Any]) -> None:
        """Change an object as kubectl does: not by server-side apply."""
        with api_server.connected(self.kubeconfig) as api:
            current = api.call("GET", path)[1]
            for key, value in body.items():
                merged = {**current.get(key, {}), **value}
                current[key] = {name: each for name, each in merged.items() if each is not None}
            api.call("PUT", path, query={"fieldManager": "kubectl"}, body=current)

    def clear(self) -> None:
        """Delete everything that a test has made."""
        self.busy_at_github.clear()
        workloads = ("apps/v1/namespaces/ml/deployments", "apps/v1/namespaces/ml/daemonsets")
        with api_server.connected(self.kubeconfig) as api:
            for path in (*workloads, f"{RUNNER[0]}/namespaces/{NAMESPACE}/ephemeralrunners"):
                api.call("DELETE", f"/apis/{path}")
            until(lambda: self._end_runners(api) or not self.runners(), "runners to go")
            until(lambda: not self.listed("v1", "Pod"), "pods to go")
            # The sandbox ends the pods of nodes that exist.
            api.call("DELETE", "/api/v1/nodes")

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Let kubelets and ARC's controller work."""
        over = threading.Event()
        work = threading.Thread(target=self._work, args=[over])
        work.start()
        try:
            yield
        finally:
            over.set()
            work.join()

    def _work(self, over: threading.Event) -> None:
        booted: dict[str, tuple[str, float]] = {
            name: (self.node(name)["status"]["nodeInfo"]["bootID"], 0.0) for name in self.hosts
        }
        with api_server.connected(self.kubeconfig) as api:
            while not over.wait(0.1):
                self._end_runners(api)
                for name in self.hosts:
                    known, since = booted[name]
                    if (current := self.boot_id(name)) and current != known:
                        self.report(name, boot_id=known, gpus=GPUS, ready=False)
                        booted[name] = (current, time.monotonic())
                    elif since:
                        # The kubelet starts, is ready, and then the device plugin registers.
                        step = int((time.monotonic() - since) / self.boot_seconds)
                        if step > 0:
                            gpus = self.offered if step > 2 else 0
                            self.report(name, boot_id=known, gpus=gpus, ready=step > 1)
                        booted[name] = (known, since if step <= 2 else 0.0)

    def _end_runners(self, api: ApiServer) -> None:
        """Remove runners at GitHub, which refuses while they have a job (ephemeralrunner_controller.go:92-104 at
        0.14.2). The garbage collector deletes their pods."""
        path = f"/apis/{RUNNER[0]}/namespaces/{NAMESPACE}/ephemeralrunners"
        for each in api.call("GET", path)[1]["items"]:
            metadata = each["metadata"]
            if "deletionTimestamp" in metadata and metadata["name"] not in self.busy_at_github:
                kept = {key: value for key, value in each.items() if key != "metadata"}
                body = {**kept, "metadata": {**metadata, "finalizers": []}}
                with contextlib.suppress(ApiError):
                    api.call("PUT", f"{path}/{metadata['name']}", body=body)


def add_workloads(fleet: Fleet, first: str) -> None:
    """A Deployment whose pod is on a node if it can be, and a DaemonSet."""
    container = {"name": "main", "image": "example.test/main:v1"}
    for kind, name in (("Deployment", "listener"), ("DaemonSet", "plugin")):
        labels = {"app": name}
        spec: dict[str, Any] = {
            "containers": [container],
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
        }
        if kind == "Deployment":
            term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}]}
            spec["affinity"] = {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]
                }
            }
        workload = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        objects.apply(fleet.kubeconfig, [workload], "t")


def start_machine(hosts: Hosts, name: str) -> Host:
    """A host with a boot ID of its own, which a reboot changes."""
    host = hosts.start(name)
    write(host, "/usr/local/bin/systemctl", SYSTEMCTL)
    write(host, BOOT_ID, f"{uuid.uuid4()}\n")
    host.run("mount", "--bind", BOOT_ID, "/proc/sys/kernel/random/boot_id")
    return host
