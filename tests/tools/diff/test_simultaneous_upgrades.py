"""Clusters that serve one label are upgraded one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpufleet_tools.diff.environment.simultaneous_upgrades import UPGRADES, simultaneous_upgrades
from gpufleet_tools.diff.evaluation import EvaluatedLabel
from gpufleet_tools.diff.settings.changes import setting_changes
from gpufleet_tools.diff.settings.table import SETTINGS
from tests.tools.diff.test_labels import label

US, EU = label("a", stack="us", runner_group="us"), label("a", stack="eu", runner_group="eu")

ARC = (("arc", "version"), "0.14.1", "0.14.2")
MAX = (("runners", "a", "max"), "4", "8")
ADDON = (("cluster", "addons", "coredns"), "v1.13.1", "v1.13.2")
IMAGES = (("cluster", "nodePools", "gpu", "amis"), "20260501", "20260512")

Change = tuple[tuple[str, ...], str, str]


def refused(changes: Mapping[str, Change]) -> list[tuple[str, str, str]]:
    settings = {stack: setting_changes({path: was}, {path: now}) for stack, (path, was, now) in changes.items()}
    return [*simultaneous_upgrades([US, EU], [US, EU], settings)]


@pytest.mark.parametrize("change", [ARC, ADDON, IMAGES])
def test_both_at_once_are_refused(change: Change) -> None:
    ((name, stack, message),) = refused({"us": change, "eu": ARC})
    assert (name, stack) == ("upgraded-at-once", "eu")
    assert message.startswith("eu and us, which serve a, are upgraded at the same time (version of ARC's controller")


@pytest.mark.parametrize(
    "changes", [{"us": ARC}, {"us": ARC, "eu": MAX}, {"us": MAX, "eu": MAX}], ids=["one", "another setting", "neither"]
)
def test_one_after_the_other_is_not(changes: Mapping[str, Change]) -> None:
    assert refused(changes) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The second one is new, is removed, or serves others.
        ([US], [US, EU]),
        ([US, EU], [US]),
        ([US, label("a", stack="eu", config_url="https://github.com/others")],) * 2,
        ([US, label("b", stack="eu")],) * 2,
    ],
)
def test_stacks_that_serve_no_label_together_may_be_upgraded_at_once(
    before: list[EvaluatedLabel], after: list[EvaluatedLabel]
) -> None:
    settings = {stack: setting_changes({ARC[0]: ARC[1]}, {ARC[0]: ARC[2]}) for stack in ("us", "eu")}
    assert [*simultaneous_upgrades(before, after, settings)] == []


def test_upgrades_are_settings() -> None:
    assert SETTINGS.keys() >= UPGRADES
