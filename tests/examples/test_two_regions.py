"""The example of one label in two AWS regions."""

from __future__ import annotations

import difflib

from gpufleet_tools.labels import catalogue
from gpufleet_tools.labels.page import html
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, Gpufleet
from tests.recording import release

FOLDER = ROOT / "examples/two-regions"


def test_nothing_is_found(gpufleet: Gpufleet) -> None:
    ended = gpufleet("-C", FOLDER, "check", "--on", "2026-12-01")
    assert (ended.code, ended.out) == (0, "eu: no findings\nus: no findings\n")


def test_the_files_differ_in_place_and_runner_group_only() -> None:
    us, eu = ((FOLDER / f"Pulumi.{name}.yaml").read_text().splitlines() for name in ("us", "eu"))
    changed = [line.split(":")[0].strip("+ ") for line in difflib.ndiff(us, eu) if line.startswith("+ ")]
    assert [line for line in changed if not line.startswith("#")] == ["name", "region", "network", "runnerGroup"]


def test_scale_sets_have_one_name_in_two_groups() -> None:
    values = [release(stack.read(FOLDER, name).plan(), "linux-a10g-1").values for name in ("us", "eu")]
    assert [each["runnerGroup"] for each in values] == ["gpu-us", "gpu-eu"]
    assert {each["githubConfigUrl"] for each in values} == {"https://github.com/example"}


def test_the_catalogue_has_one_label_with_the_capacity_of_both() -> None:
    found = catalogue.catalogue(stack.read(FOLDER, name) for name in stack.names(FOLDER))
    assert [(each.stack, each.region, each.runner_group) for each in found.labels] == [
        ("eu", "eu-west-1", "gpu-eu"),
        ("us", "us-east-1", "gpu-us"),
    ]
    (row,) = catalogue.markdown(found).splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # Without a group, which would be one region's.
    assert cells[0] == "`linux-a10g-1`"
    assert (cells[8], cells[10]) == ("16", "gpu-eu (eu-west-1, 8 jobs), gpu-us (us-east-1, 8 jobs)")
    page = html(found)
    assert page.count("<article") == 1
    assert "<dd>at most 16 jobs, which always find room</dd>" in page
    assert "<dt>Runner group" not in page
