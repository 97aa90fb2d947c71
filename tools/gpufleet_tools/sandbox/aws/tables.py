"""Tables of a sandbox on EKS: nodes with their prices, node pools with their limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gpufleet import quantity
from gpufleet_tools.sandbox.aws.prices import REGION
from gpufleet_tools.sandbox.state import CloudState, NodeState, PoolState, State
from gpufleet_tools.terminal import share, table

GPU = "nvidia.com/gpu"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_ZONE = "topology.kubernetes.io/zone"
_CAPACITY = "karpenter.sh/capacity-type"

_UNBOUNDED = 1000
_POOL_WIDTH = 9
"""Maximum width of a pool's name in a narrow terminal; the node's name gets the rest."""


@dataclass(frozen=True)
class NodesTable:
    """Table of all nodes with their total price. A narrow terminal gets a shorter form.

    Spot instances cost less than the list price; the sandbox does not know how much less.
    """

    state: State
    """State with the nodes."""
    cloud: CloudState
    """State with the prices."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._whole()
        fits = Measurement.get(console, options.update(width=_UNBOUNDED), whole).maximum <= options.max_width
        yield whole if fits else self._short()

    def _whole(self) -> Table:
        words = ("node", "pool", "type", "zone", "capacity", "ready")
        result = table(*words, f"$/h ({REGION})", "GPUs", "CPU", "memory", "runners", left=words)
        for node in self.state.nodes:
            result.add_row(
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
        result.add_row("total", "", "", "", "", "", self._total())
        return result

    def _short(self) -> Table:
        """Return the table without zones, and with long names truncated by `…`."""
        result = Table(box=None, pad_edge=False, header_style="bold")
        result.add_column("node", overflow="ellipsis")
        result.add_column("pool", overflow="ellipsis", max_width=_POOL_WIDTH)
        result.add_column("instance", no_wrap=True)
        for column in ("$/h", "GPUs", "CPU", "memory", "runners"):
            result.add_column(column, justify="right", no_wrap=True)
        for node in self.state.nodes:
            price = _price(node, self.cloud)
            instance = f"{node.labels.get(_INSTANCE_TYPE, '')} {node.labels.get(_CAPACITY, 'on-demand')}"
            result.add_row(
                node.name,
                node.pool,
                instance if node.ready else "[red]not ready[/]",
                _dollars(price, node).replace("up to ", "≤ "),
                *_shares(node),
                str(node.runners),
            )
        result.add_row("total", "", "", self._total())
        return result

    def _total(self) -> str:
        return f"{sum((_price(node, self.cloud) or Decimal() for node in self.state.nodes), Decimal()):.3f}"


def _shares(node: NodeState) -> tuple[str, str, str]:
    """Return used and allocatable GPUs, cores and memory of a node."""
    return (
        share(node.used, node.allocatable, GPU, quantity.cores) if node.allocatable.get(GPU) else "",
        share(node.used, node.allocatable, "cpu", quantity.cores),
        share(node.used, node.allocatable, "memory", quantity.gibibytes),
    )


def pools_table(cloud: CloudState) -> Table:
    """Return a table of all node pools of Karpenter."""
    result = table("pool", "nodes", "used of limits", "problem", left=("pool", "used of limits", "problem"))
    for name, pool in sorted(cloud.pools.items()):
        result.add_row(
            name, str(pool.nodes), ", ".join(_limits(pool)), Text(pool.not_ready or pool.exhausted, style="red")
        )
    return result


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
