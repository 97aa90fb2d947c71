"""What the simulated ARC claims to do, asked of it and of ARC itself: one table of scenarios for both.

The real one runs where GPUFLEET_ARC has ARC's programs and GPUFLEET_CHARTS its charts. The end of pytest's output says
which of them ran (tests/conftest.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from gpufleet_tools.sandbox import lifecycle
from tests.conftest import ROOT
from tests.tools.sandbox.arc.fleets import FIRST, MI300, REQUIRES_ARC, SECOND, Fleet, Manifest, Real, Simulated, until

OLD_IMAGE, NEW_IMAGE = "ghcr.io/saienduri/ghascale-rocm-dev:main", "ghcr.io/saienduri/ghascale-rocm-dev:other"
CHANGED = MI300.replace(OLD_IMAGE, NEW_IMAGE)
SMALLER = MI300[: MI300.index(f"    {SECOND}:\n      project")] + MI300[MI300.index("  gpu-runners:acknowledged") :]
"""The stack without the label SECOND."""


# -- the scenarios ----------------------------------------------------------------------------------------------------


def runners_are_min_plus_assigned_up_to_max(fleet: Fleet) -> None:
    for jobs, expected in ((0, 1), (3, 4), (99, 6), (1, 2)):
        fleet.up(linux_mi300_gpu_2=jobs)
        until(lambda expected=expected: len(fleet.runners(FIRST)) == expected)


def a_runner_is_replaced_after_its_job(fleet: Fleet) -> None:
    fleet.up(linux_mi300_gpu_2=2)
    until(lambda: len(fleet.runners(FIRST)) == 3)
    before = fleet.runners(FIRST)
    fleet.next_job(FIRST)
    until(lambda: len(fleet.runners(FIRST)) == 3 and len(fleet.runners(FIRST).keys() - before) == 1)


def a_changed_template_replaces_idle_runners(fleet: Fleet) -> None:
    fleet.up()
    until(lambda: [*fleet.runners(FIRST).values()] == [OLD_IMAGE] and len(fleet.runners(SECOND)) == 1)
    others = fleet.runners(SECOND)
    fleet.up(CHANGED)
    until(lambda: [*fleet.runners(FIRST).values()] == [NEW_IMAGE])
    assert fleet.runners(SECOND) == others


def a_removed_label_takes_its_runners_along(fleet: Fleet) -> None:
    fleet.up(mi300_cluster=2)
    until(lambda: len(fleet.runners(SECOND)) == 3 and [*fleet.runners(FIRST).values()] == [OLD_IMAGE])
    others = fleet.runners(FIRST)
    fleet.up(SMALLER)
    until(lambda: not fleet.runners(SECOND))
    assert fleet.runners(FIRST) == others


def a_deletion_waits_for_controller_and_credentials(fleet: Fleet) -> None:
    for number in range(2):
        with fleet.installed() as (controller, scale_set, credentials):
            required: Manifest = (controller, credentials)[number]
            until(lambda: (fleet.scale_set(SECOND) or {"metadata": {}})["metadata"].get("finalizers"))
            fleet.delete(required)
            time.sleep(2)
            fleet.delete(scale_set)
            time.sleep(3)
            left = fleet.scale_set(SECOND)
            assert left, f"{required['kind']} is gone, and nobody may remove the finalizer"
            assert "deletionTimestamp" in left["metadata"]
            fleet.apply(required)
            until(lambda: fleet.scale_set(SECOND) is None)


def a_scale_set_of_another_minor_version_is_deleted(fleet: Fleet) -> None:
    assert isinstance(fleet, Real)
    with fleet.installed() as (_, scale_set, _):
        labels = {**scale_set["metadata"]["labels"], "app.kubernetes.io/version": "0.13.1"}
        fleet.apply({**scale_set, "metadata": {**scale_set["metadata"], "labels": labels}})
        until(lambda: fleet.scale_set(SECOND) is None)
        assert fleet.scale_set(FIRST)


def runners_that_are_too_old_stop_their_scale_set(fleet: Fleet) -> None:
    assert isinstance(fleet, Real)
    fleet.up()
    until(lambda: len(fleet.runners(FIRST)) == 1)
    before = fleet.github.call("state")["scaleSets"][FIRST]["id"]
    fleet.github.call("deprecate-runners", label=FIRST)
    fleet.github.call("queue", label=FIRST, count=2, seconds=None)
    until(lambda: (fleet.scale_set(FIRST) or {}).get("status", {}).get("phase") == "Outdated")
    assert fleet.jobs(FIRST, "running") == 1, "of the runner that was there before"
    fleet.github.call("end", label=FIRST, count=None, result="succeeded")
    until(lambda: FIRST not in fleet.github.call("state")["scaleSets"])
    assert fleet.jobs(FIRST, "queued") == 1
    fleet.up(CHANGED, linux_mi300_gpu_2=2)
    until(lambda: fleet.jobs(FIRST, "running") == 2)
    assert fleet.github.call("state")["scaleSets"][FIRST]["id"] != before


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """Something that ARC does."""

    run: Callable[[Fleet], None]
    only_real: str = ""
    """Why the simulated ARC does not claim it."""


SCENARIOS = (
    Scenario(runners_are_min_plus_assigned_up_to_max),
    Scenario(a_runner_is_replaced_after_its_job),
    Scenario(a_changed_template_replaces_idle_runners),
    Scenario(a_removed_label_takes_its_runners_along),
    Scenario(a_deletion_waits_for_controller_and_credentials),
    Scenario(
        a_scale_set_of_another_minor_version_is_deleted,
        "no controller runs, so none compares its version; the plan has one version for both charts",
    ),
    Scenario(
        runners_that_are_too_old_stop_their_scale_set,
        "runner pods are held by Jobs and register nowhere; gpufleet check reports the runner's age",
    ),
)


KINDS: dict[str, type[Fleet]] = {"simulated": Simulated, "real": Real}
"""In the order of the tests: each ARC has a sandbox of its own while its scenarios run."""

_RUNS_REAL = [
    pytest.mark.slow,
    REQUIRES_ARC,
]


@pytest.fixture(scope="module", params=[pytest.param("simulated"), pytest.param("real", marks=_RUNS_REAL)])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet of each kind, for all scenarios one after the other."""
    root = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "components", "stacks"):
        (root / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield KINDS[request.param](root)
        lifecycle.down(root, "mi300")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.run.__name__)
def test_arc(fleet: Fleet, scenario: Scenario) -> None:
    if scenario.only_real and isinstance(fleet, Simulated):
        pytest.skip(f"not simulated: {scenario.only_real}")
    scenario.run(fleet)


def test_the_page_lists_every_scenario_and_what_is_not_simulated() -> None:
    text = (ROOT / "docs/sandbox.md").read_text()
    rows = text.partition("| scenario | simulated | real |\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert [row.split(" | ")[1].startswith("no: ") for row in rows] == [bool(each.only_real) for each in SCENARIOS]
