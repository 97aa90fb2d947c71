"""`gpufleet hosts` over real SSH servers: the declared machines, with the declared login, and how it ends."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.bare_metal import HOST_KEY
from tests.conftest import Gpufleet, MakeProject, Outcome
from tests.hosts import package_repository
from tests.hosts.base_layer import BaseLayer
from tests.hosts.namespaces import Host, Hosts
from tests.hosts.sound import make_sound
from tests.hosts.test_nvidia_container_toolkit import DRIFT, NEWER, PINNED, Toolkit, on_a_host

STACK = """
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: lab
    kubeconfig: {kind: context, context: lab}
%(cluster)s
    nodePools:
      machines:
        accelerator: {vendor: %(vendor)s, model: any, count: 8}
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


def identity_of(hosts: Hosts, folder: pathlib.Path) -> pathlib.Path:
    file = folder / "identity"
    file.touch(mode=0o600)
    file.write_text(hosts.private_key)
    return file


@pytest.fixture
def identity(hosts: Hosts, tmp_path: pathlib.Path) -> pathlib.Path:
    return identity_of(hosts, tmp_path)


def said(hosts: Hosts, *nodes: str, vendor: str = "amd", **sections: object) -> str:
    cluster = {"ssh": {"user": hosts.login.user}} | sections
    text = "\n".join(f"    {name}: {json.dumps(section)}" for name, section in cluster.items())
    return STACK % {"cluster": text, "nodes": "\n".join(nodes), "vendor": vendor}


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
    assert "gpus: 0 AMD GPUs" in " ".join(rows[1].split())
    assert ended.out.splitlines()[-1].startswith("2 machines surveyed, ")


def test_a_machine_that_shows_another_key_is_a_finding(
    hosts: Hosts, identity: pathlib.Path, project: MakeProject, gpufleet: Gpufleet
) -> None:
    host = hosts.start("node-1")
    root = project({"lab": said(hosts, entry(host, hostKeys=[HOST_KEY]))})
    ended = gpufleet("-C", root, "hosts", "lab", "--identity", identity)
    assert ended.code == 1
    assert "the host key differs" in " ".join(ended.out.split())
    assert ended.out.splitlines()[-1] == "1 machine surveyed, 1 with something to fix"


# -- the container toolkit --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toolkit(
    host_layer: BaseLayer, toolkit_packages: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Toolkit]:
    """A sound host with eight GPUs and the toolkit at its version."""
    with (
        Hosts(tmp_path_factory.mktemp("toolkit"), host_layer) as hosts,
        package_repository.served(toolkit_packages, hosts.machine_address) as repository,
    ):
        made = on_a_host(hosts, repository)
        make_sound(made.host)
        made.host.add_gpus(vendor="0x10de", pci_class="0x030200", count=8, module="nvidia", render_gid=None)
        yield made


@pytest.fixture
def machine_asked(
    toolkit: Toolkit,
    tmp_path: pathlib.Path,
    project: MakeProject,
    gpufleet: Gpufleet,
) -> Callable[[], Outcome]:
    """The whole command, on a stack whose only machine is that host."""
    section = {
        "nvkind": True,
        "version": PINNED,
        "repository": toolkit.args.repository,
        "keyUrl": toolkit.args.key_url,
        "keySha256": toolkit.args.key_sha256,
    }
    nodes = entry(toolkit.host)
    root = project({"lab": said(toolkit.hosts, nodes, vendor="nvidia", nvidiaContainerToolkit=section)})
    identity = identity_of(toolkit.hosts, tmp_path)
    return lambda: gpufleet("-C", root, "hosts", "lab", "--identity", identity)


def to_be_done(ended: Outcome) -> list[str]:
    """What the table has to fix on its only machine."""
    header, *rows = ended.out.splitlines()[:-1]
    column = header.index("to fix")
    return [row[column:].strip() for row in rows]


@pytest.mark.parametrize("drift", ["one hold removed", "packages upgraded by hand", "setting turned off"])
def test_a_toolkit_that_has_drifted_is_a_finding_until_it_is_repaired(
    toolkit: Toolkit, machine_asked: Callable[[], Outcome], drift: str
) -> None:
    toolkit.install()
    ended = machine_asked()
    assert (ended.code, ended.err, to_be_done(ended)) == (0, "", ["nothing"])
    assert ended.out.splitlines()[-1] == "1 machine surveyed, 0 with something to fix"
    command, deviation, _ = DRIFT[drift]
    toolkit.host.run("sh", "-ec", command)
    ended = machine_asked()
    assert (ended.code, ended.err) == (1, "")
    lines = to_be_done(ended)
    assert [line for line in lines if line.startswith(f"nvidia-container-toolkit: {deviation}")]
    assert [line for line in lines if not line.startswith("nvidia-container-toolkit: ")] == []
    assert ended.out.splitlines()[-1] == "1 machine surveyed, 1 with something to fix"


def test_asking_repairs_nothing(toolkit: Toolkit, machine_asked: Callable[[], Outcome]) -> None:
    toolkit.install()
    toolkit.apt("install", "--allow-change-held-packages", f"libnvidia-container1={NEWER}")
    states = toolkit.states()
    assert (machine_asked().code, machine_asked().code) == (1, 1)
    assert toolkit.states() == states
