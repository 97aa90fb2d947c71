"""What each check is worth: defects injected one at a time into a program in which none of them finds anything.

The table in tests/golden/aws-defects.md is made of the same list.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from gpufleet_tools.plan.plan import Plan
from tests.aws.checks import CHECKS, finders
from tests.aws.defect import Defect
from tests.aws.defects import DEFECTS, OF_COMPONENTS

TABLE = pathlib.Path(__file__).resolve().parents[1] / "golden/aws-defects.md"


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.kind}: {defect.what}")
def test_a_defect_is_found_by_whom_the_table_says(of_resources: Plan, defect: Defect) -> None:
    """By exactly those: a check that starts to find something, or ceases to, has to be written down."""
    assert finders(defect.injected(of_resources), defect.kind, defect.name) == defect.found_by


@pytest.mark.slow
@pytest.mark.parametrize("defect", OF_COMPONENTS, ids=lambda defect: f"{defect.kind}: {defect.what}")
def test_a_defect_is_found_in_components_too(plans: dict[str, Plan], defect: Defect) -> None:
    injected = defect.injected(plans["components with everything"])
    assert finders(injected, defect.kind, defect.name) == defect.found_by


def test_each_check_finds_something_that_no_other_does() -> None:
    """Otherwise it could go."""
    alone = {defect.found_by[0] for defect in DEFECTS if len(defect.found_by) == 1}
    assert alone == set(CHECKS)


@pytest.mark.generated
def test_the_table_is_that_of_the_defects(generated: Callable[[pathlib.Path, str], None]) -> None:
    generated(TABLE, table())


def table() -> str:
    """Markdown: how many defects each check finds, and each defect with who finds it."""
    counts = [
        f"| {check} | {sum(check in each.found_by for each in DEFECTS)} |"
        f" {sum(each.found_by == (check,) for each in DEFECTS)} |"
        for check in CHECKS
    ]
    rows = [f"| {each.kind} | {each.what} | {', '.join(each.found_by) or '**nobody**'} |" for each in DEFECTS]
    missed = sum(not each.found_by for each in DEFECTS)
    return "\n".join(
        [
            "# Defects of AWS inputs, and which checks find them",
            "",
            f"{len(DEFECTS)} defects, injected one at a time; {missed} are found by nobody. They are by the same hand",
            "as some of the checks: a map of who looks where, and no rate of detection.",
            "",
            "| Check | finds | alone |",
            "|---|---|---|",
            *counts,
            "",
            "| Resource | Defect | Found by |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )
