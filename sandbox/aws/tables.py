"""What Karpenter has started, as tables: nodes with what they cost, node pools with what they may still have."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from rich.table import Table
from rich.text import Text

from sandbox.aws.prices import REGION
from sandbox.state import CloudState, NodeState, PoolState, State
from sandbox.terminal import share, table
from stacks import quantity

GPU = "nvidia.com/gpu"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_ZONE = "topology.kubernetes.io/zone"
_CAPACITY = "karpenter.sh/capacity-type"


def nodes_table(state: State, cloud: CloudState) -> Table:
    """Every node, and what all of them cost. Spot instances cost less than the list says, how much less is not known
    here."""
    price = f"$/h ({REGION})"
    words = ("node", "pool", "type", "zone", "bought", "ready")
    made = table(*words, price, "GPUs", "CPU", "memory", "runners", left=words)
    for node in state.nodes:
        made.add_row(
            node.name,
            node.pool,
            node.labels.get(_INSTANCE_TYPE, ""),
            node.labels.get(_ZONE, ""),
            node.labels.get(_CAPACITY, "on-demand"),
            "yes" if node.ready else "[red]no[/]",
            _dollars(_price(node, cloud), node),
            share(node.used, node.allocatable, GPU, quantity.cores) if node.allocatable.get(GPU) else "",
            share(node.used, node.allocatable, "cpu", quantity.cores),
            share(node.used, node.allocatable, "memory", quantity.gibibytes),
            str(node.runners),
        )
    total = sum((_price(node, cloud) or Decimal() for node in state.nodes), Decimal())
    made.add_row("in all", "", "", "", "", "", f"{total:.3f}")
    return made


def pools_table(cloud: CloudState) -> Table:
    """Every node pool of Karpenter's."""
    made = table("pool", "nodes", "of its limits", "", left=("pool", "of its limits", ""))
    for name, pool in sorted(cloud.pools.items()):
        made.add_row(name, str(pool.nodes), ", ".join(_limits(pool)), Text(pool.why_not, style="red"))
    return made


def _limits(pool: PoolState) -> list[str]:
    return [
        f"{resource} {share(pool.used, pool.limits, resource, _unit(resource))}" for resource in sorted(pool.limits)
    ]


def _unit(resource: str) -> Callable[[Decimal], str]:
    return quantity.gibibytes if resource == "memory" else quantity.cores


def _price(node: NodeState, cloud: CloudState) -> Decimal | None:
    price = cloud.prices.get(node.labels.get(_INSTANCE_TYPE, ""))
    return None if price is None else Decimal(str(price))


def _dollars(price: Decimal | None, node: NodeState) -> str:
    if price is None:
        return "?"
    return f"up to {price:.3f}" if node.labels.get(_CAPACITY) == "spot" else f"{price:.3f}"
