"""The same inventory through kubespray's own checks, where KUBESPRAY_CHECKOUT names its source at v2.31.0 and
KUBESPRAY_VENV a Python environment of its requirements."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.meta
import pytest
import yaml

from gpufleet.bare_metal.kubespray.args import (
    KUBESPRAY_VERSION,
    Calico,
    ImageGc,
    KubesprayClusterArgs,
    Mirrors,
    NvidiaRuntime,
)
from gpufleet.bare_metal.kubespray.driver import playbook as kubespray_playbook
from gpufleet.bare_metal.kubespray.driver.settings import WAYS, extra
from gpufleet.bare_metal.kubespray.driver.steps import RESET, Node, Step, hosts, next_step, removals, whole
from gpufleet.bare_metal.kubespray.inventory import desired
from gpufleet.bare_metal.kubespray.rules import LAST_PATCHES, settled
from tests.bare_metal import DOCUMENT_000, changed
from tests.components.bare_metal.kubespray.facts import FACTS, Fact

LACKS = [name for name in ("KUBESPRAY_CHECKOUT", "KUBESPRAY_VENV") if name not in os.environ]

with_kubespray = pytest.mark.skipif(bool(LACKS), reason=f"no kubespray here: {', '.join(LACKS)} not set")
pytestmark = [pytest.mark.process, pytest.mark.slow]

UPGRADED = "Kubeadm | upgrade kubernetes cluster to {{ kube_version }}"
"""Task that includes what rewrites kubeadm's files."""

NOT_SETTINGS = {
    # Refused while the cluster lives, or a change of the version.
    *("cluster_name", "kube_network_plugin", "kube_network_node_prefix", "kube_network_node_prefix_ipv6"),
    *("kube_pods_subnets", "kube_service_subnets", "kube_version", "dns_domain"),
    # kubespray installs CoreDNS by itself.
    *("coredns_image_repo", "coredns_image_tag"),
    # Worked out by kubespray, or by the template.
    *("apiserver_sans", "feature_gates", "kube_override_hostname", "kubeadm_config_api_fqdn", "main_ip"),
    "kubeadm_init_phases_skip",
    # Of certificates that are issued later, and of where files lie.
    *("kube_asymmetric_encryption_algorithm", "kube_ca_cert_validity_period", "kube_cert_validity_period"),
    *("kube_cert_dir", "kube_config_dir", "kube_etcd_cacert_file", "kube_etcd_cert_file", "kube_etcd_key_file"),
    "kube_token_dir",
}
"""Variables of kubeadm's configuration that are no settings of a cluster that lives."""

PLAYBOOKS = (
    "cluster.yml",
    "recover-control-plane.yml",
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
        image_gc=ImageGc(high_percent=70, low_percent=60),
        api_server="k8s.example",
        kubernetes_version="1.34.3",
    ),
}


LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def run(folder: pathlib.Path, args: KubesprayClusterArgs, playbook: str, *options: str) -> kubespray_playbook.Outcome:
    """Runs a playbook of kubespray as the driver does; hosts are this machine."""
    nodes = [dataclasses.replace(each, variables={"ansible_connection": "local"}) for each in args.nodes]
    wanted = desired(dataclasses.replace(args, nodes=nodes))
    return run_on(folder, wanted["nodes"], wanted["variables"]["all"], playbook, *options)


def run_on(
    folder: pathlib.Path,
    nodes: Mapping[str, Node],
    variables_of_all: Mapping[str, Any],
    playbook: str,
    *options: str,
    extra: Mapping[str, Any] | None = None,
    broken: Sequence[str] = (),
    limit: Sequence[str] = (),
) -> kubespray_playbook.Outcome:
    variables = folder / "inventory" / "group_vars" / "all"
    variables.mkdir(parents=True)
    (folder / "tmp").mkdir()
    (folder / "inventory" / "hosts.yaml").write_text(json.dumps(hosts(nodes, broken)))
    (variables / "kubespray.yml").write_text(json.dumps(variables_of_all))
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
            extra=extra,
            limit=limit,
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


