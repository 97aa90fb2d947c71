"""A git repository made from this one, in which pull requests can be made and compared."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from tests.conftest import ROOT

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

LAB = """\
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: lab
    kubeconfig: {kind: context, context: lab}
    nodePools:
      mi300x:
        accelerator: {vendor: amd, model: MI300X, count: 8}
        allocatable: {cpu: 190, memory: 2200Gi, ephemeralStorage: 3400Gi}
        labels: {accelerator: amd-mi300x}
        nodes: {lab-1: {address: 203.0.113.1}}
  gpu-runners:projects:
    lab:
      configUrl: https://github.com/example/lab
      namespace: lab
      credentials: {kind: token, secretName: token}
  gpu-runners:lab-token: {secure: v1:first}
  gpu-runners:runners:
    lab-gpu-1: {project: lab, gpus: 1, cpu: 16, memory: 200Gi, max: 4}
    lab-gpu-8: {project: lab, gpus: 8, cpu: 128, memory: 1600Gi, max: 1, deprecated: {until: 2026-12-31}}
"""

Edit = tuple[str, str, str]
"""A file, a text in it, and what takes its place."""


class Repository:
    """The repository: `main` has this one's program, and two stacks."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.root = folder
        folder.mkdir()
        for name in ("components", "stacks", "fleet"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Pulumi.yaml", folder)
        shutil.copy(ROOT / "requirements.txt", folder)
        (folder / ".gitignore").write_text("__pycache__/\n")
        (folder / "Pulumi.mi300.yaml").write_text(MI300)
        (folder / "Pulumi.lab.yaml").write_text(LAB)
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
