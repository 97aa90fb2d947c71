"""What it is worth that Karpenter knows of shared GPUs: document 004's ten pods of one GPU each, with and without."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import tempfile

from rich.console import Console
from rich.table import Table

from gpufleet_tools.sandbox.aws import prices
from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.build import karpenter as build
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests.node_pools import GPU
from tests.tools.sandbox import document_004
from tests.tools.sandbox.document_004 import PODS_OF_A_NODE, workload
from tests.tools.sandbox.karpenter_sandbox import KarpenterSandbox, running


def measure(*, smallest: bool = False) -> None:
    """Print the nodes that Karpenter provisions and their price per hour. Build Karpenter first if it is missing."""
    there, karpenter = binaries.find(), build.find()
    known = prices.on_demand(karpenter)
    table = Table(
        "NodeOverlay", "nodes", "instance types", f"$/h ({prices.REGION})", title="ten pods of one GPU each", box=None
    )
    unlimited = dataclasses.replace(GPU, limits={"nvidia.com/gpu": "100"})
    with tempfile.TemporaryDirectory() as folder:
        for overlay in (False, True):
            name = f"overlay-{overlay}".lower()
            apart = KarpenterSandbox(ControlPlane(name, pathlib.Path(folder, "gpufleet", name), there), karpenter)
            try:
                apart.up(document_004.plan(overlay=overlay, gpu=unlimited), workload(PODS_OF_A_NODE))
                apart.wait(running(PODS_OF_A_NODE))
                types = collections.Counter(apart.provisioned_types().values())
            finally:
                apart.control_plane.down()
            total = sum(number * known[kind] for kind, number in types.items())
            kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(types.items()))
            table.add_row("on" if overlay else "off", str(sum(types.values())), kinds, f"{total:.2f}")
    Console(highlight=False).print(table)
