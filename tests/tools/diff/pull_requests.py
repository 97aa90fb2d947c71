"""A git repository made from this one, in which pull requests can be made and compared."""

from __future__ import annotations

import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field

import pytest

from gpufleet_tools import cli
from gpufleet_tools.arguments import parser
from gpufleet_tools.diff.report import LIMIT
from tests.conftest import ROOT
from tests.stack_files import lab

MI300 = """\
# Two projects on machines at two sites.
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: mi300
    kubeconfig: {kind: context, context: mi300}
    nodePools:
      mi300x:
        accelerator: {vendor: amd, model: MI300X, count: 8}
        allocatable: {cpu: 190, memory: 2200Gi, ephemeralStorage: 3400Gi}
        labels: {accelerator: amd-mi300x}
        nodes:
          austin-1: {address: 192.0.2.11, labels: {pytorch: "yes"}}
          austin-2: {address: 192.0.2.12, labels: {pytorch: "yes"}}
          santa-clara-1: {address: 198.51.100.21}
  gpu-runners:projects:
    pytorch:
      configUrl: https://github.com/pytorch
      namespace: pytorch
      credentials: {kind: existingSecret, secretName: pytorch-secret}
    test-cluster:
      configUrl: https://github.com/example/test-cluster
      namespace: test-cluster
      credentials: {kind: githubApp, appId: "1000001", installationId: "50000001", secretName: app}
  gpu-runners:test-cluster-privateKey: {secure: v1:first}
  gpu-runners:profiles:
    pytorch:
      image: example.test/rocm-dev:v1
      renderGroup: 110
      nodeSelector: {pytorch: "yes"}
  gpu-runners:runners:
    linux-mi300-gpu-2:
      project: pytorch
      profile: pytorch
      gpus: 2
      cpu: 40
      memory: 400Gi
      min: 1
      max: 6
      docker: true
    mi300-cluster:
      project: test-cluster
      gpus: 1
      cpu: 16
      memory: 200Gi
      min: 1
      max: 8
"""

LAB = lab("""\
    lab-gpu-1: {project: lab, gpus: 1, cpu: 16, memory: 200Gi, max: 4}
    lab-gpu-8: {project: lab, gpus: 8, cpu: 128, memory: 1600Gi, max: 1, deprecated: {until: 2026-12-31}}
""")

AWS = """\
# A small cluster on EKS with a pool of shared GPUs and one without.
config:
  gpu-runners:cluster:
    kind: eks
    name: gpu
    region: us-east-1
    account: "111122223333"
    kubernetesVersion: "1.34"
    network: {kind: own, zones: [us-east-1a, us-east-1b]}
    endpoint: {publicAccessFrom: [203.0.113.0/24]}
    addons:
      vpc-cni: v1.22.4-eksbuild.3
      coredns: v1.13.2-eksbuild.21
      kube-proxy: v1.34.6-eksbuild.11
      eks-pod-identity-agent: v1.3.10-eksbuild.3
    nodePools:
      cpu:
        instances: {families: [m6i], cpus: [8], hypervisor: nitro}
        amis: [{alias: al2023@v20260512}]
        limits: {cpu: 64}
        terminationGracePeriod: 6h
      gpu:
        instances: {families: [g4dn, g5], sizes: [2xlarge], hypervisor: nitro}
        amis: [{alias: al2023@v20260512}]
        labels: {nvidia.com/gpu.present: "true"}
        taints: [{key: nvidia.com/gpu, effect: NoSchedule}]
        sharing: {timeSlicing: {replicas: 10}}
        limits: {cpu: 80, gpus: 4}
        terminationGracePeriod: 6h
  gpu-runners:projects:
    example:
      configUrl: https://github.com/example/aws
      namespace: example
      credentials: {kind: token, secretName: token}
  gpu-runners:example-token: {secure: v1:first}
  gpu-runners:profiles:
    nvidia:
      pool: gpu
      ephemeralStorage: 15Gi
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
    cpu: {pool: cpu, ephemeralStorage: 30Gi}
  gpu-runners:runners:
    linux-cpu-4: {project: example, profile: cpu, gpus: 0, cpu: 3, memory: 6Gi, max: 10}
    linux-nvidia-gpu: {project: example, profile: nvidia, gpus: 1, cpu: 500m, memory: 2Gi, max: 40}
"""

BARE_METAL = {"mi300": MI300, "lab": LAB}

SERIES = (
    "add-a-runner",
    "raise-max-beyond-the-pool",
    "rename-a-label",
    "bump-arc-by-a-minor",
    "change-the-gpu-pools-families",
    "rotate-a-secret",
    "add-a-node",
    "remove-a-node",
    "change-time-slicing-replicas",
    "bump-the-toolkit-to-1.18",
    "open-the-eks-endpoint",
    "delete-a-stack",
)
"""What most pull requests to a fleet do. Every one is in a table of some test, and there are more."""

