"""The same inventory through kubespray's own checks, where KUBESPRAY_CHECKOUT names its source at v2.31.0 and
KUBESPRAY_VENV a Python environment of its requirements."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

import pytest

from gpufleet.bare_metal.kubespray.args import Calico, KubesprayClusterArgs, Mirrors, NvidiaRuntime
from gpufleet.bare_metal.kubespray.driver import playbook as kubespray_playbook
from gpufleet.bare_metal.kubespray.driver.steps import hosts
from gpufleet.bare_metal.kubespray.inventory import desired
from tests.bare_metal import DOCUMENT_000, changed
from tests.components.bare_metal.kubespray.facts import FACTS, Fact

LACKS = [name for name in ("KUBESPRAY_CHECKOUT", "KUBESPRAY_VENV") if name not in os.environ]

with_kubespray = pytest.mark.skipif(bool(LACKS), reason=f"no kubespray here: {', '.join(LACKS)} not set")
pytestmark = [pytest.mark.process, pytest.mark.slow]

PLAYBOOKS = (
    "cluster.yml",
    "scale.yml",
    "remove-node.yml",
    "upgrade-cluster.yml",
    "reset.yml",
    "playbooks/facts.yml",
)
"""What the driver runs."""

CLUSTERS = {
    "document 000": DOCUMENT_000,
    "every choice": changed(
        proxy_mode="nftables",
        calico=Calico(cross_subnet_only=True, mtu=9000),
        nvidia_runtime=NvidiaRuntime(default=True),
        mirrors=Mirrors(
            image_registry="registry.example",
            files_url="https://files.example",
            registry_mirrors={"docker.io": ["https://mirror.example"]},
        ),
        api_server="k8s.example",
        kubernetes_version="1.34.3",
    ),
}


def run(folder: pathlib.Path, args: KubesprayClusterArgs, playbook: str, *options: str) -> kubespray_playbook.Outcome:
    """Runs a playbook of kubespray as the driver does; hosts are this machine."""
    nodes = [dataclasses.replace(each, variables={"ansible_connection": "local"}) for each in args.nodes]
    told = desired(dataclasses.replace(args, nodes=nodes))
    variables = folder / "inventory" / "group_vars" / "all"
    variables.mkdir(parents=True)
    (folder / "tmp").mkdir()
    (folder / "inventory" / "hosts.yaml").write_text(json.dumps(hosts(told["nodes"])))
    (variables / "kubespray.yml").write_text(json.dumps(told["variables"]["all"]))
    place = kubespray_playbook.Surroundings(
        checkout=pathlib.Path(os.environ["KUBESPRAY_CHECKOUT"]),
        venv=pathlib.Path(os.environ["KUBESPRAY_VENV"]),
        folder=folder,
    )
    with (folder / "lock").open("w") as lock:
        outcome = kubespray_playbook.run(
            place,
            playbook,
            inventory=folder / "inventory",
            log=folder / "log",
            say=lambda line: None,
            lock=lock.fileno(),
            options=options,
        )
    print((folder / "log").read_text())
    return outcome


@with_kubespray
@pytest.mark.parametrize("args", CLUSTERS.values(), ids=list(CLUSTERS))
def test_kubespray_finds_nothing_wrong_with_the_inventory(tmp_path: pathlib.Path, args: KubesprayClusterArgs) -> None:
    outcome = run(tmp_path, args, "playbooks/boilerplate.yml")
    assert outcome.well, outcome


@with_kubespray
def test_kubespray_finds_what_is_wrong(tmp_path: pathlib.Path) -> None:
    """Or its checks would say nothing: two members of etcd, which our own rules would have refused."""
    outcome = run(tmp_path, changed(nodes=DOCUMENT_000.nodes[1:]), "playbooks/boilerplate.yml")
    assert [said for said in outcome.failed.values() if "even number of etcd" in said]


@with_kubespray
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_that_is_run_is_there_and_is_well_formed(tmp_path: pathlib.Path, playbook: str) -> None:
    assert run(tmp_path, DOCUMENT_000, playbook, "--syntax-check").code == 0


@pytest.mark.skipif("KUBESPRAY_CHECKOUT" not in os.environ, reason="no kubespray here: KUBESPRAY_CHECKOUT not set")
@pytest.mark.parametrize("fact", FACTS, ids=str)
def test_what_is_recorded_of_kubespray_is_so(fact: Fact) -> None:
    lines = pathlib.Path(os.environ["KUBESPRAY_CHECKOUT"], fact.file).read_text().splitlines()
    assert lines[fact.line - 1].strip() == fact.text
