"""Edits of a stack file's text, of which nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpufleet_tools.upgrade.stack_file_edit import NotEditable, edited

BOTH: Mapping[str, str | None] = {"version": "0.14.2", "upgradeFrom": "0.13.1"}
END: Mapping[str, str | None] = {"upgradeFrom": None}

CASES = {
    "no section": (
        "config:\n  gpu-runners:cluster: {}\n\n  # Users\n  gpu-runners:projects: {}  # two\n",
        "config:\n  gpu-runners:cluster: {}\n\n  gpu-runners:arc: {version: 0.14.2, upgradeFrom: 0.13.1}\n"
        "  # Users\n  gpu-runners:projects: {}  # two\n",
        "config:\n  gpu-runners:cluster: {}\n\n  gpu-runners:arc: {version: 0.14.2}\n"
        "  # Users\n  gpu-runners:projects: {}  # two\n",
    ),
    "flow": (
        "config:\n  gpu-runners:arc: {version: 0.13.1, metrics: false}  # ARC\n",
        "config:\n  gpu-runners:arc: {version: 0.14.2, metrics: false, upgradeFrom: 0.13.1}  # ARC\n",
        "config:\n  gpu-runners:arc: {version: 0.14.2, metrics: false}  # ARC\n",
    ),
    "block": (
        'config:\n  gpu-runners:arc:\n    # why\n    version: "0.13.1"  # pinned\n    metrics: false # no\n  x:y: 1\n',
        "config:\n  gpu-runners:arc:\n    # why\n    version: 0.14.2  # pinned\n    metrics: false # no\n"
        "    upgradeFrom: 0.13.1\n  x:y: 1\n",
        "config:\n  gpu-runners:arc:\n    # why\n    version: 0.14.2  # pinned\n    metrics: false # no\n  x:y: 1\n",
    ),
    "end of the file": (
        "config:\n    arc:\n        logLevel: debug",
        "config:\n    arc:\n        logLevel: debug\n        version: 0.14.2\n        upgradeFrom: 0.13.1",
        "config:\n    arc:\n        logLevel: debug\n        version: 0.14.2\n",
    ),
    "several lines of a flow mapping": (
        "config:\n  p:arc: {\n    version: 0.13.1,\n    metrics: true\n  }\n",
        "config:\n  p:arc: {\n    version: 0.14.2,\n    metrics: true, upgradeFrom: 0.13.1\n  }\n",
        "config:\n  p:arc: {\n    version: 0.14.2,\n    metrics: true\n  }\n",
    ),
    "empty": (
        "config:\n  arc: {}\n",
        "config:\n  arc: {version: 0.14.2, upgradeFrom: 0.13.1}\n",
        "config:\n  arc: {version: 0.14.2}\n",
    ),
    "letters of several bytes": (
        "# größer → kleiner\nconfig:\n  arc: {release: ä, version: 0.13.1}\n",
        "# größer → kleiner\nconfig:\n  arc: {release: ä, version: 0.14.2, upgradeFrom: 0.13.1}\n",
        "# größer → kleiner\nconfig:\n  arc: {release: ä, version: 0.14.2}\n",
    ),
}


@pytest.mark.parametrize(("text", "upgraded", "finished"), CASES.values(), ids=CASES)
def test_only_these_values_change(text: str, upgraded: str, finished: str) -> None:
    assert edited(text, "p", BOTH) == upgraded
    assert edited(upgraded, "p", END) == finished
    assert edited(finished, "p", END) == finished


def test_a_section_of_nothing_else_disappears() -> None:
    text = "config:\n  x:y: 1\n  arc:\n    upgradeFrom: 0.13.1\n  z:z: 1\n"
    assert edited(text, "p", END) == "config:\n  x:y: 1\n  z:z: 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {version: 0.13.1}\nconfig:\n  arc: *x\n",
        "config:\n  arc: &x {version: 0.13.1}\n  b:b: *x\n",
        "config:\n  arc:\n",
        "config: []\n",
    ],
)
def test_what_only_a_person_can_change_is_refused(text: str) -> None:
    with pytest.raises(NotEditable):
        edited(text, "p", BOTH)
