"""Requirements are read as Karpenter reads them."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.aws.ec2.instance_types import LABELS, REGION, ZONE, InstanceType, instance_types, label, offered, zones_of
from gpufleet.aws.ec2.requirements import matching
from gpufleet.aws.karpenter.node_pool_args import Requirement
from gpufleet.aws.karpenter.node_pool_fit import gpu_counts, instance_types_of
from tests.node_pools import AWS, CPU, GPU, isin

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "golden"

KARPENTER: list[Any] = json.loads((GOLDEN / "karpenter-1.14.1.requirements.json").read_text())
"""Requirements, and which of a few types meet them: what `Requirements.Intersects` of Karpenter found, v1.14.1 of
kubernetes-sigs/karpenter."""

ASKED: set[str] = set(json.loads((GOLDEN / "karpenter-1.14.1.instance-types.json").read_text()))
"""The types that Karpenter was asked about."""


def names(*requirements: Requirement, zones: Any = ()) -> set[str]:
    return {each.name for each in matching(requirements, zones)}


def requirement(key: str, operator: Any, *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


# -- document 004 -----------------------------------------------------------------------------------------------------


def test_document_004s_gpu_pool_buys_six_types_of_one_gpu() -> None:
    wanted = [f"{family}.{size}" for family in ("g4dn", "g5") for size in ("2xlarge", "4xlarge", "8xlarge")]
    assert sorted(each.name for each in instance_types_of(GPU)) == wanted
    assert GPU.gpu_counts is None
    assert gpu_counts(GPU) == [1]


def test_document_004s_other_pool_buys_no_gpu() -> None:
    found = instance_types_of(CPU)
    assert len(found) > 100
    assert {each.cpus for each in found} == {4, 8, 16, 32}
    assert gpu_counts(CPU) == []


# -- as Karpenter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "met"), KARPENTER, ids=range(len(KARPENTER)))
def test_the_same_types_meet_them_as_with_karpenter(asked: list[list[str]], met: list[str]) -> None:
    assert names(*(requirement(*each) for each in asked)) & ASKED == set(met)


def test_requirements_that_contradict_each_other_mean_that_the_label_is_absent() -> None:
    """Karpenter's own reading: a set without values is `DoesNotExist`."""
    gpu_name = f"{AWS}/instance-gpu-name"
    neither = names(isin(gpu_name, "t4"), isin(gpu_name, "a10g"))
    assert neither == names(requirement(gpu_name, "DoesNotExist"))
    assert neither == names(requirement(gpu_name, "Gt", "8"), requirement(gpu_name, "Lt", "1"))


def test_old_names_of_labels_are_the_new_ones() -> None:
    assert names(isin("beta.kubernetes.io/arch", "arm64")) == names(isin("kubernetes.io/arch", "arm64")) != set()


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt"])
def test_a_label_that_the_table_does_not_know_rules_nothing_out(operator: Any) -> None:
    values = ["1"] if operator in ("In", "NotIn", "Gt") else []
    for key in ("example.com/own", f"{AWS}/instance-network-bandwidth", "topology.k8s.aws/zone-id"):
        assert names(requirement(key, operator, *values)) == set(instance_types())


def test_reserved_capacity_may_be_of_any_type() -> None:
    reserved = [isin("karpenter.sh/capacity-type", "reserved")]
    assert matching(reserved) == []
    assert len(matching(reserved, reserved=True)) == len(instance_types())


# -- by hand ----------------------------------------------------------------------------------------------------------

EVERYWHERE = sorted(
    key for key in LABELS - {ZONE, REGION} if all(label(each, key) for each in instance_types().values())
)
"""Labels that every type has: of those, several requirements mean no more than each by itself."""

NUMBER = st.sampled_from(["0", "2", "8", "16", "1000", "32768", "999999999"])
SAMPLE = sorted(instance_types())[::7]


def by_itself(wanted: Requirement, found: str | None) -> bool:
    """What a requirement says of one value, or of none, read plainly."""
    is_number = found is not None and re.fullmatch("[0-9]+", found) is not None
    number, bound = int(found or 0) if is_number else 0, int(wanted.values[0]) if wanted.operator[0] in "GL" else 0
    return {
        "In": found in wanted.values,
        "NotIn": found not in wanted.values,
        "Exists": found is not None,
        "DoesNotExist": found is None,
        "Gt": is_number and number > bound,
        "Gte": is_number and number >= bound,
        "Lt": is_number and number < bound,
        "Lte": is_number and number <= bound,
    }[wanted.operator]


def met(requirements: list[Requirement], each: InstanceType) -> bool:
    """Of every label, one value at least meets all that is asked of it."""
    return all(
        any(
            all(by_itself(one, value) for one in requirements if one.key == key) for value in label(each, key) or [None]
        )
        for key in {one.key for one in requirements}
    )


@st.composite
def on(draw: st.DrawFn, keys: list[str]) -> Requirement:
    """A requirement on one of these labels, with values that occur and others."""
    key = draw(st.sampled_from(keys))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Gte", "Lt", "Lte"]))
    if operator in ("Exists", "DoesNotExist"):
        return requirement(key, operator)
    if operator[0] in "GL":
        return requirement(key, operator, draw(NUMBER))
    there = sorted({value for name in SAMPLE for value in label(instance_types()[name], key)} | {"other"})
    return requirement(key, operator, *draw(st.lists(st.sampled_from(there), min_size=1, max_size=8, unique=True)))


@given(requirements=st.lists(on(EVERYWHERE), max_size=4))
def test_several_requirements_on_a_label_all_hold(requirements: list[Requirement]) -> None:
    found = names(*requirements)
    assert {name for name in SAMPLE if met(requirements, instance_types()[name])} == found.intersection(SAMPLE)


@given(
    requirements=st.lists(
        on(sorted(LABELS - {ZONE, REGION})), max_size=4, unique_by=lambda requirement: requirement.key
    )
)
def test_one_requirement_on_a_label_holds(requirements: list[Requirement]) -> None:
    """Also where a type does not have the label."""
    found = names(*requirements)
    assert {name for name in SAMPLE if met(requirements, instance_types()[name])} == found.intersection(SAMPLE)


# -- places -----------------------------------------------------------------------------------------------------------


@given(zones=st.lists(st.sampled_from(["us-east-1a", "us-east-1e", "eu-central-2a", "af-south-1b"]), min_size=1))
def test_only_what_is_offered_in_a_zone_matches(zones: list[str]) -> None:
    found = names(zones=zones)
    assert found == {name for name, each in instance_types().items() if zones_of(each) & set(zones)}


def test_a_requirement_on_the_zone_narrows_the_zones() -> None:
    family = isin(f"{AWS}/instance-family", "g5")
    only_there = names(family, isin(ZONE, "us-east-1a"), zones=["us-east-1a", "us-east-1e"])
    assert only_there == names(family, zones=["us-east-1a"])
    assert names(requirement(ZONE, "NotIn", "us-east-1a"), zones=["us-east-1a"]) == set()


def test_without_zones_every_zone_counts() -> None:
    assert names() == set(instance_types())
    assert all(offered(each) for each in instance_types().values())