@pytest.mark.skipif("KUBESPRAY_CHECKOUT" not in os.environ, reason="no kubespray here: KUBESPRAY_CHECKOUT not set")
def test_the_recorded_versions_of_kubernetes_are_those_with_checksums() -> None:
    checksums = pathlib.Path(os.environ["KUBESPRAY_CHECKOUT"], "roles/kubespray_defaults/vars/main/checksums.yml")
    recorded = {
        f"1.{minor}.{patch}"
        for (_, minor), last in LAST_PATCHES[KUBESPRAY_VERSION].items()
        for patch in range(last + 1)
    }
    for versions in yaml.safe_load(checksums.read_text())["kubelet_checksums"].values():
        assert set(versions) == recorded


@with_kubespray
def test_the_tasks_that_apply_settings_are_in_the_playbook_that_is_run(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, DOCUMENT_000, "cluster.yml", "--list-tasks").code == 0
    listed = (tmp_path / "log").read_text()
    for way in WAYS:
        file, _, line = way.source.partition(":")
        lines = pathlib.Path(os.environ["KUBESPRAY_CHECKOUT"], file).read_text().splitlines()
        assert lines[int(line) - 1].strip() == f"- name: {way.task}"
        # Tasks of a file that is included as the run goes are not listed; the inclusion is.
        task = UPGRADED if file.endswith("kubeadm-upgrade.yml") else way.task
        assert f" : {task}" in listed


def steps(after: KubesprayClusterArgs, before: KubesprayClusterArgs = DOCUMENT_000) -> list[Step]:
    """The first step of a change of document 000's cluster, and its removals."""
    journal, wanted = settled(desired(before)), desired(after)
    step = next_step(journal, wanted)
    return [*([step] if step else []), *removals(journal, wanted)]


def less(*names: str, **changes: Any) -> KubesprayClusterArgs:
    return changed(nodes=[each for each in DOCUMENT_000.nodes if each.name not in names], **changes)


FIRST, WORKER = DOCUMENT_000.nodes[0].name, DOCUMENT_000.nodes[3].name

DRAINED = "remove_node/pre_remove : Remove-node | Drain node except daemonsets resource"

RUNS: dict[str, tuple[Step, str]] = {
    "the first run": (
        whole("cluster.yml", desired(DOCUMENT_000)["nodes"], []),
        "kubernetes/control-plane : Kubeadm | Initialize first control plane node (1st try)",
    ),
    "a setting of kube-proxy": (steps(changed(strict_arp=True))[0], f"kubernetes/control-plane : {UPGRADED}"),
    "a worker more": (steps(DOCUMENT_000, less(WORKER))[0], "kubernetes/kubeadm : Join to cluster if needed"),
    "an upgrade": (steps(DOCUMENT_000, changed(kubernetes_version="1.34.7"))[0], "upgrade/pre-upgrade : Drain node"),
    "a worker less": (steps(less(WORKER))[0], DRAINED),
    "a lost worker": (steps(less(WORKER, lost=[WORKER]))[0], DRAINED),
    "the first member dead": (
        steps(less(FIRST, lost=[FIRST]))[0],
        "recover_control_plane/etcd : Remove broken cluster members",
    ),
    "a reset": (
        whole("reset.yml", desired(DOCUMENT_000)["nodes"], [], RESET),
        "reset : Reset | stop services",
    ),
}
"""A run of every kind, with its variables and its limit, and a task that it is for."""


@with_kubespray
@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_task_that_it_is_for(name: str, tmp_path: pathlib.Path) -> None:
    step, task = RUNS[name]
    variables = desired(DOCUMENT_000)["variables"]["all"]
    broken = step.get("broken", ())
    outcome = run_on(
        tmp_path,
        step["inventory"],
        variables,
        step["playbook"],
        "--list-tasks",
        extra=step["extra"],
        broken=broken,
        limit=step["limit"],
    )
    assert outcome.code == 0
    assert f" {task}\t" in (tmp_path / "log").read_text()


@pytest.mark.skipif("KUBESPRAY_CHECKOUT" not in os.environ, reason="no kubespray here: KUBESPRAY_CHECKOUT not set")
def test_every_variable_of_what_kubeadm_manages_is_in_the_table() -> None:
    """Of the documents ClusterConfiguration and KubeProxyConfiguration, which nothing else applies."""
    template = pathlib.Path(
        os.environ["KUBESPRAY_CHECKOUT"], "roles/kubernetes/control-plane/templates/kubeadm-config.v1beta4.yaml.j2"
    )
    parts = re.split(r"\n---\n|\{# DNS settings for kubelet #\}", template.read_text())
    documents = [text for text in parts if re.search(r"^kind: (Cluster|KubeProxy)", text, re.M)]
    assert len(documents) == 2
    environment = jinja2.Environment()
    environment.filters |= dict.fromkeys(("ansible.utils.ipwrap", "regex_replace", "ternary"), str)
    environment.tests |= {"version": bool}
    names = {name for text in documents for name in jinja2.meta.find_undeclared_variables(environment.parse(text))}
    assert {name for name in names if not extra([name])} == NOT_SETTINGS


