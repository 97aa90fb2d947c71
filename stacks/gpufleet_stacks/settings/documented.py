"""Base class of models whose JSON Schema contains the docstring of each field."""

from __future__ import annotations

import ast
import functools
import inspect
import pathlib
import sys
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema


class Documented(BaseModel):
    """Base class of every model: unknown keys are rejected, instances are immutable, keys are in camel case.

    Only schemas need the descriptions. pydantic's `use_attribute_docstrings` parses the source of every class when it
    is defined. With it, `gpufleet preview mi300` takes 1.78 times as long as importing the SDK's modules, and 1.41
    times without it (CPU time, medians of 20 alternating runs). At most 1.5 is allowed (tests/bench/preview.py).
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_alias=True, serialize_by_alias=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        meanings: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, Documented):
                meanings |= _meanings(base.__module__).get(base.__name__, {})
        for name, field in cls.model_fields.items():
            if name in meanings:
                properties[field.alias or name].setdefault("description", meanings[name])
        return described


@functools.cache
def _meanings(module: str) -> dict[str, dict[str, str]]:
    """Return the string below each field, by class and field."""
    source = pathlib.Path(str(sys.modules[module].__file__)).read_text()
    return {node.name: _fields(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _fields(definition: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = inspect.cleandoc(below.value.value)
    return found
