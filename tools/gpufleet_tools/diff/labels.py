"""Changes of labels between two revisions, and the contract of labels with authors of workflows."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from gpufleet import quantity
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.capacity.instance_prices import money
from gpufleet_tools.diff.evaluation import EvaluatedLabel
from gpufleet_tools.labels.runner_version import runner_words


class RefusedChange(Documented):
    """A change that should not be merged as it is."""

    name: str
    """Kind of the change; `--allow` refers to it."""
    stack: str
    """Stack with the change."""
    message: str
    """Fact, consequence and remedy."""
    allowed: bool
    """Whether `--allow` names it."""


class FieldChange(Documented):
    """Change of one field of a label."""

    field: str
    """Name of the field: `GPUs`, `max`."""
    before: str
    """Value before the change."""
    after: str
    """Value after the change."""


class LabelChange(Documented):
    """Change of a label that authors of workflows notice."""

    change: Literal["added", "removed", "renamed", "changed"]
    """`renamed`: removed, while a similar runner has another name or other users."""
    label: str
    """Label; of a renamed one, the old name."""
    stack: str
    """Stack that serves it."""
    new_label: str | None
    """New name of a renamed label."""
    still_served_by: str | None
    """Other stacks that serve a removed label to the same users; then `fields` has the capacity of all stacks."""
    fields: list[FieldChange]
    """Fields that change; of an added label, its main fields."""


_FIELDS: Mapping[str, str] = {
    "config_url": "jobs of",
    "runner_group": "runner group",
    "gpus": "GPUs",
    "accelerator": "accelerator",
    "cpu": "CPU",
    "memory": "memory",
    "min": "min",
    "max": "max",
    "guaranteed": "guaranteed",
    "burst": "burst",
    "cost_per_hour": "cost per hour at max",
    "docker": "Docker",
    "runner_version": "runner version",
    "cluster": "cluster",
    "until": "served until",
    "use": "use instead",
}

_HARDWARE = ("accelerator", "gpus", "cpu", "memory", "docker")
"""Fields of the runners of a label that jobs depend on, whichever stack runs them."""

_SIMILAR = 0.6
"""Minimum similarity (difflib's ratio) of two names of which one is regarded as the other's successor."""


def label_changes(
    before: Sequence[EvaluatedLabel],
    after: Sequence[EvaluatedLabel],
    stacks: Iterable[str],
    environments: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]] | None = None,
    settings: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]] | None = None,
) -> list[LabelChange]:
    """Return the changes of labels of some stacks, sorted by label. Labels of other stacks determine whether a removed
    label is still served. `environments` has the changes of jobs' environments, by stack and label. `settings` has the
    changed settings with the same names of fields; they are added if no other field reports the change."""
    chosen = set(stacks)
    old = {_identity(each): each for each in before if each.stack in chosen}
    new = {_identity(each): each for each in after if each.stack in chosen}
    removed = [old[key] for key in old if key not in new]
    added = [new[key] for key in new if key not in old]
    remaining = {_identity(each): _of_other_stacks(each, after) for each in removed}
    successors = _successors([each for each in removed if not remaining[_identity(each)]], added)
    changes = [
        _reduction(each, before, remaining[_identity(each)])
        if remaining[_identity(each)]
        else _removal(each, successors.get(_identity(each)))
        for each in removed
    ]
    taken = {_identity(each) for each in successors.values()}
    changes += [_change("added", each, fields=_main_fields(each)) for each in added if _identity(each) not in taken]
    for key in old.keys() & new.keys():
        environment = (environments or {}).get((old[key].stack, old[key].label), ())
        fields = _differing(old[key], new[key])
        fields += [FieldChange.model_construct(field=what, before=was, after=now) for what, was, now in environment]
        for what, was, now in (settings or {}).get((old[key].stack, old[key].label), ()):
            if not any(each.field == what or each.field.endswith(f" {what}") for each in fields):
                fields.append(FieldChange.model_construct(field=what, before=was, after=now))
        if fields:
            changes.append(_change("changed", old[key], fields=fields))
    return sorted(changes, key=lambda change: (change.label, change.stack, change.change))


def _identity(each: EvaluatedLabel) -> tuple[str, ...]:
    """Return what identifies a label to a workflow: its name and the repositories that it serves. The same name for
    another organisation is another label."""
    return each.stack, *service(each), each.runner_group or ""


def service(each: EvaluatedLabel) -> tuple[str, str]:
    """Return what identifies a label to a job: GitHub gives the job to any scale set with the label, whatever its
    runner group."""
    return each.label, each.config_url.rstrip("/").casefold()


def _of_other_stacks(old: EvaluatedLabel, after: Sequence[EvaluatedLabel]) -> list[EvaluatedLabel]:
    """Return the labels of other stacks that still get the jobs of a removed label. Empty if its own stack still has
    it, for another runner group."""
    serving = [each for each in after if service(each) == service(old)]
    return [] if any(each.stack == old.stack for each in serving) else serving


def _successors(
    removed: Sequence[EvaluatedLabel], added: Sequence[EvaluatedLabel]
) -> dict[tuple[str, ...], EvaluatedLabel]:
    """Return the probable successor of each removed label. An added label succeeds at most one."""
    pairs = [(_similarity(old, new), old, new) for old in removed for new in added]
    found: dict[tuple[str, ...], EvaluatedLabel] = {}
    taken: set[tuple[str, ...]] = set()
    for similarity, old, new in sorted(pairs, key=lambda pair: (-pair[0], _identity(pair[1]), _identity(pair[2]))):
        if similarity >= _SIMILAR and _identity(old) not in found and _identity(new) not in taken:
            found[_identity(old)] = new
            taken.add(_identity(new))
    return found


def _similarity(old: EvaluatedLabel, new: EvaluatedLabel) -> float:
    if old.use == new.label or (old.label == new.label and old.stack == new.stack):
        return 2.0
    if old.gpus != new.gpus or service(old)[1] != service(new)[1]:
        return 0.0
    return SequenceMatcher(None, old.label, new.label).ratio()


def _reduction(
    old: EvaluatedLabel, before: Sequence[EvaluatedLabel], remaining: Sequence[EvaluatedLabel]
) -> LabelChange:
    """Return the removal of a label that other stacks still serve: its capacity falls."""
    sides = [each for each in before if service(each) == service(old)], remaining
    texts = {
        "jobs at once in all stacks": [str(sum(each.max for each in side)) for side in sides],
        "runner group": [", ".join(sorted({each.runner_group or "Default" for each in side})) for side in sides],
    }
    stacks = listed(sorted({each.stack for each in remaining}), "and")
    for field in _HARDWARE:
        texts[_FIELDS[field]] = [
            ", ".join(sorted({_text(field, each) for each in side})) for side in ([old], remaining)
        ]
    return _change(
        "removed",
        old,
        still_served_by=stacks,
        fields=[
            FieldChange.model_construct(field=name, before=was, after=now)
            for name, (was, now) in texts.items()
            if was != now
        ],
    )


def _removal(old: EvaluatedLabel, successor: EvaluatedLabel | None) -> LabelChange:
    if successor is None:
        return _change("removed", old)
    return _change("renamed", old, new_label=successor.label, fields=_differing(old, successor))


def _change(
    change: Literal["added", "removed", "renamed", "changed"], each: EvaluatedLabel, **rest: Any
) -> LabelChange:
    defaults: dict[str, Any] = {"new_label": None, "still_served_by": None, "fields": []}
    return LabelChange.model_construct(change=change, label=each.label, stack=each.stack, **(defaults | rest))


def _differing(old: EvaluatedLabel, new: EvaluatedLabel) -> list[FieldChange]:
    return [
        FieldChange.model_construct(field=name, before=_text(field, old), after=_text(field, new))
        for field, name in _FIELDS.items()
        if _text(field, old) != _text(field, new) and not _is_alike(field, old, new)
    ]


def _is_alike(field: str, *sides: EvaluatedLabel) -> bool:
    """Return whether both sides mean the same, or one has no value: older revisions do not compute capacity, cost or
    runner versions, and nodes may have no known price."""
    if field == "config_url":
        return len({service(side)[1] for side in sides}) == 1
    if field == "runner_version":
        return any(field not in side.model_fields_set for side in sides)
    computed = ("guaranteed", "burst", "cost_per_hour")
    return field in computed and any(getattr(side, field) is None for side in sides)


def _main_fields(new: EvaluatedLabel) -> list[FieldChange]:
    shown = ["gpus", *(["accelerator"] if new.accelerator else []), "cpu", "memory", "min", "max", "docker"]
    shown += [key for key in ("runner_version", "guaranteed", "cost_per_hour") if getattr(new, key) is not None]
    return [FieldChange.model_construct(field=_FIELDS[key], before="", after=_text(key, new)) for key in shown]


def _text(field: str, each: EvaluatedLabel) -> str:
    value = getattr(each, field)
    if field == "cpu":
        return quantity.cores(quantity.parsed(value))
    if field == "memory":
        return quantity.gibibytes(quantity.parsed(value))
    if field == "cost_per_hour":
        return money(value)
    if field == "runner_version":
        return runner_words(value, each.no_jobs_from)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


# -- the contract -----------------------------------------------------------------------------------------------------


CONTRACT = frozenset(
    {
        "deprecation-in-the-past",
        "deprecation-shortened",
        "label-moved",
        "label-reassigned",
        "label-removed",
        "label-renamed",
    }
)
"""Names of violations of the contract."""


def contract_violations(
    before: Sequence[EvaluatedLabel],
    after: Sequence[EvaluatedLabel],
    changes: Iterable[LabelChange],
    day: datetime.date,
) -> Iterator[tuple[str, str, str]]:
    """Yield violations of the contract of labels, as name, stack and message. A label is removed only after its
    announced expiry date, and that date does not move forward."""
    known = {(each.stack, each.label): each for each in before}
    for change in changes:
        old = known.get((change.stack, change.label))
        if change.change not in ("removed", "renamed") or old is None or (old.until and old.until < day):
            continue
        if not change.still_served_by:
            name = "reassigned" if change.new_label == change.label else change.change
            yield f"label-{name}", change.stack, _unannounced(change, old)
        elif other := [each for each in change.fields if each.field in (_FIELDS["accelerator"], _FIELDS["gpus"])]:
            yield "label-moved", change.stack, _moved(change, other)
    for new in after:
        old = known.get((new.stack, new.label))
        if new.until is None or old is None:
            continue
        if old.until is not None and new.until < old.until:
            message = (
                f"label {new.label} was announced to expire on {old.until} and would now expire on {new.until}, before"
                f" users have migrated; set until to {old.until} or later"
            )
            yield "deprecation-shortened", new.stack, message
        elif new.until < day and old.until is None:
            message = (
                f"label {new.label} becomes deprecated with an expiry date in the past ({new.until}), without notice to"
                " users; set a future date"
            )
            yield "deprecation-in-the-past", new.stack, message


def _moved(change: LabelChange, fields: Iterable[FieldChange]) -> str:
    listed_fields = ", ".join(f"{each.field} {each.before} → {each.after}" for each in fields)
    return (
        f"label {change.label} would only be served by {change.still_served_by}, on other hardware ({listed_fields}):"
        " jobs written for the old runners fail there; give the new runners another label, and announce the end of"
        " this one with deprecated: {until: DATE, use: LABEL}"
    )


def _unannounced(change: LabelChange, old: EvaluatedLabel) -> str:
    what = f"label {change.label} is removed"
    if change.new_label == change.label:
        fields = ", ".join(f"{each.field} {each.before} → {each.after}" for each in change.fields[:2])
        what = f"label {change.label} changes its users ({fields})"
    elif change.new_label:
        what = f"label {change.label} is renamed to {change.new_label}"
    if old.until is not None:
        return f"{what} before its announced expiry date, {old.until}; keep it until then"
    use = change.new_label if change.new_label not in (None, change.label) else "LABEL"
    keep = "keep both for a time, the old one with" if use != "LABEL" else "first announce it with"
    return (
        f"{what} without notice: jobs of workflows that use it queue for 24 hours and then fail;"
        f" {keep} deprecated: {{until: DATE, use: {use}}}"
    )
