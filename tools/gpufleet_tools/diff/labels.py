"""What two revisions promise the people who write workflows, and which promises may not be taken back."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.documented import Documented
from gpufleet_tools.capacity.instance_prices import money
from gpufleet_tools.diff.evaluation import EvaluatedLabel
from gpufleet_tools.labels.catalogue import runner_words


class Refusal(Documented):
    """Something that should not be merged as it is."""

    name: str
    """Kind of refusal; `--allow` names it."""
    stack: str
    """Stack that it arises in."""
    message: str
    """What is so, why it matters, what to do."""
    allowed: bool
    """Whether the caller has allowed it."""


class FieldChange(Documented):
    """One thing about a label that is another than before."""

    field: str
    """What, as people say it: `GPUs`, `at most`."""
    before: str
    """What it was."""
    after: str
    """What it will be."""


class LabelChange(Documented):
    """What changes for those whose workflows name a label."""

    change: Literal["added", "removed", "renamed", "changed"]
    """`renamed`: gone, with a runner like it under another name or for other users."""
    label: str
    """Label, as it was where there was one."""
    stack: str
    """Stack that serves it."""
    new_label: str | None
    """Label of the runner like it, where it is renamed."""
    still_served_by: str | None
    """Another stack that serves a removed label to the same users."""
    fields: list[FieldChange]
    """What is another than before, of a label that is there before and after; what it gives, of one that is new."""


_FIELDS: Mapping[str, str] = {
    "config_url": "jobs of",
    "runner_group": "runner group",
    "gpus": "GPUs",
    "accelerator": "accelerator",
    "cpu": "CPU",
    "memory": "memory",
    "least": "idle",
    "most": "at most",
    "guaranteed": "guaranteed",
    "burst": "burst",
    "cost_per_hour": "cost per hour at max",
    "docker": "Docker",
    "runner_version": "runner version",
    "cluster": "cluster",
    "until": "served until",
    "use": "use instead",
}

_ALIKE = 0.6
"""Likeness of two names from which on one is taken for the other's successor, as difflib counts it."""


def label_changes(
    before: Sequence[EvaluatedLabel],
    after: Sequence[EvaluatedLabel],
    stacks: Iterable[str],
    environments: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]] | None = None,
    settings: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]] | None = None,
) -> list[LabelChange]:
    """What changes in the labels of some stacks, sorted by label; the others tell whether a label is still served.
    `environments` has what changes in the environment of its jobs, by stack and label; `settings` the settings that
    change, in the same words, so that what the others do not say is said."""
    chosen = set(stacks)
    old = {_identity(each): each for each in before if each.stack in chosen}
    new = {_identity(each): each for each in after if each.stack in chosen}
    gone = [old[key] for key in old if key not in new]
    come = [new[key] for key in new if key not in old]
    serving = {_service(each): each.stack for each in after}
    successors = _successors([each for each in gone if _service(each) not in serving], come)
    changes = [_gone(each, successors.get(_identity(each)), serving.get(_service(each))) for each in gone]
    taken = {_identity(each) for each in successors.values()}
    changes += [_change("added", each, fields=_given(each)) for each in come if _identity(each) not in taken]
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
    """What a workflow depends on: where its jobs are taken from, and what it says. A label that serves another
    organisation is another label to everybody."""
    return each.stack, each.label, each.config_url, each.runner_group or ""


def _service(each: EvaluatedLabel) -> tuple[str, ...]:
    return _identity(each)[1:]


def _successors(
    gone: Sequence[EvaluatedLabel], come: Sequence[EvaluatedLabel]
) -> dict[tuple[str, ...], EvaluatedLabel]:
    """For each label that is gone the new one that was probably meant as its next name, each taken once."""
    pairs = [(_likeness(old, new), old, new) for old in gone for new in come]
    found: dict[tuple[str, ...], EvaluatedLabel] = {}
    taken: set[tuple[str, ...]] = set()
    for likeness, old, new in sorted(pairs, key=lambda pair: (-pair[0], _identity(pair[1]), _identity(pair[2]))):
        if likeness >= _ALIKE and _identity(old) not in found and _identity(new) not in taken:
            found[_identity(old)] = new
            taken.add(_identity(new))
    return found


def _likeness(old: EvaluatedLabel, new: EvaluatedLabel) -> float:
    if old.use == new.label or (old.label == new.label and old.stack == new.stack):
        return 2.0
    if old.gpus != new.gpus or old.config_url != new.config_url:
        return 0.0
    return SequenceMatcher(None, old.label, new.label).ratio()


