"""The jobs that GitHub makes of a matrix."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet_tools.workflows.expressions import OTHERS, UNKNOWN, Value, wrapped
from gpufleet_tools.workflows.matrix import combinations


def jobs(matrix: Any) -> list[dict[str, Any]]:
    found = combinations(wrapped(matrix))
    assert found is not None
    return [{name: value.content for name, value in job.items()} for job in found]


# What docs.github.com, "Running variations of jobs in a workflow", says of its own examples.
@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (
            {
                "fruit": ["apple", "pear"],
                "animal": ["cat", "dog"],
                "include": [
                    {"color": "green"},
                    {"color": "pink", "animal": "cat"},
                    {"fruit": "apple", "shape": "circle"},
                    {"fruit": "banana"},
                    {"fruit": "banana", "animal": "cat"},
                ],
            },
            [
                {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
                {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
                {"fruit": "pear", "animal": "cat", "color": "pink"},
                {"fruit": "pear", "animal": "dog", "color": "green"},
                {"fruit": "banana"},
                {"fruit": "banana", "animal": "cat"},
            ],
        ),
        (
            {
                "os": ["macos-latest", "windows-latest"],
                "version": [12.0, 14.0, 16.0],
                "environment": ["staging", "production"],
                "exclude": [
                    {"os": "macos-latest", "version": 12.0, "environment": "production"},
                    {"os": "windows-latest", "version": 16.0},
                ],
            },
            [
                {"os": os, "version": version, "environment": environment}
                for os, version, environment in itertools.product(
                    ["macos-latest", "windows-latest"], [12.0, 14.0, 16.0], ["staging", "production"]
                )
                if not (os == "macos-latest" and version == 12.0 and environment == "production")
                and not (os == "windows-latest" and version == 16.0)
            ],
        ),
        (
            {"include": [{"site": "production"}, {"site": "staging"}]},
            [{"site": "production"}, {"site": "staging"}],
        ),
    ],
    ids=["include", "exclude", "include alone"],
)
def test_the_examples_of_the_documentation(matrix: Any, expected: list[dict[str, Any]]) -> None:
    assert jobs(matrix) == expected


def test_an_unknown_vector_leaves_the_others_known() -> None:
    found = combinations(Value({"os": Value(UNKNOWN), "gpu": wrapped(["a", "b"])}))
    assert found is not None
    assert [(job["os"].content, job["gpu"].content) for job in found] == [(UNKNOWN, "a"), (UNKNOWN, "b")]


def test_an_unknown_include_may_hold_any_name() -> None:
    found = combinations(Value({"gpu": wrapped(["a"]), "include": Value(UNKNOWN)}))
    assert found is not None
    assert all(job[OTHERS].content is UNKNOWN for job in found)


def test_an_unknown_exclude_excludes_nothing() -> None:
    assert len(jobs_of_two_with(Value(UNKNOWN))) == 2
    assert len(jobs_of_two_with(Value([Value({"gpu": Value(UNKNOWN)})]))) == 2


def jobs_of_two_with(exclude: Value) -> list[Any]:
    return list(combinations(Value({"gpu": wrapped(["a", "b"]), "exclude": exclude})) or ())


@pytest.mark.parametrize("matrix", [UNKNOWN, "text", None])
def test_what_is_no_matrix_cannot_be_told(matrix: Any) -> None:
    assert combinations(Value(matrix)) is None


def test_a_matrix_larger_than_any_is_not_followed() -> None:
    vector = [str(number) for number in range(100)]
    assert combinations(wrapped({"a": vector, "b": vector, "c": vector})) is None


NAMES = st.sampled_from(["a", "b", "c"])
VECTORS = st.dictionaries(
    NAMES, st.lists(st.integers(0, 3).map(float), min_size=1, max_size=3, unique=True), min_size=1
)


@given(VECTORS, st.lists(st.dictionaries(NAMES, st.integers(0, 3).map(float), min_size=1), max_size=3))
def test_exclude_takes_away_what_it_matches_and_nothing_else(
    vectors: dict[str, list[float]], exclude: list[dict[str, float]]
) -> None:
    whole = jobs(vectors)
    left = jobs(vectors | {"exclude": exclude})
    assert left == [job for job in whole if not any(entry.items() <= job.items() for entry in exclude)]


@given(VECTORS, st.lists(st.dictionaries(NAMES, st.integers(0, 5).map(float), min_size=1), max_size=3))
def test_include_never_changes_what_the_vectors_say(
    vectors: dict[str, list[float]], include: list[dict[str, float]]
) -> None:
    whole = jobs(vectors)
    with_more = jobs(vectors | {"include": include})
    for own, more in zip(whole, with_more, strict=False):
        assert own.items() <= more.items()
    assert len(with_more) >= len(whole)
