"""Files of Karpenter's Go module at the pinned version: its CRDs, its chart and its prices."""

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


@functools.cache
def _downloaded() -> tuple[str, str]:
    """The version and folder of the module, and why there is none. Downloaded once through Go's module proxy."""
    try:
        go = go_build.go_program(build.KARPENTER.module)
    except SandboxError as lack:
        return "", f"no Go toolchain to ask for {build.PROVIDER}: {lack}"
    ended = subprocess.run(
        [go, "mod", "download", "-json", build.PROVIDER],
        cwd=build.KARPENTER.module,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = json.loads(ended.stdout or "{}")
    return found.get("Dir", ""), f"the Go module {build.PROVIDER} cannot be had: {found.get('Error', ended.stderr)}"


def karpenter_file(path: str) -> pathlib.Path:
    """Return a file of the module. Skips the test where neither this machine nor a module proxy has it."""
    folder, lack = _downloaded()
    if not folder:
        pytest.skip(lack)
    return pathlib.Path(folder, path)
