"""Facts of hosts and the rules about them. That the script finds the facts is tried on hosts."""

from __future__ import annotations

import dataclasses
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.bare_metal import GpuNeeds, HostFacts, HostNeeds
from gpufleet.bare_metal.preflight.facts import parse_facts, preflight_script
from gpufleet.bare_metal.preflight.needs import GIB, MIB
from gpufleet.bare_metal.preflight.rules import preflight_failures
from gpufleet.gpu_validation import Result, parse_result

PRINTED = """\
Welcome to gpu-1. Tip of the day: x=1
clock=1790000000.5
root=yes
hostname=gpu-1
machine_id=3d1219c7c4c5404aaa1f6d2a48adfda4
product_uuid=4c4c4544-0051-3510-8052-b4c04f4d3732
os=ubuntu
os_version=22.04
kernel=6.8.0-60-generic
modules_installed=yes
modules=br_netfilter ip_vs overlay
architecture=x86_64
cgroup=cgroup2fs
cores=192
memory_kib=2640000000
swap_kib=0
disk_kib=3700000000
disk_free_kib=900000000
addresses=127.0.0.1 ::1 192.0.2.1
nameserver=127.0.0.53
containerd=2.2.3
docker=
certificates=Jan 22 17:38:01 2027 GMT=/etc/kubernetes/ssl/apiserver.crt;Nov 22 17:38:01 2126 GMT=/etc/ssl/etcd/ca.pem;
snapshots=yes
last_snapshot=1789990000
gpus_amd=8
gpus_nvidia=0
gpu_models=AMD Instinct MI300X OAM;
module_amdgpu=yes
module_nvidia=no
driver_amdgpu=6.12.12
driver_nvidia=
rocm=6.4.1
kfd=yes
render_gid=110
compute_partitions=SPX;
memory_partitions=NPS1;
gpu_iommu=identity;
gpus_without_numa_node=0
numa_nodes=2
numa_balancing=0
acs_redirecting=0
gpu_validation=result=passed|at=1789999000|level=medium|gpus=8|
complete=yes
"""

GOOD = parse_facts(PRINTED)
FAILED = parse_result("result=failed\nat=1\nlevel=quick\ngpus=8\nfault=ras: GPU A; reboot\n")
GPUS = GpuNeeds(
    vendor="amd",
    count=8,
    model="MI300X",
    compute_partition="SPX",
    memory_partition="NPS1",
    render_gids=frozenset({110}),
    validated=True,
)
NEEDS = HostNeeds(
    address="192.0.2.1",
    foreign_hostnames=frozenset({"gpu-2"}),
    container_manager="containerd",
    modules=frozenset({"br_netfilter", "ip_vs"}),
    cores=190,
    pod_memory_mib=2200 * 1024,
    pod_disk_gib=3400,
    snapshot_hours=6,
    gpu=GPUS,
)


def failures(needs: HostNeeds = NEEDS, skew_seconds: float | None = 0, **facts: Any) -> list[str]:
    return preflight_failures(dataclasses.replace(GOOD, **facts), needs, skew_seconds=skew_seconds)


def test_facts_are_read_whatever_a_host_greets_with() -> None:
    assert GOOD.clock == 1790000000.5
    assert GOOD.addresses == ("127.0.0.1", "::1", "192.0.2.1")
    assert (GOOD.gpus_amd, GOOD.module_amdgpu, GOOD.render_gid) == (8, True, 110)
    assert (*GOOD.gpu_models, GOOD.modules[0]) == ("AMD Instinct MI300X OAM", "br_netfilter")
    assert GOOD.certificates["/etc/kubernetes/ssl/apiserver.crt"] == 1800639481
    assert parse_facts(PRINTED.replace("render_gid=110", "render_gid=")).render_gid is None
    assert GOOD.gpu_validation == Result(passed=True, at=1789999000, level="medium", gpus=8, faults=())


@pytest.mark.parametrize("lines", range(PRINTED.count("\n")))
def test_facts_that_break_off_are_no_facts(lines: int) -> None:
    with pytest.raises(ValueError, match="facts are missing"):
        parse_facts("".join(PRINTED.splitlines(keepends=True)[:lines]))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(HostFacts)])
def test_each_fact_is_needed_and_is_looked_for_by_the_script(name: str) -> None:
    with pytest.raises(ValueError, match=f"the fact {name} is missing"):
        parse_facts("".join(line + "\n" for line in PRINTED.splitlines() if not line.startswith(f"{name}=")))
    assert f"fact {name} " in preflight_script()


