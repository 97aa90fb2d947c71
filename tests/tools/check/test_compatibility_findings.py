"""What of a stack file does not go together: which setting is named, and what is said of versions"
" nobody has looked up."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpufleet.aws.karpenter.versions import OLDEST_KARPENTER
from gpufleet.bare_metal.container_toolkit import NvidiaContainerToolkitArgs, version_problems
from gpufleet.bare_metal.kubespray.driver.install import ANSIBLE, PYTHONS
from gpufleet.bare_metal.kubespray.rules import LAST_PATCHES
from gpufleet.bare_metal.preflight.rules import preflight_failures
from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.problems import dotted
from gpufleet_tools.check import compatibility, compatibility_findings, findings
from gpufleet_tools.check.compatibility import incompatible
from gpufleet_tools.check.fixed_versions import facts
from gpufleet_tools.hosts import declared as declared_hosts
from gpufleet_tools.hosts.survey import HostReport
from gpufleet_tools.plan.stack import Stack
from tests.components.bare_metal.preflight.test_rules import GOOD, NEEDS
from tests.conftest import ROOT
from tests.tools.diff.pull_requests import AWS

MI300 = (ROOT / "Pulumi.mi300.yaml").read_text()
A10 = (ROOT / "examples/a10/Pulumi.a10.yaml").read_text()
DEV = (ROOT / "Pulumi.dev.yaml").read_text()

Change = Callable[[dict[str, Any]], None]


def read(folder: pathlib.Path, text: str, change: Change = lambda _: None) -> Stack:
    """The stack with a change of its sections."""
    whole = yaml.safe_load(text)
    sections = {key.removeprefix("gpu-runners:"): value for key, value in whole["config"].items()}
    change(sections)
    config = {key if ":" in key else f"gpu-runners:{key}": value for key, value in sections.items()}
    path = folder / "Pulumi.lab.yaml"
    path.write_text(yaml.dump({"config": config}, Dumper=yaml.CSafeDumper, sort_keys=False))
    settings, file = load.from_file(path)
    return Stack(folder, file, settings)


def found(stack: Stack) -> list[str]:
    return [
        f"{each.name} {each.severity} {dotted(each.path)}: {each.message}"
        for each in compatibility_findings.findings(stack.settings, stack.file)
    ]


def kubespray(**fields: Any) -> Change:
    return lambda sections: sections["cluster"]["kubespray"].update(fields)


def toolkit(**fields: Any) -> Change:
    return lambda sections: sections["cluster"]["nvidiaContainerToolkit"].update(fields)


def section(name: str, **fields: Any) -> Change:
    return lambda sections: sections.setdefault(name, {}).update(fields)


def image(alias: str) -> Change:
    return lambda sections: sections["cluster"]["nodePools"]["default"].update(amis=[{"alias": alias}])


def client_id(sections: dict[str, Any]) -> None:
    sections["arc"] = {"version": "0.11.0"}
    sections["projects"]["gpu-test-cluster"]["credentials"]["appId"] = "Iv23liAbCdEfGhIjKlMn"


def with_kubespray(version: str, **variables: Any) -> Change:
    """Has kubespray make the cluster of the A10s, with the toolkit in its containerd."""

    def change(sections: dict[str, Any]) -> None:
        cluster = sections["cluster"]
        cluster["kubeconfig"] = {"kind": "kubespray"}
        cluster["kubespray"] = {"proxyMode": "nftables", "variables": {"all": variables} if variables else {}}
        cluster["nvidiaContainerToolkit"] = {"nvkind": False, "version": version, "runtime": "containerd"}
        next(iter(cluster["nodePools"]["a10-1"]["nodes"].values()))["roles"] = ["control_plane", "etcd", "worker"]

    return change


PROXY = "deprecated-proxy-mode warning cluster.kubespray.proxyMode: kube-proxy-mode ipvs with kubernetes 1.35.4: IPVS"
NO_PROXY = {"proxyMode": "nftables"}
OWN_CHECKSUMS = {"kubernetesVersion": "1.35.9", "variables": {"all": {"kubelet_checksums": {}}}, **NO_PROXY}

CASES: dict[str, tuple[str, Change, list[str]]] = {
    "as committed, on machines": (MI300, lambda _: None, [PROXY]),
    "as committed, with NVIDIA": (A10, lambda _: None, []),
    "as committed, on AWS": (DEV, lambda _: None, []),
    "a small one on AWS": (AWS, lambda _: None, []),
    "another proxy": (MI300, kubespray(**NO_PROXY), []),
    "ipvs before it was deprecated": (MI300, kubespray(kubernetesVersion="1.34.3"), []),
    "a Python that Ansible does not run on": (
        MI300,
        kubespray(source={"python": "/usr/bin/python3.14"}, **NO_PROXY),
        [
            "incompatible error cluster.kubespray.source.python: kubespray v2.31.0 with python 3.14:"
            " ansible-core 2.18 runs"
        ],
    ),
    "whatever python3 is": (MI300, kubespray(source={"python": "/opt/python3"}, **NO_PROXY), []),
    "a patch with checksums of the stack's own": (
        MI300,
        kubespray(**OWN_CHECKSUMS),
        [
            "incompatible error cluster.kubespray.kubernetesVersion: kubespray v2.31.0 with kubernetes 1.35.9:"
            " kubespray 2.31"
        ],
    ),
    "containerd of kubespray": (A10, with_kubespray("1.19.0-1"), []),
    "an old containerd": (
        A10,
        with_kubespray("1.19.0-1", containerd_version="1.7.15"),
        [
            "incompatible error cluster.nvidiaContainerToolkit.version: nvidia-container-toolkit 1.19.0-1 with"
            " containerd 1.7.15: toolkit 1.19 writes CDI 0.7.0"
        ],
    ),
    "a toolkit that nobody has looked at": (
        A10,
        toolkit(nvkind=False, version="1.42.0-1"),
        ["unknown-version warning cluster.nvidiaContainerToolkit.version: nvidia-container-toolkit 1.42.0-1: compat"],
    ),
    "an operator with a toolkit that lets containers out": (
        A10,
        section("gpuOperator", version="v25.3.1"),
        ["incompatible error gpuOperator.version: nvidia-gpu-operator v25.3.1: its toolkit lets a container"],
    ),
    "an operator that nobody has looked at": (
        A10,
        section("gpuOperator", version="v30.1.0"),
        ["unknown-version warning gpuOperator.version: nvidia-gpu-operator v30.1.0: compatibility has been reviewed"],
    ),
    "an App's client id with an old ARC": (
        DEV,
        client_id,
        [
            "unknown-version warning arc.version: arc 0.11.0: compatibility has been reviewed",
            "incompatible error arc.version: arc 0.11.0 with github-app-id client-id: ARC accepts a GitHub App",
        ],
    ),
    "an image that AWS makes no more": (
        DEV,
        image("al2@v20250501"),
        [
            "incompatible error cluster.nodePools.default.amis[0].alias: eks-ami-family al2 with kubernetes"
            " 1.35: there are no"
            " AL2 images"
        ],
    ),
    "Bottlerocket without GPUs": (DEV, image("bottlerocket@v1.50.0"), []),
    "a Karpenter that nobody has looked at": (
        DEV,
        lambda sections: sections["cluster"].update(karpenter={"version": "1.40.0"}),
        ["unknown-version warning cluster.karpenter.version: karpenter 1.40.0: compatibility has been reviewed"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_found(case: str, tmp_path: pathlib.Path) -> None:
    text, change, expected = CASES[case]
    said = found(read(tmp_path, text, change))
    assert len(said) == len(expected)
    for line, start in zip(sorted(said), sorted(expected), strict=True):
        assert line.startswith(start)
        assert "\n" not in line


def test_it_is_one_line_with_the_place_and_can_be_acknowledged(tmp_path: pathlib.Path) -> None:
    change = kubespray(**OWN_CHECKSUMS)
    stack = read(tmp_path, MI300, change)
    day = datetime.date(2026, 12, 1)
    (line,) = [each for each in findings.report(stack.settings, stack.file, day).lines() if "[incompatible]" in each]
    assert line.startswith("Pulumi.lab.yaml:")
    assert line.endswith("use Kubernetes 1.33 to 1.35 [incompatible]")

    def acknowledged(sections: dict[str, Any]) -> None:
        change(sections)
        entry = {"finding": "incompatible", "reason": "a checksum of its own", "until": datetime.date(2027, 1, 1)}
        sections["acknowledged"].append(entry)

    stack = read(tmp_path, MI300, acknowledged)
    assert not [each for each in findings.report(stack.settings, stack.file, day).lines() if "incompatible" in each]


# -- every name is somebody's -----------------------------------------------------------------------------------------

ON_HOSTS = {"kernel", "nvidia-driver", "containerd", "docker", "cgroup"}
"""What `gpufleet hosts` asks the machines; cgroups by a rule of its own."""

NOBODY_S = {"rocm", "amdgpu-driver", "amd-gpu-operator"}
"""What no stack file, no host and no chart gives a version of; docs/pull-requests.md names it as not covered."""


def test_every_name_of_the_matrix_is_fixed_by_stacks_asked_of_hosts_or_named(tmp_path: pathlib.Path) -> None:
    fixed = {
        name
        for text, change, _ in CASES.values()
        for together in facts(read(tmp_path, text, change).settings)
        for name in together
    }
    assert compatibility.names() - fixed - ON_HOSTS == NOBODY_S
    page = (ROOT / "docs/pull-requests.md").read_text()
    assert all(word in page for word in ("ROCm", "AMD driver", "AMD GPU operator"))


def test_every_condition_speaks_of_names_that_something_has() -> None:
    for each in compatibility.whole().bundles:
        assert {*each.when} <= {"kubespray", "container-manager"}
    assert {each.name for each in compatibility.whole().reviewed} <= compatibility.names()


# -- said once --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", LAST_PATCHES)
@pytest.mark.parametrize("minor", range(28, 38))
def test_kubespray_s_component_and_the_matrix_agree(tag: str, minor: int) -> None:
    """The component knows the patches of every minor version; the matrix knows the first and the last of all."""
    refused = (1, minor) not in LAST_PATCHES[tag]
    assert bool(incompatible({"kubespray": tag, "kubernetes": f"1.{minor}.0"})) is refused


@pytest.mark.parametrize(
    "version", ["1.16.2-1", "1.17.7-1", "1.17.8-1", "1.17.9-1", "1.18.0-1", "1.19.1-1", "1.20.0-1"]
)
@pytest.mark.parametrize("nvkind", [True, False])
def test_the_toolkit_s_component_and_the_matrix_agree(version: str, nvkind: bool) -> None:
    args = dataclasses.replace(_TOOLKIT, version=version, nvkind=nvkind)
    known = {"nvidia-container-toolkit": version} | ({"nvkind": "any"} if nvkind else {})
    assert any(version_problems(args)) is bool(incompatible(known))


_TOOLKIT = NvidiaContainerToolkitArgs(hosts=[], login=None, nvkind=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("minor", range(8, 18))
def test_what_installs_kubespray_and_the_matrix_agree_on_python(minor: int) -> None:
    fits = PYTHONS[0] <= (3, minor) <= PYTHONS[1]
    assert bool(incompatible({"kubespray": "v2.31.0", "python": f"3.{minor}"})) is not fits


@pytest.mark.parametrize("ansible", ["2.16.4", "2.17.9", "2.18.0", "2.18.19", "2.19.0", "2.20.1"])
def test_what_installs_kubespray_and_the_matrix_agree_on_ansible(ansible: str) -> None:
    assert bool(incompatible({"kubespray": "v2.31.0", "ansible-core": ansible})) is not bool(ANSIBLE.match(ansible))


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
def test_what_asks_hosts_and_the_matrix_agree_on_cgroups(cgroup: str) -> None:
    asked = dataclasses.replace(GOOD, cgroup={"v1": "tmpfs", "v2": "cgroup2fs"}[cgroup])
    refused = bool(preflight_failures(asked, NEEDS))
    assert bool(incompatible({"kubernetes": "1.35", "cgroup": cgroup})) is refused


@pytest.mark.parametrize("compute", ["SPX", "DPX", "QPX", "CPX"])
@pytest.mark.parametrize("memory", ["NPS1", "NPS4"])
def test_stack_files_and_the_matrix_agree_on_partitions(compute: str, memory: str, tmp_path: pathlib.Path) -> None:
    def change(sections: dict[str, Any]) -> None:
        sections["cluster"]["nodePools"]["mi300x"]["accelerator"]["partition"] = {"compute": compute, "memory": memory}

    try:
        read(tmp_path, MI300, change)
        refused = False
    except load.InvalidSettings as invalid:
        refused = "memory-partition" in {problem.code for problem in invalid.problems}
    assert bool(incompatible({"partition-compute": compute, "partition-memory": memory})) is refused


@pytest.mark.parametrize("family", ["al2023", "bottlerocket"])
@pytest.mark.parametrize("pool", ["gpu", "default"])
def test_stack_files_and_the_matrix_agree_on_images_with_a_plugin_of_their_own(
    family: str, pool: str, tmp_path: pathlib.Path
) -> None:
    def change(sections: dict[str, Any]) -> None:
        sections["cluster"]["nodePools"][pool]["amis"] = [{"alias": f"{family}@v20260512"}]

    try:
        read(tmp_path, DEV, change)
        refused = False
    except load.InvalidSettings as invalid:
        refused = "two-device-plugins" in {problem.code for problem in invalid.problems}
    known = {"eks-ami-family": f"{family}-nvidia" if pool == "gpu" else family, "nvidia-device-plugin": "0.20.0"}
    assert bool(incompatible(known)) is refused


def test_what_is_known_of_kubernetes_has_all_that_karpenter_s_releases_know() -> None:
    assert not [minor for minor in OLDEST_KARPENTER if compatibility.outside_review("kubernetes", minor)]


# -- on machines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "change", "asked", "expected"),
    [
        (MI300, kubespray(**NO_PROXY), {"kernel": "5.10.0-35-amd64"}, ["kernel 5.10.0-35-amd64"]),
        (MI300, kubespray(**NO_PROXY), {"kernel": "5.15.0-25-generic"}, []),
        (MI300, lambda _: None, {"kernel": "5.10.0-35-amd64"}, []),
        (A10, toolkit(nvkind=False, version="1.19.0-1"), {"docker": "25.0.3"}, ["docker 25.0.3: toolkit 1.19"]),
        (A10, toolkit(nvkind=False, version="1.19.0-1"), {"docker": "26.1.0"}, []),
        (A10, toolkit(nvkind=False, cdi=True), {"docker": "24.0.7"}, ["docker 24.0.7 with cdi on"]),
        (A10, with_kubespray("1.19.0-1"), {"containerd": "1.6.2"}, []),
    ],
)
def test_what_a_machine_has_that_does_not_go_with_its_stack(
    text: str, change: Change, asked: dict[str, str], expected: list[str], tmp_path: pathlib.Path
) -> None:
    stack = read(tmp_path, text, change)
    host = dataclasses.replace(GOOD, **asked)
    report = HostReport(host=None, facts=host, failures=("before",), seconds=1)  # type: ignore[arg-type]
    before, *more = declared_hosts._with_versions(report, stack).failures
    assert before == "before"
    assert len(more) == len(expected)
    for line, words in zip(more, expected, strict=True):
        assert line.startswith("versions: ")
        assert words in line
