"""Findings about machines: what each is said of, and what it is not said of."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet.bare_metal.kubespray.driver.folder import Cluster
from gpufleet.bare_metal.kubespray.rules import grown
from gpufleet_stacks.settings.args.machines import cluster_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.problems import dotted
from gpufleet_tools.check import bare_metal as bare_metal_findings
from gpufleet_tools.plan import stack
from tests.bare_metal import host_key
from tests.conftest import ROOT

TODAY = datetime.date(2026, 11, 22)
KUBESPRAY = (ROOT / "tests/settings/kubespray.ok.yaml").read_text()
MI300 = (ROOT / "Pulumi.mi300.yaml").read_text()
A10 = (ROOT / "examples/a10/Pulumi.a10.yaml").read_text()
ALIKE = A10.replace("nodeSelector: {machine: vm-gpu-a10-2}", "nodeSelector: {machine: vm-gpu-a10-1}")
EXISTING = (ROOT / "tests/settings/smallest.ok.yaml").read_text()


def one_site(cluster: dict[str, Any]) -> None:
    for node in cluster["nodePools"]["mi300x"]["nodes"].values():
        node["site"] = "austin"


def unwrapped(cluster: dict[str, Any]) -> None:
    cluster["kubespray"]["calico"] = {"encapsulation": "none"}


def alike(cluster: dict[str, Any]) -> None:
    for pool in cluster["nodePools"].values():
        pool["labels"]["machine"] = "vm-gpu-a10-1"


def apart_by_taints(cluster: dict[str, Any]) -> None:
    alike(cluster)
    cluster["nodePools"]["a10-2"]["taints"] = [{"key": "two", "effect": "NoSchedule"}]


def one_control_plane(cluster: dict[str, Any]) -> None:
    for name, node in cluster["nodePools"]["mi300x"]["nodes"].items():
        if name != "mi300x-austin-1":
            node["roles"] = ["worker"]


def in_maintenance(cluster: dict[str, Any]) -> None:
    one_site(cluster)
    nodes = cluster["nodePools"]["mi300x"]["nodes"]
    nodes["mi300x-austin-2"]["maintenance"] = {"until": "2026-11-30", "why": "a PSU"}


def in_expired_maintenance(cluster: dict[str, Any]) -> None:
    one_site(cluster)
    cluster["nodePools"]["mi300x"]["maintenance"] = {"until": "2026-11-21", "why": "power"}


SITES = "spans-sites cluster.nodePools"

CASES: dict[str, tuple[str, Callable[[dict[str, Any]], None], list[str]]] = {
    "as committed": (MI300, lambda cluster: None, [SITES, SITES]),
    "one site": (MI300, one_site, []),
    # Only the two machines with the label pytorch run the first label.
    "one machine in maintenance": (
        MI300,
        in_maintenance,
        ["reduced-capacity runners.linux-mi300-gpu-2.max", "reduced-capacity runners.mi300-cluster.max"],
    ),
    "a maintenance that is over": (
        MI300,
        in_expired_maintenance,
        [
            "expired-maintenance cluster.nodePools.mi300x.maintenance.until",
            "reduced-capacity runners.linux-mi300-gpu-2.max",
            "reduced-capacity runners.mi300-cluster.max",
        ],
    ),
    "workers elsewhere": (MI300, one_control_plane, []),
    "pods' own addresses": (
        MI300,
        unwrapped,
        [SITES, SITES, "spans-sites cluster.kubespray.calico.encapsulation"],
    ),
    "nothing deprecated": (
        KUBESPRAY,
        lambda cluster: None,
        ["toolkit-advisory cluster.nvidiaContainerToolkit.version"],
    ),
    "a pinned toolkit": (A10, lambda cluster: None, ["toolkit-advisory cluster.nvidiaContainerToolkit.version"]),
    # The larger runners fit the larger machines only.
    "pools alike": (
        ALIKE,
        alike,
        ["toolkit-advisory cluster.nvidiaContainerToolkit.version", "several-pools profiles.one.nodeSelector"],
    ),
    "pools alike, one with a taint": (
        ALIKE.replace("      pool: a10-2\n", "      pool: a10-2\n      tolerations: [{key: two, operator: Exists}]\n"),
        apart_by_taints,
        ["toolkit-advisory cluster.nvidiaContainerToolkit.version"],
    ),
    "no toolkit": (A10, lambda cluster: cluster.pop("nvidiaContainerToolkit"), []),
    "a cluster that exists": (EXISTING, lambda cluster: None, []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_found(case: str, tmp_path: pathlib.Path) -> None:
    text, change, expected = CASES[case]
    whole = yaml.safe_load(text)
    change(whole["config"]["gpu-runners:cluster"])
    (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    found = list(bare_metal_findings.findings(stack.read(tmp_path, "lab").settings, TODAY))
    assert [f"{each.name} {dotted(each.path)}" for each in found] == expected
    assert {each.name for each in found} <= bare_metal_findings.NAMES


def before(cluster: dict[str, Any], **changes: Any) -> None:
    """The cluster as it was made: of an older Kubernetes, say, and with one more machine in front."""
    cluster["kubespray"] |= {"kubernetesVersion": changes.get("kubernetes", "1.35.4")}
    cluster["kubespray"] |= changes.get("settings", {})
    if "first" in changes:
        pool = cluster["nodePools"]["mi300x"]
        node = next(iter(pool["nodes"].values())) | {"address": "192.0.2.99", "hostKeys": [host_key("first")]}
        two = [*pool["nodes"].items()][:2]
        pool["nodes"] = {changes["first"]: node, **dict(two)}


CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, []),
    "one minor": ({"kubernetes": "1.34.3"}, []),
    "two minors": (
        {"kubernetes": "1.33.7"},
        [
            "cluster.kubespray.kubernetesVersion: 1.35.4 is more than one minor version after 1.33.7, the cluster's"
            " version; kubespray upgrades one minor version at a time; upgrade to 1.34 first"
        ],
    ),
    "what is fixed when a cluster is made": (
        {"settings": {"networkPlugin": "cilium", "variables": {"all": {"cluster_name": "gpu.local"}}}},
        [
            "cluster.kubespray.variables: variables.all.cluster_name: cluster.local differs from gpu.local, with which"
            " the cluster was created; kubespray cannot change it in an existing cluster; restore gpu.local, or create"
            " a new cluster",
            "cluster.kubespray.networkPlugin: calico differs from cilium, with which the cluster was created; kubespray"
            " cannot change it in an existing cluster; restore cilium, or create a new cluster",
        ],
    ),
    "the first of all": (
        {"first": "gone-1"},
        [
            f"cluster.nodePools: gone-1 is the first node of {group}, which kubespray cannot remove while it runs;"
            " keep it in the list, or switch it off and list it in lost"
            for group in ("kube_control_plane", "etcd")
        ],
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_that_the_cluster_cannot_make(case: str, tmp_path: pathlib.Path) -> None:
    """Where kubespray runs here, what is in the cluster is known without a connection."""
    changes, expected = CHANGES[case]
    runner = tmp_path / "runner"
    texts = []
    for change in (lambda cluster: before(cluster, **changes), before):
        whole = yaml.safe_load(MI300)
        cluster = whole["config"]["gpu-runners:cluster"]
        cluster["kubespray"]["directory"] = str(runner)
        change(cluster)
        texts.append(yaml.safe_dump(whole, sort_keys=False))
    (tmp_path / "Pulumi.lab.yaml").write_text(texts[0])
    settings = stack.read(tmp_path, "lab").settings
    assert isinstance(settings, BareMetalSettings)
    made = cluster_args(settings.cluster, "key")
    assert made
    (runner / "mi300").mkdir(parents=True)
    Cluster(runner / "mi300").keep(grown(made))
    (tmp_path / "Pulumi.lab.yaml").write_text(texts[1])
    found = bare_metal_findings.findings(stack.read(tmp_path, "lab").settings, TODAY)
    errors = [each for each in found if each.severity == "error"]
    assert [f"{dotted(each.path)}: {each.message}" for each in errors if "etcd gains" not in each.message] == expected
    assert {each.name for each in errors} <= {"impossible-change"}


def test_an_advisory_says_when_the_list_was_looked_at() -> None:
    (finding,) = bare_metal_findings.findings(stack.read(ROOT / "examples/a10", "a10").settings, TODAY)
    assert finding.message == (
        "1.17.8-1 is affected by CVE-2026-24260 (high); 1.19.1 fixes it, but is too new for nvkind (advisories reviewed"
        " on 2026-11-22)"
    )
