"""Parser of GitHub workflow files: the labels of their jobs, with their places in the file."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import yaml

from gpufleet_tools.workflows import containers, expressions
from gpufleet_tools.workflows.containers import NO_CONTAINERS, Containers
from gpufleet_tools.workflows.expressions import UNKNOWN, Context, NotAnExpression, OneOf, Value
from gpufleet_tools.workflows.matrix import combinations

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

LARGEST = 1024**2
"""Maximum size of a workflow file in bytes. Public ones of 100 KB are rare."""

DEEPEST = 50
"""Maximum nesting; no workflow has ten levels. libyaml's composer overflows the stack at about 30,000."""

MOST_VALUES = 20_000
"""Maximum number of values in a file with expanded aliases: aliases of aliases can make it larger than memory."""

_SHALLOW = 10_000
"""Number of characters that open a level on one line, above which the nesting is checked; indentation alone is limited
by the file's size."""


class UnreadableWorkflow(Exception):
    """The file is not a readable workflow. `str()` is one line."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line, self.column = line, column


Inputs = Mapping[str, tuple[Value, ...]]
"""Inputs of a called workflow by name, each with all its possible values."""


@dataclass(frozen=True)
class RunsOn:
    """Labels and runner group of a job, for one result of its expressions."""

    job: str
    """Key of the job."""
    labels: tuple[Value, ...]
    """Labels: texts, or unknown. A runner must have all of them."""
    group: Value | None
    """Runner group: a text, or unknown."""
    node: yaml.Node
    """The value of `runs-on`."""
    containers: Containers = NO_CONTAINERS
    """Containers of the job."""


@dataclass(frozen=True)
class Call:
    """A job that calls another workflow."""

    job: str
    """Key of the job."""
    workflow: str
    """`./.github/workflows/FILE` or `OWNER/REPO/.github/workflows/FILE@REF`."""
    node: yaml.Node
    """The value of `uses`."""
    inputs: Inputs
    """Inputs of the called workflow."""


@dataclass(frozen=True)
class Unresolved:
    """A job whose labels are unknown."""

    job: str
    """Key of the job."""
    reason: str
    """Reason."""
    node: yaml.Node
    """Place in the file."""


def find(paths: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
    """Yield workflow files: given files, and for a given folder those in `.github/workflows` at or below it, or else
    its own YAML files.

    Raises UnreadableWorkflow for a path that does not exist or has no workflow.
    """
    for path in paths:
        if not path.is_dir():
            if not path.is_file():
                raise UnreadableWorkflow(f"{path}: there is no such file or folder")
            yield path
            continue
        found = list(_workflows(path)) or _yaml_files(path)
        if not found:
            raise UnreadableWorkflow(f"{path}: has no workflows (.github/workflows/*.yml) and no YAML files")
        yield from found


def _workflows(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for parent, folders, _ in os.walk(folder):
        here = pathlib.Path(parent)
        folders[:] = sorted(name for name in folders if name not in (".git", "node_modules"))
        if here.parts[-2:] == (".github", "workflows"):
            yield from _yaml_files(here)


def _yaml_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".yml", ".yaml") and path.is_file())


def read(path: pathlib.Path, given: Inputs | None = None) -> list[RunsOn | Call | Unresolved]:
    """Return the labels of a workflow file's jobs; with `given`, for a call with those inputs.

    Raises UnreadableWorkflow for a file that cannot be read, is not YAML, or is not a workflow.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UnreadableWorkflow(f"has more than {LARGEST:,} bytes; no workflow is that large")
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableWorkflow(f"cannot be read: {error.strerror}") from None
    return _parsed(data, given or {})


def _parsed(data: bytes, given: Inputs) -> list[RunsOn | Call | Unresolved]:
    top = _entries(_composed(data))
    if not isinstance(top.get("jobs"), yaml.MappingNode):
        raise UnreadableWorkflow("is not a workflow: the mapping 'jobs' is missing", 1, 1)
    known = {name: Value(OneOf(values)) for name, values in given.items()}
    reader = _Reader({"inputs": Value(_inputs(top.get("on")) | known)})
    return [found for name, job in _entries(top["jobs"]).items() for found in reader.job(name, job)]


def _composed(data: bytes) -> yaml.Node | None:
    try:
        if sum(map(data.count, (b"[", b"{", b"-", b"?"))) > _SHALLOW:
            _refuse_deep(data)
        node: yaml.Node | None = _Loader(data).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.problem, error.context) if part)
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise UnreadableWorkflow(f"is not YAML: {problem}", *place) from None
    except (yaml.reader.ReaderError, UnicodeDecodeError) as error:
        raise UnreadableWorkflow(f"is not YAML: {error.reason}") from None
    return node


