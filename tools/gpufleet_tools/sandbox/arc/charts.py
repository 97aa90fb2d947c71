"""Rendering of ARC's charts with Helm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from gpufleet_tools.plan.plan import Release, revealed
from gpufleet_tools.sandbox.build import helm
from gpufleet_tools.sandbox.errors import SandboxError
from gpufleet_tools.sandbox.rehearsal import CHARTS

_SECONDS = 120


def rendered(release: Release) -> list[dict[str, Any]]:
    """Return the objects of a release, CRDs first. Raises SandboxError with Helm's message."""
    command = [shutil.which("helm") or str(helm.find()), "template", release.name, *_chart(release)]
    command += ["--namespace", release.namespace, "--include-crds", "--values", "-"]
    done = subprocess.run(
        command,
        input=json.dumps(revealed(release.values)),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        errors = done.stderr.strip().splitlines()
        raise SandboxError(f"Helm cannot render release {release.name}: {errors[-1] if errors else 'no message'}")
    objects = [each for each in yaml.load_all(done.stdout, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]
    for each in objects:
        if each["kind"] not in _CLUSTER_WIDE:
            each["metadata"].setdefault("namespace", release.namespace)
    return objects


_CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace")


def _chart(release: Release) -> list[str]:
    """Return the arguments for the chart: a file in the folder of charts, or the stack's own reference."""
    if folder := os.environ.get(CHARTS):
        file = Path(folder) / f"{release.chart_name}-{release.version}.tgz"
        if not file.is_file():
            raise SandboxError(f"{CHARTS}: {file} does not exist; release {release.name} requires it")
        return [str(file)]
    repository = ["--repo", release.repository] if release.repository else []
    return [release.chart, "--version", release.version, *repository]
