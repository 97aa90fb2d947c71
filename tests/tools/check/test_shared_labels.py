"""Labels that two stacks serve to the same users: what keeps a job from finding the same in either."""

from __future__ import annotations

import datetime

import pytest

from gpufleet_tools.check import findings
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, MakeProject

US, EU = ((ROOT / f"examples/two-regions/Pulumi.{name}.yaml").read_text() for name in ("us", "eu"))
TODAY = datetime.date(2026, 12, 1)
LINE = EU.splitlines().index("    linux-a10g-1:") + 1

Edit = tuple[str, str]


def lines(project: MakeProject, *edits: Edit) -> list[str]:
    """What is found in the first stack where the second has these edits."""
    text = EU
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    read = stack.read(project({"us": US, "eu": text}), "us")
    return findings.report(read.settings, read.file, TODAY).lines()


def test_nothing_is_found_where_only_the_place_differs(project: MakeProject) -> None:
    assert lines(project) == []


SAME_GROUP: Edit = ("runnerGroup: gpu-eu", "runnerGroup: gpu-us")
REPOSITORY: Edit = ("https://github.com/example", "https://github.com/example/models")


def test_one_scale_set_for_two_clusters_is_an_error_with_both_lines(project: MakeProject) -> None:
    assert lines(project, SAME_GROUP) == [
        f"Pulumi.us.yaml:{LINE}: runners.linux-a10g-1: error: Pulumi.eu.yaml:{LINE} serves it to the same users in the"
        " same runner group, gpu-us: both clusters would use one scale set, one of them would get no jobs, and removing"
        " the label from either would delete it for both; give the project of one of them another runnerGroup"
        " [same-scale-set]"
    ]


@pytest.mark.parametrize(
    ("own", "other", "same"),
    [
        ("", "", True),
        ("", "      runnerGroup: Default\n", True),
        ("", "      runnerGroup: gpu-eu\n", False),
    ],
)
def test_without_a_group_it_is_githubs_default_one(project: MakeProject, own: str, other: str, same: bool) -> None:
    us = US.replace("      runnerGroup: gpu-us\n", own)
    eu = EU.replace("      runnerGroup: gpu-eu\n", other)
    read = stack.read(project({"us": us, "eu": eu}), "us")
    names = [finding.name for finding, _ in findings.report(read.settings, read.file, TODAY).open]
    assert names == ["same-scale-set"] * same


def test_repositories_have_no_groups(project: MakeProject) -> None:
    us = US.replace(*REPOSITORY).replace("gpu-us\n      cred", "Default\n      cred")
    eu = EU.replace(*REPOSITORY).replace("gpu-eu\n      cred", "Default\n      cred")
    read = stack.read(project({"us": us, "eu": eu}), "us")
    (line,) = findings.report(read.settings, read.file, TODAY).lines()
    assert "; use another label, or the organisation's configUrl with a runnerGroup for each stack [" in line


@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        (
            ("families: [g5], sizes: [2xlarge]", "families: [g4dn], sizes: [2xlarge]"),
            "GPUs 1 NVIDIA A10G, there 1 NVIDIA T4",
        ),
        (("cpu: 7", "cpu: 6"), "CPU 7, there 6"),
        (("memory: 28Gi", "memory: 24Gi"), "memory 28Gi, there 24Gi"),
        (("ephemeralStorage: 100Gi", "ephemeralStorage: 50Gi"), "disk 100Gi, there 50Gi"),
        (
            ("      pool: gpu\n", "      pool: gpu\n      image: example.test/runner:v1\n"),
            "there example.test/runner:v1",
        ),
        (("      max: 8\n", "      max: 8\n      docker: true\n"), "containers none, there Docker"),
    ],
)
def test_a_job_finds_the_same_in_both(project: MakeProject, edit: Edit, difference: str) -> None:
    (line,) = lines(project, edit)
    assert "warning: GitHub gives its jobs to Pulumi.eu.yaml:" in line
    assert difference in line
    assert line.endswith("; make both equal, or use two labels [different-runners]")


@pytest.mark.parametrize("edit", [("cpu: 7", "cpu: 7000m"), ("max: 8", "max: 4")])
def test_the_same_in_other_words_and_other_numbers_are_no_difference(project: MakeProject, edit: Edit) -> None:
    assert lines(project, edit) == []


@pytest.mark.parametrize(
    "edit",
    [
        ("https://github.com/example", "https://github.com/others"),
        ("    linux-a10g-1:", "    linux-a10g-2:"),
        # Its own check reports that.
        ("gpus: 1\n", "gpus: 3\n"),
    ],
    ids=["other users", "another label", "a stack with problems"],
)
def test_other_labels_have_nothing_to_do_with_it(project: MakeProject, edit: Edit) -> None:
    assert lines(project, SAME_GROUP, ("cpu: 7", "cpu: 6"), edit) == []
