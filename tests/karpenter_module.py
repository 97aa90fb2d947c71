"""Files of Karpenter's Go modules at the pinned version: CRDs, charts, prices and source code."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess

import pytest

from gpufleet_tools.sandbox.build import go_build
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.errors import SandboxError

CORE = "sigs.k8s.io/karpenter"
"""Module of Karpenter without a cloud provider."""


@functools.cache
def _downloaded(module: str) -> tuple[str, str]:
    """The folder of a module, and why there is none. Downloaded once through Go's module proxy."""
    try:
        go = go_build.go_program(build.KARPENTER.module)
    except SandboxError as lack:
        return "", f"no Go toolchain to ask for {module}: {lack}"
    ended = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=build.KARPENTER.module,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = json.loads(ended.stdout or "{}")
    return found.get("Dir", ""), f"the Go module {module} cannot be had: {found.get('Error', ended.stderr)}"


def karpenter_file(path: str, module: str = build.PROVIDER) -> pathlib.Path:
    """Return a file of a module, by default that of the AWS provider. Skips the test where neither this machine nor a
    module proxy has it."""
    folder, lack = _downloaded(module)
    if not folder:
        pytest.skip(lack)
    return pathlib.Path(folder, path)
