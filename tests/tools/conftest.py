"""The stacks of this repository, read and recorded."""

from __future__ import annotations

import pathlib

import pytest

from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import Plan
from gpufleet_tools.plan.stack import Stack

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(params=stack.names(ROOT))
def each_stack(request: pytest.FixtureRequest) -> Stack:
    """Every stack whose file is committed, one after another."""
    return stack.read(ROOT, request.param)


@pytest.fixture
def plan(each_stack: Stack) -> Plan:
    """Its plan, as a preview has it."""
    return each_stack.plan()
