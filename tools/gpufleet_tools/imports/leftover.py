"""What no setting says of a pod, as a strategic merge patch: the last resort of an import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet.arc.strategic_merge import MERGE_KEYS, REPLACED_ITEMS
from gpufleet.problem import Path
from gpufleet_stacks.settings.problems import dotted
from gpufleet_stacks.settings.secrets import SECRET
from gpufleet_tools.imports.value_differences import ABSENT, defaulted, differences_at


def template_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that gives the pod template of `after` what it lost or changed of `before`. What `after` adds
    stays. Secrets are not in the patch."""
    old, new = before.get("template"), after.get("template")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {}
    parts = {part: old[part] for part in ("metadata", "spec") if isinstance(old.get(part), dict)}
    patch = _patch(parts, new, ("template",))
    return patch if isinstance(patch, dict) else {}


def _patch(before: Any, after: Any, path: Path) -> Any:
    """The patch of a value; ABSENT where nothing of it is lost or changed, or a secret is in the way."""
    if not any(each.before is not ABSENT for each in differences_at(before, after, path)):
        return ABSENT
    if isinstance(before, dict) and isinstance(after, dict):
        whole = defaulted(before, path)
        parts = {key: _patch(item, after.get(key, ABSENT), (*path, key)) for key, item in whole.items()}
        return {key: part for key, part in parts.items() if part is not ABSENT} or ABSENT
    key = MERGE_KEYS.get(str(path[-1]))
    if key and isinstance(before, list) and all(isinstance(item, dict) and key in item for item in before):
        return _patched_items(before, after if isinstance(after, list) else [], path, key)
    return ABSENT if _holds_secret(before) else before


def _patched_items(before: list[Any], after: list[Any], path: Path, key: str) -> Any:
    there = {str(item.get(key)): item for item in after if isinstance(item, dict)}
    items = []
    for item in before:
        other = there.get(str(item[key]), ABSENT)
        patch = _patch(item, other, (*path, str(item[key])))
        if patch is ABSENT:
            continue
        whole = other is ABSENT or path[-1] in REPLACED_ITEMS
        if not whole:
            items.append({key: item[key]} | patch)
        elif not _holds_secret(item):
            items.append(item)
    return items or ABSENT


def _holds_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_secret(item) for item in value.values())
    return any(_holds_secret(item) for item in value) if isinstance(value, list) else value == SECRET


def patched_fields(patch: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that a patch sets: `template.spec.containers.runner.ports`."""
    for part, fields in patch.items():
        for field, value in fields.items():
            yield from _fields(value, ("template", part, field))


def _fields(value: Any, path: Path) -> Iterator[str]:
    key = MERGE_KEYS.get(str(path[-1]))
    if key and isinstance(value, list):
        for item in value:
            if path[-1] in ("containers", "initContainers"):
                yield from (
                    found for field in item if field != key for found in _fields(item[field], (*path, item[key], field))
                )
            else:
                yield dotted((*path, str(item[key])))
    else:
        yield dotted(path)
