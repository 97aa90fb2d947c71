"""Findings about the labels of workflows, compared with the catalogue of labels."""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.problems import listed, near, quoted
from gpufleet_tools.labels.catalogue import Catalogue, LabelEntry
from gpufleet_tools.labels.github_url import serves
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
"""Maximum number of labels in a message."""

RULES = {
    "dead-label": "A label that no stack serves: the job queues for 24 hours and then fails.",
    "deprecated-label": "A label that will be removed.",
    "labels-together": "A scale set's label beside others: its runners have that one label only.",
    "runner-group": "A runner group that does not serve the label.",
    "one-of-several-groups": "One of several runner groups that serve the label.",
    "no-docker": "A job that requires Docker, on a label without it.",
    "container-required": "A job without `container`, on a label that runs each job as a pod.",
    "other-runners": "Labels of any self-hosted runner, without the label of a scale set.",
    "unresolved-label": "A label that is known only at run time.",
    "called-workflow": "A job whose labels are in another repository's workflow.",
}
"""Description of each rule."""


class WorkflowFinding(Documented):
    """Finding about a workflow."""

    tool: Literal["gpufleet", "actionlint"]
    """Tool that reports it."""
    rule: str
    """Kind of the finding: one of RULES, or of actionlint's kinds."""
    severity: Literal["error", "warning", "note"]
    """`error`: the job does not run. `warning`: it will stop running. `note`: unknown from the files alone."""
    file: str
    """Path of the workflow file, as given."""
    line: int
    """Line, from 1."""
    column: int
    """Column, from 1."""
    message: str
    """Fact and remedy."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message} [{self.rule}]"


class Unreadable(Documented):
    """A file that cannot be read."""

    file: str
    """Path of the file, as given."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""
    message: str
    """Reason."""

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
            for label in dict.fromkeys(each.casefold() for each in (entry.label, *entry.additional_labels)):
                self._entries.setdefault(label, []).append(entry)
        self._also = [pattern.casefold() for pattern in also]
        self._repository = repository
        self._nearest: dict[str, str | None] = {}
        self.groups = {entry.runner_group for entry in catalogue.labels if entry.runner_group}

    def entries(self, label: str) -> list[LabelEntry]:
        """Who serves a label; case counts for nothing (docs.github.com, "Choosing the runner for a job")."""
        return self._entries.get(label.casefold(), [])

    def serving(self, label: str) -> list[LabelEntry]:
        """Who serves it for the repository."""
        return [entry for entry in self.entries(label) if self._repository is None or self._covers(entry)]

    def _covers(self, entry: LabelEntry) -> bool:
        """Return whether its project serves the repository, which is on the same server."""
        server = "/".join(entry.config_url.split("/")[:3])
        return serves(entry.config_url, f"{server}/{self._repository}")

    def by_others(self, label: str) -> bool:
        """Whether somebody else's runners have the label, as far as is known."""
        folded = label.casefold()
        return folded in GITHUB_HOSTED or any(fnmatch.fnmatchcase(folded, pattern) for pattern in self._also)

    def nearest(self, label: str) -> str | None:
        """Return what was probably meant: a label in service, else one of GitHub's; None if nothing is like it."""
        if label not in self._nearest:
            served = [each for entry in self.in_service() for each in (entry.label, *entry.additional_labels)]
            self._nearest[label] = near(label, served) or near(label, GITHUB_HOSTED)
        return self._nearest[label]

    def in_service(self) -> list[LabelEntry]:
        """Return the entries that the repository can use in new workflows, sorted."""
        entries = {(entry.label, entry.stack): entry for name in self._entries for entry in self.serving(name)}
        return [entries[key] for key in sorted(entries) if entries[key].status == "served"]

    def list_of(self, entries: Sequence[LabelEntry]) -> str:
        """Return the labels of some entries as text, or where to read them if they are many."""
        names = list(dict.fromkeys(entry.label for entry in entries))
        return "gpufleet labels" if len(names) > MOST_LISTED else ", ".join(names)


def lint(file: pathlib.Path, served: Served, today: datetime.date) -> Iterator[WorkflowFinding | Unreadable]:
    """Yield the findings of one workflow file, in the order of the file, or the reason why it cannot be read."""
    name = str(file)
    try:
        jobs = itertools.groupby(read(file), key=lambda where: where.job)
        found = [finding for _, job in jobs for finding in _job(list(job), served, today, file)]
    except UnreadableWorkflow as error:
        yield Unreadable.model_construct(file=name, line=error.line, column=error.column, message=str(error))
        return
    # One label in several combinations of a matrix, or behind an alias, is said once.
    yield from sorted(
        _called_elsewhere(dict.fromkeys(found)), key=lambda finding: (finding.line, finding.column, finding.rule)
    )


