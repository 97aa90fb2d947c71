"""Changes of resources between two revisions of a stack, as the engine and its providers would make them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.secrets import SECRET, holds_secret, redacted, secret_keys
from gpufleet_tools.diff.evaluation import HIDDEN, EvaluatedResource
from gpufleet_tools.diff.replacement import Judgement, Verdict, changed, judged
from gpufleet_tools.plan.plan import RELEASE
from gpufleet_tools.plan.readable_yaml import dumped

Action = Literal["deleted", "replaced", "refused", "unknown", "updated", "created"]
"""`refused`: the API server rejects the change. `unknown`: depends on the provider, which may replace the resource."""

ACTIONS: tuple[Action, ...] = ("deleted", "replaced", "refused", "unknown", "updated", "created")
"""Actions, most disruptive first."""

_ACTIONS: Mapping[Verdict, Action] = {
    "replace": "replaced",
    "refused": "refused",
    "unknown": "unknown",
    "update": "updated",
}


class ResourceChange(Documented):
    """Change of one resource."""

    action: Action
    """Effect on the resource."""
    urn: str
    """Identity of the resource."""
    type: str
    """Type token."""
    name: str
    """Logical name."""
    title: str
    """Type and name: `Release linux-mi300-gpu-2`."""
    reasons: list[str]
    """Reasons for the effect, and its consequences."""
    moved: bool
    """Whether it is part of a move without an alias: the same object is deleted and created under two URNs."""
    protected: bool
    """Whether the engine fails because the resource is protected."""
    diff: list[str]
    """Lines of a unified diff of its inputs as YAML, with hidden secrets; empty for a deletion."""


def resource_changes(before: Sequence[EvaluatedResource], after: Sequence[EvaluatedResource]) -> list[ResourceChange]:
    """Return the changes, most disruptive first, then by type and name. Components that only group are omitted."""
    old, new = ({each.urn: each for each in side} for side in (before, after))
    origins = _origins(old, new)
    removed = [each for urn, each in old.items() if urn not in origins.values() and _is_real(each)]
    added = [each for urn, each in new.items() if urn not in origins and _is_real(each)]
    moved = _moved(removed, added)
    changes = [_deletion(each, moved) for each in removed if each.kind != "lookup"]
    changes += [_creation(each, moved) for each in added if each.kind != "lookup"]
    for urn, origin in origins.items():
        if _is_real(new[urn]):
            changes += _between(old[origin], new[urn], old, new)
    return sorted(changes, key=lambda change: (ACTIONS.index(change.action), change.type, change.name))


def _is_real(each: EvaluatedResource) -> bool:
    """Return whether it exists outside Pulumi's state, as do the children of a remote component."""
    return each.kind != "component" or each.opaque


# -- identity ---------------------------------------------------------------------------------------------------------


def _origins(old: Mapping[str, EvaluatedResource], new: Mapping[str, EvaluatedResource]) -> dict[str, str]:
    """Return the old URN of each resource: its own, or one of an alias (`getOldResource` and `generateAliases` in
    pkg/resource/deploy/step_generator.go of pulumi v3.259.0)."""
    found: dict[str, str] = {}
    for each in sorted(new.values(), key=lambda resource: len(_ancestors(resource, new))):
        parent = found.get(each.parent or "")
        own = [_aliased(each, alias) for alias in each.options.get("aliases", [])]
        inherited = [] if parent in (None, each.parent) else [_inherited(urn, each, parent) for urn in (each.urn, *own)]
        for urn in (each.urn, *own, *inherited):
            if urn in old and urn not in found.values():
                found[each.urn] = urn
                break
    return found


def _ancestors(each: EvaluatedResource, new: Mapping[str, EvaluatedResource]) -> list[str]:
    """Return the URNs of a resource's ancestors."""
    above = []
    while each.parent is not None and each.parent in new:
        above.append(each.parent)
        each = new[each.parent]
    return above


def _aliased(each: EvaluatedResource, alias: str) -> str:
    """Return the URN of an alias, which is a whole URN or another name with the same parent."""
    return alias if alias.startswith("urn:pulumi:") else _named(each.urn, alias)


def _named(urn: str, name: str) -> str:
    return "::".join([*urn.split("::", 3)[:3], name])


