"""The sandbox's tables, in terminals of any width."""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from gpufleet_tools.plan import stack
from gpufleet_tools.sandbox import report
from gpufleet_tools.sandbox.aws.tables import NodesTable
from gpufleet_tools.sandbox.state import CloudState, NodeState, ScaleSetState, State, state_of, unscheduled
from tests.conftest import ROOT

GIBIBYTE = 2**30

NODE = NodeState(
    name="kwok-huggerwheat-3-ifo4zwxxno-1208664380",
    pool="gpu",
    ready=True,
    allocatable={"cpu": Decimal("7.91"), "memory": Decimal(29 * GIBIBYTE), "nvidia.com/gpu": Decimal(10)},
    used={"cpu": Decimal("4.5"), "memory": Decimal(18 * GIBIBYTE), "nvidia.com/gpu": Decimal(9)},
    runners=9,
    labels={
        "node.kubernetes.io/instance-type": "g4dn.2xlarge",
        "topology.kubernetes.io/zone": "us-east-1a",
        "karpenter.sh/capacity-type": "spot",
    },
)
SYSTEM = replace(
    NODE,
    name="gpu-dev-system-nodes-1",
    pool="gpu-dev-system-nodes",
    labels={"node.kubernetes.io/instance-type": "m6i.large"},
)


def printed(width: int, *nodes: NodeState) -> list[str]:
    """The table's lines in a terminal of that width."""
    prices = {"g4dn.2xlarge": 0.752, "m6i.large": 0.096}
    cloud = CloudState(pools={}, starting=0, undecided=0, deployments={}, prices=prices)
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(NodesTable(State(nodes=nodes, scale_sets={}, daemon_sets={}, cloud=cloud), cloud))
    return [line.rstrip() for line in console.export_text().splitlines()]


def spaced(line: str) -> str:
    """A line with one space between its words."""
    return " ".join(line.split())


def test_all_columns_where_they_fit() -> None:
    header, node, system, total = printed(200, NODE, SYSTEM)
    assert spaced(header) == "node pool type zone capacity ready $/h (us-east-1) GPUs CPU memory runners"
    assert node.split()[:6] == [NODE.name, "gpu", "g4dn.2xlarge", "us-east-1a", "spot", "yes"]
    assert system.split()[:2] == [SYSTEM.name, "gpu-dev-system-nodes"]
    assert spaced(total) == "total 0.848"


@pytest.mark.parametrize("width", [100, 120])
def test_a_line_for_each_node_in_a_terminal_that_is_too_narrow_for_all_columns(width: int) -> None:
    header, node, system, total = lines = printed(width, NODE, SYSTEM)
    assert max(map(len, lines)) <= width
    assert spaced(header) == "node pool instance $/h GPUs CPU memory runners"
    assert node.startswith("kwok-hugger")
    assert spaced(node).endswith(" gpu g4dn.2xlarge spot ≤ 0.752 9 of 10 4.5 of 7.91 18Gi of 29Gi 9")
    assert " gpu-dev-… m6i.large on-demand 0.096 " in spaced(system)
    assert spaced(total) == "total 0.848"


def test_a_node_that_is_not_ready_is_named_in_both_forms() -> None:
    late = replace(NODE, ready=False)
    assert " no " in printed(200, late)[1]
    assert " not ready " in printed(100, late)[1]


def test_a_long_reason_is_folded_and_labels_stay_whole() -> None:
    """A reason of the scheduler is a sentence or more, and has no end mark where it is cut."""
    mi300 = stack.read(ROOT, "mi300")
    reason = f"0/3 nodes are available: {', '.join(['3 Insufficient amd.com/gpu'] * 6)}."
    machine = replace(NODE, name="mi300x-santa-clara-1", pool="mi300x", labels={})
    state = State(
        nodes=(machine,), scale_sets={"mi300-cluster": ScaleSetState(3, 5, (reason,))}, daemon_sets={}, cloud=None
    )
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(report.tables(state, mi300.settings, mi300.plan(), {"mi300-cluster": 8}))
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert text.count("Insufficient") == 6
    assert all(f"\n{label} " in text for label in mi300.settings.runners)


def test_a_listener_is_no_runner() -> None:
    """ARC labels both with the scale set (resourcebuilder.go at 0.14.2)."""

    def pod(component: str) -> dict[str, Any]:
        labels = {"actions.github.com/scale-set-name": "label", "app.kubernetes.io/component": component}
        spec: dict[str, Any] = {"nodeName": "node", "containers": []}
        return {"metadata": {"name": component, "labels": labels}, "spec": spec, "status": {"phase": "Running"}}

    node = {"metadata": {"name": "node"}, "status": {}}
    state = state_of([pod("runner"), pod("runner-scale-set-listener")], [node], [], unscheduled)
    assert state.scale_sets["label"].running == 1
    assert state.nodes[0].runners == 1
