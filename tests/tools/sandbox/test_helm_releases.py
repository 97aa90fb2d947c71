"""Helm's records that a killed `up` has left: which are removed or refused, on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet_tools.sandbox.control_plane import api_server
from gpufleet_tools.sandbox.control_plane.objects import apply
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.helm_releases import forget_interrupted, refuse_interrupted

KNOWN = {"default/known"}


@pytest.mark.parametrize(
    ("release", "statuses", "left"),
    [
        ("unknown", ["pending-install"], []),
        ("unknown", ["deployed"], []),
        ("unknown", ["superseded", "pending-upgrade"], []),
        ("known", ["deployed"], ["deployed"]),
        ("known", ["failed"], ["failed"]),
        ("known", ["superseded", "deployed"], ["superseded", "deployed"]),
        ("known", ["deployed", "pending-upgrade"], ["deployed"]),
        ("known", ["superseded", "deployed", "pending-rollback"], ["superseded", "deployed"]),
    ],
)
def test_what_is_forgotten(kubeconfig: Path, release: str, statuses: list[str], left: list[str]) -> None:
    records = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "helm.sh/release.v1",
            "metadata": {
                "name": f"sh.helm.release.v1.{release}.v{version}",
                "namespace": "default",
                "labels": {"owner": "helm", "name": release, "status": status, "version": str(version)},
            },
        }
        for version, status in enumerate(statuses, start=1)
    ]
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "another", "namespace": "default"}}
    apply(kubeconfig, [*records, other], "helm-releases")
    if len(left) == len(statuses):
        refuse_interrupted(kubeconfig, KNOWN, "lab")
    else:
        with pytest.raises(
            SandboxError, match=rf"a Helm operation on default/{release}; bring the stack up again first"
        ):
            refuse_interrupted(kubeconfig, KNOWN, "lab")
    said = forget_interrupted(kubeconfig, KNOWN)
    (secrets,) = api_server.listed(kubeconfig, ("v1", "Secret"))
    labels = [secret["metadata"]["labels"] for secret in secrets]
    assert [each["status"] for each in labels if each.get("name") == release] == left
    assert len(said) == len(statuses) - len(left)
    assert all(line.startswith(f"Helm release default/{release}: ") for line in said)
    assert "another" in {secret["metadata"]["name"] for secret in secrets}
    assert forget_interrupted(kubeconfig, KNOWN) == []
    forget_interrupted(kubeconfig, ())
