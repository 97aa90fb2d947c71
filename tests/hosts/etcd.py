"""Real etcd on hosts of namespaces: the sandbox's server, and etcd's own tools, built once from their Go modules."""

from __future__ import annotations

import pathlib

from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.build.go_build import Binary, Recipe, build

TOOLS = Recipe(
    module=pathlib.Path(__file__).parent / "etcd_tools",
    binaries=(
        Binary("etcdctl", "go.etcd.io/etcd/etcdctl/v3", 40),
        Binary("etcdutl", "go.etcd.io/etcd/etcdutl/v3", 20),
    ),
)
"""Recipe with a separate module, at the version of the sandbox's etcd."""


def programs() -> dict[str, pathlib.Path]:
    """Files of etcd, etcdctl and etcdutl, by name."""
    tools = build(TOOLS)
    return {"etcd": binaries.find().path("etcd"), "etcdctl": tools / "etcdctl", "etcdutl": tools / "etcdutl"}
