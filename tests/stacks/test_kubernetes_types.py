"""Objects of a pod in a stack file: of the types of Kubernetes' API, each fault at its own place."""

from __future__ import annotations

import collections.abc
import inspect
import json
import types
import typing
from typing import Any

import pulumi
import pytest
from pulumi import _types
from pydantic import ValidationError

from gpufleet_stacks.settings.models.profiles.kubernetes_types import TABLE, Kubernetes
from tests.conftest import Generated

QUANTITIES = {
    ("EmptyDirVolumeSource", "sizeLimit"),
    ("ResourceFieldSelector", "divisor"),
    ("ResourceRequirements", "limits"),
    ("ResourceRequirements", "requests"),
    ("VolumeResourceRequirements", "limits"),
    ("VolumeResourceRequirements", "requests"),
}
"""Fields whose quantities the SDK knows as texts only; the API server takes numbers too."""


def written() -> str:
    """The types of a pod template, of a volume claim and of a rule of RBAC, as the SDK has them."""
    from pulumi_kubernetes.core.v1 import PersistentVolumeClaimSpecArgs, PodTemplateSpecArgs
    from pulumi_kubernetes.rbac.v1 import PolicyRuleArgs

    table: dict[str, dict[str, Any]] = {}
    left: list[type] = [PodTemplateSpecArgs, PersistentVolumeClaimSpecArgs, PolicyRuleArgs]
    while left:
        cls = left.pop()
        if name_of(cls) not in table:
            hints = _types.input_type_types(cls)
            fields = {field: field_type(hint, (name_of(cls), field), left) for field, hint in hints.items()}
            table[name_of(cls)] = {"fields": dict(sorted(fields.items())), "required": required(cls)}
    volume = table["Volume"]["fields"]
    sources = {field: kind for field, kind in volume.items() if field != "name"}
    table["VolumeSource"] = {"fields": sources, "required": []}
    return json.dumps(table, indent=1, sort_keys=True) + "\n"


def name_of(cls: type) -> str:
    return cls.__name__.removesuffix("Args")


def required(cls: type) -> list[str]:
    """Fields without which the SDK makes no object of a class."""
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return sorted(names[each.name] for each in parameters if each.default is inspect.Parameter.empty)


def field_type(hint: Any, place: tuple[str, str], left: list[type]) -> Any:
    """A hint in the table's form; classes that it names are added to those that are left."""
    hint = _types.unwrap_type(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        plain = {argument for argument in arguments if not _is_output(argument)}
        if plain == {int, str}:
            return "integer-or-string"
        (only,) = plain
        return field_type(only, place, left)
    if origin is collections.abc.Sequence:
        return [field_type(arguments[0], place, left)]
    if origin is collections.abc.Mapping:
        return {"": field_type(arguments[1], place, left)}
    if isinstance(hint, type) and _types.is_input_type(hint):
        left.append(hint)
        return name_of(hint)
    if place in QUANTITIES:
        return "quantity"
    return {str: "string", int: "integer", bool: "boolean", float: "number", Any: "any"}[hint]


def _is_output(hint: Any) -> bool:
    return typing.get_origin(hint) in (pulumi.Output, collections.abc.Awaitable)


@pytest.mark.generated
def test_the_table_is_the_sdk_s(generated: Generated) -> None:
    generated(TABLE, written())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("PodSecurityContext", {"fsGroup": 1001, "supplementalGroups": [110, 44]}),
        ("VolumeSource", {"emptyDir": {"sizeLimit": "10Gi"}}),
        ("VolumeSource", {"emptyDir": {"sizeLimit": 1024}}),
        ("Container", {"name": "a", "image": "b:1", "resources": {"limits": {"cpu": 1.5, "memory": "1Gi"}}}),
        ("Probe", {"exec": {"command": ["docker", "info"]}, "periodSeconds": 5}),
        ("Probe", {"httpGet": {"port": "web"}}),
        ("Probe", {"httpGet": {"port": 80}}),
        ("EnvVarSource", {"fieldRef": {"fieldPath": "status.podIP"}}),
        ("PodTemplateSpec", {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [], "hostNetwork": True}}),
        (
            "PersistentVolumeClaimSpec",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        ("PolicyRule", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
    ],
)
def test_what_kubernetes_takes(kind: str, value: dict[str, Any]) -> None:
    assert Kubernetes(kind).check(value) == value


@pytest.mark.parametrize(
    ("kind", "value", "place", "message"),
    [
        ("PodSecurityContext", {"runAsuser": 1}, ("runAsuser",), "did you mean 'runAsUser'?"),
        ("PodSecurityContext", {"runAsUser": "1"}, ("runAsUser",), '"1" is text; write 1, without quotes'),
        ("PodSecurityContext", {"runAsUser": True}, ("runAsUser",), "true is not a whole number"),
        ("SecurityContext", {"privileged": "true"}, ("privileged",), "write true, without quotes"),
        ("SecurityContext", {"capabilities": {"add": "NET_ADMIN"}}, ("capabilities", "add"), "is not a list"),
        ("VolumeMount", {"name": "a"}, ("mountPath",), "is missing; Kubernetes' VolumeMount requires it"),
        (
            "VolumeSource",
            {"hostPath": "/models"},
            ("hostPath",),
            "write the fields of Kubernetes' HostPathVolumeSource",
        ),
        ("Container", {"name": "a", "env": [{"name": "B", "value": 1}]}, ("env", 0, "value"), 'in quotes: "1"'),
        ("Container", {"name": "a", "env": [{"name": "B", "value": True}]}, ("env", 0, "value"), 'in quotes: "true"'),
        ("Affinity", {"nodeAffinity": {"required": {}}}, ("nodeAffinity", "required"), "unknown field of Kubernetes'"),
    ],
)
def test_what_it_refuses(kind: str, value: dict[str, Any], place: tuple[str | int, ...], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Kubernetes(kind).check(value)
    (fault,) = raised.value.errors()
    assert fault["loc"] == place
    assert message in fault["msg"]


def test_a_patch_needs_nothing_and_may_remove() -> None:
    patch = {"spec": {"containers": [{"name": "runner", "ports": [], "env": None}, {"$patch": "delete", "name": "a"}]}}
    assert Kubernetes("PodTemplateSpec", patch=True).check(patch) == patch
    assert Kubernetes("PodTemplateSpec", patch=True).check({"spec": {"hostNetwork": True}})
    with pytest.raises(ValidationError, match="did you mean 'hostNetwork'"):
        Kubernetes("PodTemplateSpec", patch=True).check({"spec": {"hostnetwork": True}})


def test_every_fault_is_told() -> None:
    with pytest.raises(ValidationError) as raised:
        Kubernetes("Container").check({"nam": "a", "command": "b", "env": [{}, 1]})
    assert [fault["loc"] for fault in raised.value.errors()] == [
        ("nam",),
        ("command",),
        ("env", 0, "name"),
        ("env", 1),
        ("name",),
    ]
