"""A fleet of ten hosts with ten faults: each is named in one line, at its host."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping

import pytest

from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet.bare_metal.preflight.needs import HostNeeds
from gpufleet.gpu_validation import Result
from gpufleet_tools.hosts.survey import Survey, survey
from tests.conftest import Gpufleet, MakeProject
from tests.hosts.namespaces import Host, Hosts
from tests.hosts.sound import add_mi300x, make_sound, write
from tests.hosts.test_declared_hosts import entry, identity_of

FLEET = """
config:
  gpu-runners:cluster:
    kind: bareMetal
    name: lab
    kubeconfig: {kind: kubespray}
    ssh: {user: ci}
    kubespray: {kubernetesVersion: 1.35.4, proxyMode: ipvs}
    nodePools:
      mi300x:
        accelerator: {vendor: amd, model: MI300X, count: 8}
        allocatable: {cpu: 190, memory: 2200Gi, ephemeralStorage: 3400Gi}
        nodes:
%s
  gpu-runners:projects:
    ml:
      configUrl: https://github.com/example
      namespace: ml
      credentials: {kind: existingSecret, secretName: ml-github}
  gpu-runners:profiles:
    rocm: {renderGroup: 110}
  gpu-runners:runners:
    linux-mi300-gpu-1: {project: ml, profile: rocm, gpus: 1, cpu: 16, memory: 200Gi, min: 0, max: 8}
"""

BLOCK = """
ip rule add pref 50 ipproto tcp dport 10250 prohibit
ip rule add pref 100 lookup local
ip rule del pref 0
"""
"""Refuses connections to the kubelet with ICMP, as `reject` of a firewall does."""

LATE_DATE = '#!/bin/sh\nif [ "$*" = +%s.%N ]; then /usr/bin/date -d "1 hour ago" "$@"; fi\n'

SLOW_DD = """\
#!/bin/sh
echo '100+0 records in
100+0 records out
230000 bytes (230 kB, 225 KiB) copied, 2.41 s, 95.4 kB/s' >&2
"""

GPU_FAULTS: Mapping[str, tuple[dict[str, str], int]] = {
    "node-3": ({}, 7),
    "node-4": ({"product_name": "AMD Instinct MI325X"}, 8),
    "node-5": ({"current_compute_partition": "CPX"}, 8),
}
"""Files of GPUs that differ, and the number of GPUs."""

FAULTS: Mapping[str, tuple[Callable[[Hosts, Host], object], str]] = {
    "node-1": (
        lambda _, host: write(host, "/usr/local/bin/dd", SLOW_DD),
        "etcd disk: a synchronous write takes 24 ms on average, etcd requires 10 ms; put",
    ),
    "node-2": (
        lambda _, host: write(host, "/srv/meminfo", "MemTotal: 8388608 kB\nSwapTotal: 0 kB\n"),
        "memory: 8 GiB; pods are promised 2200 GiB; replace faulty modules",
    ),
    "node-3": (lambda *_: None, "gpus: 7 AMD GPUs on the PCI bus, expected 8; reseat them"),
    "node-4": (lambda *_: None, "gpus: AMD Instinct MI325X, declared is MI300X; correct accelerator.model"),
    "node-5": (lambda *_: None, "partition: compute partition is CPX, declared is SPX; run: amd-smi set"),
    "node-6": (
        lambda hosts, host: write(host, "/etc/machine-id", hosts.started["node-2"].path("/etc/machine-id").read_text()),
        "machine-id: the same as of node-2, as of a cloned disk; remedy: rm /etc/machine-id",
    ),
    "node-7": (lambda _, host: host.run("sh", "-ec", BLOCK), "ports: 10250 (kubelet) cannot be reached from node-1;"),
    "node-8": (
        lambda hosts, host: hosts.narrow(host, 1400),
        "mtu: packets of 1500 bytes get lost between it and node-7, node-9, those of 1400 arrive; correct",
    ),
    "node-9": (lambda _, host: write(host, "/usr/local/bin/date", LATE_DATE), "clock: is 3"),
    "node-10": (
        lambda _, host: write(host, "/etc/os-release", "ID=ubuntu\nVERSION_ID=20.04\n"),
        "os: ubuntu 20.04 is not supported; install one of",
    ),
}
"""What breaks each host, and how its line begins."""


def lines_by_host(out: str) -> dict[str, list[str]]:
    """The lines of the last column, by host."""
    header, *rows = out.splitlines()[:-1]
    column, found, name = header.index("to fix"), dict[str, list[str]](), ""
    for row in rows:
        name = row.split(" ")[0] or name
        found.setdefault(name, []).append(row[column:].strip())
    return found


def test_ten_faults_of_ten_hosts_are_ten_lines(
    hosts: Hosts, project: MakeProject, gpufleet: Gpufleet, tmp_path: pathlib.Path
) -> None:
    for name in FAULTS:
        host = hosts.start(name)
        make_sound(host)
        changes, count = GPU_FAULTS.get(name, ({}, 8))
        add_mi300x(host, count, changes)
    for name, (break_it, _) in FAULTS.items():
        break_it(hosts, hosts.started[name])
    nodes = "\n".join(
        entry(host, roles=["control_plane", "etcd", "worker"] if name == "node-1" else ["worker"])
        for name, host in hosts.started.items()
    )
    root = project({"lab": FLEET % nodes})
    ended = gpufleet("-C", root, "hosts", "lab", "--identity", identity_of(hosts, tmp_path))
    assert (ended.code, ended.err) == (1, "")
    found = lines_by_host(ended.out)
    assert [*found] == [*FAULTS]
    for name, (_, expected) in FAULTS.items():
        (line,) = found[name]
        assert line.startswith(expected), name
    assert ended.out.splitlines()[-1] == "10 machines surveyed, 10 with something to fix"


def three_sound_hosts(hosts: Hosts, project: MakeProject) -> pathlib.Path:
    """Starts them, and returns the folder of a project that declares them."""
    for name in ("node-1", "node-2", "node-3"):
        make_sound(host := hosts.start(name))
        add_mi300x(host)
    nodes = "\n".join(entry(host, roles=["control_plane", "etcd", "worker"]) for host in hosts.started.values())
    return project({"lab": FLEET % nodes})


def test_a_sound_fleet_has_nothing_to_fix(
    hosts: Hosts, project: MakeProject, gpufleet: Gpufleet, tmp_path: pathlib.Path
) -> None:
    root = three_sound_hosts(hosts, project)
    ended = gpufleet("-C", root, "hosts", "lab", "--identity", identity_of(hosts, tmp_path))
    assert (ended.code, ended.err) == (0, "")
    assert lines_by_host(ended.out) == {name: ["nothing"] for name in hosts.started}
    assert "not measured" not in ended.out


def test_an_unreachable_host_is_one_line_and_not_a_path_of_the_others(
    hosts: Hosts, project: MakeProject, gpufleet: Gpufleet, tmp_path: pathlib.Path
) -> None:
    root = three_sound_hosts(hosts, project)
    hosts.started["node-2"].stop()
    ended = gpufleet("-C", root, "hosts", "lab", "--identity", identity_of(hosts, tmp_path))
    found = lines_by_host(ended.out)
    assert found["node-1"] == found["node-3"] == ["nothing"]
    (line,) = found["node-2"]
    assert line.startswith("ssh: ")


LSPCI = """\
#!/bin/sh
echo '3d:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
	Capabilities: [150 v1] Access Control Services
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
3d:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
		ACSCtl:	SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-'
