"""Settings as a flat list of paths and values, including defaults."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

Path = tuple[str, ...]


def flattened(settings: BaseModel, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield every setting that has a value, with its path. A list is one value, and so is a map of plain values."""
    for field, name in _names(type(settings)).items():
        yield from _below((*path, name), getattr(settings, field))


@functools.cache
def _names(model: type[BaseModel]) -> Mapping[str, str]:
    """Names of a model's settings in stack files, by field."""
    return {field: to_camel(field) for field in model.model_fields}


def _below(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(value, BaseModel):
        yield from flattened(value, path)
    elif isinstance(value, Mapping) and any(isinstance(item, BaseModel) for item in value.values()):
        for key, item in value.items():
            yield from _below((*path, str(key)), item)
    elif value not in (None, (), [], {}):
        yield path, _text(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _text(value: Any) -> str:
    """Return the value as text: lists and maps of plain values separated by commas, others as JSON."""
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping) and all(isinstance(item, str | int) for item in value.values()):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
