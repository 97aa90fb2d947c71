"""What does not go together: the matrix itself, and what is said of versions."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError

from gpufleet.arc.controller import ARC_VERSION
from gpufleet.aws.karpenter.controller import KARPENTER_VERSION
from gpufleet.aws.karpenter.versions import OLDEST_KARPENTER, version_problems
from gpufleet.nvidia.device_plugin import NVIDIA_DEVICE_PLUGIN_VERSION
from gpufleet.nvidia.gpu_operator import NVIDIA_GPU_OPERATOR_VERSION
from gpufleet_tools.check import compatibility, pins
from gpufleet_tools.check.compatibility import Incompatibility, incompatible
from tests.conftest import ROOT


def why(**versions: str) -> list[str]:
    return [entry.why for entry in incompatible({name.replace("_", "-"): value for name, value in versions.items()})]


# website/content/en/docs/upgrading/compatibility.md at v1.14.1 of aws/karpenter-provider-aws
KARPENTER_NEEDS = {"1.32": "1.2", "1.33": "1.5", "1.34": "1.6", "1.35": "1.9", "1.36": "1.13"}


@pytest.mark.parametrize("kubernetes", KARPENTER_NEEDS)
@pytest.mark.parametrize("karpenter", ["1.1", "1.2", "1.4", "1.5", "1.6", "1.8", "1.9", "1.12", "1.13", "1.14"])
def test_karpenter_s_own_table(kubernetes: str, karpenter: str) -> None:
    def number(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    fits = number(karpenter) >= number(KARPENTER_NEEDS[kubernetes])
    assert (not why(karpenter=f"{karpenter}.1", kubernetes=f"{kubernetes}.3")) == fits


@pytest.mark.parametrize(
    ("versions", "word"),
    [
        ({"arc": "0.14.2", "arc_scale_set": "0.13.1"}, "deletes"),
        ({"kubernetes": "v1.28.9", "docker": "sidecar"}, "SidecarContainers"),
        ({"eks_ami_family": "AL2", "kubernetes": "1.33"}, "AL2"),
        ({"kubespray": "v2.31.0", "kubernetes": "1.36.0"}, "1.35.4"),
        ({"kubespray": "v2.31.0", "kubernetes": "1.35.5"}, "1.35.4"),
        ({"kubespray": "v2.31.0", "kubernetes": "1.32.9"}, "1.35.4"),
        ({"kubespray": "2.31.0", "ansible_core": "2.19.0"}, "2.18"),
        ({"kubespray": "2.31.0", "python": "3.14"}, "3.13"),
        ({"nvidia_container_toolkit": "1.17.7-1"}, "CVE-2025-23266"),
        ({"nvidia_container_toolkit": "1.18.0-1", "nvkind": "0.1"}, "legacy runtime"),
        ({"nvidia_driver": "570.86.10", "cdi": "on", "nvkind": "0.1"}, "CDI"),
        ({"nvidia_container_toolkit": "1.19.1", "containerd": "1.7.15"}, "containerd"),
        ({"nvidia_gpu_operator": "v26.7.0", "operator_toolkit": "on", "nvidia_container_toolkit": "1.17.8-1"}, "over"),
        ({"amd_gpu_operator": "v1.5.1", "kubernetes": "1.28"}, "1.29"),
        ({"partition_compute": "SPX", "partition_memory": "NPS4"}, "CPX"),
        ({"amdgpu_driver": "6.3.1", "rocm": "6.0.2"}, "two releases"),
        ({"kubernetes": "1.35.4", "kube_proxy_mode": "ipvs"}, "IPVS"),
    ],
)
def test_what_does_not_go_together(versions: dict[str, str], word: str) -> None:
    assert any(word in reason for reason in why(**versions))


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"karpenter": "1.4.0"},
        {"arc": "0.14.2", "arc_scale_set": "0.14.0"},
        {"kubernetes": "1.29.0", "docker": "sidecar"},
        {"kubespray": "v2.31.0", "kubernetes": "1.35.4", "ansible_core": "2.18.19", "python": "3.13"},
        {"nvidia_container_toolkit": "1.17.8-1", "nvkind": "0.1", "nvidia_driver": "570.86.10", "cdi": "off"},
        {"nvidia_container_toolkit": "1.20.0", "containerd": "2.2.3", "docker": "28.2.2"},
        {"nvidia_gpu_operator": "v26.7.0", "operator_toolkit": "off", "nvidia_container_toolkit": "1.17.8-1"},
        {"partition_compute": "CPX", "partition_memory": "NPS4"},
        {"partition_compute": "SPX", "partition_memory": "NPS1"},
        {"kubernetes": "v1.33.1-eks-1a2b3c4", "karpenter": "1.5.0"},
        {"kubernetes": "1.33+", "karpenter": "1.5.0"},
        {"nobody_knows": "not a version"},
    ],
)
def test_what_goes_together(versions: dict[str, str]) -> None:
    assert why(**versions) == []


def test_what_this_project_fixes_goes_together() -> None:
    kubernetes = pins.versions(ROOT / "tools/gpufleet_tools/sandbox/build/modules/kubernetes/go.mod")[
        "k8s.io/kubernetes"
    ]
    fixed = {
        "arc": ARC_VERSION,
        "arc-scale-set": ARC_VERSION,
        "karpenter": KARPENTER_VERSION,
        "kubernetes": kubernetes,
        "nvidia-gpu-operator": NVIDIA_GPU_OPERATOR_VERSION,
        "ansible-core": pins.versions(ROOT / "pyproject.toml")["ansible-core"],
        "docker": "sidecar",
    }
    assert incompatible(fixed) == []
    assert incompatible({"nvidia-device-plugin": NVIDIA_DEVICE_PLUGIN_VERSION, "kubernetes": kubernetes}) == []


@pytest.mark.parametrize("version", ["one", "", "v", "latest"])
def test_no_version_is_refused_where_two_are_compared(version: str) -> None:
    if version:
        with pytest.raises(ValueError, match="is not a version"):
            incompatible({"arc": version, "arc-scale-set": "0.14.2"})
    assert incompatible({"karpenter": version, "kubernetes": "1.36"}) == []


def test_every_entry_can_be_met() -> None:
    """A range that no version is in would never speak."""
    numbers = [f"{major}.{minor}.{patch}" for major in range(30) for minor in range(40) for patch in (0, 3, 9, 81)]
    numbers += [f"{driver}.0" for driver in range(300, 700, 10)]
    for entry in compatibility.matrix():
        for condition in entry.when.values():
            if condition[0] in "<>=":
                assert any(SpecifierSet(condition).contains(number) for number in numbers), condition


def test_no_entry_stands_twice() -> None:
    entries = [(tuple(sorted(entry.when.items())), tuple(entry.same_minor or ())) for entry in compatibility.matrix()]
    assert len(set(entries)) == len(entries)


def test_every_entry_has_a_reason_and_a_source() -> None:
    for entry in compatibility.matrix():
        assert all(len(text) > 6 for text in (entry.why, entry.instead, entry.source))
        assert entry.review > datetime.date(2026, 1, 1)


@pytest.mark.parametrize("part", [{}, {"when": {"a": ">1"}, "sameMinor": ["a", "b"]}, {"sameMinor": ["a"]}])
def test_an_entry_says_one_thing(part: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Incompatibility.model_validate(
            {"why": "w", "instead": "i", "source": "s", "review": datetime.date(2027, 1, 1), **part}
        )


NUMBERS = st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 20)).map(lambda n: ".".join(map(str, n)))
WORDS = st.sampled_from(["on", "off", "any", "sidecar", "ipvs", "NPS4", "SPX"])
VERSIONS = st.dictionaries(st.sampled_from(sorted(compatibility.names() - {"arc-scale-set"})), NUMBERS | WORDS)


@given(VERSIONS, st.sampled_from(sorted(compatibility.names())))
def test_knowing_less_never_finds_more(versions: dict[str, str], forgotten: str) -> None:
    less = {name: value for name, value in versions.items() if name != forgotten}
    found = incompatible(versions)
    assert all(entry in found for entry in incompatible(less))
    assert incompatible(dict(reversed(versions.items()))) == found


@given(st.sampled_from(sorted(OLDEST_KARPENTER)), st.integers(1, 20))
def test_the_matrix_agrees_with_what_a_cluster_is_refused_for(kubernetes: str, minor: int) -> None:
    karpenter = f"1.{minor}.0"
    refused = any(version_problems(kubernetes, karpenter))
    assert bool(incompatible({"karpenter": karpenter, "kubernetes": kubernetes})) is refused
