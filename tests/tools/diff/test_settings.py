"""Every setting has a row that says what a change of it means, and a pull request that changes it says so."""

from __future__ import annotations

import copy
import datetime
import functools
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gpufleet_stacks.settings import load, schema
from gpufleet_stacks.settings.kinds import model_of
from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
from gpufleet_stacks.settings.models.eks import EksSettings
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import NAMESPACE, InvalidSettings
from gpufleet_tools.diff import report
from gpufleet_tools.diff.difference import Difference, difference
from gpufleet_tools.diff.evaluation import EvaluatedLabel, EvaluatedStack, Evaluation
from gpufleet_tools.diff.labels import _FIELDS
from gpufleet_tools.diff.revisions import Compared, Revision
from gpufleet_tools.diff.settings.changes import row, setting_changes
from gpufleet_tools.diff.settings.flattened import Path, flattened
from gpufleet_tools.diff.settings.table import SETTINGS
from gpufleet_tools.labels.catalogue import catalogue
from gpufleet_tools.plan.stack import Stack
from tests.conftest import ROOT

TABLE = "tools/gpufleet_tools/diff/settings/table.py"
DAY = datetime.date(2026, 12, 1)
FILES = (
    "every-setting.ok.yaml",
    "eks-every-setting.ok.yaml",
    "kubespray.ok.yaml",
    "two-projects.ok.yaml",
    "partitioned.ok.yaml",
)


@functools.cache
def known() -> dict[str, schema.Setting]:
    """Settings that need a row: all of the schema but sections, and what is in lists."""
    found: dict[str, schema.Setting] = {}
    for model in (Settings, BareMetalSettings, EksSettings):
        tidy = schema._tidy(model.model_json_schema())
        for setting in schema._rows("", tidy, tidy["$defs"], "required"):
            choice = setting.kind.startswith("section with")
            path = f"{setting.path}.kind" if choice else setting.path
            if "[]" not in path and setting.kind != "section":
                found.setdefault(path, setting)
    return found


@pytest.mark.parametrize("path", known())
def test_every_setting_has_a_row(path: str) -> None:
    assert path in SETTINGS, (
        f'{path} has no row in {TABLE}: add `"{path}": users("…")` if jobs or authors of workflows notice a change'
        ' of it, `operators("…")` if only operators do, `no_effect("…")` if no resource depends on it. The words'
        " say what changes, as a noun phrase; if the comment has a word for it already (the keys of `_SAID` in"
        " diff/environment/jobs.py, the values of `_FIELDS` in diff/labels.py), use that word. Then set it in"
        " tests/settings/every-setting.ok.yaml or eks-every-setting.ok.yaml"
    )


def test_every_row_has_a_setting() -> None:
    assert [path for path in SETTINGS if path not in known()] == [], f"rows of {TABLE} without a setting"


def test_every_field_of_a_label_is_compared() -> None:
    """What is not listed tells which label it is, or follows from another field."""
    identity = {"label", "stack"}
    said_with_the_version = {"no_jobs_from"}
    assert EvaluatedLabel.model_fields.keys() - _FIELDS.keys() == identity | said_with_the_version


# -- a pull request for each row --------------------------------------------------------------------------------------

Document = dict[str, Any]


@functools.cache
def documents() -> dict[str, Document]:
    """Stack files that have every setting, by name."""
    return {name: yaml.safe_load((ROOT / "tests/settings" / name).read_text()) for name in FILES}


def loaded(document: Document, folder: pathlib.Path) -> Stack:
    file = folder / "Pulumi.stack.yaml"
    file.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))
    settings, stack_file = load.from_file(file)
    return Stack(folder, stack_file, settings)


@functools.cache
def base(name: str) -> Stack:
    settings, file = load.from_file(ROOT / "tests/settings" / name)
    return Stack(ROOT, file, settings)


@functools.cache
def evaluated_base(name: str) -> Evaluation:
    return evaluated(base(name))


@functools.cache
def flattened_base(name: str) -> dict[Path, str]:
    return dict(flattened(base(name).settings))


def evaluated(stack: Stack) -> Evaluation:
    """What a revision says of its settings and labels; no resources, so that nothing else shows a change."""
    runners = stack.settings.runners
    labels = [
        EvaluatedLabel(
            **entry.model_dump(by_alias=False, include=set(EvaluatedLabel.model_fields) - {"stack", "docker"}),
            stack="stack",
            docker=entry.docker is not None,
            min=runners[entry.label].min,
            max=entry.at_most,
        )
        for entry in catalogue([stack], capacity=False).labels
    ]
    each = EvaluatedStack(labels=labels, settings=[*flattened(stack.settings)])
    return Evaluation(outputs="inputs", stacks={"stack": each})


def compared(before: Evaluation, after: Evaluation) -> Difference:
    sides = Revision("base", "0" * 40), Revision("head", "1" * 40)
    return difference(Compared(*sides, before, after, ()), ["stack"], DAY)


def places(document: Any, parts: list[str]) -> Iterator[tuple[Any, str]]:
    """Yield the sections of a document that a row's path leads to, each with the last key."""
    if not isinstance(document, dict):
        return
    first, *rest = parts
    for key in [*document] if first.startswith("<") else [first]:
        if rest:
            yield from places(document.get(key), rest)
        else:
            yield document, key


