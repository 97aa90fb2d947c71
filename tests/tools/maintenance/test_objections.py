"""What stands against the maintenance of a machine."""

from __future__ import annotations

import dataclasses

import pytest

from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.arguments import parser
from gpufleet_tools.doctor.target import Target
from gpufleet_tools.maintenance.cluster import Mark
from gpufleet_tools.maintenance.machine import Machine, machine
from gpufleet_tools.maintenance.objections import effects, refusals
from gpufleet_tools.maintenance.steps import freeing
from gpufleet_tools.plan import stack
from tests.conftest import ROOT
from tests.tools.maintenance.states import QUIET, state

AUSTIN_1, AUSTIN_2, SANTA_CLARA = "mi300x-austin-1", "mi300x-austin-2", "mi300x-santa-clara-1"

HERE = Target(None, None)


@pytest.fixture(scope="module")
def austin() -> Machine:
    return machine(stack.read(ROOT, "mi300"), AUSTIN_1)


def test_a_machine_is_what_the_stack_declares(austin: Machine) -> None:
    assert (austin.pool, austin.devices, {*austin.peers}) == ("mi300x", ("amd.com/gpu", 8), {AUSTIN_2, SANTA_CLARA})
    assert {*austin.voters} == {AUSTIN_1, AUSTIN_2, SANTA_CLARA}
    assert {*austin.labels} == {"linux-mi300-gpu-2", "mi300-cluster"}


@pytest.mark.parametrize(("name", "advice"), [("mi300x-austin-3", "did you mean mi300x-austin-"), ("x", "use one of ")])
def test_a_machine_that_is_not_declared_is_named(name: str, advice: str) -> None:
    with pytest.raises(InvalidSettings, match=f"no machine is named {name}; {advice}"):
        machine(stack.read(ROOT, "mi300"), name)


def test_nothing_stands_against_the_first_machine(austin: Machine) -> None:
    assert [*refusals(austin, QUIET)] == []
    assert [*effects(austin, QUIET)] == []


@pytest.mark.parametrize(
    ("voters", "control_plane", "unready", "expected"),
    [
        ([AUSTIN_1, "b", "c"], (), ["b"], "1 of 3 members would run, 2 are required; b is not ready"),
        ([AUSTIN_1, *"bcde"], (), ["b"], None),
        (
            [AUSTIN_1, "b", "c", "d", "e"],
            (),
            ["b", "c"],
            "2 of 5 members would run, 3 are required; b, c are not ready",
        ),
        ([AUSTIN_1], (), (), "0 of 1 members would run, 1 are required; it has too few members"),
        ((), [AUSTIN_1, "b"], (), "1 of 2 members would run, 2 are required; it has too few members"),
        ((), ["b", "c"], ["b"], None),
    ],
)
def test_etcd_keeps_its_quorum(
    austin: Machine, voters: list[str], control_plane: list[str], unready: list[str], expected: str | None
) -> None:
    subject = dataclasses.replace(austin, voters=voters, peers=())
    found = [*refusals(subject, state(unready=unready, control_plane=control_plane))]
    assert [each.name for each in found] == ["quorum"] * (expected is not None)
    assert expected is None or str(found[0]) == f"refused: etcd would lose its quorum: {expected} (--allow quorum)"
    assert [*refusals(subject, state(unready=unready, control_plane=control_plane), frozenset({"quorum"}))] == []


def test_one_machine_of_a_pool_at_a_time(austin: Machine) -> None:
    found = [*refusals(austin, state(away=["other", AUSTIN_2]))]
    assert [each.name for each in found] == ["pool"]
    assert f"{AUSTIN_2} of pool mi300x is cordoned or not ready" in str(found[0])
    assert [*refusals(austin, state(away=[AUSTIN_2]), frozenset({"pool"}))] == []


def test_labels_without_another_node_are_named(austin: Machine) -> None:
    away = [AUSTIN_2, SANTA_CLARA]
    assert {str(each) for each in effects(austin, state(away=away))} == {
        f"warning: {label} has no other node; its jobs wait until {AUSTIN_1} is back" for label in austin.labels
    }
    # It selects the machines of one site.
    (one_site,) = effects(austin, state(away=away[:1]))
    assert one_site.text.startswith("linux-mi300-gpu-2 has no other node")


def test_steps_that_are_done_are_marked(austin: Machine) -> None:
    mark = Mark(by="me@here", since="2026-12-01T00:00:00+00:00", why="", boot_id="a")
    assert [step.is_done for step in freeing(austin, QUIET, HERE)] == [False] * 4
    assert [step.is_done for step in freeing(austin, state(mark=mark, is_cordoned=True), HERE)] == [
        True,
        False,
        False,
        False,
    ]
    assert all(step.is_done for step in freeing(austin, state(mark=mark, is_cordoned=True, boot_id="b"), HERE))


def test_the_command_accepts_the_names_of_refusals() -> None:
    names = ["quorum", "pool"]
    options = [option for name in names for option in ("--allow", name)]
    assert parser().parse_args(["maintenance", "mi300", AUSTIN_1, *options]).allow == names