def fake(folder: pathlib.Path, name: str, script: str) -> None:
    """A program of a cluster, which notes what it was called with."""
    (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n{script}\n')
    (folder / name).chmod(0o755)


KUBECONFIG = """
clusters: [{name: c, cluster: {server: x}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {client-certificate-data: new}}]
"""


@with_kubespray
def test_real_kubespray_issues_a_kubeconfig_on_the_first_control_plane_node_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other machines are down. kubeadm is a double, and a socket stands for the API server."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (tmp_path / "admin.conf").write_text(KUBECONFIG)
    fake(bin_dir, "kubeadm", f"cat {tmp_path}/admin.conf")
    monkeypatch.setenv("HOME", str(tmp_path))
    first, *others = DOCUMENT_000.nodes
    nodes = [dataclasses.replace(first, address="127.0.0.1", internal_address="127.0.0.1", variables=LOCAL), *others]
    known = desired(dataclasses.replace(DOCUMENT_000, nodes=nodes))
    with socket.create_server(("127.0.0.1", 0)) as server:
        variables = known["variables"]["all"] | {
            "bin_dir": str(bin_dir),
            "kube_config_dir": str(tmp_path),
            "kube_apiserver_port": server.getsockname()[1],
            "ansible_become": False,
        }
        options = ("--tags", "client")
        outcome = run_on(tmp_path, known["nodes"], variables, "cluster.yml", *options, limit=[first.name])
    assert outcome.well, outcome
    written = yaml.safe_load((tmp_path / "inventory" / "artifacts" / "admin.conf").read_text())
    assert written["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    assert (bin_dir / "calls").read_text().startswith("kubeadm kubeconfig user --client-name=kubernetes-admin-")


@with_kubespray
def test_a_dead_member_is_removed_by_real_kubespray_without_reaching_it(tmp_path: pathlib.Path) -> None:
    """Survivors are this machine, the dead one is an address that nobody answers at. kubectl and etcdctl are doubles;
    its Node object is gone already, so there is nothing to drain."""
    bin_dir, dead = tmp_path / "bin", DOCUMENT_000.nodes[2].name
    bin_dir.mkdir()
    members = json.dumps({"members": [{"ID": 12648430, "name": dead, "peerURLs": ["https://192.0.2.4:2380"]}]})
    fake(bin_dir, "kubectl", "")
    fake(bin_dir, "etcdctl", f"case \"$*\" in *list*) echo '{members}';; *) echo Removed member;; esac")
    nodes = [dataclasses.replace(each, variables={} if each.name == dead else LOCAL) for each in DOCUMENT_000.nodes]
    before = desired(dataclasses.replace(DOCUMENT_000, nodes=nodes))
    after = desired(dataclasses.replace(DOCUMENT_000, nodes=[each for each in nodes if each.name != dead], lost=[dead]))
    journal = settled(before)
    step = next_step(journal, after)
    assert step
    # Or it would reset this machine.
    assert (step["playbook"], step["extra"]["reset_nodes"]) == ("remove-node.yml", False)
    # kubespray caches this fact of every node in each run.
    (tmp_path / "facts").mkdir()
    for name, node in before["nodes"].items():
        (tmp_path / "facts" / name).write_text(json.dumps({"main_access_ip": node["variables"]["ansible_host"]}))
    variables = {**before["variables"]["all"], "bin_dir": str(bin_dir), "ansible_become": False}
    outcome = run_on(tmp_path, step["inventory"], variables, step["playbook"], extra=step["extra"])
    assert outcome.well, outcome
    calls = [line for line in (bin_dir / "calls").read_text().splitlines() if line.startswith("etcdctl")]
    assert calls == ["etcdctl member list -w json", "etcdctl member remove c0ffee"]