def others(value: Any, setting: schema.Setting) -> Iterator[Any]:
    """Yield other values that a setting may take."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 2)
    elif setting.kind.startswith("`"):
        yield from (option for option in setting.kind.replace(" or ", ", ").replace("`", "").split(", "))
    elif isinstance(value, str):
        yield from (f"{value}x", f"{value}1", f"{value[:-1]}9", f"{value[:-1]}8", f"{value}/x", "1Gi", "10m", "70%")
    elif isinstance(value, list):
        yield from (value[:-1], value[1:])
    elif isinstance(value, dict):
        yield dict([*value.items()][:-1])
        yield value | {"other": "other"}


ABSENT = object()


def edits(path: str, files: Iterable[str]) -> Iterator[tuple[str, Document]]:
    """Yield documents with only that setting changed, each with the name of the file it was made from."""
    parts = path.split(".")
    parts[0] = f"{NAMESPACE}:{parts[0]}"
    for name in files:
        config = documents()[name]["config"]
        for number, (section, key) in enumerate(places(config, parts)):
            present = section.get(key, ABSENT)
            for value in [*others(present, known()[path]), ABSENT]:
                if value == present:
                    continue
                document = copy.deepcopy(documents()[name])
                at, _ = [*places(document["config"], parts)][number]
                at.pop(key, None)
                if value is not ABSENT:
                    at[key] = value
                yield name, document


def pull_request(path: str, folder: pathlib.Path) -> Difference:
    """Return what a change of that setting alone does."""
    if found := changed_alone(path, folder):
        name, head = found
        return compared(evaluated_base(name), evaluated(head))
    return otherwise(path)


def changed_alone(path: str, folder: pathlib.Path, files: Iterable[str] = FILES) -> tuple[str, Stack] | None:
    """Return a stack in which only that setting differs from a file's, with the file's name; None if no guess is
    valid."""
    section = path.removesuffix(".kind")
    for name, document in edits(path, files):
        if not well_formed(document):
            continue
        try:
            head = loaded(document, folder)
        except InvalidSettings:
            continue
        changes = setting_changes(flattened_base(name), dict(flattened(head.settings)))
        rows = {row_of(change.path) for change in changes}
        if rows == {path} or (section != path and path in rows and all(each.startswith(section) for each in rows)):
            return name, head
    return None


def well_formed(document: Document) -> bool:
    """Whether each value is valid by itself. That is decided far sooner than what the rules say of all of them."""
    prefix = f"{NAMESPACE}:"
    values = {key.removeprefix(prefix): value for key, value in document["config"].items() if key.startswith(prefix)}
    model = model_of(values)
    try:
        model.model_validate({key: value for key, value in values.items() if key in load._sections(model)})
    except ValidationError:
        return False
    return True


def otherwise(path: str) -> Difference:
    """Return what a change of a setting does that no guessed edit of a file makes, since rules tie it to others. It is
    changed among the settings of a stack that has it; of a map of sections, an entry goes."""
    for name in FILES:
        before = evaluated_base(name)
        flat = dict(before.stacks["stack"].settings or ())
        if at := place(path, flat):
            depth = len(at)
            kept = {each: value for each, value in flat.items() if each[:depth] != at}
            changed = kept if ENTRIES.get(path) else kept | {at: "another"}
            stack = before.stacks["stack"].model_copy(update={"settings": [*changed.items()]})
            return compared(before, before.model_copy(update={"stacks": {"stack": stack}}))
    pytest.fail(f"{path}: set it in tests/settings/every-setting.ok.yaml or eks-every-setting.ok.yaml")


def place(path: str, flat: Mapping[Path, str]) -> Path | None:
    """Return the path of a setting, or of an entry of a map of sections, in a stack that has it or its section."""
    wanted = tuple(path.split("."))
    if entry := ENTRIES.get(path):
        return next(
            (each[: len(wanted) + 1] for each in flat if row(each)[: len(wanted) + 1] == (*wanted, entry)), None
        )
    names = max((index for index, part in enumerate(wanted) if part.startswith("<")), default=-1) + 1
    return next(((*each[:names], *wanted[names:]) for each in flat if row(each)[:names] == wanted[:names]), None)


ENTRIES = {
    path: below[path.count(".") + 1]
    for path in SETTINGS
    for below in (tuple(each.split(".")) for each in SETTINGS if each.startswith(f"{path}.<"))
}
"""Placeholder of the names in each map of sections."""


def row_of(path: str) -> str:
    found = ".".join(row(tuple(path.split("."))))
    return found if found in SETTINGS else found.rpartition(".")[0]


@pytest.mark.parametrize("path", sorted(SETTINGS))
def test_a_pull_request_that_changes_only_that_setting_says_so(path: str, tmp_path: pathlib.Path) -> None:
    found = pull_request(path, tmp_path)
    change = next(each for each in found.stacks[0].settings if row_of(each.path) == path)
    effect = SETTINGS[path]
    assert (change.audience, change.words) == (effect.audience, effect.words)
    assert change.before != change.after
    assert found.changes
    comment = report.markdown(found)
    assert "no changes" not in comment
    assert f"- setting {report._plain(report._setting_line(change))}" in comment
    named = {label.label for label in found.labels}
    assert {*change.labels} <= named, "a label whose jobs notice it is not in the table of users"
    for label in found.labels:
        if label.label in change.labels:
            assert any(field.field.endswith(effect.words) for field in label.fields)
    if effect.audience != "users":
        assert not change.labels
