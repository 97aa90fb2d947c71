"""SARIF 2.1.0, the format of findings for GitHub's code scanning.

The schema is sarif-schema-2.1.0.json of oasis-tcs/sarif-spec; the limits are GitHub's, docs.github.com, "SARIF support
for code scanning".
"""

from __future__ import annotations

import json
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpufleet_tools.workflows.findings import RULES, Unreadable, WorkflowFinding

MOST_RESULTS = 25_000
"""Maximum number of results in one run; GitHub rejects a file with more."""

_SEVERITIES = ("error", "warning", "note")


def document(
    findings: Iterable[WorkflowFinding], unreadable: Sequence[Unreadable], versions: Mapping[str, str]
) -> tuple[str, int]:
    """Return the findings as a SARIF log with a run for each tool in `versions`, and the number of omitted findings.
    The most severe ones are included.

    Paths are relative to the current directory, which must be the repository's root for GitHub to find them.
    """
    by_tool: dict[str, list[WorkflowFinding]] = {tool: [] for tool in versions}
    for finding in findings:
        by_tool[finding.tool].append(finding)
    left = 0
    runs = []
    for tool, found in by_tool.items():
        found.sort(key=lambda finding: _SEVERITIES.index(finding.severity))
        left += max(0, len(found) - MOST_RESULTS)
        runs.append(_run(tool, versions[tool], found[:MOST_RESULTS], unreadable if tool == "gpufleet" else ()))
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": runs}
    return json.dumps(log, indent=1), left


def _run(
    tool: str, version: str, findings: Sequence[WorkflowFinding], unreadable: Sequence[Unreadable]
) -> dict[str, Any]:
    names = list(RULES) if tool == "gpufleet" else sorted({finding.rule for finding in findings})
    driver: dict[str, Any] = {"name": tool, "version": version, "rules": [_rule(tool, name) for name in names]}
    if tool == "actionlint":
        driver["informationUri"] = "https://github.com/rhysd/actionlint"
    return {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not unreadable,
                "toolExecutionNotifications": [_notification(one) for one in unreadable],
            }
        ],
        "results": [_result(finding, names.index(finding.rule)) for finding in findings],
    }


def _rule(tool: str, name: str) -> dict[str, Any]:
    text = RULES[name] if tool == "gpufleet" else f"actionlint's rule '{name}'."
    return {"id": name, "shortDescription": {"text": text}, "fullDescription": {"text": text}, "help": {"text": text}}


def _result(finding: WorkflowFinding, rule: int) -> dict[str, Any]:
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": finding.message},
        "locations": [_location(finding.file, finding.line, finding.column)],
    }


def _notification(one: Unreadable) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": one.message},
        "locations": [_location(one.file, one.line or 1, one.column or 1)],
    }


def _location(file: str, line: int, column: int) -> dict[str, Any]:
    path = pathlib.Path(file)
    if path.is_absolute() and path.is_relative_to(pathlib.Path.cwd()):
        path = path.relative_to(pathlib.Path.cwd())
    uri = path.as_uri() if path.is_absolute() else urllib.parse.quote(path.as_posix())
    region = {"startLine": line, "startColumn": column}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
