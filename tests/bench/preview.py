"""`gpufleet preview` and `gpufleet check`, beside what importing the SDK takes by itself."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from tests.bench.fleets import ROOT, project
from tests.bench.timing import in_turn, median, ratio

GPUFLEET = str(pathlib.Path(sys.executable).with_name("gpufleet"))

FLOOR = """
import gc
gc.disable()
import pulumi, pulumi_kubernetes
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import ClusterRole
import os
os._exit(0)
"""
"""The SDK's modules that the program uses, imported as the command does it: no garbage collection, no orderly end."""


def measure() -> None:
    """Prints the ratio to the import floor, and the curve from 1 to 1,000 runners."""
    console = Console(highlight=False)
    commands = {
        "imports alone": [sys.executable, "-c", FLOOR],
        "check mi300": [GPUFLEET, "-C", str(ROOT), "check", "mi300"],
        "preview mi300": [GPUFLEET, "-C", str(ROOT), "preview", "mi300"],
    }
    runs = in_turn(commands, rounds=7)
    table = Table("", "seconds", "x imports (at most 1.5)", title="offline commands", box=None)
    for name in commands:
        against = f"{ratio(runs[name], runs['imports alone']):.2f}"
        table.add_row(name, f"{median(runs[name]):.2f}", against)
    console.print(table)

    table = Table("runners", "seconds (at most 5)", "MiB (at most 400)", title="preview, by runners", box=None)
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 10, 100, 1000):
            fleet = project(pathlib.Path(folder, str(count)), runners=count)
            measured = in_turn({"preview": [GPUFLEET, "-C", str(fleet), "preview", "mi300"]}, rounds=3)["preview"]
            table.add_row(str(count), f"{median(measured):.2f}", f"{max(one.mebibytes for one in measured):.0f}")
    console.print(table)
