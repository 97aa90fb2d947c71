"""Inputs against the SDK's own type hints: names that it does not know, what is missing, values of the wrong kind.

The SDK itself checks none of them: whatever stands in a dictionary passes through it, a misspelling too.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pulumi import _types
from pulumi_kubernetes.core.v1 import PodTemplateSpecArgs

from gpufleet_tools.plan import arc_releases
from gpufleet_tools.plan.plan import Plan, Unknown, revealed


def wrong_inputs(plan: Plan) -> list[str]:
    """What the SDK's hints do not allow in the plan's resources and in the pod templates of its scale sets, by path.

    Providers are left out: their inputs reach the engine as JSON texts, whatever they were. So are objects of CRDs, of
    which the SDK knows nothing.
    """
    found: list[str] = []
    classes = resource_classes()
    for resource in plan.owned():
        # Neither objects of CRDs nor components of ours have a class of the SDK's.
        if resource.kind != "provider" and resource.type in classes:
            found += _faults(revealed(resource.inputs), inputs_class(resource.type), resource.name)
    for release in arc_releases.scale_sets(plan):
        path = f"{release.name}.values.template"
        found += _faults(revealed(release.values["template"]), PodTemplateSpecArgs, path)
    return found


def inputs_class(token: str) -> type:
    """The SDK's class of what a resource takes, such as `DaemonSetInitArgs` or `ReleaseArgs`."""
    cls = resource_classes()[token]
    module = sys.modules[cls.__module__]
    found: type = getattr(module, f"{cls.__name__}InitArgs", None) or getattr(module, f"{cls.__name__}Args")
    return found


def resource_classes() -> dict[str, type]:
    """Every resource class that has been imported, by its type token: a program cannot have used another."""
    found: dict[str, type] = {}
    left: list[type] = [pulumi.CustomResource, pulumi.ComponentResource]
    while left:
        cls = left.pop()
        left += cls.__subclasses__()
        found[vars(cls).get("pulumi_type", "")] = cls
    return found


def _faults(value: Any, hint: Any, path: str) -> Iterator[str]:
    hint = _types.unwrap_type(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is None or hint is Any or isinstance(value, Unknown):
        return
    if origin in (typing.Union, types.UnionType):
        if all(list(_faults(value, argument, path)) for argument in arguments):
            yield f"{path}: {value!r} is none of {hint}"
    elif origin is typing.Literal:
        if value not in arguments:
            yield f"{path}: {value!r} is not {arguments[0]!r}"
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        if value not in [each.value for each in hint]:
            yield f"{path}: {value!r} is none of {hint.__name__}"
    elif isinstance(hint, type) and issubclass(hint, pulumi.Resource):
        # In a plan, a resource is its URN.
        if not isinstance(value, str) or not value.startswith("urn:pulumi:"):
            yield f"{path}: {value!r} is no {hint.__name__}"
    elif isinstance(hint, type) and _types.is_input_type(hint):
        yield from _object_faults(value, hint, path)
    elif origin is collections.abc.Sequence and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, arguments[0], f"{path}[{index}]")
    elif origin is collections.abc.Mapping and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _faults(item, arguments[1], f"{path}.{key}")
    elif not _is_plain(value, hint, path):
        yield f"{path}: {value!r} is no {getattr(hint, '__name__', hint)}"


def _object_faults(value: Any, cls: type, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path}: {value!r} is no {cls.__name__}"
        return
    known = _types.input_type_types(cls)
    for key in value.keys() - known.keys():
        yield f"{path}.{key}: {cls.__name__} has no such property"
    for key in _needful(cls) - value.keys():
        yield f"{path}.{key}: is missing"
    for key in value.keys() & known.keys():
        yield from _faults(value[key], known[key], f"{path}.{key}")


@functools.cache
def _needful(cls: type) -> frozenset[str]:
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return frozenset(names[each.name] for each in parameters if each.default is inspect.Parameter.empty)


def _is_plain(value: Any, hint: Any, path: str) -> bool:
    # A quantity may be a number to Kubernetes, and is one in a GPU's; the hints have text only.
    if hint is str and type(value) is int and path.split(".resources.")[-1].startswith(("requests.", "limits.")):
        return True
    return type(value) is hint or (hint is float and type(value) is int)
