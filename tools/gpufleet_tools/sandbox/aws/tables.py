"""What Karpenter has started, as tables: nodes with what they cost, node pools with what they may still have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gpufleet_stacks.settings import quantity
from gpufleet_tools.sandbox.aws.prices import REGION
from gpufleet_tools.sandbox.state import CloudState, NodeState, PoolState, State
from gpufleet_tools.terminal import share, table

GPU = "nvidia.com/gpu"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_ZONE = "topology.kubernetes.io/zone"
_CAPACITY = "karpenter.sh/capacity-type"

_UNBOUNDED = 1000
_POOL_WIDTH = 9
"""Columns of a pool's name where there is little room; the node's name takes the rest."""


@dataclass(frozen=True)
class NodesTable:
    """Every node, and what all of them cost. A terminal that is too narrow for all columns gets the shorter form.

    Spot instances cost less than the list price; the sandbox does not know how much less.
    """

    state: State
    """The nodes."""
    cloud: CloudState
    """Their prices."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._whole()
        fits = Measurement.get(console, options.update(width=_UNBOUNDED), whole).maximum <= options.max_width
        yield whole if fits else self._short()

    def _whole(self) -> Table:
        words = ("node", "pool", "type", "zone", "capacity", "ready")
        made = table(*words, f"$/h ({REGION})", "GPUs", "CPU", "memory", "runners", left=words)
        for node in self.state.nodes:
            made.add_row(
                node.name,
                node.pool,
                node.labels.get(_INSTANCE_TYPE, ""),
                node.labels.get(_ZONE, ""),
                node.labels.get(_CAPACITY, "on-demand"),
                "yes" if node.ready else "[red]no[/]",
                _dollars(_price(node, self.cloud), node),
                *_shares(node),
                str(node.runners),
            )
        made.add_row("in all", "", "", "", "", "", self._total())
        return made

    def _short(self) -> Table:
        """Without zones, and with names that end in `…` where they have no room."""
        made = Table(box=None, pad_edge=False, header_style="bold")
        made.add_column("node", overflow="ellipsis")
        made.add_column("pool", overflow="ellipsis", max_width=_POOL_WIDTH)
        made.add_column("instance", no_wrap=True)
        for column in ("$/h", "GPUs", "CPU", "memory", "runners"):
            made.add_column(column, justify="right", no_wrap=True)
        for node in self.state.nodes:
            price = _price(node, self.cloud)
            instance = f"{node.labels.get(_INSTANCE_TYPE, '')} {node.labels.get(_CAPACITY, 'on-demand')}"
            made.add_row(
                node.name,
                node.pool,
                instance if node.ready else "[red]not ready[/]",
                _dollars(price, node).replace("up to ", "≤ "),
                *_shares(node),
                str(node.runners),
            )
        made.add_row("in all", "", "", self._total())
        return made

    def _total(self) -> str:
        return f"{sum((_price(node, self.cloud) or Decimal() for node in self.state.nodes), Decimal()):.3f}"


def _shares(node: NodeState) -> tuple[str, str, str]:
    """GPUs, cores and memory of a node: used and allocatable."""
    return (
        share(node.used, node.allocatable, GPU, quantity.cores) if node.allocatable.get(GPU) else "",
        share(node.used, node.allocatable, "cpu", quantity.cores),
        share(node.used, node.allocatable, "memory", quantity.gibibytes),
    )


def pools_table(cloud: CloudState) -> Table:
    """Every node pool of Karpenter's."""
    made = table("pool", "nodes", "of its limits", "", left=("pool", "of its limits", ""))
    for name, pool in sorted(cloud.pools.items()):
        made.add_row(name, str(pool.nodes), ", ".join(_limits(pool)), Text(pool.why_not or pool.exhausted, style="red"))
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
