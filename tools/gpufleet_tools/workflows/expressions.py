"""Evaluation of GitHub's expressions (`${{ … }}`) without a run.

Grammar, literals and truth are those of docs.github.com, "Evaluate expressions in workflows and actions". Values known
only at run time (`github.ref`, an output of another job) are `UNKNOWN`. An expression then has several possible values,
and all are computed: `${{ github.ref == 'x' && 'a' || 'b' }}` is `a` or `b`.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml


@dataclass(frozen=True)
class Unknown:
    """A value that is known only at run time."""

    truth: bool | None = None
    """Its truth, if known."""


UNKNOWN: Final = Unknown()
FALSE_OF_SOME_KIND: Final = Unknown(truth=False)


@dataclass(frozen=True)
class Value:
    """One possible value of an expression."""

    content: Any
    """None, a bool, a float, a text, a list of values, a dict of values by name, or Unknown. Within a context also
    OneOf."""
    node: yaml.Node | None = field(default=None, repr=False)
    """Its node in the file, if it is a separate value there."""


@dataclass(frozen=True)
class OneOf:
    """One of several values, such as that of an input."""

    values: tuple[Value, ...]


OTHERS: Final = "*"
"""Key, in a dict of values, for all other names. Without it, other names are null."""


Context = Mapping[str, Value]
"""Values of contexts (`matrix`, `inputs`); missing ones are unknown."""

MOST_VALUES = 256
"""Maximum number of possible values. GitHub creates at most 256 jobs from a matrix (docs.github.com, "Actions
limits")."""


class NotAnExpression(Exception):
    """The text between `${{` and `}}` is not a valid expression. `str()` is the reason."""


_TEMPLATE = re.compile(r"\$\{\{((?:'(?:[^']|'')*'|[^'])*?)\}\}", re.DOTALL)


def is_template(text: str) -> bool:
    """Return whether the text contains an expression."""
    return "${{" in text


def possible(text: str, context: Context, node: yaml.Node | None = None) -> list[Value]:
    """Return the possible values of a text with expressions. A single expression keeps its type; others become text.

    Raises NotAnExpression.
    """
    parts = _TEMPLATE.split(text)
    if any("${{" in literal for literal in parts[::2]):
        raise NotAnExpression("'${{' is not closed")
    if len(parts) == 3 and not parts[0].strip() and not parts[2].strip():
        return [value if value.node else Value(value.content, node) for value in _evaluated(parts[1], context)]
    texts: list[Any] = [""]
    for index, part in enumerate(parts):
        pieces = [as_text(value.content) for value in _evaluated(part, context)] if index % 2 else [part]
        texts = [_joined(before, piece) for before in texts for piece in pieces]
        if len(texts) > MOST_VALUES:
            return [Value(UNKNOWN, node)]
    return [Value(content, node) for content in dict.fromkeys(texts)]


def _joined(before: Any, piece: Any) -> Any:
    return UNKNOWN if isinstance(before, Unknown) or isinstance(piece, Unknown) else before + piece


def as_text(content: Any) -> Any:
    """Return the content as GitHub converts it to text; UNKNOWN for lists and objects, which are no labels."""
    if isinstance(content, Unknown | str):
        return content
    if content is None:
        return ""
    if isinstance(content, bool):
        return str(content).lower()
    if isinstance(content, float):
        return str(int(content)) if content.is_integer() else repr(content)
    return UNKNOWN


def scalar(node: yaml.ScalarNode) -> Any:
    """Return the content of a YAML scalar by the core schema of YAML 1.2, which GitHub uses for workflows."""
    text = str(node.value)
    if node.style:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if re.fullmatch(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", text) else text


# -- reading ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?(?:0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!()\[\].,*]))"
)

_DEEPEST = 50
"""Maximum nesting of parentheses and calls; GitHub's limit is 50 (ExpressionConstants.MaxDepth in actions/runner)."""


def _evaluated(text: str, context: Context) -> list[Value]:
    return _Reader(text, context).all()


class _Reader:
    """Evaluates while it reads, by recursive descent: a method for each level of precedence."""

    def __init__(self, text: str, context: Context) -> None:
        self._tokens = list(_tokens(text))
        self._context = context
        self._depth = 0

    def all(self) -> list[Value]:
        values = self._either()
        if self._tokens:
            raise NotAnExpression(f"unexpected '{self._tokens[0][1]}'")
        return values

    def _either(self) -> list[Value]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotAnExpression(f"is nested deeper than {_DEEPEST} levels")
        values = self._both()
        while self._take("||"):
            values = _chosen(values, self._both(), on=False)
        self._depth -= 1
        return values

    def _both(self) -> list[Value]:
        values = self._compared()
        while self._take("&&"):
            values = _chosen(values, self._compared(), on=True)
        return values

    def _compared(self) -> list[Value]:
        values = self._negated()
        while sign := self._take("==", "!=", "<=", ">=", "<", ">"):
            others = self._negated()
            values = _distinct(Value(_comparison(sign, a.content, b.content)) for a in values for b in others)
        return values

    def _negated(self) -> list[Value]:
        negations = 0
        while self._take("!"):
            negations += 1
        values = self._followed()
        for _ in range(min(negations, 2 - negations % 2)):
            values = _distinct(Value(_negation(value.content)) for value in values)
        return values

    def _followed(self) -> list[Value]:
        values = self._first()
        while sign := self._take(".", "["):
            if sign == "[":
                keys = [Value(UNKNOWN)] if self._take("*") else self._either()
                self._expect("]")
            else:
                keys = [Value(UNKNOWN)] if self._take("*") else [Value(self._name())]
            values = _distinct(item for value in values for key in keys for item in _items(value, key.content))
        return values

    def _first(self) -> list[Value]:
        if self._take("("):
            values = self._either()
            self._expect(")")
            return values
        if not self._tokens:
            raise NotAnExpression("ends too early")
        kind, text = self._tokens.pop(0)
        if kind == "text":
            return [Value(text[1:-1].replace("''", "'"))]
        if kind == "number":
            return [Value(float(int(text, 16)) if "0x" in text else float(text))]
        if kind == "sign":
            raise NotAnExpression(f"unexpected '{text}'")
        if self._take("("):
            return self._called(text)
        words = {"true": True, "false": False, "null": None, "NaN": math.nan, "Infinity": math.inf}
        if text in words:
            return [Value(words[text])]
        return [self._context.get(text.lower(), Value(UNKNOWN))]

    def _called(self, name: str) -> list[Value]:
        arguments: list[list[Value]] = []
        while not self._take(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._either())
        function = _FUNCTIONS.get(name.lower())
        if function is None:
            return [Value(UNKNOWN)]
        return _distinct(Value(function(chosen)) for chosen in _combined(arguments))

    def _name(self) -> str:
        if not self._tokens or self._tokens[0][0] != "name":
            raise NotAnExpression("a name is missing after '.'")
        return self._tokens.pop(0)[1]

    def _take(self, *signs: str) -> str | None:
        if self._tokens and self._tokens[0][0] == "sign" and self._tokens[0][1] in signs:
            return self._tokens.pop(0)[1]
        return None

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise NotAnExpression(f"'{sign}' is missing")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NotAnExpression(f"unexpected '{text[at:].strip()[:20]}'")
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


# -- meaning ----------------------------------------------------------------------------------------------------------


def _truth(content: Any) -> bool | None:
    if isinstance(content, Unknown):
        return content.truth
    # Lists and objects are true, empty ones as well; NaN is not.
    return isinstance(content, list | dict) or (bool(content) and content == content)


def _negation(content: Any) -> Any:
    truth = _truth(content)
    return UNKNOWN if truth is None else not truth


def _chosen(left: list[Value], right: list[Value], *, on: bool) -> list[Value]:
    """`&&` (on true) and `||` (on false): the right side where the left side's truth is `on`, else the left."""
    values: list[Value] = []
    for value in left:
        truth = _truth(value.content)
        if truth is None and on:
            # If it is false it stays, and `|| other`, which mostly comes next, replaces it.
            values += [*right, Value(FALSE_OF_SOME_KIND)]
        elif truth is None:
            values += [value, *right]
        else:
            values += right if truth is on else [value]
    return _distinct(values)


def _comparison(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, Unknown | list | dict) or isinstance(right, Unknown | list | dict):
        return UNKNOWN
    if isinstance(left, str) and isinstance(right, str):
        left, right = left.casefold(), right.casefold()
    elif type(left) is not type(right):
        left, right = _number(left), _number(right)
    if left is None:
        return sign in ("==", "<=", ">=")
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
    }
    return compare[sign](left, right)


