"""Bottlerocket nodes with GPUs: how their own device plugin is configured."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

import pytest

from gpufleet.aws import AmiTerm
from gpufleet.aws.karpenter._node_pool_specs import node_class_spec
from gpufleet.aws.karpenter.node_pool_rules import node_pool_problems
from gpufleet.nvidia import TimeSlicing
from gpufleet.nvidia.sharing import Mig, Mps
from tests.node_pools import DOCUMENT_004

BOTTLEROCKET = [AmiTerm(alias="bottlerocket@v1.40.0")]
GPU = DOCUMENT_004["nvdia-gpu"]
LIMITS = GPU.limits
LOGGING = "[settings.kubernetes]\nlog-level = 3"


def user_data(**fields: Any) -> str | None:
    """User data of document 004's GPU pool on Bottlerocket."""
    given: str | None = node_class_spec(gpu(**fields)).get("userData")
    return given


def gpu(**fields: Any) -> Any:
    """Document 004's GPU pool on Bottlerocket."""
    given = {"class_ami_terms": BOTTLEROCKET, **fields}
    of_class = {name.removeprefix("class_"): value for name, value in given.items() if name.startswith("class_")}
    of_pool = {name: value for name, value in given.items() if not name.startswith("class_")}
    return dataclasses.replace(GPU, **of_pool, node_class=dataclasses.replace(GPU.node_class, **of_class))


def problems(**fields: Any) -> list[str]:
    return [str(problem) for problem in node_pool_problems(gpu(**fields))]


def test_whole_gpus_need_no_user_data() -> None:
    assert user_data(sharing=None) is None
    assert user_data(sharing=None, class_user_data="[settings.motd]\n") == "[settings.motd]\n"


@pytest.mark.parametrize(
    "own", [None, "[settings.kubernetes]\nlog-level = 3\n", "[settings.kubernetes]\nlog-level = 3"]
)
def test_time_slicing_keeps_the_name_by_which_pods_request_gpus(own: str | None) -> None:
    """By Bottlerocket's default, nodes would offer nvidia.com/gpu.shared."""
    settings = tomllib.loads(user_data(sharing=TimeSlicing(replicas=4), class_user_data=own) or "")["settings"]
    assert settings.pop("kubelet-device-plugins") == {
        "nvidia": {
            "device-sharing-strategy": "time-slicing",
            "time-slicing": {
                "replicas": 4,
                "rename-by-default": False,
                "fail-requests-greater-than-one": True,
            },
        }
    }
    assert settings == ({"kubernetes": {"log-level": 3}} if own else {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sharing": Mps(replicas=4)}, "sharing: Bottlerocket nodes support time-slicing only"),
        ({"sharing": Mig(profile="1g.10gb", instances=7)}, "sharing: Bottlerocket nodes support time-slicing only"),
        (
            {"class_ami_terms": [AmiTerm(alias="bottlerocket@1.24.1")]},
            "node_class.ami_terms[0].alias: bottlerocket@1.24.1 does not support time-slicing; use v1.25.0",
        ),
        ({"class_user_data": "#!/bin/sh\nset -e"}, "node_class.user_data: is not TOML, as Bottlerocket requires: "),
        (
            {"class_user_data": "[settings.kubelet-device-plugins.nvidia]\npass-device-specs = true"},
            "node_class.user_data: settings.kubelet-device-plugins.nvidia follows from the sharing",
        ),
        (
            {
                "sharing": None,
                "limits": LIMITS | {"nvidia.com/gpu": "4"},
                "class_user_data": '[settings.kubelet-device-plugins.nvidia]\ndevice-sharing-strategy = "mps"',
            },
            "node_class.user_data: settings.kubelet-device-plugins.nvidia follows from the sharing",
        ),
    ],
)
def test_what_nodes_would_not_do_is_refused(fields: dict[str, Any], problem: str) -> None:
    assert [each for each in problems(**fields) if each.startswith(problem)], problems(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"class_ami_terms": [AmiTerm(alias="bottlerocket@v1.25.0")]},
        {"class_ami_terms": [AmiTerm(id="ami-01")], "class_ami_family": "Bottlerocket"},
        {
            "sharing": None,
            "limits": LIMITS | {"nvidia.com/gpu": "4"},
            "class_user_data": "[settings.kubelet-device-plugins.nvidia]\npass-device-specs = false",
        },
    ],
)
def test_what_nodes_do_is_allowed(fields: dict[str, Any]) -> None:
    assert problems(**fields) == []
