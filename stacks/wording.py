"""pydantic's errors in this project's words: what was got, what is allowed, what to do."""

from __future__ import annotations

import functools
from typing import Any

from pydantic_core import ErrorDetails

from stacks.fault import Fault, Path, nearest, quoted
from stacks.settings import Settings
from stacks.stack_file import StackFile


def fault(detail: ErrorDetails, file: StackFile) -> Fault:
    """One error as a fault at its line."""
    path = _path(detail["loc"])
    return file.fault(path, _message(detail, path, file))


def _path(loc: tuple[int | str, ...]) -> Path:
    """pydantic's location as a path in the file: without the tags of unions and the mark of a mapping's key."""
    path: list[int | str] = []
    for part in loc:
        tag = bool(path) and part in _TAGS_OF.get(path[-1], ())
        if part != "[key]" and not tag:
            path.append(part)
    return tuple(path)


_TAGS_OF: dict[str | int, tuple[str, ...]] = {
    "kubeconfig": ("context", "secret"),
    "credentials": ("existingSecret", "githubApp", "token"),
}
"""Values of `kind`, by the setting that is such a choice; pydantic puts the chosen one into an error's location."""


def _message(detail: ErrorDetails, path: Path, file: StackFile) -> str:
    got, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key; {nearest(str(path[-1]), _schema_at(detail['loc'][:-1]).get('properties', ()))}"
        case "missing":
            return f"is missing; {_description(detail['loc'])}"
        case "string_type" if isinstance(got, (int, float)):
            text = file.written(path) or str(got)
            return f'{text} is not text to YAML; put it in quotes: "{text}"'
        case "string_type":
            return f"{quoted(got)} is not text"
        case "int_type" if isinstance(got, str) and got.isdigit():
            return f'"{got}" is text; write {got}, without quotes'
        case "int_type" | "int_from_float":
            return f"{quoted(got)} is not a whole number"
        case "bool_type":
            return f"{quoted(got)} is neither true nor false"
        case "greater_than_equal":
            return f"{quoted(got)} is too small; at least {context['ge']}"
        case "less_than_equal":
            return f"{quoted(got)} is too large; at most {context['le']}"
        case "literal_error":
            return f"{quoted(got)} is not possible; {_choice(got, context['expected'])}"
        case "union_tag_not_found":
            return f"its 'kind' is missing; {_choice(None, ', '.join(_TAGS_OF[str(path[-1])]))}"
        case "union_tag_invalid":
            return f"kind {quoted(context['tag'])} is not possible; {_choice(context['tag'], context['expected_tags'])}"
        case "dict_type" | "model_type" | "model_attributes_type" | "dataclass_type":
            return f"{quoted(got)} is not a mapping of keys to values"
        case "tuple_type" | "list_type":
            return f"{quoted(got)} is not a list"
        case "too_short":
            return "is empty; at least one is needed"
        case "string_too_short":
            return "is empty"
        case "date_type" | "date_parsing" | "date_from_datetime_parsing" | "date_from_datetime_inexact":
            return f"{quoted(got)} is not a date; write it as 2027-01-31"
        case "too_long" | "not_legal" | "quantity":
            return f"{quoted(got)} {detail['msg']}"
        case _:
            return f"{quoted(got)}: {detail['msg']}"


def _choice(got: object, expected: str) -> str:
    options = [option.strip().strip("'") for option in expected.replace(" or ", ", ").split(",")]
    return nearest(str(got), options)


def _description(loc: tuple[int | str, ...]) -> str:
    """What the setting means: the first sentence of its description."""
    text = str(_schema_at(loc).get("description", "it is required"))
    return text.split(". ")[0].rstrip(".")


@functools.cache
def _schema() -> dict[str, Any]:
    return Settings.model_json_schema()


def _schema_at(loc: tuple[int | str, ...]) -> dict[str, Any]:
    """The JSON Schema of the setting at a location."""
    node = _schema()
    for part in loc:
        node = _resolved(node)
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"].get(part, "")}
        elif isinstance(part, int):
            node = node.get("items", {})
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        else:
            entries = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
            node = next((entry for entry in entries if isinstance(entry, dict)), {})
    return {**_resolved(node), **{key: text for key, text in node.items() if key == "description"}}


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    """The node itself, behind a reference or the choice between it and null."""
    for choice in node.get("anyOf", ()):
        if choice.get("type") != "null":
            return _resolved(choice)
    if "$ref" in node:
        return _resolved(_schema()["$defs"].get(node["$ref"].removeprefix("#/$defs/"), {}))
    return node