def _number(content: Any) -> float:
    """Return the number to which GitHub converts a value when it compares values of different types."""
    if content is None or content == "":
        return 0.0
    try:
        return float(content)
    except ValueError:
        return math.nan


def _items(value: Value, key: Any) -> Sequence[Value]:
    """Return the possible values of `value.key`."""
    found = _item(value.content, key)
    return found.content.values if isinstance(found.content, OneOf) else [found]


def _item(content: Any, key: Any) -> Value:
    if isinstance(key, Unknown) or isinstance(content, Unknown):
        return Value(UNKNOWN)
    if isinstance(content, dict):
        names = {name.casefold(): item for name, item in content.items()}
        item: Value = names.get(str(as_text(key)).casefold()) or names.get(OTHERS) or Value(None)
        return item
    if isinstance(content, list) and isinstance(key, float) and 0 <= key < len(content):
        found: Value = content[int(key)]
        return found
    return Value(None)


def _combined(arguments: Sequence[Sequence[Value]]) -> Iterator[list[Any]]:
    """Every choice of one value for each argument."""
    if math.prod(map(len, arguments)) > MOST_VALUES:
        arguments = [[Value(UNKNOWN)] for _ in arguments]
    for chosen in itertools.product(*arguments):
        yield [value.content for value in chosen]


