"""Findings about versions in a stack file that are incompatible, or whose compatibility has not been reviewed."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet.problem import Path
from gpufleet_stacks.settings.models.settings import Settings
from gpufleet_stacks.settings.problems import listed
from gpufleet_stacks.settings.stack_file import StackFile
from gpufleet_tools.check import compatibility
from gpufleet_tools.check.compatibility import Incompatibility
from gpufleet_tools.check.finding import Finding
from gpufleet_tools.check.fixed_versions import Facts, facts


def findings(settings: Settings, file: StackFile) -> Iterator[Finding]:
    """Yield each incompatible combination once, at the first of its settings that the file has, and each version whose
    compatibility has not been reviewed."""
    seen: set[Finding] = set()
    for together in facts(settings):
        for finding in (*_incompatible(together, file), *_unreviewed(together)):
            if finding not in seen:
                seen.add(finding)
                yield finding


def _incompatible(together: Facts, file: StackFile) -> Iterator[Finding]:
    for entry in compatibility.incompatible({name: each.value for name, each in together.items()}):
        yield Finding(entry.finding, entry.severity, _place(entry, together, file), message(entry, together))


def _place(entry: Incompatibility, together: Facts, file: StackFile) -> Path:
    paths = [together[name].path for name in entry.names]
    return next((path for path in paths if file.written(path) is not None), paths[0])


def message(entry: Incompatibility, together: Facts) -> str:
    """Return `kubespray v2.30.0 with ansible-core 2.18: why; what to do`."""
    components = [name if together[name].value == "any" else f"{name} {together[name].value}" for name in entry.names]
    first, *others = components
    combination = f"{first} with {listed(others, 'and')}" if others else first
    return f"{combination}: {entry.why}; {entry.instead}"


def _unreviewed(together: Facts) -> Iterator[Finding]:
    for name, pinned in together.items():
        reviewed = compatibility.outside_review(name, pinned.value)
        if reviewed is not None:
            yield Finding(
                "unknown-version",
                "warning",
                pinned.path,
                f"{name} {pinned.value}: compatibility has been reviewed for {reviewed.versions} only; read"
                f" {reviewed.documentation} and extend compatibility.yaml, or acknowledge the finding",
            )


NAMES = frozenset({"unknown-version", *(entry.finding for entry in compatibility.matrix())})
"""Names that an acknowledgement can give."""