def _inherited(urn: str, each: EvaluatedResource, parent: str) -> str:
    """Return the old URN of a child whose parent had another URN: the parent's old types and, as prefix, old name."""
    start, project, types, parent_name = parent.split("::", 3)
    *_, child_type = urn.split("::", 3)[2].rpartition("$")
    name, now = urn.split("::", 3)[3], (each.parent or "").split("::", 3)[3]
    name = parent_name + name.removeprefix(now) if name.startswith(now) else name
    return "::".join([start, project, f"{types}${child_type}", name])


def _moved(removed: Iterable[EvaluatedResource], added: Sequence[EvaluatedResource]) -> set[str]:
    """Return the URNs of pairs that are the same object: of one type, with the same name in Pulumi or outside."""
    urns: set[str] = set()
    for old in removed:
        for new in added:
            if old.kind == new.kind == "resource" and old.type == new.type and _is_same(old, new):
                urns |= {old.urn, new.urn}
    return urns


def _is_same(old: EvaluatedResource, new: EvaluatedResource) -> bool:
    name = _outer_name(old)
    return old.name == new.name or (name is not None and name == _outer_name(new))


def _outer_name(each: EvaluatedResource) -> tuple[Any, ...] | None:
    named = each.inputs.get("metadata", each.inputs) if each.type != RELEASE else each.inputs
    name = named.get("name") if isinstance(named, Mapping) else None
    return None if name is None else (named.get("namespace"), name)


# -- actions ----------------------------------------------------------------------------------------------------------

_NO_ALIAS = "moved without an alias: Pulumi creates it under another URN, then deletes it under this one"
_NEW_URN = "moved without an alias: Pulumi creates it under this URN, then deletes it under the old one"


def _deletion(each: EvaluatedResource, moved: set[str]) -> ResourceChange:
    reasons = [_NO_ALIAS] if each.urn in moved else []
    if each.options.get("retainOnDelete"):
        reasons.append("retainOnDelete: removed from Pulumi's state only")
    return _change("deleted", each, [*reasons, *_consequences(each)], moved=each.urn in moved)


def _creation(each: EvaluatedResource, moved: set[str]) -> ResourceChange:
    reasons = [_NEW_URN] if each.urn in moved else []
    return _change("created", each, reasons, moved=each.urn in moved, diff=_unified({}, each.inputs))


def _consequences(each: EvaluatedResource) -> Iterator[str]:
    if each.type == "kubernetes:core/v1:Namespace" and not each.options.get("retainOnDelete"):
        yield "everything in the namespace is deleted with it"


def _between(
    old: EvaluatedResource,
    new: EvaluatedResource,
    before: Mapping[str, EvaluatedResource],
    after: Mapping[str, EvaluatedResource],
) -> Iterator[ResourceChange]:
    """Yield the change, if any, of a resource that both sides have."""
    if old.kind == "lookup" or new.kind == "lookup":
        yield from _ownership(old, new)
        return
    by_provider = _provider_change(old, new, before, after)
    judgements = [by_provider] if by_provider.verdict != "update" else []
    if changed(old.inputs, new.inputs):
        provider = after.get(new.provider or "")
        judgements.append(_judged(old, new, provider.inputs if provider else {}))
    if options := _options(old, new):
        judgements.append(Judgement("update", (f"in Pulumi's state only: {', '.join(options)}",)))
    if judgements:
        action = min((_ACTIONS[each.verdict] for each in judgements), key=ACTIONS.index)
        reasons = [reason for each in judgements for reason in each.reasons]
        reasons += _consequences(old) if action == "replaced" else ()
        yield _change(action, new, reasons, old=old, diff=_unified(old.inputs, new.inputs))


def _options(old: EvaluatedResource, new: EvaluatedResource) -> list[str]:
    """Return the resource options that change, except aliases, which only identify the old resource."""
    names = sorted((old.options.keys() | new.options.keys()) - {"aliases"})
    values = {name: [_option(side.options.get(name)) for side in (old, new)] for name in names}
    return [f"option {name} {was} → {now}" for name, (was, now) in values.items() if was != now]


def _option(value: Any) -> str:
    return "none" if value is None else json.dumps(value)


