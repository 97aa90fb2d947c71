"""`gpufleet hosts` on stack files that do not say how machines are reached: nobody is asked."""

from __future__ import annotations

import pathlib

import pytest

from gpufleet.bare_metal.preflight.needs import GpuNeeds, HostNeeds
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.problems import InvalidSettings
from gpufleet_tools.hosts import declared as declared_hosts
from gpufleet_tools.hosts import needs
from gpufleet_tools.hosts.paths import Peer
from gpufleet_tools.plan import stack
from tests.conftest import ROOT, Gpufleet, MakeProject

MI300 = (ROOT / "Pulumi.mi300.yaml").read_text()
SMALLEST = (ROOT / "tests/settings/smallest.ok.yaml").read_text()
LOGIN = SMALLEST.replace("    nodePools:", "    ssh: {user: ci}\n    nodePools:", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALLEST, "cluster.ssh: is missing; add the user who logs in to the machines: ssh: {user: NAME}"),
        (LOGIN, "hostKeys: is empty; read a key on the host's own console: cat /etc/ssh/ssh_host_ed25519_key.pub"),
        ((ROOT / "Pulumi.dev.yaml").read_text(), "cluster.kind: eks has no declared machines"),
    ],
    ids=["no login", "no host keys", "not on machines"],
)
def test_what_is_missing_is_said(text: str, message: str, project: MakeProject, tmp_path: pathlib.Path) -> None:
    key = tmp_path / "key"
    key.write_text("not a key\n")
    read = stack.read(project({"lab": text}), "lab")
    with pytest.raises(InvalidSettings) as raised:
        declared_hosts.surveyed(read, key, 1)
    assert message in str(raised.value)
    assert "Pulumi.lab.yaml:" in str(raised.value)


def test_without_a_key_it_says_what_to_do(
    project: MakeProject, gpufleet: Gpufleet, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    root = project({"mi300": MI300})
    ended = gpufleet("-C", root, "hosts", "mi300")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("gpufleet: there is neither an SSH agent nor ~/.ssh/id_ed25519")
    ended = gpufleet("-C", root, "hosts", "mi300", "--identity", tmp_path / "none")
    assert ended.code == 2
    assert "No such file" in ended.err


def test_machines_are_needed_for_what_they_are() -> None:
    settings = stack.read(ROOT, "mi300").settings
    assert isinstance(settings, BareMetalSettings)
    (pool,) = settings.cluster.node_pools.values()
    node = pool.nodes["mi300x-austin-1"].model_copy(update={"internal_address": "10.0.0.1"})
    assert needs.needs_of(settings, "mi300x-austin-1", node, pool) == HostNeeds(
        address="10.0.0.1",
        foreign_hostnames=frozenset({"mi300x-austin-2", "mi300x-santa-clara-1"}),
        architectures=frozenset({"x86_64"}),
        container_manager="containerd",
        modules=frozenset({"br_netfilter", "ip_vs"}),
        cores=190,
        pod_memory_mib=2200 * 1024,
        pod_disk_gib=3400,
        memory_mib=1500,
        gpu=GpuNeeds(
            vendor="amd",
            count=8,
            model="MI300X",
            compute_partition="SPX",
            memory_partition="NPS1",
            validated=True,
            render_gids=frozenset({110}),
        ),
    )
    peer = needs.peer_of("mi300x-austin-1", node, pool, settings.cluster.kubespray)
    assert peer == Peer(
        name="mi300x-austin-1",
        address="10.0.0.1",
        roles=frozenset({"control_plane", "etcd", "worker"}),
        site="austin",
    )


def test_a_cluster_that_exists_needs_the_names_of_its_nodes() -> None:
    settings = stack.read(ROOT, "mi300").settings
    assert isinstance(settings, BareMetalSettings)
    existing = settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"kubespray": None})})
    (pool,) = existing.cluster.node_pools.values()
    worker = pool.nodes["mi300x-austin-1"].model_copy(update={"roles": ("worker",)})
    found = needs.needs_of(existing, "mi300x-austin-1", worker, pool)
    assert (found.hostname, found.memory_mib, found.container_manager) == ("mi300x-austin-1", 1024, None)
    assert (found.modules, needs.heartbeat_milliseconds(None)) == (frozenset(), 250)
