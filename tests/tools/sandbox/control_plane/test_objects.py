"""Apply and prune against a real API server. Every test has an owner and a namespace of its own."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.control_plane.objects import Applied, Identity, apply, identity, prune
from gpufleet_tools.sandbox.errors import SandboxError
from tests.tools.sandbox.dry_run import dry_run

Object = dict[str, Any]


@pytest.fixture
def own(request: pytest.FixtureRequest) -> str:
    """The name of this test's owner and namespace."""
    name: str = request.node.name
    return name.removeprefix("test_").replace("_", "-")[:50].strip("-")


@pytest.fixture
def read(kubeconfig: Path) -> Callable[[str], Object]:
    """GET a path."""

    def get(path: str) -> Object:
        with api_server.connected(kubeconfig) as api:
            return api.call("GET", path)[1]

    return get


def make(kind: str, name: str, namespace: str = "", api_version: str = "v1", **body: Any) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def node(name: str, gpus: int = 8) -> Object:
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "amd.com/gpu": str(gpus)}
    taint = {"key": "only", "value": name, "effect": "NoSchedule"}
    status = {"capacity": capacity, "allocatable": capacity}
    return make("Node", name, spec={"taints": [taint]}, status=status)


def job(name: str, namespace: str, node_name: str, **annotations: str) -> Object:
    pod = {
        "restartPolicy": "Never",
        "tolerations": [{"key": "only", "value": node_name}],
        "initContainers": [
            {"name": "once", "image": "example.test/once"},
            {"name": "docker", "image": "example.test/docker", "restartPolicy": "Always"},
        ],
        "containers": [
            {"name": "runner", "image": "example.test/runner", "resources": {"limits": {"amd.com/gpu": "2"}}}
        ],
    }
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    return make("Job", name, namespace, "batch/v1", spec={"template": template})


