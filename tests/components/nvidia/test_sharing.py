"""Sharing: names, numbers and the plugin's configuration file agree with each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.nvidia import TimeSlicing
from gpufleet.nvidia.sharing import (
    allocatable,
    device_plugin_config,
    largest_request,
    mig_problems,
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
    """A pod with two could have both of one GPU, so the plugin refuses it unless told to let it pass."""
    assert (largest_request(gpus, sharing) == 1) == sharing.fail_requests_greater_than_one


@given(slicing)
def test_the_configuration_file_says_the_same(sharing: TimeSlicing) -> None:
    (resource,) = time_slicing(device_plugin_config({}, sharing))["resources"]
    assert resource == {"name": "nvidia.com/gpu", "replicas": sharing.replicas}
    told = time_slicing(device_plugin_config({}, sharing))
    assert told["renameByDefault"] == resource_name(sharing).endswith(".shared")
    assert told["failRequestsGreaterThanOne"] == sharing.fail_requests_greater_than_one


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
def test_mps_is_refused_in_so_many_words(asked: object) -> None:
    (reason,) = sharing_problems(asked)
    assert "MPS is not supported" in reason.message


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_mig_is_refused_in_so_many_words(strategy: str) -> None:
    (problem,) = mig_problems(("mig_strategy",), strategy)
    assert str(problem) == f"mig_strategy: MIG ({strategy}) is not supported; use none"