def _distinct(values: Iterator[Value] | list[Value]) -> list[Value]:
    """The values without those that say the same at the same place; UNKNOWN where there are too many to follow."""
    found: dict[Any, Value] = {}
    for value in values:
        found.setdefault((id(value.node), repr(value.content)), value)
        if len(found) > MOST_VALUES:
            return [Value(UNKNOWN)]
    return list(found.values())


def _from_json(arguments: list[Any]) -> Any:
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        return UNKNOWN
    try:
        return wrapped(json.loads(arguments[0], parse_int=float)).content
    except (ValueError, RecursionError):
        return UNKNOWN


def wrapped(content: Any) -> Value:
    """Plain lists and dicts with every item as a value."""
    if isinstance(content, list):
        return Value([wrapped(item) for item in content])
    if isinstance(content, dict):
        return Value({str(name): wrapped(item) for name, item in content.items()})
    return Value(content)


def _format(arguments: list[Any]) -> Any:
    texts = [as_text(argument) for argument in arguments]
    if not texts or any(isinstance(text, Unknown) for text in texts):
        return UNKNOWN
    pattern, *rest = texts
    try:
        return re.sub(
            r"\{\{|\}\}|\{(\d+)\}", lambda match: rest[int(match[1])] if match[1] else match[0][0], str(pattern)
        )
    except IndexError:
        return UNKNOWN


def _tested(test: Callable[[str, str], bool]) -> Callable[[list[Any]], Any]:
    def function(arguments: list[Any]) -> Any:
        texts = [as_text(argument) for argument in arguments]
        if len(texts) != 2 or any(isinstance(text, Unknown) for text in texts):
            return UNKNOWN
        return test(texts[0].casefold(), texts[1].casefold())

    return function


_FUNCTIONS: Mapping[str, Callable[[list[Any]], Any]] = {
    "fromjson": _from_json,
    "format": _format,
    "contains": _tested(lambda text, part: part in text),
    "startswith": _tested(lambda text, part: text.startswith(part)),
    "endswith": _tested(lambda text, part: text.endswith(part)),
}
"""Functions whose result needs no run. Any other one's is unknown."""
