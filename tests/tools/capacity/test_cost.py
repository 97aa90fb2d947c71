"""What a stack costs an hour at max, from the stack file to the command."""

from __future__ import annotations

import json

import pytest

from gpufleet_tools.capacity import cost as capacity_cost
from gpufleet_tools.capacity import instance_prices
from gpufleet_tools.capacity import stack_capacity as capacity
from gpufleet_tools.capacity.cost import StackCost
from gpufleet_tools.plan import stack
from tests.conftest import Gpufleet, MakeProject
from tests.tools.diff.pull_requests import AWS, MI300

TABLE = {"m6i.2xlarge": 0.384, "g4dn.2xlarge": 0.752, "g5.2xlarge": 1.212}
"""Dollars, as AWS publishes them for us-east-1."""


def cost(project: MakeProject, *edits: tuple[str, str]) -> StackCost:
    text = AWS
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    settings = stack.read(project({"aws": text}), "aws").settings
    found = capacity_cost.stack_cost(settings)
    assert found
    return found


@pytest.mark.parametrize(
    ("edits", "labels", "pools"),
    [
        # Two jobs of 3 cores on a node of 8; ten of a GPU each on a shared one.
        ((), {"linux-cpu-4": (5, "m6i"), "linux-nvidia-gpu": (4, "g4dn")}, {"cpu": (5, "m6i"), "gpu": (4, "g4dn")}),
        (
            (("families: [g4dn, g5]", "families: [g5]"), ("max: 10}", "max: 11}")),
            {"linux-cpu-4": (6, "m6i"), "linux-nvidia-gpu": (4, "g5")},
            {"cpu": (6, "m6i"), "gpu": (4, "g5")},
        ),
        # Two pods that stay keep one node more than the label needs.
        (
            (
                ("limits: {cpu: 80, gpus: 4}", "limits: {cpu: 80, gpus: 9}"),
                ("    nodePools:\n", "    smokeWorkload: {pool: gpu, image: example.test/smoke:v1}\n    nodePools:\n"),
            ),
            {"linux-cpu-4": (5, "m6i"), "linux-nvidia-gpu": (4, "g4dn")},
            {"cpu": (5, "m6i"), "gpu": (5, "g4dn")},
        ),
        (
            ((AWS.splitlines(keepends=True)[-2], ""),),
            {"linux-nvidia-gpu": (4, "g4dn")},
            {"cpu": (0, "m6i"), "gpu": (4, "g4dn")},
        ),
    ],
)
def test_cost_is_nodes_times_their_price(
    edits: tuple[tuple[str, str], ...],
    labels: dict[str, tuple[int, str]],
    pools: dict[str, tuple[int, str]],
    project: MakeProject,
) -> None:
    def expected(wanted: dict[str, tuple[int, str]]) -> dict[str, tuple[float, dict[str, int]]]:
        named = {key: (number, f"{family}.2xlarge") for key, (number, family) in wanted.items()}
        return {key: (round(n * TABLE[name], 6), {name: n} if n else {}) for key, (n, name) in named.items()}

    found = cost(project, *edits)
    assert {pool.pool: (pool.cost_per_hour, pool.nodes) for pool in found.pools} == expected(pools)
    assert {each.label: (each.cost_per_hour, each.nodes) for pool in found.pools for each in pool.labels} == expected(
        labels
    )
    assert found.cost_per_hour == round(sum(dollars for dollars, _ in expected(pools).values()), 6)
    assert all(pool.cheapest and not pool.waiting for pool in found.pools)


def test_what_its_limits_admit_is_what_a_pool_costs(project: MakeProject) -> None:
    found = cost(project, ("limits: {cpu: 80, gpus: 4}", "limits: {cpu: 80, gpus: 3}"))
    gpu = found.pools[1]
    (label,) = gpu.labels
    assert (gpu.nodes, gpu.waiting, gpu.cheapest) == ({"g4dn.2xlarge": 3}, 10, False)
    assert (label.jobs, label.cost_per_hour, label.cheapest) == (30, 2.256, False)


def test_a_paused_pool_costs_nothing(project: MakeProject) -> None:
    found = cost(project, ("limits: {cpu: 80, gpus: 4}", "limits: {gpus: 0}"))
    gpu = found.pools[1]
    assert (gpu.cost_per_hour, gpu.nodes, gpu.waiting, gpu.cheapest) == (0.0, {}, 40, True)
    assert (gpu.labels[0].jobs, found.cost_per_hour) == (0, 1.92)


def test_a_type_without_a_price_has_no_cost(project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """g7 is in the table of instance types, and not in the price list."""
    there = {name: price for name, price in instance_prices.prices().items() if not name.startswith("g")}
    monkeypatch.setattr(capacity_cost, "prices", lambda: there)
    found = cost(project)
    cpu, gpu = found.pools
    assert (cpu.cost_per_hour, gpu.cost_per_hour, found.cost_per_hour) == (1.92, None, None)
    assert (gpu.labels[0].cost_per_hour, gpu.labels[0].jobs, gpu.cheapest) == (None, 40, False)
    assert "  pool gpu: unknown\n  total: unknown\n" in capacity_cost.text(found)


def test_nothing_is_said_of_machines_that_somebody_owns(project: MakeProject) -> None:
    settings = stack.read(project({"mi300": MI300}), "mi300").settings
    assert capacity_cost.stack_cost(settings) is None
    assert capacity_cost.priced(capacity.capacity("mi300", settings), settings).cost is None


def test_the_command_says_it(project: MakeProject, gpufleet: Gpufleet) -> None:
    root = project({"aws": AWS.replace("max: 40}", "max: 41}"), "mi300": MI300})
    said = gpufleet("-C", root, "capacity", "aws").out
    assert said.endswith(
        f"\ncost per hour at max, on the cheapest nodes that hold the jobs ({instance_prices.basis()}; spot is"
        " usually lower; Karpenter may choose fewer, larger nodes that cost more):\n"
        "  linux-cpu-4, 10 jobs: 1.92 USD for 5 m6i.2xlarge\n"
        "  pool cpu: 1.92 USD for 5 m6i.2xlarge\n"
        "  linux-nvidia-gpu, 40 jobs: 3.01 USD for 4 g4dn.2xlarge\n"
        "  pool gpu: 3.01 USD for 4 g4dn.2xlarge; 1 job waiting, beyond the limits\n"
        "  total: 4.93 USD\n"
    )
    assert json.loads(gpufleet("-C", root, "capacity", "aws", "--format", "json").out)["cost"]["costPerHour"] == 4.928
    assert "cost" not in gpufleet("-C", root, "capacity", "mi300").out
