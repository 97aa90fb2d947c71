"""What the commands print in terminals of several widths, and in a pipe."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

from gpufleet.bare_metal.ssh import SshHost
from gpufleet_tools import terminal
from gpufleet_tools.hosts.survey import HostReport
from gpufleet_tools.hosts.table import table
from tests import pictures
from tests.conftest import ROOT, Gpufleet

TABLE = [
    ("runs-on", "jobs", "limited by"),
    ("linux-mi300-gpu-2", "20", "3 of linux-mi300-gpu-1, 4 of linux-mi300-gpu-4 and 5 of linux-mi300-gpu-8"),
    ("linux-cpu-4", "4", "none"),
]
WORDS = ("runs-on", "limited by")

PRINTING = {
    "capacity": ("capacity",),
    "capacity of one stack": ("capacity", "dev"),
    "labels": ("labels", "--format", "text"),
    "pins": ("pins",),
    "preview": ("preview", "mi300"),
    "preview with dependencies": ("preview", "dev", "--dependencies"),
}
"""Commands whose output holds no finding: a finding is one line, however long."""


def test_a_table_that_fits_is_one_line_a_row() -> None:
    lines = terminal.aligned(TABLE, WORDS)
    assert lines[2] == "linux-cpu-4           4  none"
    assert len(lines) == len(TABLE)


@pytest.mark.parametrize("columns", [100, 60, 50])
def test_a_table_is_folded_and_loses_nothing(columns: int) -> None:
    lines = terminal.aligned(TABLE, WORDS, columns)
    assert max(map(len, lines)) <= columns
    for row in TABLE:
        for word in " ".join(row).split():
            assert word in " ".join(lines).split(), word


def test_a_name_longer_than_the_terminal_is_cut_into_lines() -> None:
    lines = terminal.aligned([("name", "n"), ("x" * 70, "1")], ("name",), 30)
    assert max(map(len, lines)) <= 30
    assert "".join(lines).count("x") == 70


def test_a_line_goes_on_below_itself() -> None:
    assert terminal.folded("  a long line of words\n\nshort\n", 12) == "  a long\n    line of\n    words\n\nshort\n"


@pytest.mark.process
@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
def test_nothing_is_wider_than_the_terminal(
    arguments: tuple[str, ...],
) -> None:
    command = [pathlib.Path(sys.executable).with_name("gpufleet"), "-C", ROOT, *arguments]
    _, printed = pictures.in_a_terminal(command, {**os.environ, "COLUMNS": "100"})
    assert 60 < max(map(len, printed.splitlines())) <= 100


def test_in_a_pipe_each_row_is_one_line(gpufleet: Gpufleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = gpufleet("-C", ROOT, "capacity", "dev").out.splitlines()
    assert lines[2].startswith("linux-nvidia-gpu")
    assert lines[3] == ""


def test_machines_fit_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(terminal, "width", lambda: 100)
    host = SshHost(name="-".join(["mi300x", *["austin"] * 12]), address="192.0.2.1", host_keys=[])
    wrong = "the kernel has no amdgpu module loaded; install amdgpu-dkms, then restart the machine " * 2
    terminal.console().print(table([HostReport(host, None, (wrong,), 1.0)]))
    printed = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
    assert printed.count("austin") > 4
    assert "…" not in printed
