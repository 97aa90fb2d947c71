"""Changed settings of a stack, described as in the table of effects."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.secrets import redacted
from gpufleet_tools.diff.settings.flattened import Path
from gpufleet_tools.diff.settings.table import SETTINGS, Audience, Effect

Flat = Mapping[Path, str]

_LONGEST = 120
"""Maximum length of a value, in characters."""


class SettingChange(Documented):
    """Change of one setting."""

    path: str
    """Dotted path of the setting."""
    audience: Audience
    """People who notice the change."""
    words: str
    """Description of the setting."""
    before: str
    """Value before; `none` if it was not set."""
    after: str
    """Value after; `none` if it is not set."""
    labels: list[str] = []
    """Labels of both revisions whose jobs the setting affects; empty if users do not notice it."""


@functools.cache
def _tree() -> dict[str, Any]:
    """Return the rows' paths as nested dictionaries."""
    tree: dict[str, Any] = {}
    for each in SETTINGS:
        at = tree
        for part in each.split("."):
            at = at.setdefault(part, {})
    return tree


@functools.cache
def row(path: Path) -> Path:
    """Return the path of a setting's row, with placeholders in place of names. Parts that no row has are unchanged."""
    parts: list[str] = []
    tree = _tree()
    for part in path:
        placeholder = next((each for each in tree if each.startswith("<")), part)
        parts.append(part if part in tree else placeholder)
        tree = tree.get(parts[-1], {})
    return tuple(parts)


def effect(path: Path) -> Effect:
    """Return the effect of changing a setting. A setting of another revision that the table does not have is assumed to
    affect users."""
    return SETTINGS.get(".".join(row(path)), Effect("users", "a setting that this gpufleet does not know"))


def setting_changes(before: Flat, after: Flat) -> list[SettingChange]:
    """Return the changes, in the order of the settings. An added or removed entry is one change."""
    old, new = _entries(before), _entries(after)
    changes: dict[Path, SettingChange] = {}
    for path in {**before, **after}:
        if before.get(path) == after.get(path):
            continue
        entry = next(
            (path[:size] for size in range(2, len(path)) if (path[:size] in old) != (path[:size] in new)), None
        )
        if entry is None:
            changes[path] = _change(path, effect(path), before.get(path), after.get(path), before, after)
        elif entry not in changes:
            was, now = (entry[-1] if entry in side else None for side in (old, new))
            changes[entry] = _change(entry, effect(entry[:-1]), was, now, before, after)
    return list(changes.values())


def _entries(side: Flat) -> set[Path]:
    """Return the paths of the entries in maps of sections."""
    return {path[: depth + 1] for path in side for depth, part in enumerate(row(path)[:-1]) if part.startswith("<")}


def _change(path: Path, meaning: Effect, old: str | None, new: str | None, before: Flat, after: Flat) -> SettingChange:
    shown = [_shown(value, private=meaning.private) for value in (old, new)]
    if shown[0] == shown[1]:
        shown = [shown[0], f"another value, {shown[1]}" if shown[1] != "set" else "another value"]
    return SettingChange(
        path=".".join(path),
        audience=meaning.audience,
        words=meaning.words,
        before=shown[0],
        after=shown[1],
        labels=sorted(_concerned(path, before) & _concerned(path, after)) if meaning.audience == "users" else [],
    )


def _shown(value: str | None, *, private: bool) -> str:
    if value is None:
        return "none"
    text = "set" if private else redacted(" ".join(value.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _concerned(path: Path, side: Flat) -> set[str]:
    """Return the labels whose jobs a setting affects."""
    labels = {each[1] for each in side if each[0] == "runners"}
    match path:
        case ("runners", label, *_):
            return labels & {label}
        case ("profiles", profile, *_):
            return {label for label in labels if side.get(("runners", label, "profile")) == profile}
        case ("projects", project, *_):
            return {label for label in labels if side.get(("runners", label, "project")) == project}
        case ("cluster", "nodePools", pool, *_):
            return {label for label in labels if _pool(label, side) == pool}
    return labels


def _pool(label: str, side: Flat) -> str | None:
    named = side.get(("profiles", side.get(("runners", label, "profile"), ""), "pool"))
    return named or next((each[2] for each in side if each[:2] == ("cluster", "nodePools")), None)
