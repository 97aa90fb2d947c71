"""The sandbox: from nothing to the table, again when it is up, its memory, and how it grows with nodes."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from gpufleet_tools.sandbox.build import binaries
from gpufleet_tools.sandbox.control_plane.control_plane import ControlPlane
from tests.bench.fleets import project
from tests.bench.timing import run

SIZES = ((3, 2, 4), (100, 100, 4), (300, 300, 4), (1000, 1000, 4))
"""Nodes, labels, and the max of each label."""

GPUFLEET = str(pathlib.Path(sys.executable).with_name("gpufleet"))


def measure(*, smallest: bool = False) -> None:
    """Prints both tables. Builds the binaries first when they are not there."""
    there = binaries.find()
    table = Table(
        "nodes", "runner pods", "from nothing, s", "already up, s", "MiB resident", title="sandbox up", box=None
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(pathlib.Path(folder, "state"))
        for nodes, labels, maximum in SIZES[: 1 if smallest else None]:
            fleet = project(pathlib.Path(folder, str(nodes)), runners=labels, nodes=nodes, maximum=maximum)
            jobs = [option for n in range(labels) for option in ("--jobs", f"linux-mi300-gpu-2-{n}={maximum}")]
            command = [GPUFLEET, "-C", str(fleet), "sandbox", "up", "mi300", *jobs]
            plane = ControlPlane.of(fleet, "mi300", there)
            try:
                first, second = run(command), run(command)
                memory = sum(_resident(pid) for pid in plane.pids())
            finally:
                plane.down()
            pods = labels * maximum
            table.add_row(
                str(nodes), str(pods), f"{first.seconds:.1f}", f"{second.seconds:.1f}", f"{memory / 2**20:.0f}"
            )
    Console(highlight=False).print(table)


def _resident(pid: int) -> int:
    """Resident bytes of a process."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
