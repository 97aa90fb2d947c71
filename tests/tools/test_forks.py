"""Programs that run as forks of one process with their libraries imported."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from gpufleet_tools import forks
from gpufleet_tools.forks import Fork


def test_libraries_are_those_that_components_and_stacks_import(tmp_path: pathlib.Path) -> None:
    for package, text in {
        "gpufleet": "from pulumi_aws.ec2 import Vpc, Subnet\nimport pulumi\nfrom gpufleet.chart import Chart\n",
        "gpufleet_stacks": "import yaml\ndef f():\n    import pulumi_random\n",
        "gpufleet_tools": "import moto\n",
    }.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text(text)
    found = [("pulumi_aws.ec2", ["Vpc", "Subnet"]), ("pulumi", []), ("yaml", [])]
    assert [*forks.libraries([str(tmp_path)], aws=True)] == found
    assert [*forks.libraries([str(tmp_path)], aws=False)] == found[1:]


@pytest.mark.process
def test_programs_are_apart(tmp_path: pathlib.Path) -> None:
    """Each has its own modules, arguments, folder and standard error, and its exit code is reported."""
    programs = {
        "said": "import pathlib, sys, gpufleet; pathlib.Path(sys.argv[1]).write_text(gpufleet.NAME)",
        "raises": "import missing",
        "refuses": "raise SystemExit('no')",
        "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    }
    jobs: list[Fork] = []
    for name, text in programs.items():
        folder = tmp_path / name
        (folder / "gpufleet").mkdir(parents=True)
        (folder / "gpufleet/__init__.py").write_text(f"NAME = {name!r}\n")
        (folder / "program.py").write_text(text)
        jobs.append(
            {
                "command": [str(folder / "program.py"), "out"],
                "folder": str(folder),
                "path": [str(folder)],
                "errors": str(folder / "errors"),
            }
        )
    command = [sys.executable, "-P", forks.__file__]
    ended = subprocess.run(
        command, input=json.dumps({"programs": jobs, "aws": False}), capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout) == [0, 1, 1, -9]
    assert ended.stderr == ""
    assert (tmp_path / "said/out").read_text() == "said"
    errors = {name: (tmp_path / name / "errors").read_text() for name in programs}
    assert errors["said"] == errors["killed"] == ""
    assert errors["raises"].endswith("ModuleNotFoundError: No module named 'missing'\n")
    assert errors["refuses"] == "no\n"
