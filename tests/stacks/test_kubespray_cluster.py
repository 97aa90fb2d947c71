"""Stacks whose cluster kubespray makes: from the host list to the component, and what a change of the list changes."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet.bare_metal.etcd_snapshots import SnapshotBucket
from gpufleet.bare_metal.kubespray.args import KubesprayClusterArgs, KubesprayNode
from gpufleet_stacks.settings.args.machines import cluster_args, login_from_here, snapshots_args, toolkit_args
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.models.kubespray import SSH_KEY
from gpufleet_tools.plan import stack
from gpufleet_tools.plan.plan import Plan, revealed
from tests.conftest import ROOT

MI300 = (ROOT / "Pulumi.mi300.yaml").read_text()
EVERY_SETTING = (ROOT / "tests/settings/kubespray.ok.yaml").read_text()
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHBsYWNlaG9sZGVyLWF1c3Rpbi0zLi4uLi4uLi4uLi4u"
Values = dict[str, Any]


def read(text: str, folder: pathlib.Path, change: Callable[[Values], None] = lambda _: None) -> stack.Stack:
    """The stack of that text, changed, in the folder of a project of its own."""
    whole = yaml.safe_load(text)
    change(whole["config"]["gpu-runners:cluster"])
    folder.mkdir(exist_ok=True)
    for name in ("Pulumi.yaml", "stacks", "components"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    (folder / "Pulumi.mi300.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return stack.read(folder, "mi300")


def nodes(cluster: Values) -> Values:
    found: Values = cluster["nodePools"]["mi300x"]["nodes"]
    return found


def with_worker(cluster: Values) -> None:
    nodes(cluster)["mi300x-austin-3"] = {"address": "192.0.2.13", "site": "austin", "hostKeys": [KEY]}


def differing(before: Plan, after: Plan) -> dict[str, str]:
    """What becomes of each resource that is not the same, by name."""
    old, new = ({each.urn: each for each in plan.resources} for plan in (before, after))
    found = {urn.rpartition("::")[2]: "delete" for urn in old.keys() - new.keys()}
    found |= {urn.rpartition("::")[2]: "create" for urn in new.keys() - old.keys()}
    for urn in old.keys() & new.keys():
        if revealed(old[urn].inputs) != revealed(new[urn].inputs):
            found[urn.rpartition("::")[2]] = "update"
    return found


CHANGES: dict[str, tuple[Callable[[Values], None], Callable[[Values], None], dict[str, str]]] = {
    "a worker is removed": (
        with_worker,
        lambda cluster: None,
        {"mi300-node-mi300x-austin-3": "delete", "mi300-converge": "update"},
    ),
    "a worker is added": (
        lambda cluster: None,
        with_worker,
        {"mi300-node-mi300x-austin-3": "create", "mi300-converge": "update"},
    ),
    "a machine gets a label": (
        lambda cluster: None,
        lambda cluster: nodes(cluster)["mi300x-austin-1"]["labels"].update(disk="new"),
        {"mi300-node-mi300x-austin-1": "update", "mi300-converge": "update"},
    ),
    "kubernetes is upgraded": (
        lambda cluster: cluster["kubespray"].update(kubernetesVersion="1.34.1"),
        lambda cluster: None,
        {"mi300-converge": "update"},
    ),
    "nothing": (with_worker, with_worker, {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_list_changes_that_and_nothing_else(change: str, tmp_path: pathlib.Path) -> None:
    first, then, expected = CHANGES[change]
    before = read(MI300, tmp_path, first).plan(unknown_outputs=False)
    after = read(MI300, tmp_path, then).plan(unknown_outputs=False)
    assert differing(before, after) == expected


# -- the stack --------------------------------------------------------------------------------------------------------


def test_what_is_on_the_cluster_waits_until_it_is_there() -> None:
    plan = stack.read(ROOT, "mi300").plan()
    by_urn = {each.urn: each for each in plan.resources}
    (provider,) = (each for each in plan.resources if each.type == "pulumi:providers:kubernetes")
    assert {by_urn[urn].name for urn in provider.depends_on} == {"mi300-converge", "mi300-kubeconfig"}
    assert provider.inputs["clusterIdentifier"] == "mi300"
    on_it = [each for each in plan.resources if each.type.startswith("kubernetes:")]
    assert on_it
    assert {each.provider for each in on_it} == {provider.urn}


def test_the_key_is_a_secret_and_asked_for() -> None:
    assert SSH_KEY in stack.read(ROOT, "mi300").settings.secret_keys()
    plan = stack.read(ROOT, "mi300").plan(unknown_outputs=False)
    holders = [each for each in plan.resources if stack.STAND_IN in json.dumps(revealed(dict(each.inputs)))]
    assert {each.name for each in holders if each.type.startswith("command:")} == {"mi300-credentials"}
    assert stack.STAND_IN not in repr(plan.resources)


@pytest.mark.parametrize("agent", [True, False])
def test_with_an_agent_no_key_is_asked_for(agent: bool, tmp_path: pathlib.Path) -> None:
    def change(cluster: Values) -> None:
        cluster["ssh"] |= {"agentSocket": "/run/agent"} if agent else {}

    settings = read(MI300, tmp_path, change).settings
    assert (SSH_KEY in settings.secret_keys()) is not agent


# -- settings as the component takes them -----------------------------------------------------------------------------


def bare_metal(text: str, folder: pathlib.Path) -> BareMetalSettings:
    settings = read(text, folder).settings
    assert isinstance(settings, BareMetalSettings)
    return settings


def test_document_000s_choices_are_written(tmp_path: pathlib.Path) -> None:
    args = cluster_args(bare_metal(MI300, tmp_path).cluster, "key")
    assert args
    choices = (args.container_manager, args.network_plugin, args.proxy_mode, args.etcd_deployment)
    assert choices == ("containerd", "calico", "ipvs", "host")
    assert [node.site for node in args.nodes] == ["austin", "austin", "santa-clara"]
    assert args.nodes[0].labels == {"accelerator": "amd-mi300x", "pytorch": "yes"}


def test_every_setting_reaches_the_component(tmp_path: pathlib.Path) -> None:
    """The file sets each to something else than its default, so an argument that is left at its own was forgotten."""
    cluster = bare_metal(EVERY_SETTING, tmp_path).cluster
    args = cluster_args(cluster, "key")
    assert args
    default = KubesprayClusterArgs(cluster="", nodes=[])
    left = {f.name for f in dataclasses.fields(args) if getattr(args, f.name) == getattr(default, f.name)}
    # Docker's runtime is the toolkit's affair, and what is needed first is the program's.
    assert left == {"network_plugin", "nvidia_runtime", "needs"}
    (node,) = args.nodes
    plain = KubesprayNode(name="", address="")
    left = {f.name for f in dataclasses.fields(node) if getattr(node, f.name) == getattr(plain, f.name)}
    assert left == set()
    toolkit = toolkit_args(cluster, "key")
    assert toolkit
    assert (toolkit.nvkind, toolkit.version, toolkit.engine, toolkit.checked) == (
        True,
        "1.17.9-1",
        "docker",
        "2026-11-21",
    )


def test_secrets_of_variables_are_the_stacks_own(tmp_path: pathlib.Path) -> None:
    settings = bare_metal(EVERY_SETTING, tmp_path)
    asked = {key: path for key, path in settings.secret_keys().items() if key.startswith("kubespray-")}
    assert asked == {
        "kubespray-registryPassword": "cluster.kubespray.secretVariables.registry_password",
        "kubespray-becomePassword": "cluster.nodePools.control.nodes.gpu-1.secretVariables.ansible_become_password",
        "kubespray-etcdSnapshotsAccessKeyId": "cluster.kubespray.etcdSnapshots.to",
        "kubespray-etcdSnapshotsSecretAccessKey": "cluster.kubespray.etcdSnapshots.to",
    }
    args = cluster_args(settings.cluster, "key", (), {key: f"that of {key}" for key in asked}.__getitem__)
    assert args
    assert args.secret_variables == {"registry_password": "that of kubespray-registryPassword"}
    (node,) = args.nodes
    assert node.secret_variables == {"ansible_become_password": "that of kubespray-becomePassword"}


def test_snapshots_of_etcd_are_those_of_the_settings(tmp_path: pathlib.Path) -> None:
    snapshots = snapshots_args(bare_metal(EVERY_SETTING, tmp_path).cluster, "key")
    assert snapshots
    assert [host.name for host in snapshots.hosts] == ["gpu-1"]
    assert (snapshots.every_hours, snapshots.keep) == (12, 7)
    assert snapshots.target == SnapshotBucket(
        bucket="lab-etcd",
        region="eu-west-1",
        prefix="lab/etcd",
        endpoint="https://s3.lab.example",
        access_key_id="kubespray-etcdSnapshotsAccessKeyId",
        secret_access_key="kubespray-etcdSnapshotsSecretAccessKey",
    )


def test_a_machine_with_a_user_of_its_own_is_asked_as_that_user(tmp_path: pathlib.Path) -> None:
    cluster = bare_metal(EVERY_SETTING, tmp_path).cluster
    toolkit = toolkit_args(cluster, "key")
    assert toolkit
    assert [host.user for host in toolkit.hosts] == ["operator"]
    assert toolkit.login.user == "ci"


def test_through_a_bastion_this_machine_goes_too(tmp_path: pathlib.Path) -> None:
    cluster = bare_metal(EVERY_SETTING, tmp_path).cluster
    args = cluster_args(cluster, "key")
    assert args
    assert args.runner
    assert args.login
    assert cluster.ssh
    here = login_from_here(cluster, cluster.ssh, "key")
    assert here.jump
    assert args.login.jump
    assert (args.runner.host.address, args.login.jump.address) == ("192.0.2.250", "gate.lab.example")
    assert here.jump.address == "192.0.2.250"


def test_a_site_is_a_label_that_runners_can_select(tmp_path: pathlib.Path) -> None:
    settings = bare_metal(EVERY_SETTING, tmp_path)
    (pool,) = settings.cluster.node_pools.values()
    (node,) = pool.nodes.values()
    assert pool.node_labels(node) == {"rack": "r1", "topology.kubernetes.io/region": "north"}
