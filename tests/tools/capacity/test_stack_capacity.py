"""What node pools hold, from stack files to the table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpufleet_tools.capacity import stack_capacity as capacity
from gpufleet_tools.capacity.pool_capacity import PoolCapacity
from gpufleet_tools.plan import stack
from tests.conftest import Gpufleet, MakeProject
from tests.stack_files import lab


def fleet(*runners: str) -> str:
    """Three machines, two of them at site a, and these runners."""
    return lab(
        "".join(runners),
        allocatable="{cpu: 192, memory: 2048Gi, ephemeralStorage: 3400Gi, pods: 110}",
        nodes="{lab-1: {address: 203.0.113.1, labels: {site: a}}, lab-2: {address: 203.0.113.2, labels: {site: a}},"
        " lab-3: {address: 203.0.113.3, labels: {site: b}}}",
        further="  gpu-runners:profiles:\n    at-a: {nodeSelector: {site: a}}\n",
    )


def runner(label: str, gpus: int, most: int, cpu: str = "8", memory: str = "64Gi", profile: str | None = None) -> str:
    rest = f", profile: {profile}" if profile else ""
    return f"    {label}: {{project: lab, gpus: {gpus}, cpu: {cpu}, memory: {memory}, max: {most}{rest}}}\n"


@pytest.fixture
def pool(project: MakeProject) -> Any:
    """The capacity of the pool with these runners."""

    def capacity_of(*runners: str, overcommit: bool = False) -> PoolCapacity:
        root = project({"lab": fleet(*runners)})
        declared = ["mi300x"] if overcommit else []
        (found,) = capacity.capacity("lab", stack.read(root, "lab").settings, declared).pools
        return found

    return capacity_of


def test_a_label_alone_has_the_whole_pool(pool: Any) -> None:
    found = pool(runner("two", 2, 20))
    (two,) = found.labels
    assert (found.nodes, found.gpus, found.requested, found.fits) == (3, 24, 40, "no")
    assert (two.max, two.guaranteed, two.burst, two.limited_by) == (20, 12, 12, [])
    assert two.shares == {"GPU": 0.25, "CPU": 0.0417, "memory": 0.0312, "pods": 0.0091}


def test_whole_nodes_are_limited_by_one_small_job_each(pool: Any) -> None:
    found = pool(runner("whole", 8, 2), runner("one", 1, 7))
    one, whole = found.labels
    assert found.fits == "yes"
    assert (one.guaranteed, one.burst) == (7, 7)
    assert (whole.guaranteed, whole.burst) == (0, 2)
    assert [(each.label, each.jobs) for each in whole.limited_by] == [("one", 3)]


def test_a_node_selector_leaves_only_some_nodes(pool: Any) -> None:
    found = pool(runner("whole", 8, 3, profile="at-a"), runner("one", 1, 1))
    one, whole = found.labels
    assert (whole.guaranteed, whole.burst, found.fits) == (1, 2, "no")
    assert (one.guaranteed, one.burst) == (1, 1)


def test_cores_run_out_before_gpus(pool: Any) -> None:
    """A runner without GPUs takes cores that those with GPUs would need."""
    found = pool(runner("gpu", 1, 24, cpu="24"), runner("build", 0, 3, cpu="180"))
    build, gpu = found.labels
    assert (gpu.guaranteed, gpu.burst, found.fits) == (0, 24, "no")
    assert [(each.label, each.jobs) for each in gpu.limited_by] == [("build", 3)]
    assert build.shares["CPU"] == 0.9375
    assert found.requested == found.gpus


def test_what_is_not_enough_is_said_and_can_be_declared(pool: Any) -> None:
    found = pool(runner("two", 2, 20))
    assert found.excess == (
        "all labels at their max request 40 of 24 GPUs: some jobs queue although their label is below its max; lower"
        " a max, add nodes, or write 'overcommit: allowed'"
    )


def test_a_declared_pool_has_no_excess(pool: Any) -> None:
    assert pool(runner("two", 2, 20), overcommit=True).excess is None


def test_gpus_that_are_there_and_do_not_help(pool: Any) -> None:
    found = pool(runner("gpu", 1, 24, cpu="24"), runner("build", 0, 1, cpu="180"))
    assert found.excess is not None
    assert found.excess.startswith("all labels at their max do not fit on its 3 nodes, although it has their 24 GPUs")


@pytest.mark.parametrize(("cpu", "burst"), [("64", 9), ("64000m", 9), ("64000.5m", 6)])
def test_amounts_are_rounded_against_the_runner(pool: Any, cpu: str, burst: int) -> None:
    """Three times half a thousandth of a core more than there is."""
    (label,) = pool(runner("build", 0, 20, cpu=cpu)).labels
    assert label.burst == burst


def test_the_table(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": fleet(runner("whole", 8, 2, cpu="96"), runner("one", 1, 7))})
    ended = gpufleet("-C", root, "capacity", "lab")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "runs-on  pool    GPUs  max  guaranteed  burst  share of a node               limited by",
        "one      mi300x     1    7           7      7  GPU 12%, CPU 4%, memory 3%    none",
        "whole    mi300x     8    2           0      2  GPU 100%, CPU 50%, memory 3%  3 of one",
        "",
        "pool mi300x: all labels at their max fit at the same time: 23 of 24 GPUs",
        "pool mi300x: 3 jobs of one, spread over its nodes, can leave no room for whole",
    ]


def test_json_is_the_capacity(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"lab": fleet(runner("two", 2, 20))})
    ended = gpufleet("-C", root, "capacity", "lab", "--format", "json")
    read = json.loads(ended.out)
    assert ended.code == 1
    assert read["pools"][0]["labels"][0]["limitedBy"] == []
    assert set(read["pools"][0]) == set(PoolCapacity.model_json_schema()["properties"])


@pytest.mark.parametrize(
    ("setting", "code", "message"), [("refused", 1, "all labels"), ("allowed", 0, "overcommit allowed: all labels")]
)
def test_an_overcommitted_pool(project: MakeProject, gpufleet: Gpufleet, setting: str, code: int, message: str) -> None:
    text = fleet(runner("two", 2, 20)).replace("      mi300x:\n", f"      mi300x:\n        overcommit: {setting}\n")
    root = project({"lab": text})
    ended = gpufleet("-C", root, "capacity", "lab")
    assert (ended.code, f"pool mi300x: {message}" in ended.out) == (code, True)
    checked = gpufleet("-C", root, "check", "lab")
    assert (checked.code, "error: all labels at their max request 40 of 24 GPUs" in checked.out) == (code, code == 1)


def test_all_stacks_when_none_is_named(project: MakeProject, gpufleet: Gpufleet) -> None:
    first, second = fleet(runner("two", 2, 2)), fleet(runner("one", 1, 1)).replace("name: lab", "name: other")
    root = project({"a": first, "b": second})
    outcome = gpufleet("-C", root, "capacity")
    assert outcome.code == 0
    assert [line for line in outcome.out.splitlines() if line in ("a:", "b:")] == ["a:", "b:"]
    found = json.loads(gpufleet("-C", root, "capacity", "--format", "json").out)
    assert [each["stack"] for each in found] == ["a", "b"]
    assert json.loads(gpufleet("-C", root, "capacity", "a", "--format", "json").out)["stack"] == "a"
    for file in root.glob("Pulumi.?.yaml"):
        file.unlink()
    assert gpufleet("-C", root, "capacity").code == 2