Edit = tuple[str, str, str]
"""A file, a text in it, and what takes its place."""


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """Edits, and what is said of them."""

    edits: tuple[Edit, ...] = ()
    """Edits of the head."""
    first: tuple[Edit, ...] = ()
    """Edits that its base has already."""
    new: Mapping[str, str] = field(default_factory=dict)
    """Files that it adds."""
    gone: tuple[str, ...] = ()
    """Files that it removes."""
    options: tuple[str, ...] = ()
    """Options of the command."""
    code: int = 0
    """Exit code."""
    refused: str = "nothing"
    users: str = "nothing"
    resources: str = "nothing"
    headline: str = "no change for users"
    invalid: str = ""
    """What the head is refused for where it has mistakes of its own; nothing else is said then."""
    says: tuple[str, ...] = ()
    """More that the comment has."""


class Repository:
    """The repository: `main` has this one's program, and some stacks."""

    def __init__(self, folder: pathlib.Path, stacks: Mapping[str, str] = BARE_METAL) -> None:
        self.root = folder
        folder.mkdir()
        for name in ("components", "stacks", "tools"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Pulumi.yaml", folder)
        shutil.copy(ROOT / "requirements.txt", folder)
        (folder / ".gitignore").write_text("__pycache__/\n")
        for name, text in stacks.items():
            (folder / f"Pulumi.{name}.yaml").write_text(text)
        self.git("init", "--quiet", "--initial-branch=main")
        self._commit("The fleet as it is")

    def git(self, *arguments: str) -> str:
        """Runs git with nobody's configuration."""
        someone = {
            f"GIT_{who}_{what}": "test@example.test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        env = {**os.environ, **someone, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        command = ["git", "-C", self.root, *arguments]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def branch(
        self,
        name: str,
        edits: Iterable[Edit] = (),
        *,
        base: str = "main",
        new: Mapping[str, str] | None = None,
        gone: Iterable[str] = (),
    ) -> str:
        """A branch with one commit on the base; its name."""
        self.git("checkout", "--quiet", "-B", name, base)
        self.write(edits, new or {})
        for file in gone:
            (self.root / file).unlink()
        self._commit(name)
        return name

    def opened(self, name: str, request: PullRequest) -> str:
        """The range of a new pull request."""
        base = self.branch("base", request.first)
        return f"{base}..{self.branch(name, request.edits, base=base, new=request.new, gone=request.gone)}"

    def write(self, edits: Iterable[Edit], new: Mapping[str, str]) -> None:
        """Edits and makes files of the working tree."""
        for file, before, after in edits:
            text = (self.root / file).read_text()
            assert before in text, f"{file} has no {before!r} to edit"
            (self.root / file).write_text(text.replace(before, after, 1))
        for file, text in new.items():
            (self.root / file).write_text(text)

    def _commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)


SIGNATURES = re.compile(
    "4dabf18193072939515e22adb298388d|1b47061264138c4ac30d75fd1eb44270|5cf8f73096256a8f31e491e813e4eb8e"
    "|d0e6a833031e9bbcd3f4e8bde6ca49a4|04da6b54-80e4-46f7-96ec-b56ff0331ba9"
)
"""Pulumi's marks of special values (sdk/go/common/resource/sig in pulumi/pulumi), which mean nothing to people."""


def compare(repository: Repository, *arguments: str) -> tuple[int, str, str]:
    """`gpufleet diff` in the repository: exit code, standard output, standard error. Commits are `COMMIT`."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "path", list(sys.path))
        code = cli.run(parser().parse_args(["-C", str(repository.root), "diff", "--on", "2026-12-01", *arguments]))
    said = (re.sub(r"\([0-9a-f]{8}\)", "(COMMIT)", stream.getvalue()) for stream in (out, err))
    return (code, *said)


def check(name: str, request: PullRequest, repository: Repository, counts: Mapping[str, int]) -> None:
    """Opens the pull request, and looks at what its comment says, the first five lines word by word."""
    code, comment, err = compare(repository, repository.opened(name, request), *request.options, "--format", "markdown")
    assert err == ""
    first = comment.splitlines()[:5]
    assert first[0] == f"### gpufleet diff: {request.headline}"
    assert first[1].startswith(f"- **Compared:** base (COMMIT) → {name} (COMMIT): ")
    if request.code == 2:
        why = (
            f"- **Refused:** {name} (COMMIT): {request.invalid}"
            if request.invalid
            else "- **Incomplete:** base (COMMIT): "
        )
        assert first[2].startswith(why)
        assert first[3:] == ["- **Users:** nothing (incomplete)", "- **Resources:** nothing (incomplete)"]
    else:
        assert first[2:] == [
            f"- **Refused:** {request.refused}",
            f"- **Users:** {request.users}",
            f"- **Resources:** {request.resources.format_map(counts)}",
        ]
    assert code == request.code
    for words in request.says:
        assert words in comment
    assert "v1:first" not in comment
    assert not SIGNATURES.search(comment)
    assert len(comment) < LIMIT
