"""The host list of a stack file through Pulumi's real engine: what a preview says of a machine more or less.

kubespray is a stand-in that real Ansible runs, and hosts are folders. What is on the cluster is left out by `--target`:
there is no API server. They run where `pulumi` and its command plugin are on PATH.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest
import yaml

from tests import engine
from tests.components.bare_metal.kubespray.runs import STAND_IN, local_node
from tests.conftest import ROOT

MISSING = engine.missing("command", "kubernetes")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing"),
    pytest.mark.slow,
]

ON_MACHINES = (
    "--target",
    "urn:pulumi:mi300::gpu-runners::gpu-runners:index:KubesprayCluster**",
    "--target",
    "**::machines",
)


class Checkout:
    """This project in a folder of its own, whose machines are folders too."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        for name in ("stacks", "components"):
            (folder / name).symlink_to(ROOT / name)
        project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
        project["runtime"] = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
        self.pulumi("stack", "init", "mi300")
        self.encryption = yaml.safe_load((folder / "Pulumi.mi300.yaml").read_text())
        self.write(1)
        self.pulumi("config", "set", "--secret", "gpu-test-cluster-privateKey", "stand-in")
        self.encryption = yaml.safe_load((folder / "Pulumi.mi300.yaml").read_text())

    def write(self, workers: int) -> None:
        """The committed stack file, with one control plane and so many workers on this machine."""
        whole = yaml.safe_load((ROOT / "Pulumi.mi300.yaml").read_text())
        # A namespace that exists already would be looked up on the cluster.
        del whole["config"]["gpu-runners:projects"]["pytorch"]
        del whole["config"]["gpu-runners:runners"]["linux-mi300-gpu-2"]
        cluster = whole["config"]["gpu-runners:cluster"]
        cluster["ssh"]["agentSocket"] = "/run/nobody"
        cluster["kubespray"] |= {
            "directory": str(self.folder / "runner"),
            "source": {"folder": str(STAND_IN), "venv": sys.prefix, "python": sys.executable},
        }
        names = ["cp-1", *(f"w-{number}" for number in range(1, workers + 1))]
        cluster["nodePools"]["mi300x"]["nodes"] = {name: self._machine(name, n) for n, name in enumerate(names, 1)}
        secrets = {key: value for key, value in self.encryption.get("config", {}).items() if key.endswith("Key")}
        whole["config"] |= secrets
        (self.folder / "Pulumi.mi300.yaml").write_text(yaml.safe_dump({**self.encryption, **whole}))

    def _machine(self, name: str, number: int) -> dict[str, Any]:
        return {
            "address": f"127.0.0.{number}",
            "roles": ["control_plane", "etcd"] if name == "cp-1" else ["worker"],
            "labels": {"pytorch": "yes"},
            "variables": dict(local_node(self.folder / "hosts", name).variables),
        }

    def pulumi(self, *arguments: str) -> str:
        return engine.pulumi(self.folder, *arguments)

    def previewed(self) -> dict[str, str]:
        """What a preview would do to each resource on machines, by name, sameness left out."""
        found = engine.previewed(self.folder, *ON_MACHINES)
        return {urn.rpartition("::")[2]: done for urn, done in found.items() if ":Command::" in urn}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The cluster with two workers, made."""
    made = Checkout(tmp_path_factory.mktemp("project"))
    made.write(2)
    made.pulumi("up", "--yes", "--skip-preview", *ON_MACHINES)
    return made


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (2, {}),
        (1, {"mi300-node-w-2": "delete", "mi300-converge": "update"}),
        (3, {"mi300-node-w-3": "create", "mi300-converge": "update"}),
    ],
)
def test_a_preview_shows_the_machine_and_the_run_for_all(
    checkout: Checkout, workers: int, expected: dict[str, str]
) -> None:
    checkout.write(workers)
    assert checkout.previewed() == expected


def test_a_removed_machine_is_removed(checkout: Checkout) -> None:
    checkout.write(1)
    checkout.pulumi("up", "--yes", "--skip-preview", *ON_MACHINES)
    kept = sorted(file.name for file in (checkout.folder / "hosts/cp-1/etc/kubernetes/nodes").iterdir())
    assert kept == ["cp-1", "w-1"]
    assert checkout.previewed() == {}
