"""kubespray's inventory and variables of document 000's cluster, and of clusters like it."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml
from hypothesis import given

from gpufleet.bare_metal.kubespray.args import Calico, KubesprayClusterArgs, Mirrors, NvidiaRuntime
from gpufleet.bare_metal.kubespray.driver.steps import hosts
from gpufleet.bare_metal.kubespray.inventory import (
    CLUSTER_ARGUMENTS,
    HOST_ARGUMENTS,
    cluster_variables,
    desired,
    server_url,
)
from gpufleet.bare_metal.kubespray.rules import cluster_problems
from gpufleet.taint import Taint
from tests.bare_metal import DOCUMENT_000, changed, clusters, with_node
from tests.conftest import Generated

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden"


def inventory(args: KubesprayClusterArgs) -> Any:
    return hosts(desired(args)["nodes"])


def variables(args: KubesprayClusterArgs) -> Any:
    return desired(args)["variables"]["all"]


# -- document 000 -----------------------------------------------------------------------------------------------------


@pytest.mark.generated
def test_the_inventory_of_document_000(generated: Generated) -> None:
    generated(GOLDEN / "document-000.hosts.yaml", yaml.safe_dump(inventory(DOCUMENT_000), sort_keys=False))


@pytest.mark.generated
def test_the_variables_of_document_000(generated: Generated) -> None:
    generated(GOLDEN / "document-000.group-vars.yaml", yaml.safe_dump(variables(DOCUMENT_000), sort_keys=False))


@pytest.mark.parametrize(
    ("words", "variable", "value"),
    [
        ("use containerd for our container runtime", "container_manager", "containerd"),
        ("Calico for our network plugin", "kube_network_plugin", "calico"),
        ("IPVS (IP Virtual Server) for managing and balancing network traffic", "kube_proxy_mode", "ipvs"),
    ],
)
def test_a_choice_of_document_000(document_000: str, words: str, variable: str, value: str) -> None:
    assert words in document_000
    assert variables(DOCUMENT_000)[variable] == value


def test_etcd_runs_on_its_hosts() -> None:
    assert variables(DOCUMENT_000)["etcd_deployment_type"] == "host"


def test_a_site_is_a_label_that_pods_can_ask_for() -> None:
    labels = {name: host["node_labels"] for name, host in inventory(DOCUMENT_000)["all"]["hosts"].items()}
    assert labels["mi300x-santa-clara-1"]["topology.kubernetes.io/region"] == "santa-clara"
    assert labels["mi300x-austin-1"] == {
        "topology.kubernetes.io/region": "austin",
        "accelerator": "amd-mi300x",
        "pytorch": "yes",
    }


# -- variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calico", "backend", "vxlan", "ipip"),
    [
        (Calico(), "vxlan", "Always", "Never"),
        (Calico(cross_subnet_only=True), "vxlan", "CrossSubnet", "Never"),
        (Calico(encapsulation="ipip"), "bird", "Never", "Always"),
        (Calico(encapsulation="ipip", cross_subnet_only=True), "bird", "Never", "CrossSubnet"),
        (Calico(encapsulation="none"), "bird", "Never", "Never"),
    ],
)
def test_encapsulation(calico: Calico, backend: str, vxlan: str, ipip: str) -> None:
    found = variables(changed(calico=calico))
    assert (found["calico_network_backend"], found["calico_vxlan_mode"], found["calico_ipip_mode"]) == (
        backend,
        vxlan,
        ipip,
    )


def test_mtu_is_left_to_calico_unless_given() -> None:
    assert "calico_mtu" not in variables(DOCUMENT_000)
    assert variables(changed(calico=Calico(mtu=9000)))["calico_mtu"] == 9000


def test_nftables_switches_calico_too() -> None:
    assert "calico_nftable_mode" not in variables(DOCUMENT_000)
    assert variables(changed(proxy_mode="nftables"))["calico_nftable_mode"] == "Enabled"
    assert "calico_nftable_mode" not in variables(changed(proxy_mode="nftables", network_plugin="cilium"))


def test_another_plugin_gets_nothing_of_calico() -> None:
    assert not [key for key in variables(changed(network_plugin="cilium")) if key.startswith("calico_")]


def test_the_nvidia_runtime_is_a_further_one_with_its_options() -> None:
    found = variables(changed(nvidia_runtime=NvidiaRuntime()))
    (runtime,) = found["containerd_additional_runtimes"]
    assert runtime["options"] == {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": "true"}
    assert "containerd_default_runtime" not in found
    assert found["containerd_extra_args"] == 'imports = ["/etc/containerd/conf.d/*.toml"]'
    assert "nvidia_accelerator_enabled" not in found


def test_the_nvidia_runtime_can_be_the_default() -> None:
    found = variables(changed(nvidia_runtime=NvidiaRuntime(name="nv", default=True, drop_ins=False)))
    assert found["containerd_default_runtime"] == "nv"
    assert "containerd_extra_args" not in found


def test_mirrors_stand_for_every_source() -> None:
    mirrors = Mirrors(image_registry="registry.example", files_url="https://files.example/", ubuntu_url="https://u")
    found = variables(changed(mirrors=mirrors))
    assert {found[key] for key in found if key.endswith("_image_repo")} == {"registry.example"}
    assert found["dl_k8s_io_url"] == "https://files.example/dl.k8s.io"
    assert found["ubuntu_repo"] == "https://u"
    assert "yum_repo" not in found


def test_registry_mirrors() -> None:
    found = variables(changed(mirrors=Mirrors(registry_mirrors={"docker.io": ["https://a", "https://b"]})))
    (mirror,) = found["containerd_registries_mirrors"]
    assert mirror["prefix"] == "docker.io"
    assert [each["host"] for each in mirror["mirrors"]] == ["https://a", "https://b"]


@pytest.mark.parametrize(
    ("api_server", "url", "name"),
    [
        ("k8s.example", "https://k8s.example:6443", "k8s.example"),
        ("k8s.example:443", "https://k8s.example:443", "k8s.example"),
        ("[2001:db8::1]:443", "https://[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "https://[2001:db8::1]:6443", "2001:db8::1"),
    ],
)
def test_where_the_api_server_is_reached_its_certificate_is_valid(api_server: str, url: str, name: str) -> None:
    args = changed(api_server=api_server)
    assert server_url(args) == url
    assert variables(args)["supplementary_addresses_in_ssl_keys"][0] == name


def test_the_certificate_has_every_control_plane_and_what_the_caller_adds() -> None:
    args = changed(variables={"all": {"supplementary_addresses_in_ssl_keys": ["10.9.9.9", "192.0.2.2"]}})
    assert server_url(args) is None
    assert variables(args)["supplementary_addresses_in_ssl_keys"] == ["192.0.2.2", "192.0.2.3", "192.0.2.4", "10.9.9.9"]


def test_any_other_variable_goes_through_at_its_place() -> None:
    args = changed(variables={"all": {"kube_apiserver_port": 7443}, "kube_node": {"kubelet_max_pods": 250}})
    found = desired(args)["variables"]
    assert found["all"]["kube_apiserver_port"] == 7443
    assert found["kube_node"] == {"kubelet_max_pods": 250}
    host = inventory(with_node("mi300x-austin-1", variables={"kubelet_custom_flags": ["-v=2"]}))["all"]["hosts"]
    assert host["mi300x-austin-1"]["kubelet_custom_flags"] == ["-v=2"]


def test_secret_variables_are_nowhere_in_what_is_wanted() -> None:
    assert "hunter2" not in json.dumps(desired(changed(secret_variables={"registry_password": "hunter2"})))


@pytest.mark.parametrize(
    ("taint", "text"),
    [
        (Taint(key="amd.com/gpu", value="yes", effect="NoExecute"), "amd.com/gpu=yes:NoExecute"),
        (Taint(key="amd.com/gpu"), "amd.com/gpu=:NoSchedule"),
    ],
)
def test_taints(taint: Taint, text: str) -> None:
    host = inventory(with_node("mi300x-austin-1", taints=[taint]))["all"]["hosts"]["mi300x-austin-1"]
    assert host["node_taints"] == [text]


def test_etcd_members_are_called_after_their_nodes() -> None:
    """kubespray numbers them by their place, so that a removal would rename those that follow."""
    found = inventory(DOCUMENT_000)["all"]["hosts"]
    assert {name: host.get("etcd_member_name") for name, host in found.items() if "etcd_member_name" in host} == {
        name: name for name in ("control-austin-1", "control-austin-2", "control-austin-3")
    }


# -- any cluster ------------------------------------------------------------------------------------------------------


@given(args=clusters())
def test_every_node_is_in_the_groups_of_its_roles_in_order(args: KubesprayClusterArgs) -> None:
    assert not [*cluster_problems(args)]
    found = inventory(args)["all"]
    assert list(found["hosts"]) == [node.name for node in args.nodes]
    for role, group in (("control_plane", "kube_control_plane"), ("etcd", "etcd"), ("worker", "kube_node")):
        assert list(found["children"][group]["hosts"]) == [node.name for node in args.nodes if role in node.roles]


@given(args=clusters())
def test_what_is_sent_is_read_back_the_same(args: KubesprayClusterArgs) -> None:
    """It travels as JSON and is read as YAML."""
    wanted = desired(args)
    assert json.loads(json.dumps(wanted)) == wanted
    assert yaml.safe_load(json.dumps(hosts(wanted["nodes"]))) == hosts(wanted["nodes"])


@given(args=clusters())
def test_every_variable_that_arguments_make_is_refused_from_the_caller(args: KubesprayClusterArgs) -> None:
    ours = set(cluster_variables(args)) - {"supplementary_addresses_in_ssl_keys"}
    assert ours <= set(CLUSTER_ARGUMENTS)
    for host in inventory(args)["all"]["hosts"].values():
        assert set(host) <= set(HOST_ARGUMENTS)
