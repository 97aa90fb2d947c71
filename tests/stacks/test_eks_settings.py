"""Settings of clusters on EKS: that each can be given, what is said of mistakes in several, and what becomes of
instance types that no table knows. The messages themselves are in `tests/settings/eks-*.error.yaml`."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gpufleet_stacks.settings import load
from gpufleet_stacks.settings.args.node_pools import node_pool_args
from gpufleet_stacks.settings.models import eks as eks_settings
from gpufleet_stacks.settings.models import eks_network as eks_network_settings
from gpufleet_stacks.settings.models import karpenter as karpenter_settings
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.problems import InvalidSettings
from tests.conftest import examples
from tests.stacks.test_settings import CASES, ERRORS, ODD, places, spoilt

SMALLEST = (CASES / "eks-smallest.ok.yaml").read_text()
EVERY = (CASES / "eks-every-setting.ok.yaml").read_text()
ZONE_FOR_JOBS = (CASES / "eks-zone-for-jobs.ok.yaml").read_text()


def read(text: str, folder: pathlib.Path) -> EksSettings:
    """Settings of a stack file with that text."""
    path = folder / "Pulumi.lab.yaml"
    path.write_text(text)
    return cast(EksSettings, load.from_file(path)[0])


def problems(text: str, folder: pathlib.Path) -> list[str]:
    """What is wrong with it, without file and line; nothing where it is sound."""
    try:
        read(text, folder)
    except InvalidSettings as invalid:
        return [str(problem).split(": ", 1)[1] for problem in invalid.problems]
    return []


# -- every setting ----------------------------------------------------------------------------------------------------


def given_settings(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Model, field and value of every setting that a stack file gives, however deep."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield type(value).__name__, name, getattr(value, name)
        for name in type(value).model_fields:
            yield from given_settings(getattr(value, name))
    elif isinstance(value, dict):
        for entry in value.values():
            yield from given_settings(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from given_settings(entry)


MODELS = {
    name: model
    for module in (eks_settings, eks_network_settings, karpenter_settings)
    for name, model in vars(module).items()
    if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module.__name__
}

ONLY_ITS_DEFAULT = {("TimeSlicingSettings", "rename_by_default")}
"""Settings of which every other value is refused."""


def test_every_setting_is_given_and_set_otherwise_where_it_has_a_default(tmp_path: pathlib.Path) -> None:
    """So that no default is all that a setting can be."""
    found = [each for text in (EVERY, SMALLEST, ZONE_FOR_JOBS) for each in given_settings(read(text, tmp_path))]
    wanted = {
        (model, name)
        for model, kind in MODELS.items()
        for name, field in kind.model_fields.items()
        if model != "EksSettings"
    }
    otherwise = {
        (model, name)
        for model, name, value in found
        if model in MODELS and MODELS[model].model_fields[name].default != value
    }
    assert wanted - otherwise == ONLY_ITS_DEFAULT


def test_defaults_of_the_smallest_file(tmp_path: pathlib.Path) -> None:
    """Those that cost jobs or money when they are others."""
    smallest = read(SMALLEST, tmp_path)
    pool = smallest.cluster.node_pools["gpu"]
    assert (pool.capacity, pool.disruption.consolidation_policy, pool.root_volume) == (
        ("on-demand",),
        "WhenEmpty",
        "200Gi",
    )
    assert (smallest.cluster.deletion_protection, smallest.cluster.endpoint.public_access_from) == (True, ())
    assert smallest.accelerator_name(smallest.runners["a10g"]) == "NVIDIA A10G"
    assert smallest.devices_of_a_node(smallest.runners["a10g"]) == 4
    assert smallest.devices_of_pool("gpu") == 4


# -- messages ---------------------------------------------------------------------------------------------------------

MESSAGES = [
    line.removeprefix("# ").split(": ", 2)[1:]
    for path in ERRORS
    if path.name.startswith("eks-")
    for line in path.read_text().splitlines()
    if line.startswith("# Pulumi.")
]

WORDS_OF_COMPONENTS = re.compile(
    r"karpenter\.k8s\.aws/instance-(?:category|family|size|cpu|hypervisor|generation)\b|[a-z]+_[a-z]+_|GPU counts"
    r"|node class|nvidia\.com/gpu \d"
)


@pytest.mark.parametrize(("path", "message"), MESSAGES, ids=[f"{path}-{n}" for n, (path, _) in enumerate(MESSAGES)])
def test_messages_speak_of_settings(path: str, message: str) -> None:
    assert not WORDS_OF_COMPONENTS.search(message)
    assert not re.fullmatch(r"cluster(\.nodePools\.[^.]+|\.network)?", path), "a setting is to blame, not all of it"


WHOLE = yaml.safe_load(EVERY)


@settings(max_examples=examples(120), derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*places(WHOLE)]), st.sampled_from(["set", "drop", "rename"]), st.sampled_from(ODD)),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_is_wrong_is_said_in_one_line_each(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[tuple[Any, ...], str, Any]]
) -> None:
    content = spoilt(WHOLE, changes)
    for problem in problems(yaml.safe_dump(content, allow_unicode=True), tmp_path_factory.mktemp("odd")):
        assert problem.isprintable()
        assert "stand-in" not in problem, "a stand-in is nobody's fault"
        assert "hush" not in problem


REQUIRED = ("name", "region", "account", "kubernetesVersion", "network", "addons", "nodePools")


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("odd", [None, [], 7, {"colour": 1}, "é"], ids=str)
def test_a_mistake_in_the_cluster_is_told_alone(key: str, odd: Any, tmp_path: pathlib.Path) -> None:
    """What stands in for it breaks rules with the rest: of that nothing is said."""
    content = yaml.safe_load(SMALLEST)
    smoke = {"pool": "gpu", "image": "nvidia/cuda:13.0.0-base-ubuntu24.04"}
    content["config"]["gpu-runners:cluster"] |= {"smokeWorkload": smoke, key: odd}
    found = problems(yaml.safe_dump(content), tmp_path)
    assert found
    assert all(problem.startswith(f"cluster.{key}") for problem in found)


@pytest.mark.parametrize("setting", ["instances", "limits", "amis"])
def test_a_mistake_in_the_only_pool_is_told_alone(setting: str, tmp_path: pathlib.Path) -> None:
    content = yaml.safe_load(SMALLEST)
    cluster = content["config"]["gpu-runners:cluster"]
    cluster["nodePools"]["gpu"][setting] = "é"
    cluster["smokeWorkload"] = {"pool": "gpu", "image": "nvidia/cuda:13.0.0-base-ubuntu24.04"}
    (problem,) = problems(yaml.safe_dump(content), tmp_path)
    assert problem.startswith(f"cluster.nodePools.gpu.{setting}: ")


def test_labels_that_no_setting_is_for_keep_their_names(tmp_path: pathlib.Path) -> None:
    """One begins like another that there is a setting for."""
    asked = "        requirements: [{key: karpenter.k8s.aws/instance-cpu-manufacturer, operator: In, values: [aws]}]\n"
    (problem,) = problems(SMALLEST.replace("        limits:", asked + "        limits:"), tmp_path)
    assert problem.startswith("cluster.nodePools.gpu.instances: no instance type meets all requirements; ")
    assert "with karpenter.k8s.aws/instance-cpu-manufacturer amd" in problem


# -- what nodes hold --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", ["{families: [g5], sizes: [2xlarge]}", "{families: [g4dn], sizes: [metal]}"])
@pytest.mark.parametrize(("setting", "step"), [("cpu", "0.001"), ("memory", "0.1Gi")])
def test_what_a_message_advises_is_accepted_and_no_more(
    setting: str, step: str, instances: str, tmp_path: pathlib.Path
) -> None:
    content = yaml.safe_load(SMALLEST)
    content["config"]["gpu-runners:cluster"]["nodePools"]["gpu"] |= {
        "instances": yaml.safe_load(instances),
        "limits": {"gpus": 8},
    }
    runner = content["config"]["gpu-runners:runners"]["a10g"]
    runner[setting] = "9999" if setting == "cpu" else "9999Gi"
    (problem,) = problems(yaml.safe_dump(content), tmp_path)
    found = re.search(r" has room for ([0-9.]+)(\w*); request at most that", problem)
    assert found
    runner[setting] = found[1] + found[2]
    assert problems(yaml.safe_dump(content), tmp_path) == []
    runner[setting] = f"{float(found[1]) + float(step.removesuffix('Gi')):.3f}{found[2]}"
    assert len(problems(yaml.safe_dump(content), tmp_path)) == 1


# -- types that no table knows ----------------------------------------------------------------------------------------


def with_instances(**instances: Any) -> str:
    """The smallest stack with other instances."""
    content = yaml.safe_load(SMALLEST)
    content["config"]["gpu-runners:cluster"]["nodePools"]["gpu"]["instances"] = instances
    return yaml.safe_dump(content)


def in_region(text: str, region: str) -> str:
    return text.replace("eu-west-1", region)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        pytest.param(with_instances(families=["g99"]), "no instance type meets all requirements", id="a new family"),
        pytest.param(in_region(SMALLEST, "ap-southeast-1"), "is not offered in", id="a family in a new zone"),
        pytest.param(
            in_region(with_instances(categories=["p"], sizes=["24xlarge"]), "eu-south-1").replace("gpus: 4", "gpus: 8"),
            "no instance type that meets the requirements (p3dn",
            id="a category in a new zone",
        ),
    ],
)
def test_counts_of_gpus_stand_for_the_table(text: str, refused: str, tmp_path: pathlib.Path) -> None:
    (problem,) = problems(text, tmp_path)
    assert refused in problem
    assert "set gpuCounts" in problem
    content = yaml.safe_load(text)
    content["config"]["gpu-runners:cluster"]["nodePools"]["gpu"]["instances"]["gpuCounts"] = [1, 8]
    assert problems(yaml.safe_dump(content), tmp_path) == []


def test_a_new_type_is_planned_with_its_counts(tmp_path: pathlib.Path) -> None:
    new = read(with_instances(families=["g99"], gpuCounts=[1, 8]), tmp_path)
    assert node_pool_args("gpu", new.cluster).gpu_counts == (1, 8)
    assert new.devices_of_a_node(new.runners["a10g"]) == 8
    assert new.accelerator_name(new.runners["a10g"]) == "NVIDIA"


def test_no_counts_are_a_pool_without_gpus(tmp_path: pathlib.Path) -> None:
    (problem,) = problems(with_instances(families=["m99"], gpuCounts=[]), tmp_path)
    assert problem == "runners.a10g.gpus: the pool 'gpu' has no GPUs; request 0"