def wait_for(condition: Callable[[], Any], patience: float = 20.0) -> Any:
    deadline = time.monotonic() + patience
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_counts_what_it_creates_changes_and_leaves(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    # Not in the order in which they can be applied.
    given = [
        make("Pod", "first", own, spec={"containers": [{"name": "a", "image": "example.test/a"}]}),
        make("ConfigMap", "settings", own, data={"key": "value"}),
        make("Namespace", own),
    ]
    assert apply(kubeconfig, given, own) == Applied(created=3)
    assert apply(kubeconfig, given, own) == Applied(unchanged=3)
    given[1]["data"] = {"key": "other"}
    assert apply(kubeconfig, given, own) == Applied(changed=1, unchanged=2)
    metadata = read(f"/api/v1/namespaces/{own}/configmaps/settings")["metadata"]
    assert metadata["labels"] == {"gpufleet.dev/sandbox": own}
    assert [entry["manager"] for entry in metadata["managedFields"]] == ["gpufleet"]
    assert "labels" not in given[1]["metadata"], "what was given is left as it was"


def test_a_field_set_by_someone_else_is_taken_over(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    settings = make("ConfigMap", own, "default", data={"key": "ours"})
    apply(kubeconfig, [settings], own)
    with api_server.connected(kubeconfig) as api:
        query = {"fieldManager": "someone", "force": "true"}
        theirs = make("ConfigMap", own, "default", data={"key": "theirs"})
        api.call("PATCH", f"/api/v1/namespaces/default/configmaps/{own}", query=query, body=theirs)
    assert apply(kubeconfig, [settings], own) == Applied(changed=1)
    assert read(f"/api/v1/namespaces/default/configmaps/{own}")["data"] == {"key": "ours"}


def test_a_key_removed_from_a_secret_goes(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    def data() -> dict[str, str]:
        stored = read(f"/api/v1/namespaces/default/secrets/{own}")["data"]
        return {key: base64.b64decode(value).decode() for key, value in stored.items()}

    apply(kubeconfig, [make("Secret", own, "default", stringData={"id": "1", "token": "ö"}, data={"raw": "AA=="})], own)
    assert data() == {"id": "1", "token": "ö", "raw": "\0"}
    apply(kubeconfig, [make("Secret", own, "default", stringData={"id": "2"})], own)
    assert data() == {"id": "2"}


def test_a_node_has_the_capacity_it_is_given(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    def status() -> Object:
        found: Object = read(f"/api/v1/nodes/{own}")["status"]
        return found

    def ready() -> bool:
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status().get("conditions", []))

    assert apply(kubeconfig, [node(own, gpus=8)], own) == Applied(created=1)
    wait_for(ready)
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "amd.com/gpu": "8"}
    assert (status()["capacity"], status()["allocatable"]) == (capacity, capacity)
    assert apply(kubeconfig, [node(own, gpus=4)], own) == Applied(changed=1)
    assert status()["allocatable"]["amd.com/gpu"] == "4"
    assert ready(), "what kwok wrote is still there"
    assert apply(kubeconfig, [node(own, gpus=4)], own) == Applied(unchanged=1)


def test_a_runner_stays_and_a_job_ends_when_it_says(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    given = [node(own), make("Namespace", own), job("stays", own, own)]
    given.append(job("ends", own, own, **{"gpufleet.dev/job-seconds": "2"}))
    apply(kubeconfig, given, own)

    def pods() -> dict[str, Object]:
        items = read(f"/api/v1/namespaces/{own}/pods")["items"]
        return {pod["metadata"]["labels"]["job-name"]: pod["status"] for pod in items}

    running = wait_for(lambda: len(found := pods()) == 2 and found["stays"]["phase"] == "Running" and found)["stays"]
    conditions = {condition["type"]: condition["status"] for condition in running["conditions"]}
    assert conditions["Ready"] == conditions["PodScheduled"] == "True"
    states = {status["name"]: status["state"] for status in running["initContainerStatuses"]}
    assert "running" in states["docker"], "a sidecar"
    assert states["once"]["terminated"]["exitCode"] == 0
    assert "running" in running["containerStatuses"][0]["state"]

    ended = wait_for(lambda: (found := pods()["ends"])["phase"] == "Succeeded" and found)
    state = ended["containerStatuses"][0]["state"]["terminated"]
    lasted = time.mktime(time.strptime(state["finishedAt"], "%Y-%m-%dT%H:%M:%SZ"))
    lasted -= time.mktime(time.strptime(state["startedAt"], "%Y-%m-%dT%H:%M:%SZ"))
    assert 2 <= lasted <= 5
    wait_for(lambda: read(f"/apis/batch/v1/namespaces/{own}/jobs/ends")["status"].get("succeeded") == 1)
    assert pods()["stays"]["phase"] == "Running"


def definition(name: str) -> Object:
    spec = {"type": "object", "properties": {"runners": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return make(
        "CustomResourceDefinition",
        f"{name}s.{name}.example.test",
        api_version="apiextensions.k8s.io/v1",
        spec={
            "group": f"{name}.example.test",
            "scope": "Namespaced",
            "names": {"plural": f"{name}s", "singular": name, "kind": name.capitalize()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    )


def test_a_custom_resource_with_its_definition(kubeconfig: Path, own: str) -> None:
    resource = make("Widget", "w", "default", "widget.example.test/v1", spec={"runners": 3})
    assert apply(kubeconfig, [resource, definition("widget")], own) == Applied(created=2)
    assert apply(kubeconfig, [definition("widget"), resource], own) == Applied(unchanged=2)
    assert prune(kubeconfig, {identity(definition("widget"))}, own) == [identity(resource)]


def test_says_all_that_is_refused_and_applies_the_rest(kubeconfig: Path, own: str) -> None:
    given = [
        make("ConfigMap", own, "default", data={"key": 3}),
        make("ConfigMap", f"{own}-good", "default", data={"key": "3"}),
        make("Service", own, "default", spec={"prots": []}),
        make("Deployment", "Bad_Name", "default", "apps/v1", spec={}),
        make("Gadget", own, "default", "absent.example.test/v1"),
        make("ConfigMap", own, f"{own}-absent", data={}),
    ]
    with pytest.raises(SandboxError) as caught:
        apply(kubeconfig, given, own)
    lines = sorted(caught.value.lines)
    assert len(lines) == 5
    assert not any("\n" in line for line in lines)
    assert lines[0].startswith(f"ConfigMap default/{own}: ")
    assert lines[1] == f'ConfigMap {own}-absent/{own}: namespaces "{own}-absent" not found'
    assert lines[2].startswith("Deployment default/Bad_Name: ")
    assert lines[3].startswith(f"Gadget default/{own}: there is no kind Gadget in absent.example.test/v1; ")
    assert lines[4].startswith(f"Service default/{own}: ")
    assert "prots" in lines[4]
    assert apply(kubeconfig, given[1:2], own) == Applied(unchanged=1)


def test_removes_what_is_kept_no_more(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    stays, goes = make("ConfigMap", "stays", own), make("ConfigMap", "goes", own)
    service = make("Service", "front", own, spec={"selector": {"app": "x"}, "ports": [{"port": 80}]})
    given = [make("Namespace", own), node(own), stays, goes, service, job("runner", own, own)]
    apply(kubeconfig, given, own)
    apply(kubeconfig, [make("ConfigMap", f"{own}-other", "default")], f"{own}-other")

    def items(path: str, namespace: str = f"/namespaces/{own}") -> list[Object]:
        found: list[Object] = read(path.replace("/*", namespace))["items"]
        return found

    wait_for(lambda: any(pod["status"]["phase"] == "Running" for pod in items("/api/v1/*/pods")))
    slices = wait_for(lambda: items("/apis/discovery.k8s.io/v1/*/endpointslices"))
    assert slices[0]["metadata"]["labels"][objects.OWNER_LABEL] == own, "copied from the Service by a controller"

    assert prune(kubeconfig, {identity(given) for given in given}, own) == []
    keep = {identity(given) for given in (given[0], given[1], stays, service)}
    assert prune(kubeconfig, keep, own) == [Identity("", "ConfigMap", own, "goes"), identity(given[5])]
    assert items("/api/v1/*/pods") == [], "a Job's pods are gone when it is"
    left = {item["metadata"]["uid"] for item in items("/apis/discovery.k8s.io/v1/*/endpointslices")}
    assert left == {item["metadata"]["uid"] for item in slices}
    assert read(f"/api/v1/namespaces/default/configmaps/{own}-other"), "another owner's"


def test_pods_go_with_the_machine_they_are_on(kubeconfig: Path, own: str, read: Callable[[str], Object]) -> None:
    pod = {"containers": [{"name": "a", "image": "example.test/a"}], "nodeName": own}
    apply(kubeconfig, [node(own)], own)
    apply(kubeconfig, [make("Pod", own, "default", spec=pod)], f"{own}-unpruned")
    wait_for(lambda: read(f"/api/v1/namespaces/default/pods/{own}")["status"]["phase"] == "Running")
    assert prune(kubeconfig, set(), own) == [Identity("", "Node", "", own)]
    on_node = f"/api/v1/pods?fieldSelector=spec.nodeName={own}"
    assert read(on_node)["items"] == []


def test_a_namespace_goes_with_all_that_is_in_it_and_can_come_back(kubeconfig: Path, own: str) -> None:
    given = [make("Namespace", own), make("ConfigMap", "settings", own)]
    apply(kubeconfig, given, own)
    assert prune(kubeconfig, set(), own) == sorted(map(identity, given))
    assert apply(kubeconfig, given, own) == Applied(created=2)


def test_a_dry_run_changes_nothing_and_finds_every_fault(
    kubeconfig: Path, own: str, read: Callable[[str], Object]
) -> None:
    good = [make("Namespace", own), make("ConfigMap", "settings", own, data={"key": "value"}), node(own)]
    dry_run(kubeconfig, good)
    names = [item["metadata"]["name"] for kind in ("namespaces", "nodes") for item in read(f"/api/v1/{kind}")["items"]]
    assert own not in names
    bad = [make("ConfigMap", "a", own, data=[]), make("ConfigMap", "b", own, unknown=1), make("Gadget", "c", own)]
    with pytest.raises(SandboxError) as caught:
        dry_run(kubeconfig, [*good, *bad])
    assert [line.partition(": ")[0] for line in caught.value.lines] == [str(identity(given)) for given in bad]


def test_says_when_there_is_no_sandbox(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="is the sandbox up"):
        apply(tmp_path / "kubeconfig", [], "nobody")
