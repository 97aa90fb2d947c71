"""The doctor on a real API server: it reads only, with few permissions, and without some of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3.connectionpool
import yaml

from gpufleet_tools import cli
from gpufleet_tools.api_server import ApiError, ApiServer
from gpufleet_tools.arguments import parser
from gpufleet_tools.doctor import crds, reading
from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import lifecycle
from gpufleet_tools.sandbox.control_plane import api_server, objects
from tests.conftest import ROOT

OWNER = "doctor"


def document_role() -> dict[str, Any]:
    """The ClusterRole that the document recommends."""
    text = (ROOT / "docs/operations.md").read_text()
    (block,) = (each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "gpufleet-doctor" in each)
    role: dict[str, Any] = yaml.safe_load(block)
    return role


def definition(plural: str, fields: Any) -> dict[str, Any]:
    """A CRD of ARC with the fields of a version, without their types."""
    free = {"x-kubernetes-preserve-unknown-fields": True}
    parts = {
        part: {"type": "object", "properties": {each.split(".")[1]: free for each in fields if each.startswith(part)}}
        for part in ("spec", "status")
    }
    kind = {"autoscalinglisteners": "AutoscalingListener", "autoscalingrunnersets": "AutoscalingRunnerSet"}
    kind |= {"ephemeralrunners": "EphemeralRunner", "ephemeralrunnersets": "EphemeralRunnerSet"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": parts}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.actions.github.com"},
        "spec": {
            "group": "actions.github.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind[plural]},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }


def binding(role: str) -> list[dict[str, Any]]:
    """A service account with a cluster role."""
    account = {"kind": "ServiceAccount", "name": "doctor", "namespace": "default"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "doctor", "namespace": "default"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "doctor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [account],
        },
    ]


@pytest.fixture
def limited(kubeconfig: Path, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig with the token of a service account that may do what the document says; nodes and projects exist."""
    read = stack.read(ROOT, "mi300")
    wanted = [definition(plural, crds.known()["0.14"][plural]) for plural in crds.PLURALS]
    wanted += [*lifecycle.prerequisites(read, read.plan()), *lifecycle.own_objects(read.plan())]
    wanted += [document_role(), *binding("gpufleet-doctor")]
    objects.apply(kubeconfig, wanted, OWNER)
    with api_server.connected(kubeconfig) as api:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/default/serviceaccounts/doctor/token"
        token = api.call("POST", path, body=request)[1]["status"]["token"]
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"] = [{"name": each["name"], "user": {"token": token}} for each in content["users"]]
    file = tmp_path / "limited"
    file.write_text(json.dumps(content))
    wait_for(file, "/api/v1/nodes", allowed=True)
    yield file
    objects.prune(kubeconfig, [], OWNER)


def wait_for(kubeconfig: Path, path: str, *, allowed: bool) -> None:
    """Wait until the API server has noticed a change of permissions."""
    deadline = time.monotonic() + 30
    while True:
        with ApiServer(api_server.configuration(kubeconfig)) as api:
            try:
                api.call("GET", path)
                status = 200
            except ApiError as error:
                status = error.status
        if (status == 200) == allowed:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def doctor(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = cli.run(parser().parse_args(["-C", str(ROOT), "doctor", "mi300", *options]))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_request_is_a_get_and_few_permissions_suffice(
    limited: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str, Any]] = []
    send = urllib3.connectionpool.HTTPConnectionPool.urlopen

    def recorded(pool: Any, method: str, url: str, *arguments: Any, **options: Any) -> Any:
        requests.append((method, url, options.get("headers", {}).get("Accept")))
        return send(pool, method, url, *arguments, **options)

    monkeypatch.setattr(urllib3.connectionpool.HTTPConnectionPool, "urlopen", recorded)
    code, out, err = doctor(capsys, "--kubeconfig", str(limited))
    assert code == cli.FINDINGS, err
    assert "permission" not in out
    assert "controller-missing" in out
    assert "crds-" not in out
    assert {method for method, _, _ in requests} == {"GET"}
    of_secrets = [accept for _, url, accept in requests if "/secrets" in url]
    assert of_secrets
    assert all("PartialObjectMetadata" in accept for accept in of_secrets), "contents of Secrets are not read"


