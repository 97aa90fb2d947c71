"""A Pulumi stack file, with the line of everything in it."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from stacks.fault import PROJECT, Fault, InvalidSettings, Path

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML has it: 29 ms for 1,000 runners, 160 without."""

_AMBIGUOUS = re.compile(r"[-+]?(0[0-9_]+|0[xob][0-9a-fA-F_]+|[0-9_]*_[0-9_]*|[0-9]+(:[0-5]?[0-9])+)")
"""Numbers that YAML reads as something else than what is written: octal, hexadecimal, underscores, base 60."""


@dataclass(frozen=True)
class StackFile:
    """What `Pulumi.<stack>.yaml` says, before anybody has judged it."""

    path: pathlib.Path
    """The file."""
    stack: str
    """Name of the stack."""
    values: Mapping[str, Any]
    """Values of the project's own configuration keys, without the namespace. What is encrypted is left out."""
    secrets: frozenset[str]
    """Keys whose value is encrypted."""
    foreign: Mapping[str, Any]
    """Configuration of other namespaces (`pulumi:…`, `kubernetes:…`), by whole key."""
    _config: yaml.MappingNode | None = field(repr=False, default=None)

    @property
    def name(self) -> str:
        return self.path.name

    def fault(self, path: Path, message: str, *, at: Path | None = None) -> Fault:
        """A fault at `path`, with the line of `at` where that is another place."""
        return Fault(self.name, self.line(path if at is None else at), path, message)

    def line(self, path: Path) -> int | None:
        """Line of the deepest part of the path that the file has; None when it has none of it."""
        node: yaml.Node | None = self._config
        line: int | None = None
        for depth, part in enumerate(path):
            key, node = _step(node, f"{PROJECT}:{part}" if depth == 0 else part)
            if key is None:
                break
            line = key.start_mark.line + 1
        return line

    def written(self, path: Path) -> str | None:
        """A scalar's text as it stands in the file; None when there is none at that path."""
        node: yaml.Node | None = self._config
        for depth, part in enumerate(path):
            node = _step(node, f"{PROJECT}:{part}" if depth == 0 else part)[1]
        return node.value if isinstance(node, yaml.ScalarNode) else None


def read(path: pathlib.Path) -> StackFile:
    """Reads a stack file.

    Raises InvalidSettings for a file that is not there or cannot be read, is not YAML, has a key twice, a number that
    YAML takes for another one, or a secret amid other settings.
    """
    stack = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
    loader, root = _compose(path)
    if root is None:
        return StackFile(path, stack, {}, frozenset(), {})
    if not isinstance(root, yaml.MappingNode):
        raise InvalidSettings([Fault(path.name, 1, (), "is not a Pulumi stack file: a mapping with the key 'config'")])
    config = _step(root, "config")[1]
    if config is not None and not isinstance(config, yaml.MappingNode):
        line = config.start_mark.line + 1
        raise InvalidSettings([Fault(path.name, line, ("config",), "has to be a mapping of configuration keys")])
    faults = [Fault(path.name, line, _settings_path(where), message) for line, where, message in _mistakes(root, ())]
    if faults:
        raise InvalidSettings(faults)
    values: dict[str, Any] = loader.construct_document(config) if config is not None else {}
    own = {key.removeprefix(f"{PROJECT}:"): value for key, value in values.items() if key.startswith(f"{PROJECT}:")}
    secrets = frozenset(key for key, value in own.items() if _is_secret(value))
    plain = {key: value for key, value in own.items() if key not in secrets}
    foreign = {key: value for key, value in values.items() if not key.startswith(f"{PROJECT}:")}
    return StackFile(path, stack, plain, secrets, foreign, config)


def _compose(path: pathlib.Path) -> tuple[Any, yaml.Node | None]:
    try:
        loader = _Loader(path.read_bytes())
        return loader, loader.get_single_node()
    except FileNotFoundError:
        raise InvalidSettings([_no_such_stack(path)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings([Fault(path.name, None, (), f"cannot be read: {error}")]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        text = f"is not YAML: {error.problem or error.context}"
        raise InvalidSettings([Fault(path.name, mark.line + 1 if mark else None, (), text)]) from None
    except yaml.YAMLError as error:
        raise InvalidSettings([Fault(path.name, None, (), f"is not YAML: {' '.join(str(error).split())}")]) from None


def _no_such_stack(path: pathlib.Path) -> Fault:
    stacks = sorted(
        file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in path.parent.glob("Pulumi.*.yaml")
    )
    there = f"stacks here: {', '.join(stacks)}" if stacks else f"{path.parent} has no stack files"
    return Fault(path.name, None, (), f"does not exist; {there}")


def _step(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The key's node and the value's node one step down; a sequence item is its own key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part) and isinstance(key, yaml.ScalarNode):
                return key, value
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    found = _step(merged, part)
                    if found[0] is not None:
                        return found
    return None, None


def _mistakes(node: yaml.Node, path: Path) -> Iterator[tuple[int, Path, str]]:
    """Every key that stands twice, number that is not read as it is written, and secret amid other settings."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _mistakes(item, (*path, index))
    elif isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            where, line = (*path, str(key.value)), key.start_mark.line + 1
            if key.value in first and key.tag != "tag:yaml.org,2002:merge":
                yield line, where, f"stands twice: here and in line {first[key.value]}; remove one"
            first.setdefault(key.value, line)
            if key.value == "secure" and len(path) > 2:
                yield line, path, "a secret amid other settings; secrets have keys of their own, named in the README"
            yield from _mistakes(value, where)
    elif isinstance(node, yaml.ScalarNode) and not node.style and _AMBIGUOUS.fullmatch(node.value):
        read = _Loader(node.value).get_single_data()
        if isinstance(read, int):
            yield node.start_mark.line + 1, path, f"{node.value} is read as the number {read}; quote it"


def _settings_path(path: Path) -> Path:
    """A path in the file as the path of a setting: without `config` and the project's namespace."""
    if path[:1] != ("config",) or len(path) == 1:
        return path
    return (str(path[1]).removeprefix(f"{PROJECT}:"), *path[2:])


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["secure"]
