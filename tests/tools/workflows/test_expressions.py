"""GitHub's expressions: what they can be, as far as that is known without a run."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet_tools.workflows import expressions
from gpufleet_tools.workflows.expressions import OTHERS, UNKNOWN, NotAnExpression, OneOf, Unknown, Value, wrapped

CONTEXT = {
    "matrix": wrapped({"os": "Linux", "gpus": 2.0, "list": ["a", "b"], "deep": {"label": "x-1"}, "on": True}),
    "inputs": Value({"where": Value(OneOf((Value("a"), Value("b")))), OTHERS: Value(UNKNOWN)}),
}


def contents(text: str) -> list[Any]:
    return [value.content for value in expressions.possible(text, CONTEXT)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", ["plain"]),
        ("${{ 'it''s' }}", ["it's"]),
        ("${{ matrix.os }}", ["Linux"]),
        ("${{ MATRIX.OS }}", ["Linux"]),
        ("${{ matrix['os'] }}-${{ matrix.gpus }}", ["Linux-2"]),
        ("gpu-${{ matrix.gpus }}x", ["gpu-2x"]),
        ("${{ matrix.deep.label }}", ["x-1"]),
        ("${{ matrix.list[1] }}", ["b"]),
        ("${{ matrix.none }}", [None]),
        ("x${{ matrix.none }}", ["x"]),
        ("${{ matrix.on && 'yes' || 'no' }}", ["yes"]),
        ("${{ !matrix.on && 'yes' || 'no' }}", ["no"]),
        ("${{ matrix.gpus == '2' && 'two' || 'other' }}", ["two"]),
        ("${{ matrix.os == 'LINUX' }}", [True]),
        ("${{ matrix.os != 'linux' }}", [False]),
        ("${{ 1 < 2 && 3 >= 3 }}", [True]),
        ("${{ null == 0 }}", [True]),
        ("${{ !!matrix.os }}", [True]),
        ("${{ " + "!" * 5001 + "matrix.os }}", [False]),
        ("${{ ('a' || 'b') }}", ["a"]),
        ("${{ '' || 'b' }}", ["b"]),
        ("${{ -0 || 'zero' }}", ["zero"]),
        ("${{ 0xff }}", [255.0]),
        ("${{ format('{0}-{{x}}-{1}', 'a', matrix.gpus) }}", ["a-{x}-2"]),
        ("${{ contains('linux-mi300', 'MI300') }}", [True]),
        ("${{ startsWith(matrix.os, 'lin') && endsWith(matrix.os, 'X') }}", [True]),
        ('${{ fromJSON(\'{"a": ["x", "y"]}\').a[0] }}', ["x"]),
        ("${{ github.ref == 'main' && 'a' || 'b' }}", ["a", "b"]),
        ("${{ vars.RUNNER || 'a' }}", [UNKNOWN, "a"]),
        ("${{ needs.build.outputs.runner }}", [UNKNOWN]),
        ("${{ fromJSON(needs.a.outputs.b) }}", [UNKNOWN]),
        ("${{ hashFiles('x') }}", [UNKNOWN]),
        ("${{ inputs.where }}", ["a", "b"]),
        ("${{ inputs.where }}-${{ inputs.where }}", ["a-a", "a-b", "b-a", "b-b"]),
        ("${{ inputs.other }}", [UNKNOWN]),
        ("${{ inputs.where == 'a' && 'one' || 'two' }}", ["one", "two"]),
        ("x-${{ github.sha }}", [UNKNOWN]),
    ],
)
def test_what_an_expression_can_be(text: str, expected: list[Any]) -> None:
    assert contents(text) == expected


def test_a_condition_that_only_the_run_knows_leaves_no_made_up_label() -> None:
    found = contents("${{ github.ref == 'main' && 'a' }}")
    assert "a" in found
    assert all(isinstance(content, Unknown) for content in found if content != "a")


def test_a_list_keeps_its_items() -> None:
    (value,) = expressions.possible('${{ fromJSON(\'["self-hosted", "x"]\') }}', {})
    assert [item.content for item in value.content] == ["self-hosted", "x"]


@pytest.mark.parametrize(
    "text",
    [
        "${{ }}",
        "${{ 'a",
        "${{ a b }}",
        "${{ a. }}",
        "${{ (a }}",
        "${{ f(a }}",
        "${{ a[1 }}",
        "${{ a ==  }}",
        '${{ "double" }}',
        "${{ #comment }}",
        "${{ " + "(" * 200 + "a" + ")" * 200 + " }}",
    ],
)
def test_what_github_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(NotAnExpression):
        expressions.possible(text, {})


def test_too_many_values_are_unknown_and_not_cut_short() -> None:
    context = {"inputs": Value({"x": Value(OneOf(tuple(Value(str(n)) for n in range(100))))})}
    (value,) = expressions.possible("${{ inputs.x }}${{ inputs.x }}", context)
    assert value.content is UNKNOWN


LITERALS = st.one_of(
    st.booleans(),
    st.integers(-5, 5).map(float),
    st.sampled_from(["", "a", "A", "b", "0", "2"]),
    st.none(),
)


def written(content: Any) -> str:
    if isinstance(content, str):
        return f"'{content}'"
    return json.dumps(content)


@given(LITERALS, LITERALS, LITERALS)
def test_a_choice_that_is_not_known_is_one_of_those_that_are(condition: Any, one: Any, other: Any) -> None:
    """Whatever a condition turns out to be, what follows is among what was said to be possible without knowing it."""
    text = "${{{{ {} && {} || {} }}}}"
    known = expressions.possible(text.format(written(condition), written(one), written(other)), {})
    open_ = expressions.possible(text.format("github.x", written(one), written(other)), {})
    assert {repr(value.content) for value in known} <= {repr(value.content) for value in open_}


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with contextlib.suppress(NotAnExpression):
        assert expressions.possible("${{" + text + "}}", CONTEXT)