def _job(
    wheres: Sequence[RunsOn | Call | Unresolved], served: Served, today: datetime.date, file: pathlib.Path
) -> Iterator[WorkflowFinding]:
    """Yield the findings of one job. All labels that others may serve are one finding."""
    name, foreign = str(file), []
    for where in wheres:
        if isinstance(where, Call):
            yield from _call(where, served, today, file)
        elif isinstance(where, Unresolved):
            message = f"job '{where.job}': its labels cannot be resolved: {where.reason}"
            yield _finding("unresolved-label", "note", name, Value(None, where.node), message)
        else:
            foreign += _foreign(where, served)
            for value, rule, severity, message in _results(where, served, today):
                yield _finding(rule, severity, name, value, message)
    if foreign:
        yield _finding("dead-label", "error", name, foreign[0][1], _dead([text for text, _ in foreign], served))


def _call(call: Call, served: Served, today: datetime.date, file: pathlib.Path) -> Iterator[WorkflowFinding]:
    if call.workflow.startswith("./"):
        yield from _called(call, served, today, file)
    else:
        yield _finding("called-workflow", "note", str(file), Value(None, call.node), call.workflow)


def _called_elsewhere(findings: Iterable[WorkflowFinding]) -> Iterator[WorkflowFinding]:
    """Yield the findings, with one note for all called workflows of other repositories."""
    calls = []
    for finding in findings:
        if finding.rule == "called-workflow":
            calls.append(finding)
        else:
            yield finding
    if calls:
        names = list(dict.fromkeys(quoted(finding.message) for finding in calls))
        one = len(calls) == 1
        message = (
            f"{len(calls)} job{'s' * (not one)} call{'s' * one} workflows of other repositories, which are not checked"
            f" here: {listed(names, 'and')}"
        )
        yield calls[0].model_copy(update={"message": message})


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
            for value, rule, severity, message in _whole(where, served, today) if isinstance(where, RunsOn) else ():
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


_Results = Iterator[tuple[Value, str, Literal["error", "warning", "note"], str]]
"""Value, rule, severity and message."""


