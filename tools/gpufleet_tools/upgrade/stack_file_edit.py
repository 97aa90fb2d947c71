"""Edits of the settings of ARC in the text of a stack file. Comments, order and layout stay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import yaml

from gpufleet_stacks.settings.problems import NAMESPACE

SECTION = "arc"
"""Configuration key of the edited settings."""

_Pair = tuple[yaml.ScalarNode, yaml.Node]


class NotEditable(Exception):
    """The file writes the section in a way that only a person can change."""


def edited(text: str, project: str, values: Mapping[str, str | None]) -> str:
    """Return the text with values of the section's keys set, or removed where the value is None.

    `project` is the name of the Pulumi project, which keys may have as namespace. Raises NotEditable.
    """
    for key, value in values.items():
        section = _section(text, project)
        if value is not None:
            text = _with(text, section, key, value)
        elif section is not None and (pair := _pair(section[1], key)):
            text = _without(text, section, pair)
    return text


def _section(text: str, project: str) -> _Pair | None:
    """Return key and value of the section; None if the file has none."""
    # The pure parser: libyaml's marks have no positions of characters.
    root = yaml.compose(text, yaml.SafeLoader)
    config = _pair(root, "config")
    if config is None or not isinstance(config[1], yaml.MappingNode):
        raise NotEditable("it has no mapping 'config'")
    for written in (f"{NAMESPACE}:{SECTION}", SECTION, f"{project}:{SECTION}"):
        if pair := _pair(config[1], written):
            if not isinstance(pair[1], yaml.MappingNode) or _is_alias(text, pair[1]):
                raise NotEditable(f"{written} is not written as a mapping of its own")
            return pair
    return None


def _pair(node: yaml.Node | None, key: str) -> _Pair | None:
    pairs: Sequence[_Pair] = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((pair for pair in pairs if isinstance(pair[0], yaml.ScalarNode) and pair[0].value == key), None)


def _is_alias(text: str, node: yaml.Node) -> bool:
    """Return whether the node is an alias of an earlier one, or has an anchor that others may use."""
    return bool(re.search(r"[&*][^\s,\[\]{}]+\s*$", text[: node.start_mark.index].rpartition("\n")[2])) or (
        text[node.start_mark.index : node.start_mark.index + 1] in "&*"
    )


def _with(text: str, section: _Pair | None, key: str, value: str) -> str:
    if section is None:
        return _with_section(text, key, value)
    mapping = section[1]
    assert isinstance(mapping, yaml.MappingNode)
    if pair := _pair(mapping, key):
        return text[: pair[1].start_mark.index] + value + text[pair[1].end_mark.index :]
    if not mapping.value:
        return text[: mapping.start_mark.index] + f"{{{key}: {value}}}" + text[mapping.end_mark.index :]
    # Below the last key: the first one may follow the start of the mapping in its line.
    last_key, last_value = mapping.value[-1]
    if mapping.flow_style:
        at = last_value.end_mark.index
        return text[:at] + f", {key}: {value}" + text[at:]
    at = text.find("\n", last_value.end_mark.index)
    at = at if at >= 0 else len(text)
    if not isinstance(last_value, yaml.ScalarNode):
        raise NotEditable(f"{last_key.value} is no plain value")
    return text[:at] + f"\n{' ' * last_key.start_mark.column}{key}: {value}" + text[at:]


def _with_section(text: str, key: str, value: str) -> str:
    """Return the text with a new section before the last one, and before the comment above that."""
    config = _pair(yaml.compose(text, yaml.SafeLoader), "config")
    assert config is not None
    keys = [pair[0].start_mark for pair in config[1].value]
    own = next((pair[0].start_mark for pair in config[1].value if pair[0].value.endswith(":projects")), keys[-1])
    lines = text.splitlines(keepends=True)
    at = own.line
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    lines.insert(at, f"{' ' * own.column}{NAMESPACE}:{SECTION}: {{{key}: {value}}}\n")
    return "".join(lines)


def _without(text: str, section: _Pair, pair: _Pair) -> str:
    mapping = section[1]
    assert isinstance(mapping, yaml.MappingNode)
    start, end = pair[0].start_mark, pair[1].end_mark
    if len(mapping.value) == 1:
        return _without_lines(text, section[0].start_mark.line, end.line)
    if not mapping.flow_style:
        if start.line == section[0].start_mark.line:
            raise NotEditable(f"{pair[0].value} does not have a line of its own")
        return _without_lines(text, start.line, end.line)
    before, after = text[: start.index], text[end.index :]
    if comma := re.match(r"\s*,\s*", after):
        return before + after[comma.end() :]
    return re.sub(r"\s*,\s*$", "", before) + after


def _without_lines(text: str, first: int, last: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:first] + lines[last + 1 :])