def _judged(old: EvaluatedResource, new: EvaluatedResource, provider: Mapping[str, Any]) -> Judgement:
    inputs = {str(path[0]) for path in changed(old.inputs, new.inputs)}
    options = [name for name in ("ignoreChanges", "replaceOnChanges") if _first_parts(new, name) & {*inputs, "*"}]
    if options:
        return Judgement("unknown", (f"the effect depends on its {' and '.join(options)}",))
    return judged(new.type, old.inputs, new.inputs, provider)


def _first_parts(each: EvaluatedResource, option: str) -> set[str]:
    """Return the inputs in an option's property paths: `triggers` for `triggers[*]`, which pulumi-command's SDK sets on
    every command."""
    return {re.split(r"[.\[]", path, maxsplit=1)[0] for path in each.options.get(option, ())}


def _ownership(old: EvaluatedResource, new: EvaluatedResource) -> Iterator[ResourceChange]:
    """Yield the change from a lookup to a managed resource, or back (`wasExternal` and `generateReadSteps`, same
    file)."""
    if new.kind != "lookup":
        reason = "was only read before; creating it fails if it still exists"
        yield _change("created", new, [reason], diff=_unified({}, new.inputs))
    elif old.kind != "lookup":
        reason = "will only be read; the resource that the stack manages is deleted"
        yield _change("deleted", old, [reason, *_consequences(old)])


def _provider_change(
    old: EvaluatedResource,
    new: EvaluatedResource,
    before: Mapping[str, EvaluatedResource],
    after: Mapping[str, EvaluatedResource],
) -> Judgement:
    """Return the effect of a changed provider on a resource. The engine compares the providers' configurations, not
    their names (`providerChanged`, same file)."""
    was, now = before.get(old.provider or ""), after.get(new.provider or "")
    if was is None or now is None:
        found = Judgement("update" if was is now else "replace", ("another provider",))
    else:
        found = judged(now.type, was.inputs, now.inputs)
    return Judgement(found.verdict, tuple(f"its provider: {reason}" for reason in found.reasons))


def _change(
    action: Action,
    each: EvaluatedResource,
    reasons: Sequence[str],
    *,
    old: EvaluatedResource | None = None,
    moved: bool = False,
    diff: Sequence[str] = (),
) -> ResourceChange:
    # The engine uses the options in its state, which are those of the base.
    options = (old or each).options
    return ResourceChange.model_construct(
        action=action,
        urn=each.urn,
        type=each.type,
        name=each.name,
        title=_title(each),
        reasons=list(reasons),
        moved=moved,
        protected=bool(options.get("protect")) and action in ("deleted", "replaced"),
        diff=list(diff),
    )


def _title(each: EvaluatedResource) -> str:
    kind = each.type.split(":")[-1]
    return f"{kind} provider {each.name}" if each.kind == "provider" else f"{kind} {each.name}"


# -- diff of inputs ---------------------------------------------------------------------------------------------------


def _unified(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a unified diff of the inputs. Secrets are hidden on both sides; a changed secret is marked."""
    old = _lines(_hidden(before, before))
    new = _lines(_hidden(after, before))
    lines = [line.rstrip("\n") for line in difflib.unified_diff(old, new, n=2, lineterm="")]
    return [redacted(line) for line in lines[2:]]


def _lines(inputs: Mapping[str, Any]) -> list[str]:
    return dumped(inputs).splitlines() if inputs else []


def _hidden(value: Any, before: Any) -> Any:
    """Return the value with hidden secrets, compared with the value before."""
    if isinstance(value, Mapping):
        olds = before if isinstance(before, Mapping) else {}
        secrets, old_secrets = secret_keys(value), secret_keys(olds)
        return {
            key: _in_place_of(item, olds[key] if key in old_secrets else None)
            if key in secrets
            else _hidden(item, olds.get(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        items = before if isinstance(before, list) else []
        return [_hidden(item, items[i] if i < len(items) else None) for i, item in enumerate(value)]
    if _is_secret(value):
        return _in_place_of(value, before if _is_secret(before) else None)
    return value


def _is_secret(value: Any) -> bool:
    return isinstance(value, str) and (value.startswith(HIDDEN) or holds_secret(value))


def _in_place_of(secret: str, before: str | None) -> str:
    """Return the text for a secret: whether it differs from the secret before, if any."""
    return SECRET if before in (None, secret) else "<another secret>"
