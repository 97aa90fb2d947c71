"""What is wrong with the labels that workflows ask for, held against the catalogue."""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.problems import listed, near, quoted
from gpufleet_tools.labels.catalogue import Catalogue, LabelEntry
from gpufleet_tools.workflows.expressions import Value
from gpufleet_tools.workflows.workflow_file import Call, RunsOn, UnreadableWorkflow, Unresolved, read

GITHUB_HOSTED = frozenset(
    (
        *("ubuntu-latest", "ubuntu-latest-4-cores", "ubuntu-latest-8-cores", "ubuntu-latest-16-cores", "ubuntu-slim"),
        *("ubuntu-26.04", "ubuntu-26.04-arm", "ubuntu-24.04", "ubuntu-24.04-arm", "ubuntu-22.04", "ubuntu-22.04-arm"),
        *("windows-latest", "windows-latest-8-cores", "windows-2025", "windows-2025-vs2026", "windows-2022"),
        *("windows-11-arm", "macos-latest", "macos-latest-large", "macos-latest-xlarge"),
        *("macos-26", "macos-26-intel", "macos-26-large", "macos-26-xlarge"),
        *("macos-15", "macos-15-intel", "macos-15-large", "macos-15-xlarge"),
        *("macos-14", "macos-14-large", "macos-14-xlarge"),
    )
)
"""Labels of GitHub's own runners: `allGitHubHostedRunnerLabels` in rule_runner_label.go of actionlint 1.7.12, and
Ubuntu 26.04 from the README of actions/runner-images."""

SELF_HOSTED = frozenset(("self-hosted", "linux", "windows", "macos", "x64", "arm", "arm64"))
"""Labels that GitHub gives every self-hosted runner that registers by itself (docs.github.com, "Using self-hosted
runners in a workflow"). Scale sets have none of them."""

MOST_LISTED = 8
"""Labels that a message has room for."""

RULES = {
    "dead-label": "A label that no stack serves: the job queues for a day, and then is cancelled.",
    "deprecated-label": "A label that is going to be removed.",
    "labels-together": "A scale set's label beside others: its runners have that one label only.",
    "runner-group": "A runner group that does not serve the label.",
    "other-runners": "Labels that any self-hosted runner may have, and none of a scale set.",
    "unresolved-label": "A label that is only known when the workflow runs.",
    "called-workflow": "A job that runs where another repository's workflow says.",
}
"""What each rule finds."""


class WorkflowFinding(Documented):
    """One thing to say about a workflow."""

    tool: Literal["gpufleet", "actionlint"]
    """Who says so."""
    rule: str
    """What kind of finding it is: one of RULES, or a kind of actionlint's."""
    severity: Literal["error", "warning", "note"]
    """`error`: the job does not run. `warning`: it will not for long. `note`: what cannot be told from here."""
    file: str
    """The workflow file, as it was named."""
    line: int
    """Line, from 1."""
    column: int
    """Column, from 1."""
    message: str
    """What is so, and what to do."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message} [{self.rule}]"


class Unreadable(Documented):
    """A file of which nothing can be said."""

    file: str
    """The file, as it was named."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""
    message: str
    """Why."""

    def __str__(self) -> str:
        place = "".join(f":{number}" for number in (self.line, self.column) if number)
        return f"{self.file}{place}: {self.message}"


