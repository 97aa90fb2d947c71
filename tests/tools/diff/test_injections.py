"""Pull requests that open machines or carry secrets: each is refused, and no secret is in its comment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tools.diff.pull_requests import AWS, MI300, Edit, Repository, compare

STACKS = {"mi300": MI300, "aws": AWS}
SECRET = "correct-horse-battery"


def profile(**settings: Any) -> Edit:
    """Give the profile more settings; YAML reads JSON."""
    lines = "".join(f"      {key}: {json.dumps(value)}\n" for key, value in settings.items())
    return "Pulumi.mi300.yaml", "      renderGroup: 110\n", f"      renderGroup: 110\n{lines}"


def mounted(path: str) -> tuple[Edit, ...]:
    """Mount a path of the node, and allow it in the same pull request."""
    volume = {"mountPath": "/node", "source": {"hostPath": {"path": path}}}
    allowed = ("Pulumi.mi300.yaml", "config:\n", f"config:\n  gpu-runners:hostPaths: [{path}, /]\n")
    return profile(volumes={"node": volume}), allowed


def capability(name: str) -> tuple[Edit, ...]:
    return (profile(securityContext={"capabilities": {"add": [name]}}),)


INJECTIONS: dict[str, tuple[tuple[Edit, ...], str]] = {
    "a-token-by-its-name": ((profile(env={"HF_TOKEN": SECRET}),), "invalid"),
    "a-key-of-aws": ((profile(env={"AWS_SECRET_ACCESS_KEY": SECRET}),), "invalid"),
    "a-password": ((profile(env={"DB_PASSWORD": SECRET}),), "invalid"),
    "a-token-of-slack": ((profile(env={"NOTIFY": f"xoxb-1234-{SECRET}"}),), "invalid"),
    "a-token-of-pypi": ((profile(env={"INDEX": f"pypi-AgEIcHlwaS5vcmc{SECRET}"}),), "invalid"),
    "a-token-of-npm": ((profile(env={"REGISTRY": "npm_" + "c0rrectH0rse" * 3}),), "invalid"),
    "the-root-folder": (mounted("/"), "host-path"),
    "the-socket-of-docker": (mounted("/var/run/docker.sock"), "host-path"),
    "the-socket-of-containerd": (mounted("/run/containerd/containerd.sock"), "host-path"),
    "the-cluster-s-credentials": (mounted("/etc/kubernetes"), "host-path"),
    "a-folder-that-is-not-allowed": (mounted("/srv")[:1], "host-path"),
    "the-network-of-the-node": ((profile(podTemplate={"spec": {"hostNetwork": True}}),), "privileged-pod"),
    "kernel-modules": (capability("SYS_MODULE"), "privileged-pod"),
    "other-processes": (capability("SYS_PTRACE"), "privileged-pod"),
    "a-rolling-tag": (
        (("Pulumi.mi300.yaml", "rocm-dev:v1", "rocm-dev:rolling"),),
        "mutable-image",
    ),
    "a-group-open-on-all-ports": (
        (
            (
                "components/gpufleet/aws/eks/security_groups.py",
                '        tags=args.tagged("control-plane"),\n',
                '        tags=args.tagged("control-plane"),\n'
                '        ingress=[{"protocol": "-1", "from_port": 0, "to_port": 0, "cidr_blocks": ["0.0.0.0/0"]}],\n',
            ),
        ),
        "open-ports",
    ),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("diff-injections") / "repository", STACKS)


@pytest.mark.parametrize("name", INJECTIONS)
def test_an_injection_is_refused(name: str, repository: Repository) -> None:
    edits, refusal = INJECTIONS[name]
    base = repository.branch("base")
    opened = f"{base}..{repository.branch(name, edits, base=base)}"
    stack = "mi300" if any(file == "Pulumi.mi300.yaml" for file, *_ in edits) else "aws"
    code, comment, err = compare(repository, opened, stack, "--format", "markdown")
    assert err == ""
    assert code == (2 if refusal == "invalid" else 1)
    assert comment.splitlines()[0] == f"### gpufleet diff: refused: {refusal}"
    assert "correct" not in comment
    assert "c0rrect" not in comment
