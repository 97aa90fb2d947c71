"""Messages for pydantic's errors: what is wrong, what is allowed, what to do."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from typing import Any

from pydantic_core import ErrorDetails

from gpufleet.problem import Path
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import SET_SECRET, StackFileProblem, near, nearest, quoted
from gpufleet_stacks.settings.stack_file import StackFile

Schema = dict[str, Any]


def problem(detail: ErrorDetails, model: type[Settings], file: StackFile) -> StackFileProblem:
    """Return the problem of one error of a model, with its line."""
    path, schema = _place(detail["loc"], model)
    if detail["type"] in ("union_tag_not_found", "union_tag_invalid"):
        path, detail, schema = _of_kind(path, detail, schema)
    if detail["type"] == "extra_forbidden":
        return file.problem(path, _unknown(path, _place(detail["loc"][:-1], model)[1]))
    return file.problem(path, _message(detail, path, schema, file))


def _of_kind(path: Path, detail: ErrorDetails, schema: Schema) -> tuple[Path, ErrorDetails, Schema]:
    """Return an error about the kind of a section as an error about its key `kind`."""
    kinds = {"enum": sorted(schema["discriminator"]["mapping"])}
    if detail["type"] == "union_tag_not_found":
        return (*path, "kind"), {**detail, "type": "missing"}, kinds
    return (*path, "kind"), {**detail, "type": "literal_error", "input": detail["input"]["kind"]}, kinds


def _message(detail: ErrorDetails, path: Path, schema: Schema, file: StackFile) -> str:
    got, kind, context = detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return f"is missing; {_choices(schema)}" if _options(schema) else f"is missing; add it: {_meaning(schema)}"
    if kind == "too_short" and got:
        return (
            f"has {len(got)} {'entry' if len(got) == 1 else 'entries'}; at least {context['min_length']} are required"
        )
    if kind in _EMPTY:
        return f"is empty; {_EMPTY[kind]}"
    if got is None:
        examples = context.get("examples")
        return f"is empty; {f'write for example {examples}' if examples else _wanted(kind, schema)}"
    shown = _shown(got, path, file)
    match kind:
        case "string_type" if isinstance(got, int | float | datetime.date):
            return f'{shown} is not text to YAML; put it in quotes: "{shown}"'
        case "int_type" if isinstance(got, str) and got.removeprefix("-").isdecimal():
            return f"{shown} is text; write {got}, without quotes"
        case "bool_type" if got in ("true", "false"):
            return f"{shown} is text; write {got}, without quotes"
        case "int_type" | "int_from_float":
            return f"{shown} is not a whole number; write digits only, such as 2"
        case "greater_than_equal":
            return f"{shown} is too small; at least {context['ge']}"
        case "less_than_equal":
            return f"{shown} is too large; at most {context['le']}"
        case "literal_error":
            wanted = near(str(got), _options(schema))
            hint = f"did you mean '{wanted}'? " if wanted else ""
            return f"{shown} is not valid; {hint}{_choices(schema)}"
        case "too_long":
            return f"has {len(got)} entries; at most {context['max_length']} is allowed"
        case "toleration" | "sharing" | "kubernetes":
            return detail["msg"]
        case _ if kind in _WANTED:
            return f"{shown} is not {_WANTED[kind][0]}; {_wanted(kind, schema)}"
        case _:
            return f"{shown} {detail['msg']}"


_EMPTY = {"too_short": "at least one is required", "string_too_short": "write a value"}

_DATE = ("a date", "write it as 2027-01-31")
_MAPPING = ("a mapping of keys to values", "write one 'key: value' a line")
_LIST = ("a list", "begin each entry with '- '")

_WANTED: dict[str, tuple[str, str]] = {
    "string_type": ("text", "write a single text"),
    "int_type": ("a whole number", "write digits only, such as 2"),
    "bool_type": ("true or false", "write one of them"),
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": _DATE,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
}
"""Expected value by type of error, and how to write it."""


def _wanted(kind: str, schema: Schema) -> str:
    if _options(schema):
        return _choices(schema)
    if "properties" in schema:
        return f"its keys are: {', '.join(sorted(schema['properties']))}"
    if "discriminator" in schema:
        return f"write 'kind' and its settings; kinds: {', '.join(sorted(schema['discriminator']['mapping']))}"
    return _WANTED[kind][1] if kind in _WANTED else "write a value, or remove it"


def _unknown(path: Path, schema: Schema) -> str:
    """Return the message about a key that is not a setting."""
    if len(path) == 4 and path[0] == "projects" and path[3] in ("token", "privateKey"):
        return f"secrets are not allowed here; revoke it, then set a new one: {SET_SECRET}{path[1]}-{path[3]}"
    return f"unknown key; {nearest(str(path[-1]), schema.get('properties', ()))}"


def _shown(got: object, path: Path, file: StackFile) -> str:
    """Return a value as written, or `this value` where it could be a secret."""
    if "secretVariables" in path:
        return "this value"
    if isinstance(got, int | float | datetime.date):
        return file.written(path) or (str(got).lower() if isinstance(got, bool) else str(got))
    if path[-1] != "kind" and {"credentials", "kubeconfig"}.intersection(path):
        return "this value"
    return quoted(got)


def _options(schema: Schema) -> list[str]:
    options = [schema["const"]] if "const" in schema else schema.get("enum", ())
    return [str(option) for option in options]


def _choices(schema: Schema) -> str:
    # Numbers by value: 2 before 12.
    options = sorted(_options(schema), key=lambda option: (len(option) if option.isdigit() else 0, option))
    return f"allowed: {', '.join(options)}"


def _meaning(schema: Schema) -> str:
    """Return the first sentence of the setting's description."""
    text = " ".join(str(schema.get("description", "it is required")).split())
    return text.split(". ")[0].rstrip(".")


# -- the schema -------------------------------------------------------------------------------------------------------


@functools.cache
def _schema(model: type[Settings]) -> Schema:
    return model.model_json_schema()


def _place(loc: tuple[int | str, ...], model: type[Settings]) -> tuple[Path, Schema]:
    """Return the path in the file of a location of pydantic, and the JSON Schema there. The path omits pydantic's tags
    of alternatives and its marker for mapping keys."""
    path: list[int | str] = []
    schema = _schema(model)
    definitions = schema["$defs"]
    node = _resolved(schema, definitions)
    for part in loc:
        if part == "[key]":
            continue
        if "discriminator" in node:
            node = _resolved({"$ref": node["discriminator"]["mapping"].get(part, "")}, definitions)
            continue
        path.append(part)
        node = next((_resolved(step, definitions) for step in _steps(node, part)), {})
    return tuple(path), node


def _steps(node: Schema, part: int | str) -> Iterator[Schema]:
    """Yield the schemas one level down."""
    if isinstance(part, int):
        entries = [node.get("items")]
    elif part in node.get("properties", ()):
        entries = [node["properties"][part]]
    else:
        entries = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
    yield from (entry for entry in entries if isinstance(entry, dict))


def _resolved(node: Schema, definitions: Schema) -> Schema:
    """Return the node behind a reference or an optional value, with the outermost description."""
    target = next((choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"), None)
    if target is None and "$ref" in node:
        target = definitions.get(node["$ref"].removeprefix("#/$defs/"), {})
    if target is None:
        return node
    return {**_resolved(target, definitions), **{key: text for key, text in node.items() if key == "description"}}