class Served:
    """The labels that jobs can ask for, and who else's."""

    def __init__(self, catalogue: Catalogue, also: Sequence[str] = (), repository: str | None = None) -> None:
        """`also`: patterns (`*`) of labels that others serve. `repository`: OWNER/NAME of the workflows; without it,
        every project's labels count."""
        self._entries: dict[str, list[LabelEntry]] = {}
        for entry in catalogue.labels:
            self._entries.setdefault(entry.label.casefold(), []).append(entry)
        self._also = [pattern.casefold() for pattern in also]
        self._repository = repository
        self._hints: dict[str, str] = {}
        self.groups = {entry.runner_group for entry in catalogue.labels if entry.runner_group}

    def entries(self, label: str) -> list[LabelEntry]:
        """Who serves a label; case counts for nothing (docs.github.com, "Choosing the runner for a job")."""
        return self._entries.get(label.casefold(), [])

    def serving(self, label: str) -> list[LabelEntry]:
        """Who serves it for the repository."""
        return [entry for entry in self.entries(label) if self._repository is None or self._covers(entry)]

    def _covers(self, entry: LabelEntry) -> bool:
        """Whether the URL of its project is the repository's or its owner's. Enterprises have members that are not
        known here."""
        _, _, _, *path = entry.config_url.casefold().split("/")
        mine = str(self._repository).casefold().split("/")
        return path == mine[: len(path)] or path[0] == "enterprises"

    def by_others(self, label: str) -> bool:
        """Whether somebody else's runners have the label, as far as is known."""
        folded = label.casefold()
        return folded in GITHUB_HOSTED or any(fnmatch.fnmatchcase(folded, pattern) for pattern in self._also)

    def nearest(self, label: str) -> str:
        """What was probably meant, as a hint: a label in service, else one of GitHub's."""
        if label not in self._hints:
            self._hints[label] = self._nearest(label)
        return self._hints[label]

    def _nearest(self, label: str) -> str:
        served = [name for name in self._entries if any(entry.status == "served" for entry in self.serving(name))]
        found = near(label, served) or near(label, GITHUB_HOSTED)
        if found:
            return f"did you mean '{found}'?"
        if len(served) > MOST_LISTED:
            return "those in service: gpufleet labels"
        return f"labels in service: {', '.join(sorted(served))}" if served else "no label is in service"


def lint(file: pathlib.Path, served: Served, today: datetime.date) -> Iterator[WorkflowFinding | Unreadable]:
    """Findings of one workflow file, in the order of the file; of one that cannot be read, why."""
    name = str(file)
    try:
        found = [finding for where in read(file) for finding in _judged(where, served, today, file)]
    except UnreadableWorkflow as error:
        yield Unreadable.model_construct(file=name, line=error.line, column=error.column, message=str(error))
        return
    # One label in several combinations of a matrix, or behind an alias, is said once.
    yield from sorted(dict.fromkeys(found), key=lambda finding: (finding.line, finding.column, finding.rule))


def _judged(
    where: RunsOn | Call | Unresolved, served: Served, today: datetime.date, file: pathlib.Path
) -> Iterator[WorkflowFinding]:
    name = str(file)
    if isinstance(where, Call):
        if where.workflow.startswith("./"):
            yield from _called(where, served, today, file)
        else:
            message = f"job '{where.job}' runs where {quoted(where.workflow)} says, which is not read here"
            yield _finding("called-workflow", "note", name, Value(None, where.node), message)
    elif isinstance(where, Unresolved):
        message = f"job '{where.job}': where it runs cannot be resolved: {where.reason}"
        yield _finding("unresolved-label", "note", name, Value(None, where.node), message)
    else:
        for value, rule, severity, message in _said(where, served, today):
            yield _finding(rule, severity, name, value, message)


_OWN_WORKFLOW = re.compile(r"\./\.github/workflows/[^/]+\.ya?ml")


def _called(call: Call, served: Served, today: datetime.date, file: pathlib.Path) -> Iterator[WorkflowFinding]:
    """Labels that a workflow of the same repository is given: its own file is read by itself, and there they are
    unknown."""
    folder = file.resolve().parent
    if not _OWN_WORKFLOW.fullmatch(call.workflow) or folder.parts[-2:] != (".github", "workflows"):
        return
    given = {id(value.node) for values in call.inputs.values() for value in values}
    with contextlib.suppress(UnreadableWorkflow):
        for where in read(folder / pathlib.Path(call.workflow).name, call.inputs):
            for value, rule, severity, message in _said(where, served, today) if isinstance(where, RunsOn) else ():
                if id(value.node) in given and severity != "note":
                    yield _finding(rule, severity, str(file), value, message)


def _finding(
    rule: str, severity: Literal["error", "warning", "note"], file: str, at: Value, message: str
) -> WorkflowFinding:
    assert at.node is not None
    mark = at.node.start_mark
    return WorkflowFinding.model_construct(
        tool="gpufleet",
        rule=rule,
        severity=severity,
        file=file,
        line=mark.line + 1,
        column=mark.column + 1,
        message=message,
    )


