"""`gpufleet hosts` over real SSH servers: the declared machines, with the declared login, and how it ends."""

from __future__ import annotations

import pathlib

import pytest

from tests.bare_metal import HOST_KEY
from tests.conftest import Gpufleet, MakeProject
from tests.hosts.namespaces import Host, Hosts

STACK = """
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: lab
    kubeconfig: {kind: context, context: lab}
%(ssh)s
    nodePools:
      mi300x:
        accelerator: {vendor: amd, model: MI300X, count: 8}
        allocatable: {cpu: 96, memory: 1600Gi, ephemeralStorage: 800Gi}
        nodes:
%(nodes)s
  gpu-runners:projects:
    ml:
      configUrl: https://github.com/example
      namespace: ml
      credentials: {kind: existingSecret, secretName: ml-github}
  gpu-runners:runners: {}
"""


def entry(host: Host, **changes: object) -> str:
    said = {"address": host.ssh.address, "port": host.ssh.port, "hostKeys": [*host.ssh.host_keys]} | changes
    return f"          {host.ssh.name}: {said}"


@pytest.fixture
def identity(hosts: Hosts, tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "identity"
    file.touch(mode=0o600)
    file.write_text(str(hosts.login.private_key))
    return file


def said(hosts: Hosts, *nodes: str) -> str:
    return STACK % {"ssh": f"    ssh: {{user: {hosts.login.user}}}", "nodes": "\n".join(nodes)}


def test_every_machine_has_a_row(
    hosts: Hosts, identity: pathlib.Path, project: MakeProject, gpufleet: Gpufleet
) -> None:
    whole, bare = hosts.start("node-1"), hosts.start("node-2")
    whole.add_gpus(vendor="0x1002", pci_class="0x120000", count=8, module="amdgpu", render_gid=110)
    root = project({"lab": said(hosts, entry(whole), entry(bare))})
    ended = gpufleet("-C", root, "hosts", "lab", "--identity", identity)
    assert (ended.code, ended.err) == (1, "")
    rows = ended.out.split("node-2")
    assert "8 AMD" in rows[0]
    assert "gpus:" not in rows[0]
    assert "gpus: 0 of AMD" in " ".join(rows[1].split())
    assert ended.out.splitlines()[-1].startswith("2 machines asked, ")


def test_a_machine_that_shows_another_key_is_a_finding(
    hosts: Hosts, identity: pathlib.Path, project: MakeProject, gpufleet: Gpufleet
) -> None:
    host = hosts.start("node-1")
    root = project({"lab": said(hosts, entry(host, hostKeys=[HOST_KEY]))})
    ended = gpufleet("-C", root, "hosts", "lab", "--identity", identity)
    assert ended.code == 1
    assert "shows another host key" in " ".join(ended.out.split())
    assert ended.out.splitlines()[-1] == "1 machine asked, 1 with something to be done"
