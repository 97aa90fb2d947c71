"""What the compatibility matrix says of the versions that a stack file fixes, as findings of that stack."""

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
    """Each combination once, at the first of its settings that the file has, and versions that nobody has looked up."""
    seen: set[Finding] = set()
    for together in facts(settings):
        for finding in (*_incompatible(together, file), *_unknown(together)):
            if finding not in seen:
                seen.add(finding)
                yield finding


def _incompatible(together: Facts, file: StackFile) -> Iterator[Finding]:
    for entry in compatibility.incompatible({name: each.value for name, each in together.items()}):
        yield Finding(entry.finding, entry.severity, _place(entry, together, file), said(entry, together))


def _place(entry: Incompatibility, together: Facts, file: StackFile) -> Path:
    paths = [together[name].path for name in entry.names]
    return next((path for path in paths if file.written(path) is not None), paths[0])


def said(entry: Incompatibility, together: Facts) -> str:
    """`kubespray v2.30.0 with ansible-core 2.18: why; what to do`"""
    words = [name if together[name].value == "any" else f"{name} {together[name].value}" for name in entry.names]
    first, *others = words
    what = f"{first} with {listed(others, 'and')}" if others else first
    return f"{what}: {entry.why}; {entry.instead}"


def _unknown(together: Facts) -> Iterator[Finding]:
    for name, fixed in together.items():
        looked_up = compatibility.unknown(name, fixed.value)
        if looked_up is not None:
            yield Finding(
                "unknown-version",
                "warning",
                fixed.path,
                f"{name} {fixed.value}: what goes with it has been looked up for {looked_up.versions} only; read"
                f" {looked_up.look}, and add what it says to compatibility.yaml, or acknowledge it",
            )


NAMES = frozenset({"unknown-version", *(entry.finding for entry in compatibility.matrix())})
"""Names that an acknowledgement can give."""
