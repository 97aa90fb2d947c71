"""The kubeconfig of an EKS cluster: read by a client of Kubernetes, and run by the `aws` command."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import urllib.parse
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2, resource_pb2

import gpufleet_tools.plan.recorder
from gpufleet.aws import ClusterCredentials
from gpufleet.aws.eks._kubeconfig import kubeconfig
from gpufleet_tools.plan.recorder import _Monitor
from tests.components.aws.eks.test_cluster import OPERATIONS, cluster, of_kind
from tests.recording import the

ENDPOINT = "https://0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com"
AUTHORITY = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


def config(**credentials: Any) -> dict[str, Any]:
    return dict(json.loads(kubeconfig("ci", "eu-west-1", ENDPOINT, AUTHORITY, ClusterCredentials(**credentials))))


def token_command(**credentials: Any) -> list[str]:
    (user,) = config(**credentials)["users"]
    run = user["user"]["exec"]
    return [run["command"], *run["args"]]


@pytest.mark.process
def test_a_client_reaches_the_cluster_with_a_token_of_the_command(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is Kubernetes' own; the command is one of ours that answers as AWS's does."""
    kubernetes = pytest.importorskip("kubernetes", reason="no client of Kubernetes is installed")
    credential: dict[str, Any] = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "status": {"token": "k8s-aws-v1.token"},
    }
    command = tmp_path / "aws"
    command.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config_from_dict(config(), client_configuration=found)
    assert found.host == ENDPOINT
    assert found.get_api_key_with_prefix("BearerToken", "authorization") == "Bearer k8s-aws-v1.token"
    assert pathlib.Path(found.ssl_ca_cert).read_bytes() == base64.b64decode(AUTHORITY)
    assert found.verify_ssl


@pytest.mark.process
def test_awss_command_makes_a_token_for_this_cluster_and_region() -> None:
    """It signs a request by itself; nobody is asked."""
    if not shutil.which("aws"):
        pytest.skip("no aws on PATH")
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        token_command(), env=os.environ | keys, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == 127:
        pytest.skip("aws on PATH does not run")
    assert done.returncode == 0, done.stderr
    token = json.loads(done.stdout)["status"]["token"].removeprefix("k8s-aws-v1.")
    url = urllib.parse.urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert url.hostname == "sts.eu-west-1.amazonaws.com"
    assert "x-k8s-aws-id" in urllib.parse.parse_qs(url.query)["X-Amz-SignedHeaders"][0]


@pytest.mark.parametrize(
    ("credentials", "further"),
    [
        ({}, []),
        ({"profile": "ci"}, ["--profile", "ci"]),
        ({"role_arn": "arn:role"}, ["--role-arn", "arn:role"]),
        ({"role_arn": "arn:role", "profile": "ci"}, ["--role-arn", "arn:role", "--profile", "ci"]),
    ],
)
def test_a_role_and_a_profile_are_taken_where_given(credentials: dict[str, str], further: list[str]) -> None:
    assert token_command(**credentials) == [
        *("aws", "--region", "eu-west-1", "eks", "get-token", "--cluster-name", "ci", "--output", "json"),
        *further,
    ]


def test_there_is_no_secret_in_it() -> None:
    (user,) = config()["users"]
    assert set(user["user"]) == {"exec"}


# -- where it comes from ----------------------------------------------------------------------------------------------

MADE = "urn:pulumi:test::gpu-runners::eks:index:Cluster$aws:eks/cluster:Cluster::ci-eksCluster"


SIGNATURE, RESOURCE = "4dabf18193072939515e22adb298388d", "5cf8f73096256a8f31e491e813e4eb8e"
"""Signature of a value that is a reference to a resource (sdk/go/common/resource/sig in pulumi/pulumi)."""


class Answering(_Monitor):
    """A recorder that answers for pulumi_eks as the real one does: with a reference to the cluster that it has made."""

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        answer = super().RegisterResource(request)
        if request.type == "eks:index:Cluster":
            answer.result = resource_pb2.Result.SUCCESS
            reference = {
                "4dabf18193072939515e22adb298388d": "5cf8f73096256a8f31e491e813e4eb8e",
                "urn": MADE,
                "id": "ci",
            }
            answer.object.update({"eksCluster": reference})
        return answer

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        assert request.tok == "pulumi:pulumi:getResource"
        state = {"name": "made", "endpoint": "https://made.example", "certificateAuthority": {"data": "QQ=="}}
        answer = provider_pb2.InvokeResponse()
        getattr(answer, "return").update({"urn": MADE, "id": "ci", "state": state})
        return answer


def test_what_pulumi_eks_has_made_reaches_the_kubeconfig_and_everything_in_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpufleet_tools.plan.recorder, "_Monitor", Answering)
    _, plan = cluster(unknown_outputs=False, admins={"operations": OPERATIONS})
    config = json.loads(the(plan, "kubernetes", "ci-kubernetes").inputs["kubeconfig"])
    assert config["clusters"][0]["cluster"] == {
        "server": "https://made.example",
        "certificate-authority-data": "QQ==",
    }
    assert "ci" in config["users"][0]["user"]["exec"]["args"]
    for kind in ("Addon", "NodeGroup", "AccessEntry", "AccessPolicyAssociation"):
        assert {each.inputs["clusterName"] for each in of_kind(plan, kind)} == {"made"}, kind
