"""Which programs the control plane has, and where they come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.errors import SandboxError


def test_a_directory_of_the_users_holds_them_all_or_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no such directory; it must contain kube-apiserver, "):
        binaries.find(str(tmp_path / "absent"))
    for binary in binaries.BINARIES:
        (tmp_path / binary.name).write_text("#!/bin/sh\n")
        (tmp_path / binary.name).chmod(0o755)
    assert binaries.find(str(tmp_path)) == binaries.Binaries(tmp_path)
    (tmp_path / "kwok").chmod(0o644)
    with pytest.raises(SandboxError, match="kwok cannot be executed"):
        binaries.find(str(tmp_path))
    (tmp_path / "etcd").unlink()
    (tmp_path / "kubectl").unlink()
    with pytest.raises(SandboxError, match="etcd, kubectl missing"):
        binaries.find(str(tmp_path))


def test_every_binary_is_a_tool_of_the_pinned_module() -> None:
    text = (binaries.RECIPE.module / "go.mod").read_text()
    tools = re.search(r"^tool \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    assert tools is not None
    assert sorted(tools[1].split()) == sorted(binary.package for binary in binaries.BINARIES)