def _results(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    for rule in (_unresolved, _labels, _together, _groups, _without_docker, _without_container):
        yield from rule(runs_on, served, today)


def _whole(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    """Yield all results, including one for each foreign label."""
    yield from _results(runs_on, served, today)
    for text, value in _foreign(runs_on, served):
        yield value, "dead-label", "error", _dead([text], served)


def _known(runs_on: RunsOn) -> list[tuple[str, Value]]:
    """Return the labels that are known texts. An empty one belongs to an input without a value."""
    return [(label.content, label) for label in runs_on.labels if isinstance(label.content, str) and label.content]


def _unresolved(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    for value in (*runs_on.labels, *([runs_on.group] if runs_on.group else [])):
        if not isinstance(value.content, str):
            message = f"job '{runs_on.job}': a label cannot be resolved: it is known only at run time"
            yield value, "unresolved-label", "note", message


def _labels(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    """Yield labels that nobody serves, or that are deprecated."""
    known = _known(runs_on)
    if known and all(text.casefold() in SELF_HOSTED for text, _ in known) and len(known) == len(runs_on.labels):
        names = ", ".join(text for text, _ in known)
        message = f"'{names}' selects any self-hosted runner, but none of these clusters; use one of their labels"
        yield known[0][1], "other-runners", "note", message
        return
    for text, value in known:
        serving = served.serving(text)
        if _is_dead(text, served) and (served.entries(text) or served.nearest(text)):
            yield value, "dead-label", "error", _dead([text], served)
        deprecated = [entry for entry in serving if entry.status == "deprecated"]
        if deprecated and len(deprecated) == len(serving):
            yield value, "deprecated-label", "warning", _deprecated(deprecated[0], today)


def _is_dead(text: str, served: Served) -> bool:
    return not served.serving(text) and text.casefold() not in SELF_HOSTED and not served.by_others(text)


def _foreign(runs_on: RunsOn, served: Served) -> list[tuple[str, Value]]:
    """Return the dead labels that are similar to none in service: probably labels of other runners."""
    known = _known(runs_on)
    dead = [(text, value) for text, value in known if _is_dead(text, served)]
    return [(text, value) for text, value in dead if not served.entries(text) and not served.nearest(text)]


def _dead(texts: Sequence[str], served: Served) -> str:
    texts = list(dict.fromkeys(texts))
    elsewhere = sorted({entry.config_url.removeprefix("https://") for entry in served.entries(texts[0])})
    one = len(texts) == 1
    who = "served by nobody known here" if not elsewhere else f"served for {listed(elsewhere, 'and')} only"
    labels = f"label{'s' * (not one)} {listed([quoted(text) for text in texts], 'and')} {'is' if one else 'are'} {who}"
    if meant := served.nearest(texts[0]):
        hint = f"did you mean '{meant}'?"
    else:
        hint = f"labels in service: {served.list_of(served.in_service())}" if served.in_service() else "none is served"
    return f"{labels}: the job queues for 24 hours and then fails; {hint}"


def _deprecated(entry: LabelEntry, today: datetime.date) -> str:
    over = entry.until is not None and entry.until < today
    when = f"was to be removed after {entry.until}" if over else f"is served until {entry.until}"
    instead = f"; use '{entry.use}'" if entry.use else ""
    ask = ", ".join(filter(None, (entry.owner, entry.contact)))
    return f"label '{entry.label}' {when}{instead or (f'; ask {ask}' if ask else '')}"


def _together(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    """Yield combinations of labels that no runner has: its own, and the additional ones of its scale set."""
    known = _known(runs_on)
    requested = {text.casefold() for text, _ in known}
    for text, value in known:
        serving = [] if served.by_others(text) else served.serving(text)
        if (
            len(runs_on.labels) > 1
            and serving
            and not any(_fits(entry, requested, len(runs_on.labels)) for entry in serving)
        ):
            more = any(entry.additional_labels for entry in serving)
            message = f"no runner with label '{text}' has the other labels too"
            advice = "use labels that one runner has" if more else "use it alone; its runners have no other label"
            yield value, "labels-together", "error", f"{message}: the job queues for 24 hours and then fails; {advice}"


def _fits(entry: LabelEntry, requested: set[str], count: int) -> bool:
    """Return whether runners can have all `count` labels of a job. `requested` are those that are known."""
    own = {label.casefold() for label in (entry.label, *entry.additional_labels)}
    return requested <= own and count <= len(own)


def _groups(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    """Yield runner groups that do not have the labels."""
    if runs_on.group is None or not isinstance(group := runs_on.group.content, str):
        return
    for text, _ in _known(runs_on):
        groups = {entry.runner_group or "Default" for entry in served.serving(text)}
        if groups and group.casefold() not in {name.casefold() for name in groups}:
            message = f"label '{text}' is not in the runner group {quoted(group)}, but in {listed(sorted(groups))}"
            yield runs_on.group, "runner-group", "error", f"{message}: no runner fits"
        elif len(groups) > 1:
            message = (
                f"label '{text}' is also in other runner groups ({listed(sorted(groups), 'and')}), for other clusters"
            )
            yield runs_on.group, "one-of-several-groups", "note", f"{message}; name the label only, to use all of them"
    if not runs_on.labels and group not in served.groups and (meant := near(group, served.groups)):
        message = f"no stack serves the runner group {quoted(group)}; did you mean '{meant}'?"
        yield runs_on.group, "runner-group", "warning", message


def _without_docker(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    """Jobs that need Docker on labels that have none, or have pods instead."""
    inside = runs_on.containers
    for text, value in _known(runs_on):
        modes = {entry.docker for entry in served.serving(text)}
        lacks = f"label '{text}' has no Docker"
        if modes == {None} and inside.started:
            message = _docker_message(
                runs_on, f"declares {inside.started}", lacks, "it fails before its first step", served
            )
            yield value, "no-docker", "error", message
        elif modes == {None} and inside.action:
            message = _docker_message(runs_on, f"uses {inside.action}", lacks, "it fails", served)
            yield value, "no-docker", "error", message
        elif modes and "sidecar" not in modes and inside.command:
            lacks = lacks if modes == {None} else f"label '{text}' runs containers as pods, without a Docker daemon"
            message = _docker_message(runs_on, f"runs '{inside.command}'", lacks, "that step fails", served)
            yield value, "no-docker", "warning", message


def _docker_message(runs_on: RunsOn, does: str, lacks: str, fails: str, served: Served) -> str:
    with_docker = [entry for entry in served.in_service() if entry.docker == "sidecar"]
    instead = f"labels with Docker: {served.list_of(with_docker)}" if with_docker else "no label has Docker"
    return f"job '{runs_on.job}' {does}, and {lacks}: {fails}; {instead}"


def _without_container(runs_on: RunsOn, served: Served, today: datetime.date) -> _Results:
    """Yield jobs without a container on labels that reject them."""
    for text, value in _known(runs_on):
        serving = served.serving(text)
        if runs_on.containers.job is False and serving and all(entry.requires_container for entry in serving):
            message = f"label '{text}' requires jobs with a container, but job '{runs_on.job}' has none: it fails"
            yield value, "container-required", "error", f"{message} before its first step; add container: IMAGE"
