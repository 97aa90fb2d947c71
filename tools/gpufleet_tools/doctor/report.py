"""The diagnosis as text: a table of the scale sets, the findings with their commands, and what was not checked."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_tools.doctor.diagnosis import Diagnosis
from gpufleet_tools.doctor.document import ControllerDocument, DiagnosisDocument, document
from gpufleet_tools.doctor.finding import Finding
from gpufleet_tools.doctor.reading import lines
from gpufleet_tools.terminal import aligned, folded_line

_COLUMNS = (
    "runs-on",
    "phase",
    "id",
    "listener",
    "min",
    "max",
    "idle",
    "busy",
    "pending",
    "failed",
    "runner",
    "no jobs from",
)
_LEFT = ("runs-on", "phase", "listener", "runner", "no jobs from")


def text(diagnosis: Diagnosis, columns: int) -> str:
    """Return the diagnosis for a terminal of that many columns. Commands are never folded, so that they can be
    copied."""
    found = document(diagnosis)
    parts = [
        [f"{found.stack}: {found.server}, Kubernetes {found.kubernetes}", _controller(found.controller)],
        aligned(_rows(found), _LEFT, columns),
        *([*_finding(each, columns)] for each in diagnosis.findings),
        [part for line in lines(diagnosis.view.snapshot.unread) for part in folded_line(line, columns)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _controller(controller: ControllerDocument) -> str:
    state = "ready" if controller.ready else "not ready"
    version = f"{controller.version}, {state}" if controller.version else "not found"
    return (
        f"ARC's controller {controller.namespace}/{controller.deployment}: {version} (declared:"
        f" {controller.declared_version}); CRDs: {controller.crds or 'unknown'}"
    )


def _rows(found: DiagnosisDocument) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for each in found.scale_sets:
        counts = (each.runners.idle, each.runners.busy, each.runners.pending, each.runners.failed)
        rows.append(
            (
                each.label,
                each.phase,
                _shown(each.id),
                each.listener,
                _shown(each.min),
                _shown(each.max),
                *map(str, counts),
                each.runner_version or "unknown",
                _shown(each.no_jobs_from),
            )
        )
    return rows


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _finding(finding: Finding, columns: int) -> Iterator[str]:
    yield from folded_line(f"{finding.severity}: {finding.subject}: {finding.fact} [{finding.name}]", columns, "  ")
    yield from folded_line(f"  {finding.consequence}", columns, "  ")
    for command in finding.commands:
        yield f"  $ {command}"


def summary(diagnosis: Diagnosis) -> str:
    """Return the last line: `2 findings; 1 permission is missing`."""
    count, missing = len(diagnosis.findings), len([*lines(diagnosis.view.snapshot.unread)])
    found = f"{count} finding{'s' * (count > 1)}" if count else "no findings"
    return found + (f"; {missing} permission{'s are' if missing > 1 else ' is'} missing" if missing else "")
