"""Labels between two revisions: what changes for users, and which promises may not be taken back."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet_tools.diff.evaluation import EvaluatedLabel
from gpufleet_tools.diff.labels import LabelChange, contract_violations, label_changes
from gpufleet_tools.diff.report import _crowded, _label_line, _users

TODAY = datetime.date(2026, 12, 1)
YESTERDAY, TOMORROW = TODAY - datetime.timedelta(1), TODAY + datetime.timedelta(1)


def label(name: str, **other: Any) -> EvaluatedLabel:
    values: dict[str, Any] = {
        "label": name,
        "stack": "one",
        "cluster": "c",
        "config_url": "https://github.com/org",
        "runner_group": None,
        "gpus": 1,
        "accelerator": "AMD MI300X",
        "cpu": "16",
        "memory": "200Gi",
        "docker": False,
        "min": 0,
        "max": 4,
        "until": None,
        "use": None,
    }
    return EvaluatedLabel(**(values | other))


def compared(before: Sequence[EvaluatedLabel], after: Sequence[EvaluatedLabel]) -> list[LabelChange]:
    return label_changes(before, after, {each.stack for each in [*before, *after]})


def refused(before: Sequence[EvaluatedLabel], after: Sequence[EvaluatedLabel]) -> list[str]:
    return [name for name, _, _ in contract_violations(before, after, compared(before, after), TODAY)]


GPU_1, GPU_2 = label("mi300-gpu-1"), label("mi300-gpu-2", gpus=2)


@pytest.mark.parametrize(
    ("before", "after", "changes", "refusals"),
    [
        ([GPU_1], [GPU_1], [], []),
        ([], [GPU_1], ["added mi300-gpu-1"], []),
        ([GPU_1], [], ["removed mi300-gpu-1"], ["label-removed"]),
        ([label("a", until=TODAY)], [], ["removed a"], ["label-removed"]),
        ([label("a", until=YESTERDAY)], [], ["removed a"], []),
        ([GPU_1, GPU_2], [GPU_2], ["removed mi300-gpu-1"], ["label-removed"]),
        # The same GPUs and nearly the same name.
        ([GPU_1], [label("mi300-1-gpu")], ["renamed mi300-gpu-1 to mi300-1-gpu"], ["label-renamed"]),
        # Nearly the same name, and another thing.
        ([GPU_1], [GPU_2], ["removed mi300-gpu-1", "added mi300-gpu-2"], ["label-removed"]),
        # Announced as its successor, whatever it is called.
        ([label("a", until=YESTERDAY, use="zz")], [label("zz", gpus=8)], ["renamed a to zz"], []),
        # Another stack serves the same users.
        ([GPU_1], [label("mi300-gpu-1", stack="two")], ["added mi300-gpu-1", "removed mi300-gpu-1"], []),
        (
            [GPU_1, label("mi300-gpu-1", stack="two")],
            [label("mi300-gpu-1", stack="two")],
            ["removed mi300-gpu-1"],
            [],
        ),
        # In another runner group, which jobs that only name the label do not notice.
        (
            [GPU_1, label("mi300-gpu-1", stack="two", runner_group="two")],
            [label("mi300-gpu-1", stack="two", runner_group="two")],
            ["removed mi300-gpu-1"],
            [],
        ),
        (
            [GPU_1, label("mi300-gpu-1", stack="two", runner_group="two")],
            [],
            ["removed mi300-gpu-1", "removed mi300-gpu-1"],
            ["label-removed", "label-removed"],
        ),
        # The same stack serves it in another group, which jobs that name the old one notice.
        (
            [GPU_1, label("mi300-gpu-1", stack="two", runner_group="two")],
            [label("mi300-gpu-1", runner_group="one"), label("mi300-gpu-1", stack="two", runner_group="two")],
            ["renamed mi300-gpu-1 to mi300-gpu-1"],
            ["label-reassigned"],
        ),
        # Another stack serves the same users on other hardware.
        (
            [GPU_1],
            [label("mi300-gpu-1", stack="two", accelerator="NVIDIA A10G")],
            ["added mi300-gpu-1", "removed mi300-gpu-1"],
            ["label-moved"],
        ),
        # Another stack serves others.
        (
            [GPU_1, label("mi300-gpu-1", stack="two", config_url="https://github.com/others")],
            [label("mi300-gpu-1", stack="two", config_url="https://github.com/others")],
            ["removed mi300-gpu-1"],
            ["label-removed"],
        ),
        # GitHub's names have no case.
        ([GPU_1], [label("mi300-gpu-1", config_url="https://github.com/Org/")], [], []),
        # Other users, or another way to ask: the label of before is gone.
        (
            [GPU_1],
            [label("mi300-gpu-1", config_url="https://github.com/others")],
            ["renamed mi300-gpu-1 to mi300-gpu-1"],
            ["label-reassigned"],
        ),
        (
            [GPU_1],
            [label("mi300-gpu-1", runner_group="gpus")],
            ["renamed mi300-gpu-1 to mi300-gpu-1"],
            ["label-reassigned"],
        ),
        # Last days.
        ([GPU_1], [label("mi300-gpu-1", until=TOMORROW)], ["changed mi300-gpu-1"], []),
        ([GPU_1], [label("mi300-gpu-1", until=YESTERDAY)], ["changed mi300-gpu-1"], ["deprecation-in-the-past"]),
        ([label("a", until=TOMORROW)], [label("a", until=TODAY)], ["changed a"], ["deprecation-shortened"]),
        ([label("a", until=TODAY)], [label("a", until=TOMORROW)], ["changed a"], []),
        ([label("a", until=TODAY)], [label("a")], ["changed a"], []),
        ([label("a", until=YESTERDAY)], [label("a", until=YESTERDAY)], [], []),
        ([], [label("a", until=YESTERDAY)], ["added a"], []),
    ],
)
def test_changes_and_refusals(
    before: list[EvaluatedLabel], after: list[EvaluatedLabel], changes: list[str], refusals: list[str]
) -> None:
    said = [
        f"{each.change} {each.label}{f' to {each.new_label}' if each.new_label else ''}"
        for each in compared(before, after)
    ]
    assert sorted(said) == sorted(changes)
    assert refused(before, after) == refusals


@pytest.mark.parametrize(
    ("other", "field", "before", "after"),
    [
        ({"gpus": 2}, "GPUs", "1", "2"),
        ({"cpu": "8500m"}, "CPU", "16", "8.5"),
        ({"memory": "100Gi"}, "memory", "200Gi", "100Gi"),
        ({"min": 1}, "min", "0", "1"),
        ({"max": 2}, "max", "4", "2"),
        ({"docker": True}, "Docker", "no", "yes"),
        ({"accelerator": None}, "accelerator", "AMD MI300X", "none"),
        ({"until": TOMORROW}, "served until", "none", "2026-12-02"),
        ({"use": "b"}, "use instead", "none", "b"),
    ],
)
def test_each_thing_that_users_see(other: dict[str, Any], field: str, before: str, after: str) -> None:
    (change,) = compared([label("a")], [label("a", **other)])
    assert [(each.field, each.before, each.after) for each in change.fields] == [(field, before, after)]


def test_the_capacity_of_a_label_falls_where_one_of_its_stacks_no_longer_serves_it() -> None:
    here, there = label("a", runner_group="us"), label("a", stack="two", runner_group="eu", max=6)
    (change,) = compared([here, there], [there])
    assert change.still_served_by == "two"
    fields = [(each.field, each.before, each.after) for each in change.fields]
    assert fields == [("jobs at once in all stacks", "10", "6"), ("runner group", "eu, us", "eu")]
    assert _users([change]) == "1 label reduced"
    assert _label_line(change) == (
        "removed, still served by two, jobs at once in all stacks 10 → 6; runner group eu, us → eu"
    )


def test_the_same_amount_written_otherwise_is_no_change() -> None:
    assert compared([label("a")], [label("a", cpu="16000m", memory="204800Mi")]) == []


def test_capacity_is_compared_where_both_reckon_it() -> None:
    known, less = label("a", guaranteed=4, burst=4), label("a", guaranteed=2, burst=4)
    assert compared([label("a")], [known]) == []
    (change,) = compared([known], [less])
    assert [(each.field, each.before, each.after) for each in change.fields] == [("guaranteed", "4", "2")]


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ([], [label("a", guaranteed=0)], True),
        ([label("a", guaranteed=2)], [label("a", guaranteed=0)], True),
        ([label("a", guaranteed=0)], [label("a", guaranteed=0, max=9)], False),
        ([], [label("a", guaranteed=1)], False),
        ([label("a", guaranteed=0)], [], False),
    ],
)
def test_a_label_that_comes_without_a_guaranteed_job_stands_in_the_first_lines(
    before: list[EvaluatedLabel], after: list[EvaluatedLabel], named: bool
) -> None:
    lines = [*_crowded(compared(before, after))]
    assert lines == (["no guaranteed job for a: other labels can take all of the pool"] if named else [])


def test_cost_is_compared_where_both_revisions_reckon_it() -> None:
    before, after = label("a", cost_per_hour=1.504), label("a", cost_per_hour=1.816)
    (change,) = compared([before], [after])
    assert [(each.field, each.before, each.after) for each in change.fields] == [
        ("cost per hour at max", "1.50 USD", "1.82 USD")
    ]
    assert compared([label("a")], [after]) == compared([before], [label("a")]) == []
    (added,) = compared([], [before])
    assert added.fields[-1].after == "1.50 USD"


def test_a_runner_version_is_compared_where_both_revisions_look_at_it() -> None:
    old = label("a", runner_version="2.337.0", no_jobs_from=datetime.date(2026, 11, 5))
    new, unknown = label("a", runner_version="2.338.0"), label("a", runner_version=None)
    (change,) = compared([old], [new])
    assert [(each.field, each.before, each.after) for each in change.fields] == [
        ("runner version", "2.337.0, no jobs from 2026-11-05", "2.338.0")
    ]
    (change,) = compared([new], [unknown])
    assert [(each.before, each.after) for each in change.fields] == [("2.338.0", "unknown")]
    assert compared([label("a")], [new]) == [], "an older revision says nothing of it"
    (added,) = compared([], [new])
    assert ("runner version", "2.338.0") in [(each.field, each.after) for each in added.fields]


def test_a_successor_is_taken_once() -> None:
    changes = compared([label("gpu-a"), label("gpu-b")], [label("gpu-c")])
    assert sorted(each.change for each in changes) == ["removed", "renamed"]


def test_only_chosen_stacks_are_compared() -> None:
    assert label_changes([GPU_1], [], {"two"}) == []


names = st.sampled_from(["a", "ab", "b", "gpu-1", "gpu-2"])
labels = st.lists(
    st.builds(
        label,
        names,
        stack=st.sampled_from(["one", "two"]),
        gpus=st.integers(1, 2),
        until=st.none() | st.sampled_from([YESTERDAY, TODAY, TOMORROW]),
        config_url=st.sampled_from(["https://github.com/x", "https://github.com/y"]),
    ),
    max_size=5,
    unique_by=lambda each: (each.stack, each.label),
)


@given(labels, labels)
def test_whoever_loses_a_label_without_notice_is_told(
    before: list[EvaluatedLabel], after: list[EvaluatedLabel]
) -> None:
    """The contract by itself: every service of before is there after, was announced and is over, or is refused."""
    there = {(each.label, each.config_url) for each in after}
    lost = [each for each in before if (each.label, each.config_url) not in there]
    broken = {(each.stack, each.label) for each in lost if each.until is None or each.until >= TODAY}
    fields = {
        (stack, message.split()[1])
        for name, stack, message in contract_violations(before, after, compared(before, after), TODAY)
        if name in ("label-removed", "label-renamed", "label-reassigned")
    }
    assert fields == broken


@given(labels)
def test_nothing_changes_between_equals(same: list[EvaluatedLabel]) -> None:
    assert compared(same, same) == []
    assert refused(same, same) == []