@pytest.mark.process
@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("containerd github.com/containerd/containerd v1.7.24 88bf19b2105c8b17560993bee28a01ddc2f97182", "1.7.24"),
        ("containerd github.com/containerd/containerd/v2 v2.2.3 1c4457e00facac03ce1d75f7b6777a7a851e5c41", "2.2.3"),
        ("containerd github.com/containerd/containerd 1.7.12 ", "1.7.12"),
        ("Docker version 28.2.2, build 28.2.2-0ubuntu1~24.04.1", "28.2.2"),
        ("Docker version 26.1.3, build b72abbb", "26.1.3"),
        ("570.86.10", "570.86.10"),
        ("", ""),
        ("command not found", ""),
    ],
)
def test_a_version_is_found_among_the_words_that_engines_print(printed: str, expected: str) -> None:
    script = preflight_script().replace("main </dev/null", "version")
    done = subprocess.run(["sh", "-c", script], input=f"{printed}\n", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@given(st.integers(0, PRINTED.count("\n") - 1), st.text(max_size=20))
def test_whatever_a_host_prints_is_facts_or_one_line(line: int, value: str) -> None:
    lines = PRINTED.splitlines(keepends=True)
    name = lines[line].partition("=")[0]
    lines[line] = f"{name}={value}\n"
    try:
        said = preflight_failures(parse_facts("".join(lines)), NEEDS)
    except ValueError as error:
        said = [str(error)]
    assert all("\n" not in each for each in said)


def test_a_good_host_fails_nothing() -> None:
    assert failures() == []


DAY = 86400

FAILS: dict[str, tuple[dict[str, Any], str]] = {
    "no sudo": ({"root": False}, "sudo: requires a password; set NOPASSWD for the user"),
    "an old Ubuntu": ({"os_version": "20.04"}, "os: ubuntu 20.04 is not supported; install one of: ubuntu 22.04/24.04"),
    "an unknown system": ({"os": "", "os_version": ""}, "os: unknown  is not supported"),
    "a Red Hat that is old": ({"os": "rocky", "os_version": "8.10"}, "os: rocky 8.10 is not supported"),
    "another architecture": ({"architecture": "ppc64le"}, "architecture: ppc64le; aarch64 or x86_64 is required"),
    "a neighbour's name": ({"hostname": "gpu-2.lab"}, "hostname: is gpu-2, the name of another declared machine"),
    "cgroups of version 1": ({"cgroup": "tmpfs"}, "cgroup: is not version 2"),
    "swap": ({"swap_kib": 2048 * MIB}, "swap: 2048 MiB is enabled, so the kubelet would not start; run swapoff -a"),
    "no ip_vs": ({"modules": ("br_netfilter",)}, "modules: the kernel has no ip_vs; install its package"),
    "a replaced kernel": (
        {"modules": (), "modules_installed": False},
        "modules: those of the running kernel 6.8.0-60-generic are not installed; reboot",
    ),
    "few cores": ({"cores": 96}, "cores: 96; pods are promised 190; correct allocatable.cpu"),
    "little memory": ({"memory_kib": 1000 * MIB}, "memory: 1000 MiB; at least 1024 MiB is required"),
    "less memory than promised": ({"memory_kib": 8 * GIB}, "memory: 8 GiB; pods are promised 2200 GiB; replace"),
    "little space": ({"disk_free_kib": 19 * GIB}, "disk: 19 GiB is free at /var/lib; at least 20 GiB is required"),
    "a small disk": ({"disk_kib": 900 * GIB}, "disk: 900 GiB at /var/lib; pods are promised 3400 GiB; mount a larger"),
    "another address": ({"addresses": ("10.0.0.1",)}, "address: the host does not have 192.0.2.1, only 10.0.0.1"),
    "Docker beside containerd": (
        {"docker": "27.5.1"},
        "docker: 27.5.1 is installed; if it runs, kubespray drains the node, kills all of Docker's containers",
    ),
    "no nameserver": ({"nameserver": ""}, "nameserver: none in /etc/resolv.conf"),
    "a certificate that ends": (
        {"certificates": {"a.crt": GOOD.clock + 12.5 * DAY, "b.crt": GOOD.clock + 300 * DAY}},
        "certificates: a.crt expires in 12 days; renew",
    ),
    "certificates that ended": (
        {"certificates": {"a.crt": GOOD.clock - 2 * DAY, "b.crt": GOOD.clock + 20 * DAY}},
        "certificates: a.crt (and 1 more) expired 2 days ago",
    ),
    "no snapshot": ({"last_snapshot": None}, "etcd snapshot: none is stored; search for the reason: journalctl"),
    "an old snapshot": (
        {"last_snapshot": int(GOOD.clock) - 13 * 3600},
        "etcd snapshot: the last is 13 hours old, declared is every 6; search",
    ),
    "a GPU that is missing": ({"gpus_amd": 7}, "gpus: 7 AMD GPUs on the PCI bus, expected 8"),
    "no GPU": ({"gpus_amd": 0}, "gpus: 0 AMD GPUs on the PCI bus, expected 8"),
    "GPUs of another": ({"gpus_amd": 0, "gpus_nvidia": 8}, "gpus: 0 AMD GPUs on the PCI bus, expected 8"),
    "another model": (
        {"gpu_models": frozenset({"AMD Instinct MI300X OAM", "AMD Instinct MI300XHF"})},
        "gpus: AMD Instinct MI300XHF, declared is MI300X; correct accelerator.model",
    ),
    "no driver": ({"module_amdgpu": False}, "driver: the module amdgpu is not loaded"),
    "no render node": ({"render_gid": None}, "render: no /dev/dri/renderD*, although the driver is loaded"),
    "another render group": ({"render_gid": 992}, "render: the group of render nodes is 992, profiles declare"),
    "no kfd": ({"kfd": False}, "kfd: no /dev/kfd, so ROCm finds no GPU"),
    "another partition": (
        {"compute_partitions": frozenset({"CPX", "SPX"})},
        "partition: compute partition is CPX, SPX, declared is SPX; run: amd-smi set --gpu all --compute-partition SPX",
    ),
    "another memory partition": (
        {"memory_partitions": frozenset({"NPS4"})},
        "partition: memory partition is NPS4, declared is NPS1",
    ),
    "an IOMMU that translates": ({"gpu_iommu": frozenset({"DMA-FQ"})}, "iommu: translates the addresses of GPUs"),
    "failed validation": (
        {"gpu_validation": FAILED},
        "validation: ras: GPU A; reboot",
    ),
    "ACS": ({"acs_redirecting": 4}, "acs: 4 PCI devices redirect transfers between GPUs"),
    "GPUs without a NUMA node": ({"gpus_without_numa_node": 8}, "numa: 8 GPUs have no NUMA node"),
    "NUMA balancing": ({"numa_balancing": True}, "numa: the kernel moves memory between NUMA nodes"),
}


@pytest.mark.parametrize("what", FAILS)
def test_each_failure_is_said_alone_and_with_what_to_do(what: str) -> None:
    facts, expected = FAILS[what]
    (failure,) = failures(**facts)
    assert failure.startswith(expected)
    assert "\n" not in failure


SUPPORTED = {
    "almalinux": "9.4", "amzn": "2", "centos": "10", "debian": "12", "fedora": "42", "flatcar": "4230.2.1",
    "kylin": "V10", "ol": "9.5", "openEuler": "24.03", "opensuse-leap": "15.6", "opensuse-tumbleweed": "20260101",
    "rhel": "10.0", "rocky": "9.5", "ubuntu": "24.04", "uos": "20",
}  # fmt: skip
"""`ID` and `VERSION_ID` of a release of every distribution that kubespray v2.31.0 names."""


@pytest.mark.parametrize("name", SUPPORTED)
def test_distributions_that_kubespray_supports_are_accepted(name: str) -> None:
    assert failures(os=name, os_version=SUPPORTED[name]) == []


@pytest.mark.parametrize(
    ("facts", "needs"),
    [
        ({"gpus_nvidia": 1, "module_nvidia": False}, NEEDS),
        ({"gpus_amd": 3}, HostNeeds(gpu=GpuNeeds(vendor="amd"))),
        ({"gpus_amd": 0, "module_amdgpu": False, "render_gid": None}, HostNeeds()),
        ({"docker": "27.5.1"}, HostNeeds(container_manager="docker")),
        ({"docker": "27.5.1"}, HostNeeds()),
        ({"last_snapshot": None, "snapshots": False}, NEEDS),
        ({"hostname": "gpu-1.lab"}, HostNeeds(hostname="gpu-1")),
        ({"swap_kib": 1, "cgroup": "tmpfs", "modules": ()}, HostNeeds(kubernetes=False)),
        ({"compute_partitions": frozenset(), "gpu_models": frozenset(), "acs_redirecting": None}, NEEDS),
        ({"numa_balancing": True, "gpus_without_numa_node": 8, "numa_nodes": 1}, NEEDS),
        ({"gpu_validation": FAILED}, HostNeeds(gpu=GpuNeeds(vendor="amd"))),
        (
            {"gpus_nvidia": 1, "module_nvidia": True, "render_gid": None, "kfd": False},
            HostNeeds(gpu=GpuNeeds(vendor="nvidia", count=1)),
        ),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_as_needed_is_no_failure(facts: dict[str, Any], needs: HostNeeds) -> None:
    assert failures(needs, **facts) == []


def test_a_name_that_differs_is_said_where_nobody_sets_it() -> None:
    (failure,) = failures(HostNeeds(hostname="gpu-7"))
    assert failure.startswith("hostname: is gpu-1, declared is gpu-7; correct the name or the address")


@pytest.mark.parametrize(("skew", "said"), [(0.9, None), (-1.0, None), (1.1, "1.1 s ahead"), (-90, "90.0 s behind")])
def test_clocks(skew: float, said: str | None) -> None:
    found = failures(skew_seconds=skew)
    assert found == ([] if said is None else [found[0]])
    assert said is None or said in found[0]


@pytest.mark.process
def test_the_script_runs_here_and_in_part_prints_nothing() -> None:
    """By the shell that Debian and Ubuntu have as /bin/sh, or whatever this machine has."""
    script = preflight_script()
    whole = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, timeout=30, check=True)
    assert whole.stderr == ""
    assert parse_facts(whole.stdout).memory_kib > 0
    part = subprocess.run(["sh", "-s"], input=script[:-20], capture_output=True, text=True, timeout=30, check=False)
    assert part.stdout == ""