def _refuse_deep(data: bytes) -> None:
    depth = 0
    for event in yaml.parse(data, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST and event.start_mark:
            raise UnreadableWorkflow(f"is nested deeper than {DEEPEST} levels", event.start_mark.line + 1, 1)


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """Return values by key. `on` is a key, although it is a boolean in YAML 1.1."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _inputs(triggers: yaml.Node | None) -> dict[str, Value]:
    """Return the possible values of `inputs`: all options of a choice, otherwise the default and unknown values."""
    known: dict[str, Value] = {}
    events = _entries(triggers)
    for event in ("workflow_dispatch", "workflow_call"):
        for name, given in _entries(_entries(events.get(event)).get("inputs")).items():
            earlier = known[name].content.values if name in known else ()
            known[name] = Value(OneOf((*earlier, *_input_values(_entries(given)))))
    return known | {expressions.OTHERS: Value(UNKNOWN)}


def _input_values(given: dict[str, yaml.Node]) -> Iterator[Value]:
    options, default, kind = given.get("options"), given.get("default"), given.get("type")
    if isinstance(options, yaml.SequenceNode):
        for option in options.value:
            yield Value(expressions.scalar(option), option) if isinstance(option, yaml.ScalarNode) else Value(UNKNOWN)
        return
    if isinstance(kind, yaml.ScalarNode) and kind.value == "boolean":
        yield from (Value(True), Value(False))
        return
    if isinstance(default, yaml.ScalarNode):
        yield Value(expressions.scalar(default), default)
    yield Value(UNKNOWN)


class _Reader:
    """Evaluates the nodes of one file."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._left = MOST_VALUES

    def job(self, name: str, job: yaml.Node) -> Iterator[RunsOn | Call | Unresolved]:
        """Yield the labels of one job."""
        keys = _entries(job)
        if isinstance(called := keys.get("uses"), yaml.ScalarNode):
            yield Call(name, str(called.value), called, self._given(keys.get("with"), keys.get("strategy")))
            return
        node = keys.get("runs-on")
        if node is None:
            if "<<" in keys:
                yield Unresolved(name, "GitHub does not support '<<'; copy the merged keys", keys["<<"])
            return
        try:
            yield from self._runs_on(name, node, keys)
        except NotAnExpression as error:
            yield Unresolved(name, f"its expression is invalid: {error}", node)

    def _given(self, node: yaml.Node | None, strategy: yaml.Node | None) -> Inputs:
        """Return the inputs of a called workflow."""
        found: dict[str, tuple[Value, ...]] = {}
        for name, part in _entries(node).items():
            with contextlib.suppress(NotAnExpression):
                contexts = self._contexts([part], strategy)
                found[name] = tuple(value for context in contexts for value in self._values(part, context))
        return found

    def _runs_on(self, job: str, node: yaml.Node, keys: Mapping[str, yaml.Node]) -> Iterator[RunsOn]:
        seen = set()
        parts = [node, *(keys[name] for name in ("container", "services") if name in keys)]
        for context in self._contexts(parts, keys.get("strategy")):
            inside = self._containers(keys, context)
            for value in self._values(node, context):
                found = _as_runs_on(job, value, node, inside)
                key = (repr(found), *(id(label.node) for label in found.labels))
                if key not in seen:
                    seen.add(key)
                    yield found

    def _containers(self, keys: Mapping[str, yaml.Node], context: Context) -> Containers:
        try:
            return containers.of_job(keys, lambda node: self._values(node, context))
        except NotAnExpression:
            # actionlint reports it.
            return Containers(job=None)

    def _contexts(self, nodes: Iterable[yaml.Node], strategy: yaml.Node | None) -> Iterator[Context]:
        """Yield the contexts of a matrix's jobs; only one if none of the nodes uses the matrix."""
        matrix = _entries(strategy).get("matrix")
        if matrix is None or not any(_mentions(node, "matrix") for node in nodes):
            yield self._context
            return
        for value in self._matrix(matrix):
            found = combinations(value)
            if found is None:
                yield self._context
            for combination in found or ():
                yield {**self._context, "matrix": Value(combination)}

    def _matrix(self, node: yaml.Node) -> list[Value]:
        """Return the possible values of a matrix. All possible values of a list's item become items."""
        if not isinstance(node, yaml.MappingNode):
            return self._values(node, self._context)
        parts: dict[str, Value] = {}
        for name, part in _entries(node).items():
            if isinstance(part, yaml.SequenceNode):
                parts[name] = Value([value for item in part.value for value in self._values(item, self._context)], part)
            else:
                values = self._values(part, self._context)
                parts[name] = values[0] if len(values) == 1 else Value(UNKNOWN)
        return [Value(parts, node)]

    def _values(self, node: yaml.Node, context: Context, depth: int = 0) -> list[Value]:
        """Return the possible values of a node."""
        self._left -= 1
        if self._left < 0 or depth > DEEPEST:
            raise UnreadableWorkflow(f"its aliases are circular, or expand to more than {MOST_VALUES:,} values")
        if isinstance(node, yaml.ScalarNode):
            if expressions.is_template(node.value):
                return expressions.possible(node.value, context, node)
            return [Value(expressions.scalar(node), node)]
        entries = _entries(node)
        items = entries.values() if isinstance(node, yaml.MappingNode) else node.value
        choices = [self._values(item, context, depth + 1) for item in items]
        if math.prod(map(len, choices)) > expressions.MOST_VALUES:
            return [Value(UNKNOWN, node)]
        if isinstance(node, yaml.MappingNode):
            names = list(entries)
            return [Value(dict(zip(names, chosen, strict=True)), node) for chosen in itertools.product(*choices)]
        return [Value(list(chosen), node) for chosen in itertools.product(*choices)]


def _mentions(node: yaml.Node, word: str, levels: int = 2) -> bool:
    """Return whether a text in a node has the word. Labels are at most two levels deep: `runs-on: {labels: [ … ]}`."""
    if isinstance(node, yaml.ScalarNode):
        return word in node.value.lower()
    items = [item[1] if isinstance(item, tuple) else item for item in node.value or ()]
    return levels > 0 and any(_mentions(item, word, levels - 1) for item in items)


def _as_runs_on(job: str, value: Value, node: yaml.Node, inside: Containers) -> RunsOn:
    content, group = value.content, None
    if isinstance(content, dict):
        group = _text(content["group"], node) if "group" in content else None
        if "labels" not in content:
            return RunsOn(job, (), group, node, inside)
        value = content["labels"]
    labels = value.content if isinstance(value.content, list) else [value]
    return RunsOn(job, tuple(_text(label, node) for label in labels), group, node, inside)


def _text(value: Value, node: yaml.Node) -> Value:
    return Value(expressions.as_text(value.content), value.node or node)
