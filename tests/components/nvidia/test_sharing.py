"""Sharing: names, numbers and the plugin's configuration file agree with each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.aws.ec2.instance_types import instance_types
from gpufleet.nvidia import Mig, Mps, TimeSlicing
from gpufleet.nvidia.sharing import (
    allocatable,
    config_name,
    device_plugin_config,
    largest_request,
    mig_instances,
    mig_problems,
    mig_profiles,
    resource_name,
    sharing_problems,
)

physical = st.integers(min_value=0, max_value=16)
slicing = st.builds(
    TimeSlicing,
    replicas=st.integers(min_value=2, max_value=64),
    rename_by_default=st.booleans(),
    fail_requests_greater_than_one=st.booleans(),
)
any_sharing = st.none() | slicing


def time_slicing(text: str) -> Any:
    return yaml.safe_load(text)["sharing"]["timeSlicing"]


@pytest.mark.parametrize(
    ("sharing", "name"),
    [
        (None, "nvidia.com/gpu"),
        (TimeSlicing(replicas=10), "nvidia.com/gpu"),
        (TimeSlicing(replicas=10, rename_by_default=True), "nvidia.com/gpu.shared"),
    ],
)
def test_the_resource_is_named_as_the_plugin_names_it(sharing: TimeSlicing | None, name: str) -> None:
    assert resource_name(sharing) == name


def test_document_004s_node_offers_ten_gpus(document_004: str) -> None:
    """Its log and its `kubectl describe` show one GPU with ten replicas."""
    assert f'"nvidia.com/gpu":"{allocatable(1, TimeSlicing(replicas=10))}"' in document_004


@given(physical)
def test_without_sharing_a_gpu_is_a_gpu(gpus: int) -> None:
    assert allocatable(gpus, None) == largest_request(gpus, None) == gpus


@given(physical, physical, slicing)
def test_every_gpu_counts_alike(first: int, second: int, sharing: TimeSlicing) -> None:
    together = allocatable(first + second, sharing)
    assert together == allocatable(first, sharing) + allocatable(second, sharing)
    assert together == (first + second) * sharing.replicas


@given(physical, any_sharing)
def test_no_pod_is_given_more_than_a_node_offers(gpus: int, sharing: TimeSlicing | None) -> None:
    assert 0 <= largest_request(gpus, sharing) <= allocatable(gpus, sharing)
    assert bool(largest_request(gpus, sharing)) == bool(gpus)


@given(st.integers(min_value=1, max_value=16), slicing)
def test_two_shares_are_not_two_gpus(gpus: int, sharing: TimeSlicing) -> None:
    """A pod with two could have both of one GPU, so the plugin refuses it unless a setting allows it."""
    assert (largest_request(gpus, sharing) == 1) == sharing.fail_requests_greater_than_one


@given(slicing)
def test_the_configuration_file_says_the_same(sharing: TimeSlicing) -> None:
    (resource,) = time_slicing(device_plugin_config({}, sharing))["resources"]
    assert resource == {"name": "nvidia.com/gpu", "replicas": sharing.replicas}
    config = time_slicing(device_plugin_config({}, sharing))
    assert config["renameByDefault"] == resource_name(sharing).endswith(".shared")
    assert config["failRequestsGreaterThanOne"] == sharing.fail_requests_greater_than_one


def test_without_sharing_the_file_has_none() -> None:
    """An empty list of resources is an error (api/config/v1/replicas.go)."""
    assert yaml.safe_load(device_plugin_config({}, None)) == {"version": "v1", "flags": {}}


@given(any_sharing)
def test_whatever_can_be_shared_is_not_refused(sharing: TimeSlicing | None) -> None:
    assert sharing_problems(sharing) == []


@pytest.mark.parametrize("replicas", [-1, 0, 1])
def test_fewer_than_two_replicas_are_refused(replicas: int) -> None:
    (reason,) = sharing_problems(TimeSlicing(replicas=replicas))
    assert "at least 2" in reason.message


@pytest.mark.parametrize("asked", [{"mps": {"replicas": 4}}, "mps"])
def test_what_is_no_way_to_share_is_refused(asked: object) -> None:
    (reason,) = sharing_problems(asked)
    assert "is not TimeSlicing, Mps or Mig" in reason.message


def test_mps_serves_48_clients() -> None:
    assert sharing_problems(Mps(replicas=48)) == []
    (reason,) = sharing_problems(Mps(replicas=49))
    assert "MPS supports 48" in reason.message


def test_mps_is_told_to_the_plugin() -> None:
    """As in "With CUDA MPS" of its README."""
    assert yaml.safe_load(device_plugin_config({}, Mps(replicas=10)))["sharing"] == {
        "mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 10}]}
    }


def test_mig_instances_are_advertised_as_gpus() -> None:
    config = yaml.safe_load(device_plugin_config({"migStrategy": "none"}, Mig(profile="1g.10gb", instances=7)))
    assert config == {"version": "v1", "flags": {"migStrategy": "single"}}


@given(
    physical,
    st.builds(Mps, replicas=st.integers(2, 48))
    | st.builds(Mig, profile=st.just("1g.10gb"), instances=st.integers(1, 7)),
)
def test_a_pod_uses_one_part_of_a_gpu(gpus: int, sharing: Mps | Mig) -> None:
    assert largest_request(gpus, sharing) == min(1, gpus)
    assert allocatable(gpus, sharing) % max(1, gpus) == 0


@pytest.mark.parametrize(
    ("model", "memory", "profile", "instances"),
    [
        ("A100", 40960, "1g.5gb", 7),
        ("A100", 40960, "1g.10gb", 4),
        ("A100", 40960, "2g.10gb", 3),
        ("A100", 40960, "3g.20gb", 2),
        ("A100", 40960, "4g.20gb", 1),
        ("A100", 40960, "7g.40gb", 1),
        ("A100", 81920, "1g.10gb", 7),
        ("H100", 81920, "1g.10gb", 7),
        ("H100", 81920, "1g.20gb", 4),
        ("H100", 81920, "2g.20gb", 3),
        ("H100", 81920, "3g.40gb", 2),
        ("H200", 144384, "1g.18gb", 7),
        ("H200", 144384, "2g.35gb", 3),
        ("B200", 183359, "1g.23gb", 7),
        ("B200", 183359, "3g.90gb", 2),
        ("H100", 81920, "1g.5gb", None),
        ("T4", 16384, "1g.5gb", None),
    ],
)
def test_instances_of_a_gpu(model: str, memory: int, profile: str, instances: int | None) -> None:
    """The column "Number of Instances Available" of NVIDIA's MIG user guide."""
    assert mig_instances(model, memory, profile) == instances


def test_every_type_with_mig_is_found_in_the_table() -> None:
    """Names and memory as EC2 reports them."""
    found = {
        (each.gpus.name, each.gpus.memory): mig_profiles(each.gpus.name, each.gpus.memory)
        for each in instance_types().values()
        if each.gpus
    }
    with_mig = {key: len(profiles) for key, profiles in found.items() if profiles}
    assert with_mig == dict.fromkeys(
        [("A100", 40960), ("A100", 81920), ("H100", 81920), ("H200", 144384), ("B200", 183359)], 6
    )


def test_configurations_have_names_of_their_own() -> None:
    ways = [
        None,
        TimeSlicing(replicas=10),
        TimeSlicing(replicas=10, fail_requests_greater_than_one=False),
        Mps(replicas=10),
        Mig(profile="1g.10gb", instances=7),
    ]
    assert [config_name(each) for each in ways] == [
        "exclusive",
        "time-slicing-10",
        "time-slicing-10-several",
        "mps-10",
        "mig-1g.10gb",
    ]


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_mig_is_refused_in_so_many_words(strategy: str) -> None:
    (problem,) = mig_problems(("mig_strategy",), strategy)
    assert str(problem) == f"mig_strategy: MIG ({strategy}) is not supported; use none"
