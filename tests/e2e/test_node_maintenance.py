"""`maintenance:` of the stack file through Pulumi's real engine, on a real API server: its nodes are cordoned, and
uncordoned when the entry is removed."""

from __future__ import annotations

import datetime
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gpufleet_stacks.bare_metal import MAINTENANCE
from gpufleet_tools.maintenance.cluster import Mark, Node
from gpufleet_tools.sandbox.control_plane import api_server, objects
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests import engine
from tests.tools.sandbox.conftest import built, control_plane

__all__ = ["built", "control_plane"]

MISSING = engine.missing("kubernetes")

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"the real engine is not here: {', '.join(MISSING)} missing"),
    pytest.mark.slow,
]

PROGRAM = """
import json, pathlib
import pulumi_kubernetes
from gpufleet_stacks.bare_metal import cordon
from gpufleet_stacks.settings.models.bare_metal import BareMetalCluster

given = json.loads((pathlib.Path(__file__).parent / "given.json").read_text())
provider = pulumi_kubernetes.Provider("lab", kubeconfig=given["kubeconfig"], cluster_identifier="lab")
cordon(BareMetalCluster.model_validate_json(json.dumps(given["cluster"])), provider)
"""

NODES = ("node-1", "node-2")

ENTRY = {"until": str(datetime.date.today() + datetime.timedelta(days=2)), "why": "new power supply"}


class Stack:
    """A Pulumi project that cordons nodes of a cluster."""

    def __init__(self, folder: pathlib.Path, kubeconfig: pathlib.Path) -> None:
        self.folder, self.kubeconfig = folder, kubeconfig
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": "maintenance", "runtime": runtime}))
        (folder / "__main__.py").write_text(PROGRAM)
        engine.pulumi(folder, "stack", "init", "test")

    def up(self, **maintenance: Any) -> str:
        """Apply the stack with the maintenance of these nodes."""
        nodes = {
            name: {"address": f"192.0.2.{number}", "maintenance": maintenance.get(name.replace("-", "_"))}
            for number, name in enumerate(NODES, 1)
        }
        pool = {
            "accelerator": {"vendor": "amd", "model": "MI300X", "count": 8},
            "allocatable": {"cpu": 190, "memory": "2200Gi", "ephemeralStorage": "3400Gi"},
            "nodes": nodes,
        }
        kubeconfig = {"kind": "context", "context": "lab"}
        cluster = {"kind": "bareMetal", "name": "lab", "kubeconfig": kubeconfig, "nodePools": {"mi300x": pool}}
        given = {"kubeconfig": self.kubeconfig.read_text(), "cluster": cluster}
        (self.folder / "given.json").write_text(json.dumps(given))
        return engine.pulumi(self.folder, "up", "--yes", "--skip-preview")

    def node(self, name: str) -> tuple[bool, str | None]:
        """Whether a node is cordoned, and its annotation."""
        nodes = api_server.listed(self.kubeconfig, ("v1", "Node"))[0]
        (node,) = (each for each in nodes if each["metadata"]["name"] == name)
        annotations = node["metadata"].get("annotations", {})
        return bool(node["spec"].get("unschedulable")), annotations.get(MAINTENANCE)


@pytest.fixture
def stack(control_plane: ControlPlane, tmp_path: pathlib.Path) -> Iterator[Stack]:
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
    objects.apply(control_plane.kubeconfig, nodes, "t")
    yield Stack(tmp_path, control_plane.kubeconfig)
    with api_server.connected(control_plane.kubeconfig) as api:
        api.call("DELETE", "/api/v1/nodes")


def test_an_entry_cordons_its_node_and_its_removal_uncordons_it(stack: Stack) -> None:
    text = f"until {ENTRY['until']}: new power supply"
    stack.up(node_1=ENTRY)
    assert (stack.node("node-1"), stack.node("node-2")) == ((True, text), (False, None))
    assert "unchanged" in stack.up(node_1=ENTRY)
    later = ENTRY | {"why": "still no power supply"}
    stack.up(node_1=later, node_2=ENTRY)
    assert stack.node("node-1") == (True, f"until {ENTRY['until']}: still no power supply")
    stack.up(node_2=ENTRY)
    assert (stack.node("node-1"), stack.node("node-2")) == ((False, None), (True, text))
    stack.up()
    assert stack.node("node-2") == (False, None)


def test_the_entry_and_the_command_leave_each_others_cordon(stack: Stack) -> None:
    """A node is uncordoned when both have ended, in any order."""
    mark = Mark(by="me@here", since="2026-12-01T00:00:00+00:00", why="", boot_id="")
    with api_server.connected(stack.kubeconfig) as api:
        node = Node(api, "node-1")
        for command_ends_first in (True, False):
            stack.up(node_1=ENTRY)
            node.cordon(node.state().uid, mark)
            if command_ends_first:
                node.uncordon(node.state().uid)
            else:
                stack.up()
            assert stack.node("node-1")[0]
            if command_ends_first:
                stack.up()
            else:
                node.uncordon(node.state().uid)
            assert stack.node("node-1") == (False, None)
