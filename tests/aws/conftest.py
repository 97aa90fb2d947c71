"""Programs that AWS inputs are recorded from, each once."""

from __future__ import annotations

import pytest

from gpufleet_tools.plan.plan import Plan
from tests.aws.programs import PROGRAMS
from tests.aws.references import recorded_with_references


@pytest.fixture(scope="session")
def plans() -> dict[str, Plan]:
    """What each program registers, references for outputs."""
    return {name: recorded_with_references(program) for name, program in PROGRAMS.items()}


@pytest.fixture(scope="session")
def of_resources(plans: dict[str, Plan]) -> Plan:
    """The program that has a resource of every type that is known here, and takes the defects."""
    return plans["resources"]
