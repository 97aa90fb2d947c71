"""What AWS takes, as botocore's models and CloudFormation's schemas say it, and Pulumi's inputs brought into that form.

Pulumi's provider, AWS's API and CloudFormation name the same things alike but for capitals and plurals, and differ in
how deep they lie. What is alike is found here by name; what is not, stands in the table of resource types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from botocore.model import Shape


@dataclass(frozen=True)
class Form:
    """What a value has to look like, as far as it takes to put one together."""

    kind: Literal["object", "list", "map", "document", "switch", "plain"]
    """`document` is a policy or pattern that is given as plain data and not as text; `switch` is true or false."""
    members: Mapping[str, Callable[[], Form]] = field(default_factory=dict)
    """Members of an object; the one of a list or a map is called `*`."""

    def member(self, name: str) -> str | None:
        """The object's own name of what Pulumi calls `name`."""
        known = {spelled(each): each for each in self.members}
        return known.get(spelled(name)) or known.get(SYNONYMS.get(spelled(name), ""))


SYNONYMS = {"applyserversideencryptionbydefault": "serversideencryptionbydefault"}
"""Names deep in an object that CloudFormation has shortened."""


def spelled(name: str) -> str:
    """A name without what differs between Pulumi, the API and CloudFormation."""
    return name.lower().removesuffix("s")


def form_of_shape(shape: Shape) -> Form:
    """The form of a parameter, from botocore's model of its service."""
    if shape.type_name == "structure":
        return Form("object", {name: _later(form_of_shape, member) for name, member in shape.members.items()})
    if shape.type_name == "list":
        return Form("list", {"*": _later(form_of_shape, shape.member)})
    if shape.type_name == "map":
        return Form("map", {"*": _later(form_of_shape, shape.value)})
    return Form("switch" if shape.type_name == "boolean" else "plain")


def form_of_schema(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Form:
    """The form of a property, from the JSON schema of its CloudFormation resource."""
    while "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    if "properties" in schema:
        properties = schema["properties"].items()
        return Form("object", {name: _later(form_of_schema, member, root) for name, member in properties})
    if "items" in schema:
        return Form("list", {"*": _later(form_of_schema, schema["items"], root)})
    if "patternProperties" in schema:
        return Form("map", {"*": lambda: Form("plain")})
    if "object" in schema.get("type", ""):
        return Form("document")
    return Form("switch" if schema.get("type") == "boolean" else "plain")


def _later(function: Callable[..., Form], *arguments: Any) -> Callable[[], Form]:
    """Forms contain themselves: a filter of a filter."""
    return lambda: function(*arguments)


def fitted(value: Any, form: Form, path: str, unknown: list[str]) -> Any:
    """The value in that form. A name that the form has not is added to `unknown`, with its path; a value that does not
    fit is left as it is, for the checks to find."""
    if form.kind == "document" and isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    # Where Pulumi tells "not given" from false, a switch is a text.
    if form.kind == "switch" and value in ("true", "false"):
        return value == "true"
    if form.kind == "list":
        item = form.members["*"]()
        # Tags are a mapping here, and a list of keys and values there: `Key` and `Value`, or `TagKey` and `TagValue`.
        key, text = (next((each for each in item.members if each.endswith(end)), "") for end in ("Key", "Value"))
        if isinstance(value, Mapping) and key and text:
            value = [{key: name, text: each} for name, each in value.items()]
        values = value if isinstance(value, list) else [value]
        return [fitted(each, item, path, unknown) for each in values]
    if form.kind == "object" and isinstance(value, Mapping):
        return _fitted_object(value, form, path, unknown)
    return value


def _fitted_object(value: Mapping[str, Any], form: Form, path: str, unknown: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = form.member(key)
        if name is None:
            unknown.append(f"{path}.{key}")
        elif item is not None:
            found[name] = fitted(item, form.members[name](), f"{path}.{key}", unknown)
    return found


def put(target: dict[str, Any], place: str, value: Any, form: Form, path: str, unknown: list[str]) -> None:
    """Puts a value where `place` says, as `LaunchTemplateData.ImageId`, in an object of that form. A list on the way
    has one item; one at the end takes the value along with what it has."""
    name, _, rest = place.partition(".")
    member = form.members[name if form.kind == "object" else "*"]()
    if rest:
        below: Any = target.setdefault(name, [{}] if member.kind == "list" else {})
        inner = member.members["*"]() if member.kind == "list" else member
        put(below[0] if member.kind == "list" else below, rest, value, inner, path, unknown)
        return
    # A map of texts, such as the attributes of a queue.
    given = json.dumps(value) if form.kind == "map" and not isinstance(value, str) else value
    made = fitted(given, member, path, unknown)
    target[name] = [*target.get(name, []), *made] if isinstance(made, list) else made
