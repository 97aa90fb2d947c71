"""Modules that wait until they are used, and work then."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpufleet_tools.short_process import POSTPONED
from tests.conftest import ROOT

pytestmark = pytest.mark.process

RECORDED = """
import datetime, importlib.util, json, pathlib, sys
from gpufleet_tools import short_process
short_process.begin()
from gpufleet_tools.check import findings
from gpufleet_tools.plan import stack
stack = stack.read(pathlib.Path("."), sys.argv[1])
findings.report(stack.settings, stack.file, datetime.date(2026, 11, 1), stack.plan())
waiting = {name for name in json.loads(sys.argv[2]) if type(sys.modules[name]) is importlib.util._LazyModule}
from pulumi import automation
from pulumi_kubernetes.yaml import yaml
print(json.dumps([sorted(waiting), automation.LocalWorkspace.__name__, yaml.requests.get.__name__]))
"""


@pytest.mark.parametrize("stack", ["dev", "mi300"])
def test_a_recorded_program_uses_none_of_them_and_whoever_does_has_them(stack: str) -> None:
    command = [sys.executable, "-c", RECORDED, stack, json.dumps(sorted(POSTPONED))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [sorted(POSTPONED), "LocalWorkspace", "get"]