_Said = Iterator[tuple[Value, str, Literal["error", "warning", "note"], str]]
"""Where, which rule, how bad, and what is so."""


def _said(runs_on: RunsOn, served: Served, today: datetime.date) -> _Said:
    for rule in (_unresolved, _labels, _together, _groups):
        yield from rule(runs_on, served, today)


def _known(runs_on: RunsOn) -> list[tuple[str, Value]]:
    """The labels that are texts. An empty one is that of an input which nobody gave."""
    return [(label.content, label) for label in runs_on.labels if isinstance(label.content, str) and label.content]


def _unresolved(runs_on: RunsOn, served: Served, today: datetime.date) -> _Said:
    for value in (*runs_on.labels, *([runs_on.group] if runs_on.group else [])):
        if not isinstance(value.content, str):
            what = f"job '{runs_on.job}': a label cannot be resolved: only the run knows what it is"
            yield value, "unresolved-label", "note", what


def _labels(runs_on: RunsOn, served: Served, today: datetime.date) -> _Said:
    """Labels that nobody serves, or not for long."""
    known = _known(runs_on)
    if known and all(text.casefold() in SELF_HOSTED for text, _ in known) and len(known) == len(runs_on.labels):
        names = ", ".join(text for text, _ in known)
        message = f"any self-hosted runner may take '{names}'; none of these clusters' has it: name a label of theirs"
        yield known[0][1], "other-runners", "note", message
        return
    for text, value in known:
        serving = served.serving(text)
        if not serving and text.casefold() not in SELF_HOSTED and not served.by_others(text):
            yield value, "dead-label", "error", _dead(text, served)
        deprecated = [entry for entry in serving if entry.status == "deprecated"]
        if deprecated and len(deprecated) == len(serving):
            yield value, "deprecated-label", "warning", _deprecated(deprecated[0], today)


def _dead(text: str, served: Served) -> str:
    elsewhere = sorted({entry.config_url.removeprefix("https://") for entry in served.entries(text)})
    who = f"is served for {listed(elsewhere, 'and')} only" if elsewhere else "is served by nobody known here"
    return f"label {quoted(text)} {who}: the job queues for a day; {served.nearest(text)}"


def _deprecated(entry: LabelEntry, today: datetime.date) -> str:
    over = entry.until is not None and entry.until < today
    when = f"was to be removed after {entry.until}" if over else f"is served until {entry.until}"
    instead = f"; use '{entry.use}'" if entry.use else ""
    ask = ", ".join(filter(None, (entry.owner, entry.contact)))
    return f"label '{entry.label}' {when}{instead or (f'; ask {ask}' if ask else '')}"


def _together(runs_on: RunsOn, served: Served, today: datetime.date) -> _Said:
    """docs.github.com, "Using Actions Runner Controller runners in a workflow": no additional labels."""
    for text, value in _known(runs_on):
        if len(runs_on.labels) > 1 and served.serving(text) and not served.by_others(text):
            message = f"label '{text}' is the only one that its runners have: with others beside it no runner fits"
            yield value, "labels-together", "error", f"{message}; write it alone"


def _groups(runs_on: RunsOn, served: Served, today: datetime.date) -> _Said:
    """Runner groups that the labels' projects are not in."""
    if runs_on.group is None or not isinstance(group := runs_on.group.content, str):
        return
    for text, _ in _known(runs_on):
        groups = {entry.runner_group or "Default" for entry in served.serving(text)}
        if groups and group.casefold() not in {name.casefold() for name in groups}:
            message = f"label '{text}' is not in the runner group {quoted(group)}, but in {listed(sorted(groups))}"
            yield runs_on.group, "runner-group", "error", f"{message}: no runner fits"
    if not runs_on.labels and group not in served.groups and (meant := near(group, served.groups)):
        message = f"no stack serves the runner group {quoted(group)}; did you mean '{meant}'?"
        yield runs_on.group, "runner-group", "warning", message