def test_what_may_not_be_read_is_named_and_the_rest_reported(
    limited: Path, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role = document_role()
    for rule in role["rules"]:
        rule["resources"] = [each for each in rule["resources"] if each not in ("secrets", "nodes")]
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    objects.apply(kubeconfig, [role], OWNER)
    wait_for(limited, "/api/v1/nodes", allowed=False)
    code, out, err = doctor(capsys, "--kubeconfig", str(limited))
    assert code == cli.FINDINGS, err
    lines = out.splitlines()
    assert "no permission to list nodes; not checked: nodes and their GPUs" in lines
    places = "arc-systems, gpu-test-cluster, pytorch"
    assert f"no permission to list secrets in {places}; not checked: interrupted Helm operations" in lines
    assert "no permission to get secrets in gpu-test-cluster, pytorch; not checked: rotated keys" in lines
    assert lines[-1].endswith("; 3 permissions are missing")
    assert "node-missing" not in out, "unknown is not missing"
    assert "controller-missing" in out


def test_roles_in_namespaces_suffice_for_objects_in_namespaces(
    limited: Path, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    role = document_role() | {"metadata": {"name": "gpufleet-doctor-pods"}}
    role["rules"] = [rule for rule in role["rules"] if "pods" in rule["resources"]]
    kinds = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpufleet-doctor-pods"}
    subjects = [{"kind": "ServiceAccount", "name": "doctor", "namespace": "default"}]
    here = {"name": "doctor", "namespace": "pytorch"}
    empty = document_role() | {"rules": []}
    wanted = [role, empty, {**kinds, "metadata": here, "roleRef": reference, "subjects": subjects}]
    objects.apply(kubeconfig, wanted, OWNER)
    wait_for(limited, "/api/v1/nodes", allowed=False)
    wait_for(limited, "/api/v1/namespaces/pytorch/pods", allowed=True)
    code, out, err = doctor(capsys, "--kubeconfig", str(limited), "--format", "json")
    assert code == cli.FINDINGS, err
    unread = json.loads(out)["unread"]
    pods = {each["namespace"] for each in unread if each["resource"] == "pods" and "listeners" in each["purpose"]}
    assert pods == {"arc-systems", "gpu-test-cluster"}, "those of pytorch were read"
    assert {each["resource"] for each in unread} >= {"autoscalingrunnersets", "deployments", "nodes"}


@pytest.mark.parametrize("server", ["https://127.0.0.1:9", "http://127.0.0.1:9"])
def test_an_unreachable_cluster_is_one_line(tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {"token": "secret-token"}}],
    }
    file.write_text(json.dumps(config))
    code, out, err = doctor(capsys, "--kubeconfig", str(file))
    assert (code, out) == (cli.INVALID, "")
    assert len(err.splitlines()) == 1
    assert "Connection refused" in err
    assert "secret-token" not in err


def test_rejected_credentials_are_one_line(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"] = [{"name": each["name"], "user": {"token": "no-such-token"}} for each in content["users"]]
    file = tmp_path / "config"
    file.write_text(json.dumps(content))
    code, _, err = doctor(capsys, "--kubeconfig", str(file))
    assert code == cli.INVALID
    assert err.endswith("rejects the credentials of the kubeconfig; renew them, or pass --kubeconfig\n")


def test_every_list_is_one_that_the_document_allows() -> None:
    allowed = {each for rule in document_role()["rules"] if "list" in rule["verbs"] for each in rule["resources"]}
    assert {query.resource for query in reading.QUERIES.values()} == allowed
