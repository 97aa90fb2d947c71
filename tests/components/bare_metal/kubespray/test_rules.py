"""What a kubespray cluster cannot be, what it cannot become, and what is unwise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.bare_metal.kubespray.args import (
    Calico,
    ImageGc,
    Kubespray,
    KubesprayClusterArgs,
    KubesprayRunner,
    NvidiaRuntime,
)
from gpufleet.bare_metal.kubespray.inventory import CLUSTER_ARGUMENTS, HOST_ARGUMENTS
from gpufleet.bare_metal.kubespray.rules import change_problems, cluster_problems, grown, site_findings
from gpufleet.bare_metal.ssh import SshHost
from gpufleet.taint import Taint
from tests.bare_metal import DOCUMENT_000, LOGIN, changed, clusters, host_key, node, with_node

WORKER = "mi300x-austin-1"
FIRST, SECOND, THIRD, *WORKERS = DOCUMENT_000.nodes
BASTION = KubesprayRunner(
    host=SshHost(name="bastion", address="192.0.2.9", host_keys=[host_key("bastion")]), login=LOGIN
)


def problems_of(args: KubesprayClusterArgs) -> list[str]:
    return [str(problem) for problem in cluster_problems(args)]


def but(**changes: Any) -> KubesprayClusterArgs:
    return changed(nodes=[FIRST, SECOND, THIRD, dataclasses.replace(WORKERS[0], **changes)])


REFUSED: dict[str, tuple[KubesprayClusterArgs, str]] = {
    "two names": (
        changed(nodes=[*DOCUMENT_000.nodes, node(WORKER, "192.0.2.99")]),
        "is already the name of another node",
    ),
    "two addresses": (but(address="192.0.2.2"), "have the same address, 192.0.2.2"),
    "an address and an internal one": (but(internal_address="192.0.2.3"), "have the same address, 192.0.2.3"),
    "an address and an access one": (but(access_address="192.0.2.4"), "have the same address, 192.0.2.4"),
    "an address of IPv6 in two spellings": (
        changed(nodes=[*DOCUMENT_000.nodes, node("a", "2001:db8::1"), node("b", "2001:0DB8:0::0001")]),
        "a and b have the same address, 2001:0DB8:0::0001",
    ),
    "a host key of another": (
        but(host_keys=[f"{FIRST.host_keys[0]} root@clone"]),
        "nodes[3].host_keys: control-austin-1 and mi300x-austin-1 have the same host key",
    ),
    "no name": (but(name="Node_1"), "letters, digits and inner hyphens"),
    "a name with a dot": (but(name="node.example"), "letters, digits and inner hyphens"),
    "no roles": (but(roles=()), "roles: []"),
    "an unknown role": (but(roles=("master",)), "roles: ['master']"),
    "a role twice": (but(roles=("worker", "worker")), "each once"),
    "no control plane": (
        changed(nodes=[node("a", "192.0.2.1", "etcd", "worker")]),
        "no node has the role control_plane",
    ),
    "no etcd": (changed(nodes=[node("a", "192.0.2.1", "control_plane")]), "no node has the role etcd"),
    "two etcd members": (changed(nodes=[FIRST, SECOND]), "2 nodes have the role etcd"),
    "a label's key": (but(labels={"-x": "y"}), "not a valid key of a label"),
    "a label's value": (but(labels={"x": "a b"}), "at most 63 letters"),
    "a label that is no text": (but(labels={"x": True}), "at most 63 letters"),
    "a taint's key": (but(taints=[Taint(key="a/b/c")]), "not a valid key of a label"),
    "a site": (but(site="south by west"), "site: 'south by west'"),
    "no host key": (but(host_keys=()), "host_keys: is empty"),
    "a user": (but(user="Root!"), "is not a user name"),
    "no login": (changed(login=None), "login: is missing"),
    "a login without a way": (changed(login=dataclasses.replace(LOGIN, private_key=None)), "either private_key or"),
    "a runner without a key": (
        changed(runner=KubesprayRunner(host=SshHost(name="bastion", address="192.0.2.9", host_keys=()), login=LOGIN)),
        "runner.host.host_keys: is empty",
    ),
    "a cluster's name": (changed(cluster="a b"), "cluster: 'a b'"),
    "the name of kubespray's own folder": (changed(cluster="kubespray"), "not 'kubespray'"),
    "a relative directory": (changed(directory="state"), "directory: 'state'"),
    "a directory with a blank": (changed(directory="/a b"), "directory: '/a b'"),
    "a directory that runs something": (changed(directory="/a;b"), "directory: '/a;b'"),
    "a directory that climbs": (changed(directory="/a/../b"), "directory: '/a/../b'"),
    "a branch": (changed(kubespray=Kubespray(version="master")), "is not a tag"),
    "a user in a URL": (changed(kubespray=Kubespray(url="https://me:pw@git.example/k")), "contains a user name"),
    "a short commit": (changed(kubespray=Kubespray(commit="abc123")), "40 hexadecimal digits"),
    "a relative folder": (changed(kubespray=Kubespray(folder="kubespray")), "is not an absolute path"),
    "a relative environment": (changed(kubespray=Kubespray(venv="venv")), "is not an absolute path"),
    "a version with a v": (changed(kubernetes_version="v1.35.4"), "without a 'v'"),
    "a version that is too old": (changed(kubernetes_version="1.32.0"), "use 1.33 to 1.35"),
    "a version that is too new": (changed(kubernetes_version="1.36.0"), "use 1.33 to 1.35"),
    "a patch that kubespray has no checksum of": (changed(kubernetes_version="1.34.99"), "use 1.34.7 or older"),
    "an older kubespray, whose Ansible is another": (changed(kubespray=Kubespray(version="v2.30.0")), "use v2.31.0"),
    "a kubespray that nobody has seen": (changed(kubespray=Kubespray(version="v2.99.0")), "use v2.31.0"),
    "a move from the machine that runs kubespray": (changed(moved_from="here"), "name the one that ran it before"),
    "a move from the same bastion": (changed(runner=BASTION, moved_from=BASTION), "name the one that ran it before"),
    "no percentage": (changed(image_gc=ImageGc(high_percent=101)), "image_gc.high_percent: 101 is not a percentage"),
    "images that are never removed": (
        changed(image_gc=ImageGc(high_percent=75)),
        "image_gc.low_percent: 80 is not below the high threshold, 75",
    ),
    "no forks": (changed(forks=0), "forks: 0 is too small; use 1 or more"),
    "a proxy mode": (changed(proxy_mode="ebpf"), "proxy_mode: 'ebpf'"),
    "a container manager": (changed(container_manager="podman"), "container_manager: 'podman'"),
    "a network plugin": (changed(network_plugin="weave"), "network_plugin: 'weave'"),
    "an encapsulation": (changed(calico=Calico(encapsulation="gre")), "calico.encapsulation: 'gre'"),  # type: ignore[arg-type]
    "an MTU": (changed(calico=Calico(mtu=900)), "calico.mtu: 900"),
    "etcd in docker": (changed(etcd_deployment="docker"), "requires container_manager docker"),
    "NVIDIA without containerd": (
        changed(nvidia_runtime=NvidiaRuntime(), container_manager="crio"),
        "use containerd",
    ),
    "a URL in place of a host": (changed(api_server="https://k8s.example"), "a host, or a host and a port"),
    "a port": (changed(api_server="k8s.example:70000"), "has an invalid port"),
    "a group": (changed(variables={"kube-master": {"a": 1}}), "variables.kube-master: is not a group"),
    "a name of a variable": (changed(variables={"all": {"a-b": 1}}), "not a valid variable name"),
    "the harmful variable": (changed(variables={"all": {"nvidia_accelerator_enabled": True}}), "driver from 2018"),
    "a variable that is secret and is not": (
        changed(variables={"all": {"password": 1}}, secret_variables={"password": "x"}),
        "is also a secret variable",
    ),
    "no time to drain": (changed(drain_seconds=0), "drain_seconds: 0"),
    "negative grace": (changed(drain_grace_seconds=-2), "drain_grace_seconds: -2"),
    "a generation": (changed(kubeconfig_generation=0), "kubeconfig_generation: 0"),
    "a serial": (changed(upgrade_serial="0"), "upgrade_serial: '0'"),
    "pods in the network of services": (
        changed(variables={"all": {"kube_pods_subnet": "10.233.0.0/16"}}),
        "variables.all.kube_pods_subnet: 10.233.0.0/16 overlaps with kube_service_addresses (10.233.0.0/18)",
    ),
    "pods in the network of machines": (
        changed(variables={"k8s_cluster": {"kube_pods_subnet": "198.51.100.0/24"}}),
        "nodes[5].address: the address 198.51.100.21 of mi300x-santa-clara-1 is inside kube_pods_subnet",
    ),
    "a machine among services": (
        but(internal_address="10.233.1.1"),
        "is inside kube_service_addresses (10.233.0.0/18)",
    ),
    "no network": (
        changed(variables={"k8s_cluster": {"kube_service_addresses": "10.96.0.1/12"}}),
        "kube_service_addresses: '10.96.0.1/12' is not an IPv4 network",
    ),
    "a network without a prefix": (
        changed(variables={"all": {"kube_pods_subnet": "10.96.0.0"}}),
        "is not an IPv4 network",
    ),
    "no network of IPv6": (
        changed(variables={"all": {"ipv6_stack": True, "kube_pods_subnet_ipv6": "10.0.0.0/8"}}),
        "is not an IPv6 network",
    ),
    "a node's part that is larger than the whole": (
        changed(variables={"all": {"kube_network_node_prefix": 16}}),
        "kube_network_node_prefix: 16 does not fit kube_pods_subnet",
    ),
    "a network of some machines": (
        changed(variables={"kube_node": {"kube_pods_subnet": "10.96.0.0/16"}}),
        "variables.kube_node.kube_pods_subnet: applies to the whole cluster",
    ),
    "a secret name of the cluster": (changed(secret_variables={"cluster_name": "x"}), "applies to the whole cluster"),
    "certificates from elsewhere": (
        changed(variables={"all": {"kube_external_ca_mode": True}}),
        "auto_renew_certificates: is enabled, but with kube_external_ca_mode",
    ),
    "a lost node that is there": (changed(lost=[WORKER]), "is still in nodes"),
}


def test_a_patch_of_a_release_that_is_not_recorded_is_left_to_kubespray() -> None:
    newer = changed(kubespray=Kubespray(version="v2.31.9"), kubernetes_version="1.34.99")
    own = changed(variables={"all": {"kubelet_checksums": {}}}, kubernetes_version="1.34.99")
    assert [*cluster_problems(newer), *cluster_problems(own)] == []


def test_document_000_is_allowed() -> None:
    assert problems_of(DOCUMENT_000) == []


@pytest.mark.parametrize(("args", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_is_refused_in_one_line_that_says_what_to_do(args: KubesprayClusterArgs, said: str) -> None:
    found = problems_of(args)
    assert [line for line in found if said in line], found
    assert all("\n" not in line and ": " in line for line in found)


@pytest.mark.parametrize("variable", sorted(CLUSTER_ARGUMENTS))
def test_a_variable_that_an_argument_stands_for_is_refused_everywhere(variable: str) -> None:
    argument = CLUSTER_ARGUMENTS[variable]
    assert hasattr(DOCUMENT_000, argument)
    for args in (
        changed(variables={"all": {variable: "x"}}),
        changed(variables={"kube_node": {variable: "x"}}),
        changed(secret_variables={variable: "x"}),
        with_node(WORKER, variables={variable: "x"}),
    ):
        assert (
            len([line for line in problems_of(args) if f"{variable}: is set by the argument {argument};" in line]) == 1
        )


@pytest.mark.parametrize("variable", sorted(HOST_ARGUMENTS))
def test_a_variable_of_a_host_that_an_argument_stands_for_is_refused(variable: str) -> None:
    index = [each.name for each in DOCUMENT_000.nodes].index(WORKER)
    (line,) = problems_of(with_node(WORKER, variables={variable: "x"}))
    assert line.startswith(f"nodes[{index}].variables.{variable}: is set by the argument {HOST_ARGUMENTS[variable]};")


def test_no_refusal_shows_a_secret() -> None:
    key = dataclasses.replace(LOGIN, private_key="hunter2", agent_socket="/run/agent")
    args = changed(login=key, secret_variables={"kube_version": "hunter2"})
    assert problems_of(args)
    assert "hunter2" not in "\n".join(problems_of(args))


def test_roles_of_kubeadm_need_no_etcd_group() -> None:
    args = changed(etcd_deployment="kubeadm", nodes=[node("a", "192.0.2.1", "control_plane", "worker")])
    assert problems_of(args) == []


# -- what it cannot become --------------------------------------------------------------------------------------------

FIVE = [node(f"n{number}", f"192.0.2.{number}", "control_plane", "etcd") for number in range(1, 6)]

CHANGES: dict[str, tuple[KubesprayClusterArgs, KubesprayClusterArgs, str | None]] = {
    "nothing": (DOCUMENT_000, DOCUMENT_000, None),
    "a worker more": (DOCUMENT_000, changed(nodes=[*DOCUMENT_000.nodes, node("w", "192.0.2.50")]), None),
    "a worker first": (DOCUMENT_000, changed(nodes=[node("w", "192.0.2.50"), *DOCUMENT_000.nodes]), None),
    "a worker less": (DOCUMENT_000, changed(nodes=DOCUMENT_000.nodes[:-1]), None),
    "a worker's label": (DOCUMENT_000, with_node(WORKER, labels={}), None),
    "a worker's SSH address": (DOCUMENT_000, with_node(WORKER, address="192.0.2.50"), None),
    "a worker's own address": (DOCUMENT_000, with_node(WORKER, internal_address="10.0.0.9"), "ip changes from None"),
    "two etcd members less": (changed(nodes=FIVE), changed(nodes=FIVE[:3]), None),
    "two etcd members more": (changed(nodes=FIVE[:3]), changed(nodes=FIVE), None),
    "the first gone": (changed(nodes=FIVE), changed(nodes=FIVE[2:]), "n1 is the first node of kube_control_plane"),
    "another order": (changed(nodes=FIVE), changed(nodes=[FIVE[1], FIVE[0], *FIVE[2:]]), "the order of nodes in"),
    "a new one in front": (changed(nodes=FIVE[2:]), changed(nodes=FIVE), "precedes an existing one"),
    "etcd exchanged": (changed(nodes=FIVE[:3]), changed(nodes=[*FIVE[:2], FIVE[4]]), "gains n5 and loses n3 at once"),
    "a role gone": (
        DOCUMENT_000,
        with_node("control-austin-3", roles=("etcd", "worker")),
        "no longer has the role control_plane",
    ),
    "a worker becomes etcd": (
        changed(nodes=[FIRST, *WORKERS]),
        changed(
            nodes=[FIRST, *(dataclasses.replace(each, roles=("worker", "etcd")) for each in WORKERS[:2]), WORKERS[2]]
        ),
        "which kubespray only gives to new nodes",
    ),
    "a control plane works too": (
        DOCUMENT_000,
        with_node("control-austin-3", roles=("control_plane", "etcd", "worker")),
        None,
    ),
    "one minor": (changed(kubernetes_version="1.34.3"), DOCUMENT_000, None),
    "two minors": (changed(kubernetes_version="1.33.0"), DOCUMENT_000, "more than one minor version after 1.33.0"),
    "backwards": (DOCUMENT_000, changed(kubernetes_version="1.34.3"), "is older than 1.35.4"),
    "backwards by a patch": (DOCUMENT_000, changed(kubernetes_version="1.35.3"), "is older than 1.35.4"),
}


@pytest.mark.parametrize(("before", "after", "said"), CHANGES.values(), ids=list(CHANGES))
def test_changes(before: KubesprayClusterArgs, after: KubesprayClusterArgs, said: str | None) -> None:
    assert problems_of(before) == []
    assert problems_of(after) == []
    found = [str(problem) for problem in change_problems(after, grown(before))]
    assert (found == []) if said is None else any(said in line for line in found), found


def test_kubespray_is_upgraded_by_one_minor_version() -> None:
    before = grown(changed(kubespray=Kubespray(version="v2.29.1")))
    (problem,) = change_problems(DOCUMENT_000, before)
    assert str(problem).startswith("kubespray.version: v2.31.0 is more than one minor version after v2.29.1")


@given(args=clusters(), data=st.data())
def test_only_what_is_special_about_a_node_keeps_it(args: KubesprayClusterArgs, data: st.DataObject) -> None:
    """A worker can always go; the first of a group never can."""
    each = data.draw(st.sampled_from(list(args.nodes)))
    after = dataclasses.replace(args, nodes=[other for other in args.nodes if other is not each])
    if list(each.roles) == ["worker"]:
        assert [*change_problems(after, grown(args))] == []
    elif args.nodes[0] is each:
        assert [*change_problems(after, grown(args))]


# -- what is unwise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("roles", "said"), [(("etcd",), ["etcd"]), (("control_plane",), ["control_plane"])])
def test_what_spans_sites(roles: tuple[str, ...], said: list[str]) -> None:
    nodes = [
        node("a", "192.0.2.1", "control_plane", "etcd", site="austin"),
        *(node(name, f"192.0.2.{n}", *roles, site="santa-clara") for n, name in ((2, "b"), (3, "c"))),
    ]
    found = [*site_findings(changed(nodes=nodes, proxy_mode="nftables"))]
    assert [problem.message.split()[0] for problem in found] == said
    assert all("austin, santa-clara" in problem.message for problem in found)


def test_workers_may_span_sites_if_their_packets_are_wrapped() -> None:
    assert not [*site_findings(changed(proxy_mode="nftables"))]
    (finding,) = site_findings(changed(proxy_mode="nftables", calico=Calico(encapsulation="none")))
    assert "routes pod addresses" in finding.message
