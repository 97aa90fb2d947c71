"""Maintenance of machines in a stack file: what it does to nodes, labels and capacity."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import pytest
import yaml

from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_tools.capacity import stack_capacity
from gpufleet_tools.labels import catalogue
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.stack import Stack
from tests.conftest import ROOT

ENTRY = {"until": "2099-11-30", "why": "a PSU"}
TOMORROW = str(datetime.date.today() + datetime.timedelta(days=1))


def mi300(folder: pathlib.Path, *nodes: str, pool: dict[str, str] | None = None, **entry: Any) -> Stack:
    """The stack of MI300X machines, some of which are in maintenance."""
    whole = yaml.safe_load((ROOT / "Pulumi.mi300.yaml").read_text())
    machines = whole["config"]["gpu-runners:cluster"]["nodePools"]["mi300x"]
    for name in nodes:
        machines["nodes"][name]["maintenance"] = ENTRY | entry
    if pool:
        machines["maintenance"] = pool
    for part in ("Pulumi.yaml", "stacks", "components"):
        (folder / part).unlink(missing_ok=True)
        (folder / part).symlink_to(ROOT / part)
    (folder / "Pulumi.mi300.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return stack.read(folder, "mi300")


def sizes(read: Stack) -> dict[str, tuple[int, int]]:
    """`min` and `max` of each label, as its scale set has them."""
    found = {label: read.settings.effective(label) for label in read.settings.runners}
    return {label: (runner.min, runner.max) for label, runner in found.items()}


def test_labels_shrink_like_the_machines_that_they_can_run_on(tmp_path: pathlib.Path) -> None:
    # Two of three machines have the label that the first runner selects.
    assert sizes(mi300(tmp_path)) == {"linux-mi300-gpu-2": (1, 6), "mi300-cluster": (1, 8)}
    assert sizes(mi300(tmp_path, "mi300x-austin-2")) == {"linux-mi300-gpu-2": (1, 3), "mi300-cluster": (1, 5)}
    assert sizes(mi300(tmp_path, "mi300x-santa-clara-1")) == {"linux-mi300-gpu-2": (1, 6), "mi300-cluster": (1, 5)}


def test_a_pool_in_maintenance_runs_nothing(tmp_path: pathlib.Path) -> None:
    read = mi300(tmp_path, pool=ENTRY)
    assert sizes(read) == {"linux-mi300-gpu-2": (0, 0), "mi300-cluster": (0, 0)}
    (pool,) = stack_capacity.capacity("mi300", read.settings).pools
    assert pool.kind == "fixed"
    assert (pool.nodes, pool.gpus, pool.fits) == (0, 0, "yes")
    assert [label.guaranteed for label in pool.labels] == [0, 0]


def test_maintenance_begins_on_its_first_day(tmp_path: pathlib.Path) -> None:
    later = mi300(tmp_path, "mi300x-austin-2", **{"from": TOMORROW})
    assert sizes(later)["linux-mi300-gpu-2"] == (1, 6)
    assert patches(later) == {}
    begun = mi300(tmp_path, "mi300x-austin-2", **{"from": str(datetime.date.today())})
    assert sizes(begun)["linux-mi300-gpu-2"] == (1, 3)


def patches(read: Stack) -> dict[str, dict[str, Any]]:
    return {
        resource.name: dict(resource.inputs)
        for resource in read.plan().resources
        if resource.type == "kubernetes:core/v1:NodePatch"
    }


def test_the_node_is_cordoned_and_scale_sets_follow(tmp_path: pathlib.Path) -> None:
    read = mi300(tmp_path, "mi300x-austin-2")
    (patch,) = patches(read).values()
    assert patch["metadata"] == {
        "name": "mi300x-austin-2",
        "annotations": {"gpufleet.dev/maintenance": "until 2099-11-30: a PSU"},
    }
    assert patch["spec"] == {"unschedulable": True}
    assert patches(mi300(tmp_path)) == {}


def test_capacity_says_until_when_it_is_reduced(tmp_path: pathlib.Path) -> None:
    found = stack_capacity.capacity("mi300", mi300(tmp_path, "mi300x-austin-2").settings)
    (pool,) = found.pools
    assert pool.kind == "fixed"
    assert (pool.nodes, pool.gpus) == (2, 16)
    line = "pool mi300x: reduced until 2099-11-30: mi300x-austin-2 is in maintenance (a PSU)"
    assert line in stack_capacity.text(found).splitlines()


def test_the_catalogue_says_it_too(tmp_path: pathlib.Path) -> None:
    read = mi300(tmp_path, "mi300x-santa-clara-1")
    entries = {entry.label: entry for entry in catalogue.catalogue([read]).labels}
    assert entries["linux-mi300-gpu-2"].reduced_until is None
    assert entries["mi300-cluster"].reduced_until == datetime.date(2099, 11, 30)
    assert "5, 4 guaranteed, reduced until 2099-11-30" in catalogue.text(catalogue.catalogue([read]), 300)


@pytest.mark.parametrize(("node", "pool", "until"), [("2099-01-02", "2099-01-09", "2099-01-09")])
def test_of_two_the_longer_counts(node: str, pool: str, until: str, tmp_path: pathlib.Path) -> None:
    settings = mi300(tmp_path, "mi300x-austin-2", pool=ENTRY | {"until": pool}, until=node).settings
    assert isinstance(settings, BareMetalSettings)
    found = settings.cluster.node_pools["mi300x"].in_maintenance()
    assert {str(entry.until) for entry in found.values()} == {until}
