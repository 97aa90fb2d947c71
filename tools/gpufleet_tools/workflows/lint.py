"""Command `gpufleet lint-workflows`: findings about labels and findings of actionlint in one list."""

from __future__ import annotations

import datetime
import importlib.metadata
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from gpufleet_stacks.settings.documented import Documented
from gpufleet_tools.labels.catalogue import Catalogue
from gpufleet_tools.workflows import actionlint, sarif, workflow_file
from gpufleet_tools.workflows.actionlint import Actionlint, ActionlintFailed, NoActionlint
from gpufleet_tools.workflows.findings import Served, Unreadable, WorkflowFinding, lint
from gpufleet_tools.workflows.workflow_file import UnreadableWorkflow

Format = Literal["text", "json", "sarif"]


class LintedWorkflows(Documented):
    """Output of `gpufleet lint-workflows --format json`."""

    files: int
    """Number of files."""
    findings: list[WorkflowFinding]
    """Findings, sorted by file, line and column."""
    unreadable: list[Unreadable]
    """Files that cannot be read."""
    actionlint: str | None
    """Version of actionlint, whose findings are included; null if it was not run."""


def linted(paths: Sequence[pathlib.Path], served: Served, today: datetime.date) -> LintedWorkflows:
    """Return the findings about labels of the workflows. Raises UnreadableWorkflow for a path without workflows."""
    findings: list[WorkflowFinding] = []
    unreadable: list[Unreadable] = []
    files = 0
    for file in dict.fromkeys(workflow_file.find(paths)):
        files += 1
        for one in lint(file, served, today):
            if isinstance(one, Unreadable):
                unreadable.append(one)
            else:
                findings.append(one)
    return LintedWorkflows.model_construct(files=files, findings=findings, unreadable=unreadable, actionlint=None)


def with_actionlint(
    ours: LintedWorkflows, tool: Actionlint, paths: Sequence[pathlib.Path], catalogue: Catalogue
) -> LintedWorkflows:
    """Return the result with actionlint's findings added. Raises ActionlintFailed."""
    bad = {one.file for one in ours.unreadable}
    readable = [file for file in dict.fromkeys(workflow_file.find(paths)) if str(file) not in bad]
    theirs = actionlint.findings(tool.program, readable, catalogue)
    findings = sorted([*ours.findings, *theirs], key=lambda finding: (finding.file, finding.line, finding.column))
    return ours.model_copy(update={"findings": findings, "actionlint": tool.version})


def run(
    paths: Sequence[pathlib.Path],
    catalogue: Catalogue,
    *,
    also: Sequence[str],
    repository: str | None,
    today: datetime.date,
    form: Format,
    find_actionlint: Callable[[], Actionlint] | None,
) -> int:
    """Print the findings, with those of actionlint if `find_actionlint` is given. Return the exit code.

    0: only notes; 1: errors or warnings; 2: a file cannot be checked.
    """
    if not catalogue.labels:
        print("gpufleet: no stack serves any label to compare workflows with", file=sys.stderr)
        return 2
    try:
        found = linted(paths, Served(catalogue, also, repository), today)
    except UnreadableWorkflow as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return 2
    failed = False
    if find_actionlint:
        try:
            found = with_actionlint(found, find_actionlint(), paths, catalogue)
        except NoActionlint as error:
            print(f"gpufleet: actionlint's own checks are skipped: {error}", file=sys.stderr)
        except ActionlintFailed as error:
            print(f"gpufleet: actionlint: {error}", file=sys.stderr)
            failed = True
    _print(found, form)
    if found.unreadable or failed:
        return 2
    return int(any(finding.severity != "note" for finding in found.findings))


def _print(found: LintedWorkflows, form: Format) -> None:
    if form == "json":
        print(found.model_dump_json(indent=2))
    elif form == "sarif":
        versions = {"gpufleet": importlib.metadata.version("gpufleet")}
        versions |= {"actionlint": found.actionlint} if found.actionlint else {}
        text, left = sarif.document(found.findings, found.unreadable, versions)
        print(text)
        if left:
            print(f"gpufleet: GitHub accepts {sarif.MOST_RESULTS:,} results; {left:,} are omitted", file=sys.stderr)
    else:
        for finding in found.findings:
            print(finding)
        for severity in ("error", "warning", "note"):
            count = sum(finding.severity == severity for finding in found.findings)
            if count:
                print(f"{count} {severity}{'s' * (count != 1)}", end=", ")
        print(f"{found.files} workflow{'s' * (found.files != 1)} read")
    for one in found.unreadable:
        print(one, file=sys.stderr)
