"""The comment: never longer than GitHub takes, never broken where it is cut."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet_tools.diff.difference import Difference, NewFinding, StackDifference
from gpufleet_tools.diff.labels import LabelChange, RefusedChange
from gpufleet_tools.diff.report import headline, markdown, text
from gpufleet_tools.diff.resources import ResourceChange


def resource(name: str, *diff: str, **other: Any) -> ResourceChange:
    values: dict[str, Any] = {
        "action": "updated",
        "urn": name,
        "type": "kubernetes:core/v1:ConfigMap",
        "name": name,
        "title": f"ConfigMap {name}",
        "reasons": [],
        "moved": False,
        "protected": False,
        "diff": list(diff),
    }
    return ResourceChange.model_validate(values | other, by_name=True)


def found(*resources: ResourceChange, **other: Any) -> Difference:
    stack = StackDifference(
        stack="one",
        state="existing",
        moved="",
        resources=list(resources),
        secrets=[],
        settings=[],
        pools=[],
        cost=None,
        runs=[],
        findings=[],
    )
    values: dict[str, Any] = {
        "base": "main",
        "head": "HEAD",
        "notes": [],
        "errors": [],
        "invalid": [],
        "refusals": [],
        "labels": [],
        "stacks": [stack],
    }
    return Difference(**(values | other))


def removed(name: str) -> LabelChange:
    return LabelChange.model_construct(
        change="removed", label=name, stack="one", new_label=None, still_served_by=None, fields=[]
    )


def refusal(name: str = "label-removed", *, allowed: bool = False) -> RefusedChange:
    return RefusedChange(name=name, stack="one", message="it goes", allowed=allowed)


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (found(), "no changes"),
        (found(resource("a")), "no change for users"),
        (found(labels=[removed("a")]), "changes for users"),
        (found(labels=[removed("a")], refusals=[refusal()]), "refused: label-removed"),
        (found(refusals=[refusal("b"), refusal("a"), refusal("b")]), "refused: b, a"),
        (found(labels=[removed("a")], refusals=[refusal(allowed=True)]), "changes for users"),
        (found(errors=["x"], refusals=[refusal()]), "incomplete"),
        (found(errors=["x", "y"], invalid=["y"], refusals=[refusal()]), "refused: invalid"),
    ],
)
def test_the_headline(difference: Difference, expected: str) -> None:
    assert headline(difference) == expected
    assert markdown(difference).splitlines()[0] == f"### gpufleet diff: {expected}"
    assert text(difference).splitlines()[0] == f"{expected} (main → HEAD)"


def test_what_looks_like_a_tag_or_a_cell_is_shown() -> None:
    finding = NewFinding(name="x", severity="note", path="a", message="<img src=x> `b|c`")
    stack = StackDifference(
        stack="one",
        state="existing",
        moved="",
        resources=[],
        secrets=[],
        settings=[],
        pools=[],
        cost=None,
        runs=[],
        findings=[finding],
    )
    assert "&lt;img src=x&gt;" in markdown(found(stacks=[stack]))
    assert "<img" not in markdown(found(stacks=[stack]))


def test_a_fence_in_a_diff_does_not_end_it() -> None:
    comment = markdown(found(resource("a", "+```", "+text", "+````")))
    assert "\n`````diff\n+```\n+text\n+````\n`````\n</details>" in comment


def test_a_comment_that_fits_is_not_cut() -> None:
    assert "**Cut**" not in markdown(found(*(resource(f"c{n}", *["+x"] * 50) for n in range(50))))


def test_a_long_comment_is_cut_and_says_so() -> None:
    comment = markdown(found(*(resource(f"c{n}", *["+" + "x" * 90] * 200) for n in range(20))))
    assert 60_000 < len(comment) <= 65_536
    last = comment.splitlines()[-1]
    assert re.fullmatch(
        r"\*\*Truncated\*\* to 65,536 characters: \d+ of \d+ parts are missing. Run `gpufleet diff` to see all.",
        last,
    )
    assert comment.splitlines()[4] == "- **Resources:** 20 updated"


lines = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=60), max_size=60)
resources = st.lists(
    st.builds(
        lambda name, diff: resource(name, *diff),
        st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=9),
        lines,
    ),
    max_size=8,
)


@given(resources, st.lists(st.builds(refusal), max_size=30), st.integers(1_200, 6_000))
def test_no_comment_is_longer_than_its_limit_or_open_at_its_end(
    changes: list[ResourceChange], refusals: list[RefusedChange], limit: int
) -> None:
    comment = markdown(found(*changes, refusals=refusals), limit)
    assert len(comment) <= limit
    inside = 0
    fence = ""
    for line in comment.splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif opened := re.fullmatch(r"(`{3,})diff", line):
            fence = opened[1]
        inside += line.startswith("<details>") if not fence else 0
        inside -= line == "</details>" if not fence else 0
    assert (inside, fence) == (0, "")
