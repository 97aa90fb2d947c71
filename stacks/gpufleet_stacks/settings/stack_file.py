"""Parsing of Pulumi stack files, with the line number of every value."""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpufleet.problem import Path
from gpufleet_stacks.settings.problems import (
    NAMESPACE,
    InvalidSettings,
    StackFileProblem,
    is_variable,
    nearest,
    plain_secret,
    quoted,
)
from gpufleet_stacks.settings.secrets import holds_secret, is_secret

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser, if PyYAML includes it: 29 ms for 1,000 runners, instead of 160."""

TOP_LEVEL = ("config", "encryptionsalt", "encryptedkey", "secretsprovider", "environment")
"""Keys of a stack file (ProjectStack in sdk/go/common/workspace/project.go of pulumi/pulumi)."""

DEEPEST = 50
"""Maximum levels of nesting. libyaml's parser overflows the stack at about 30,000."""

MOST_VALUES = 500_000
"""Maximum number of values in a file, with aliases expanded. A fleet of 1,000 runners has about 20,000."""

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"


@dataclass(frozen=True)
class StackFile:
    """Content of `Pulumi.<stack>.yaml`, before validation."""

    path: pathlib.Path
    """The file."""
    stack: str
    """Name of the stack."""
    values: Mapping[str, Any] = field(repr=False)
    """Values of the settings by configuration key, without the namespace and without encrypted values. Secrets in plain
    text are included."""
    secrets: frozenset[str]
    """Keys of encrypted values."""
    foreign: Mapping[str, Any] = field(repr=False)
    """Configuration of other namespaces (`pulumi:…`, `kubernetes:…`) by full key, without encrypted values."""
    foreign_secrets: frozenset[str] = frozenset()
    """Keys of encrypted values in other namespaces."""
    project: str = NAMESPACE
    """Name of the Pulumi project: the namespace of keys without one."""
    problems: tuple[StackFileProblem, ...] = ()
    """Problems of the text itself: duplicate keys, numbers that parsers read differently, secrets inside settings."""
    _config: yaml.MappingNode | None = field(repr=False, default=None)

    @property
    def name(self) -> str:
        return self.path.name

    def problem(self, path: Path, message: str, code: str = "") -> StackFileProblem:
        """Return a problem at a path, with the line of the deepest part of the path that the file contains."""
        return StackFileProblem(self.name, self.line(path), path, message, code)

    def line(self, path: Path) -> int | None:
        """Return the line of the deepest part of a path that the file contains; None if it contains no part."""
        line: int | None = None
        for key, _ in self._steps(path):
            line = key.start_mark.line + 1
        return line

    def written(self, path: Path) -> str | None:
        """Return the text of a scalar in the file; None if there is no scalar at the path."""
        steps = list(self._steps(path))
        node = steps[-1][1] if len(steps) == len(path) and steps else None
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def _steps(self, path: Path) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """Yield key and value of each part of the path, as far as the file contains them."""
        node: yaml.Node | None = self._config
        for depth, part in enumerate(path):
            found = _step(node, part) if depth else self._setting(node, str(part))
            if found is None:
                return
            yield found
            node = found[1]

    def _setting(self, node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
        """Return key and value of a configuration key, written with or without its namespace."""
        written = (f"{NAMESPACE}:{key}", key, key.removeprefix(f"{self.project}:"))
        return next(filter(None, (_step(node, each) for each in written)), None)


def stack_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the stack files in a folder, sorted, without deployment settings (`Pulumi.<stack>.deploy.yaml`)."""
    return sorted(path for path in folder.glob("Pulumi.*.yaml") if not path.name.endswith(".deploy.yaml"))


def stack_name(path: pathlib.Path) -> str:
    """Return the name of a file's stack."""
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def read(path: pathlib.Path) -> StackFile:
    """Read a stack file. Problems of its text are stored, to be reported together with those of its settings.

    Raise InvalidSettings for a file that does not exist, cannot be read, or is not YAML.
    """
    stack = stack_name(path)
    root = _composed(path)
    project = _project_name(path.parent)
    text = _Text(path.name, project)
    content = {} if root is None else text.value(root, ())
    if content is None:
        content = {}
    if not isinstance(content, dict):
        line = root.start_mark.line + 1 if root else None
        message = f"{quoted(content)} is not a stack file; a stack file is a mapping with the key 'config'"
        raise InvalidSettings([StackFileProblem(path.name, line, (), message)])
    config = content.get("config")
    node = _step(root, "config")
    if config is not None and not isinstance(config, dict) and node is not None:
        message = (
            f"{quoted(config)} is not a mapping of configuration keys; write them below it: {NAMESPACE}:cluster: …"
        )
        raise InvalidSettings([StackFileProblem(path.name, node[0].start_mark.line + 1, ("config",), message)])
    keys = {_whole(key, project): value for key, value in (config or {}).items()}
    own = {_short(key): value for key, value in keys.items() if _is_setting(key)}
    foreign = {key: value for key, value in keys.items() if not _is_setting(key)}
    secrets, foreign_secrets = _secret_keys(own), _secret_keys(foreign)
    return StackFile(
        path=path,
        stack=stack,
        values={key: value for key, value in own.items() if key not in secrets},
        secrets=secrets,
        foreign={key: value for key, value in foreign.items() if key not in foreign_secrets},
        foreign_secrets=foreign_secrets,
        project=project,
        problems=tuple(text.problems),
        _config=node[1] if node and isinstance(node[1], yaml.MappingNode) else None,
    )


def _project_name(folder: pathlib.Path) -> str:
    """Return the name of the Pulumi project in a folder. Problems of its file are ignored here."""
    try:
        project = yaml.load((folder / "Pulumi.yaml").read_bytes(), _Loader)
    except (OSError, yaml.YAMLError, ValueError):
        return NAMESPACE
    name = project.get("name") if isinstance(project, dict) else None
    return name if isinstance(name, str) else NAMESPACE


def _whole(key: str, project: str) -> str:
    """Return a configuration key with its namespace, by default the project."""
    return key if ":" in key else f"{project}:{key}"


def _is_setting(whole: str) -> bool:
    """Return whether a configuration key is in the namespace of the settings."""
    return whole.startswith(f"{NAMESPACE}:")


def _short(key: str) -> str:
    return key.removeprefix(f"{NAMESPACE}:")


def _secret_keys(config: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(key for key, value in config.items() if _is_secret(value))


def _is_secret(value: Any) -> bool:
    """Return whether Pulumi treats a value as encrypted: a map with the single key `secure` and a text."""
    return isinstance(value, dict) and list(value) == ["secure"] and isinstance(value["secure"], str)


def _composed(path: pathlib.Path) -> yaml.Node | None:
    """Return the file as YAML nodes."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidSettings([_no_such_stack(path)]) from None
    except OSError as error:
        raise InvalidSettings([StackFileProblem(path.name, None, (), f"cannot be read: {error.strerror}")]) from None
    try:
        line = _too_deep(data)
        if line is not None:
            message = f"is nested deeper than {DEEPEST} levels; no setting is that deep"
            raise InvalidSettings([StackFileProblem(path.name, line, (), message)])
        node: yaml.Node | None = _Loader(data).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise InvalidSettings([_not_yaml(path.name, error)]) from None
    except yaml.reader.ReaderError as error:
        # libyaml reports a position in bytes, not a line.
        line = data[: error.position].count(b"\n") + 1 if isinstance(error.position, int) else None
        raise InvalidSettings([StackFileProblem(path.name, line, (), f"is not YAML: {error.reason}")]) from None
    return node


def _too_deep(data: bytes) -> int | None:
    """Return the line at which the nesting becomes too deep; None if it does not."""
    depth = 0
    for event in yaml.parse(data, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST and event.start_mark:
                return event.start_mark.line + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _not_yaml(name: str, error: yaml.MarkedYAMLError) -> StackFileProblem:
    mark = error.problem_mark or error.context_mark
    parts = [part for part in (error.problem, error.context) if part]
    if parts[0].startswith("but "):
        parts.reverse()
    if error.context_mark and mark and error.context_mark.line != mark.line:
        parts.append(f"from line {error.context_mark.line + 1} on")
    return StackFileProblem(name, mark.line + 1 if mark else None, (), f"is not YAML: {' '.join(parts)}")


def _no_such_stack(path: pathlib.Path) -> StackFileProblem:
    stacks = sorted(stack_name(file) for file in stack_files(path.parent))
    there = f"stacks here: {', '.join(stacks)}" if stacks else f"{path.parent} has no stack files"
    return StackFileProblem(path.name, None, (), f"does not exist; {there}")


def _step(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of key and value one level down; an item of a sequence is its own key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return _entries(node).get(str(part)) if isinstance(node, yaml.MappingNode) else None


@functools.lru_cache(maxsize=256)
def _entries(node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Return key and value nodes by name: the first of each name, own keys before merged ones. Cached, because a
    thousand findings look up a thousand lines of one mapping."""
    entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            entries.setdefault(key.value, (key, value))
    for key, value in node.value:
        if key.tag == _MERGE:
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(merged, yaml.MappingNode):
                    entries = _entries(merged) | entries
    return entries


# -- values -----------------------------------------------------------------------------------------------------------

_OTHER_NUMBER = re.compile(r"[-+]?(0[0-9_]+|0[xob][0-9a-fA-F_]+|[0-9.]*_[0-9_.]*|[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?)")
"""Numbers that YAML reads as other decimal numbers: octal, hexadecimal, underscores, base 60."""

_NUMBER_TO_ENGINE = re.compile(r"[-+]?(0[0-9]+|0o[0-7]+|(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+)")
"""Text to PyYAML, numbers to the YAML parser of Pulumi's engine (gopkg.in/yaml.v3, resolve.go)."""

_SCALARS = frozenset(f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp"))


class _Text:
    """Converter of nodes to plain values, which collects problems of the text.

    PyYAML's constructor is not used: it stops at the first problem, and accepts duplicate keys.
    """

    def __init__(self, file: str, project: str) -> None:
        self.problems: list[StackFileProblem] = []
        self._file = file
        self._project = project
        self._left = MOST_VALUES
        self._depth = 0
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: Path) -> Any:
        """Return the value of a node, or None with a problem."""
        self._left -= 1
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            self._add(node, path, _tagged(node))
            return None
        self._depth += 1
        if self._depth > DEEPEST or self._left < 0:
            self._add(
                node, path[:6], "its aliases form a circle, or expand to too many values; write it without aliases"
            )
            raise InvalidSettings(self.problems)
        content: Any
        if isinstance(node, yaml.SequenceNode):
            content = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        else:
            content = self._mapping(node, path)
        self._depth -= 1
        return content

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                merged = self._merged(value, path) | merged
                continue
            name = self._key(key, path)
            if name is None:
                continue
            # Pulumi adds the project's namespace to keys without one.
            same = _whole(name, self._project) if path == ("config",) else name
            if same in lines:
                self._add(key, (*path, name), f"is set twice: here and in line {lines[same]}; remove one")
            lines.setdefault(same, key.start_mark.line + 1)
            own[name] = self.value(value, (*path, name))
        self._check_top_level(path, lines)
        content = merged | own
        if len(path) > 2 and _is_setting(_whole(str(path[1]), self._project)) and _is_secret(content):
            self._add(node, path, "is an encrypted value inside a setting; a secret requires its own configuration key")
            return {}
        return content

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        """Return the content of `<<`; of several maps, the first one takes precedence."""
        content: dict[str, Any] = {}
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.value(part, path)
            if isinstance(value, dict):
                content = value | content
            else:
                self._add(part, path, "'<<' requires an alias of a mapping, or a list of such aliases")
        return content

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        """Return a key's text. Keys that are not text in YAML are problems, because parsers read them differently."""
        if not isinstance(node, yaml.ScalarNode):
            self._add(node, path, "has a key that is not text; write a name before the colon")
            return None
        if node.tag != f"{_TAG}str":
            text = quoted(node.value)
            self._add(node, (*path, str(node.value)), f"{text[1:-1]} is not text to YAML; put it in quotes: {text}")
        return str(node.value)

    def _check_top_level(self, path: Path, lines: Mapping[str, int]) -> None:
        for name, line in lines.items():
            if not path and name not in TOP_LEVEL:
                self.problems.append(
                    StackFileProblem(self._file, line, (name,), f"unknown key; {nearest(name, TOP_LEVEL)}")
                )

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text, tag = str(node.value), node.tag
        setting = _settings_path(path)
        if holds_secret(text) or (is_variable(setting) and is_secret(str(setting[3]), text)):
            self._add(node, path, plain_secret(setting))
            return None
        if tag == f"{_TAG}value":
            return text
        if tag not in _SCALARS:
            self._add(node, path, _tagged(node))
            return None
        try:
            value = self._scalars.construct_object(node)
        except (ValueError, OverflowError):
            # An impossible date stays text; validation then rejects it as a date.
            return text
        if not node.style:
            self._check_reading(node, path, value)
        return value

    def _check_reading(self, node: yaml.ScalarNode, path: Path, value: Any) -> None:
        """Add a problem for unquoted text that parsers read differently."""
        text = str(node.value)
        if isinstance(value, bool) and text.lower() not in ("true", "false"):
            word = str(value).lower()
            message = f"{text} is {word} to some parsers and text to others; write {word}"
        elif isinstance(value, int | float) and _OTHER_NUMBER.fullmatch(text):
            message = f"{text} is read as the number {value}; write {value}"
        elif isinstance(value, str) and _NUMBER_TO_ENGINE.fullmatch(text):
            message = f"{text} is text to some parsers and a number to others; write it in full"
        else:
            return
        self._add(node, path, f"{message}, or in quotes: {quoted(text)}")

    def _add(self, node: yaml.Node, path: Path, message: str) -> None:
        self.problems.append(StackFileProblem(self._file, node.start_mark.line + 1, _settings_path(path), message))


def _tagged(node: yaml.Node) -> str:
    return f"has the YAML tag {quoted(node.tag)[1:-1]}, which settings cannot have; remove it"


def _settings_path(path: Path) -> Path:
    """Return the path of a setting from a path in the file: without `config` and the settings' namespace."""
    return (_short(str(path[1])), *path[2:]) if path[:1] == ("config",) and len(path) > 1 else path
