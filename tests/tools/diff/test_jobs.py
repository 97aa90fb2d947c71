"""The environment of a label's jobs: each part of the pod that a change of a program can change, whatever it comes
from."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from gpufleet.arc.controller import ControllerReference
from gpufleet.arc.project import ProjectReference
from gpufleet.arc.scale_set import scale_set_values
from gpufleet.arc.scale_set_args import Docker, KubernetesMode, RunnerResources, RunnerScaleSetArgs, Volume
from gpufleet_stacks.runners import POD_FIELDS
from gpufleet_tools.diff.environment.jobs import WORDS, environments
from gpufleet_tools.diff.evaluation import EvaluatedResource
from gpufleet_tools.diff.settings.table import SETTINGS
from gpufleet_tools.plan.plan import RELEASE

RESOURCES = {"cpu": "1", "memory": "1Gi"}


def release(**arguments: Any) -> list[EvaluatedResource]:
    given: dict[str, Any] = {
        "label": "gpu-1",
        "project": ProjectReference(config_url="https://github.com/o", namespace="n", credentials_secret="s"),
        "controller": ControllerReference(service_account="arc-gha-rs-controller", namespace="arc-systems"),
        "min_runners": 0,
        "max_runners": 1,
        "resources": RunnerResources(**RESOURCES),
    }
    values = scale_set_values(RunnerScaleSetArgs(**given | arguments))
    return [
        EvaluatedResource(
            urn="urn",
            type=RELEASE,
            name="gpu-1",
            parent=None,
            kind="resource",
            provider=None,
            opaque=True,
            inputs={"name": "gpu-1", "values": values},
            options={},
        )
    ]


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    return environments(release(**before), release(**after)).get("gpu-1", [])


@pytest.mark.parametrize(
    ("argument", "value", "setting", "shown"),
    [
        ("command", ["/run.sh"], "command", "/run.sh"),
        ("args", ["--once"], "args", "--once"),
        ("resources", RunnerResources(**RESOURCES, cpu_limit="2"), None, "2"),
        ("resources", RunnerResources(**RESOURCES, memory_limit="2Gi"), None, "2Gi"),
        ("resources", RunnerResources(**RESOURCES, extended={"a.b/kvm": 1}), "extendedResources", '{"a.b/kvm": 1}'),
        ("security_context", {"runAsUser": 0}, "securityContext", '{"runAsUser": 0}'),
        ("pod_spec", {"securityContext": {"fsGroup": 1}}, "podSecurityContext", '{"fsGroup": 1}'),
        ("init_containers", [{"name": "a", "image": "b"}], "initContainers", "a"),
        ("volumes", [Volume(name="models", source={"emptyDir": {}})], None, "models"),
        ("env_from", [{"secretRef": {"name": "a"}}], None, '[{"secretRef": {"name": "a"}}]'),
        ("docker", KubernetesMode(work_volume_claim=None), "docker.kind", '{"type": "kubernetes-novolume"}'),
        *(
            ("pod_spec", {field: value}, to_camel(setting), text)
            for setting, field in POD_FIELDS.items()
            if field != "securityContext"
            for value, text in [("x", "x")]
        ),
        ("pod_template", {"spec": {"hostNetwork": True}}, None, "true"),
    ],
)
def test_each_part_of_the_pod_is_named(argument: str, value: Any, setting: str | None, shown: str) -> None:
    words = SETTINGS[f"profiles.<profile>.{setting}"].words if setting else None
    (there,) = changes({}, {argument: value})
    (back,) = changes({argument: value}, {})
    assert there[2] == back[1] == shown
    assert there[0] == back[0]
    if words:
        assert there[0] == words


def test_fields_of_settings_have_the_settings_words() -> None:
    fields = {field: to_camel(setting) for setting, field in POD_FIELDS.items() if field != "securityContext"}
    assert {
        **{field: SETTINGS[f"profiles.<profile>.{setting}"].words for field, setting in fields.items()},
        "containerMode": SETTINGS["profiles.<profile>.docker.kind"].words,
    } == WORDS


def test_a_long_value_is_only_said_to_be_another() -> None:
    terms = [{"weight": number, "preference": {"matchExpressions": []}} for number in range(9)]
    long, longer = ({"affinity": {"nodeAffinity": {"a": terms[:number]}}} for number in (8, 9))
    assert changes({}, {"pod_spec": long}) == [("affinity", "none", "set")]
    assert changes({"pod_spec": long}, {"pod_spec": longer}) == [("affinity", "set", "another value")]
    assert changes({"pod_spec": long}, {}) == [("affinity", "set", "none")]


def test_a_secret_in_a_command_is_not_shown() -> None:
    token = "hf_" + "a1" * 17
    assert changes({}, {"args": [f"--token={token}"]}) == [("arguments of the runner", "none", "--token=<secret>")]


def test_docker_s_own_parts_are_no_change_of_their_own() -> None:
    """The label's column `Docker` says it; the start script and the volumes follow."""
    assert changes({}, {"docker": Docker()}) == []
    assert changes({"docker": Docker()}, {"docker": Docker(), "render_group": 110}) == [("render group", "none", "110")]