def _gone(old: EvaluatedLabel, successor: EvaluatedLabel | None, serving: str | None) -> LabelChange:
    if successor is None:
        return _change("removed", old, still_served_by=serving)
    return _change("renamed", old, new_label=successor.label, fields=_differing(old, successor))


def _change(
    change: Literal["added", "removed", "renamed", "changed"], each: EvaluatedLabel, **rest: Any
) -> LabelChange:
    defaults: dict[str, Any] = {"new_label": None, "still_served_by": None, "fields": []}
    return LabelChange.model_construct(change=change, label=each.label, stack=each.stack, **(defaults | rest))


def _differing(old: EvaluatedLabel, new: EvaluatedLabel) -> list[FieldChange]:
    return [
        FieldChange.model_construct(field=name, before=_said(field, old), after=_said(field, new))
        for field, name in _FIELDS.items()
        if _said(field, old) != _said(field, new) and not _is_unreckoned(field, old, new)
    ]


def _is_unreckoned(field: str, *sides: EvaluatedLabel) -> bool:
    """Whether it is not known of one of both: a revision does not reckon capacity, cost or runner versions at all, or
    its nodes have no price."""
    if field == "runner_version":
        return any(field not in side.model_fields_set for side in sides)
    reckoned = ("guaranteed", "burst", "cost_per_hour")
    return field in reckoned and any(getattr(side, field) is None for side in sides)


def _given(new: EvaluatedLabel) -> list[FieldChange]:
    shown = ["gpus", "cpu", "memory", "least", "most", "docker"]
    shown += [key for key in ("runner_version", "guaranteed", "cost_per_hour") if getattr(new, key) is not None]
    return [FieldChange.model_construct(field=_FIELDS[key], before="", after=_said(key, new)) for key in shown]


def _said(field: str, each: EvaluatedLabel) -> str:
    value = getattr(each, field)
    if field == "cpu":
        return quantity.cores(quantity.parse(value))
    if field == "memory":
        return quantity.gibibytes(quantity.parse(value))
    if field == "cost_per_hour":
        return money(value)
    if field == "runner_version":
        return runner_words(value, each.no_jobs_from)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


# -- the contract -----------------------------------------------------------------------------------------------------


CONTRACT = frozenset({"deprecation-in-the-past", "deprecation-shortened", "label-removed", "label-renamed"})
"""Names of the refusals of broken promises."""


def broken_promises(
    before: Sequence[EvaluatedLabel],
    after: Sequence[EvaluatedLabel],
    changes: Iterable[LabelChange],
    day: datetime.date,
) -> Iterator[tuple[str, str, str]]:
    """What breaks the contract of labels, as name, stack and message: a label goes only after the last day that it was
    announced with, and that day does not come closer."""
    known = {(each.stack, each.label): each for each in before}
    for change in changes:
        old = known.get((change.stack, change.label))
        if change.change not in ("removed", "renamed") or old is None or change.still_served_by:
            continue
        if old.until is None or old.until >= day:
            yield f"label-{change.change}", change.stack, _unannounced(change, old)
    for new in after:
        old = known.get((new.stack, new.label))
        if new.until is None or old is None:
            continue
        if old.until is not None and new.until < old.until:
            message = (
                f"label {new.label} was promised until {old.until} and would end on {new.until}: somebody has planned"
                f" with the later day; write until: {old.until} or later"
            )
            yield "deprecation-shortened", new.stack, message
        elif new.until < day and old.until is None:
            message = (
                f"label {new.label} becomes deprecated as of {new.until}, which is past: nobody is told in time;"
                " write a day to come"
            )
            yield "deprecation-in-the-past", new.stack, message


def _unannounced(change: LabelChange, old: EvaluatedLabel) -> str:
    what = f"label {change.label} goes"
    if change.new_label == change.label:
        what = f"label {change.label} goes to other users ({', '.join(each.field for each in change.fields[:2])})"
    elif change.new_label:
        what = f"label {change.label} becomes {change.new_label}"
    if old.until is not None:
        return f"{what}, and is promised until {old.until}: keep it until then"
    use = change.new_label if change.new_label not in (None, change.label) else "LABEL"
    keep = "keep both for a time, the old one with" if use != "LABEL" else "first announce it with"
    return (
        f"{what} without notice, and a workflow that names it does not fail, it queues for a day;"
        f" {keep} deprecated: {{until: DATE, use: {use}}}"
    )