"""
"""In the format of lspci (cap_acs in ls-ecaps.c of pciutils)."""

CERTIFICATES = """
mkdir -p /etc/kubernetes/ssl
cd /etc/kubernetes/ssl
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -days 20 \
  -keyout apiserver.key -out apiserver.crt
chmod 600 apiserver.crt
"""


@pytest.fixture
def facts(hosts: Hosts) -> HostFacts:
    """Facts of a host that has everything that the script looks for."""
    make_sound(host := hosts.start("node-1"))
    add_mi300x(host, changes={"iommu_group/type": "DMA-FQ", "numa_node": "-1"})
    write(host, "/usr/local/bin/lspci", LSPCI)
    write(host, "/opt/rocm/.info/version", "6.4.1-83\n")
    write(host, "/srv/stand-ins/module/amdgpu/version", "6.12.12\n")
    write(
        host, "/run/gpufleet/gpu-validation", "result=failed\nat=1790000000\nlevel=quick\ngpus=8\nfault=a; b\nfault=c\n"
    )
    host.run("sh", "-ec", CERTIFICATES)
    (report,) = survey([host.ssh], Survey(hosts.login, {"node-1": HostNeeds(kubernetes=False)}))
    assert report.facts
    return report.facts


def test_the_script_finds_every_fact(facts: HostFacts) -> None:
    assert (facts.cores, facts.modules, facts.modules_installed) == (192, ("br_netfilter", "ip_vs"), True)
    assert len(facts.machine_id) == 32
    assert (*facts.gpu_models, facts.kfd) == ("AMD Instinct MI300X OAM", True)
    assert (facts.driver_amdgpu, facts.rocm) == ("6.12.12", "6.4.1")
    assert (*facts.compute_partitions, *facts.memory_partitions) == ("SPX", "NPS1")
    assert (*facts.gpu_iommu, facts.gpus_without_numa_node, facts.acs_redirecting) == ("DMA-FQ", 8, 1)
    assert facts.numa_nodes >= 1
    assert facts.gpu_validation == Result(passed=False, at=1790000000, level="quick", gpus=8, faults=("a; b", "c"))
    ((file, end),) = facts.certificates.items()
    assert file == "/etc/kubernetes/ssl/apiserver.crt"
    assert 19 < (end - facts.clock) / 86400 < 21
