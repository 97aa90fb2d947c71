"""Validation of objects in Kubernetes syntax against the types of the Kubernetes API.

`kubernetes_types.json` contains the types with their fields, and which fields are required. It is generated from the
input types of Pulumi's Kubernetes SDK, because importing the SDK takes three seconds.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from gpufleet.arc.strategic_merge import MERGE_KEYS
from gpufleet.problem import Path
from gpufleet_stacks.settings.problems import nearest, quoted

TABLE = pathlib.Path(__file__).with_suffix(".json")
"""Types by name. A field's type is a key of `_WORDS`, the name of another type, `[TYPE]` for a list, or `{"": TYPE}`
for a map."""

Type = str | list[Any] | dict[str, Any]

Fault = tuple[Path, str, Any]

_WORDS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "quantity": ((str, int, float), "a quantity"),
    "integer-or-string": ((int, str), "a whole number or text"),
    "any": ((object,), "anything"),
}
"""Types of single values: their Python types once YAML is parsed, and their name in messages."""


@dataclass(frozen=True)
class Kubernetes:
    """Annotation of a mapping that must be an object of a Kubernetes API type. The value is not changed."""

    type: str
    """Name of the type, such as `PodSecurityContext`."""
    patch: bool = False
    """Whether the value is a strategic merge patch: no field is required, and `null` and `$patch` are allowed."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"x-kubernetes-type": self.type}

    def check(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the value, or raise ValidationError with every fault and its path."""
        faults: list[InitErrorDetails] = [
            {"type": PydanticCustomError("kubernetes", "{message}", {"message": message}), "loc": path, "input": at}
            for path, message, at in _Check(self.patch).faults(value, self.type, ())
        ]
        if faults:
            raise ValidationError.from_exception_data(self.type, faults)
        return value


def unknown_fields(value: Any, wanted: Type, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the fields of an object that its type does not have: the path, and the name of that type."""
    if isinstance(wanted, list):
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from unknown_fields(item, wanted[0], (*path, index))
    elif not isinstance(value, dict) or (isinstance(wanted, str) and wanted in _WORDS):
        return
    elif isinstance(wanted, dict):
        for key, item in value.items():
            yield from unknown_fields(item, wanted[""], (*path, key))
    else:
        fields = _types()[wanted]["fields"]
        for key, item in value.items():
            if key in fields:
                yield from unknown_fields(item, fields[key], (*path, key))
            else:
                yield (*path, key), wanted


@functools.cache
def _types() -> dict[str, dict[str, Any]]:
    types: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())
    return types


@dataclass(frozen=True)
class _Check:
    """Search for the faults of a value: path, message and found value of each."""

    patch: bool

    def faults(self, value: Any, wanted: Type, path: Path) -> Iterator[Fault]:
        if value is None and self.patch:
            return
        if isinstance(wanted, list):
            yield from self._of_list(value, wanted[0], path)
        elif isinstance(wanted, dict):
            if not isinstance(value, dict):
                yield path, f"{quoted(value)} is not a mapping of keys to values", value
                return
            for key, item in value.items():
                yield from self.faults(item, wanted[""], (*path, key))
        elif wanted in _WORDS:
            classes, name = _WORDS[wanted]
            if not isinstance(value, classes) or (isinstance(value, bool) and wanted not in ("boolean", "any")):
                yield path, _wrong(value, wanted, name), value
        else:
            yield from self._of_object(value, wanted, path)

    def _of_list(self, value: Any, wanted: Type, path: Path) -> Iterator[Fault]:
        if not isinstance(value, list | tuple):
            yield path, f"{quoted(value)} is not a list; begin each entry with '- '", value
            return
        key = MERGE_KEYS.get(str(path[-1])) if self.patch and path else None
        for index, item in enumerate(value):
            if item is None:
                yield (*path, index), "is empty; write a value, or remove it", item
                continue
            yield from self.faults(item, wanted, (*path, index))
            if key and isinstance(item, dict) and item.get(key) is None and item.get("$patch") != "replace":
                yield (*path, index, key), f"is missing; entries of {path[-1]} are merged by their {key}", item

    def _of_object(self, value: Any, wanted: str, path: Path) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield path, f"{quoted(value)} is not a mapping; write the fields of Kubernetes' {wanted}", value
            return
        fields, required = (_types()[wanted][part] for part in ("fields", "required"))
        for key, item in value.items():
            if key in fields:
                yield from self.faults(item, fields[key], (*path, key))
            elif not (self.patch and key == "$patch"):
                yield (*path, key), f"unknown field of Kubernetes' {wanted}; {nearest(str(key), fields)}", item
        for key in () if self.patch else required:
            if key not in value:
                yield (*path, key), f"is missing; Kubernetes' {wanted} requires it", value


def _wrong(value: Any, wanted: str, name: str) -> str:
    """Return the message about a single value of another type."""
    shown = quoted(value)
    if wanted == "string" and isinstance(value, int | float):
        written = json.dumps(value)
        return f'{written} is not text to YAML; put it in quotes: "{written}"'
    if wanted == "integer" and isinstance(value, str) and value.removeprefix("-").isdecimal():
        return f"{shown} is text; write {value}, without quotes"
    if wanted == "boolean" and value in ("true", "false"):
        return f"{shown} is text; write {value}, without quotes"
    return f"{shown} is not {name}"
