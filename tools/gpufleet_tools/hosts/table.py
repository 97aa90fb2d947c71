"""Table of surveyed hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from gpufleet.bare_metal.preflight.facts import HostFacts
from gpufleet_tools import terminal
from gpufleet_tools.hosts.survey import HostReport

if TYPE_CHECKING:
    from rich.table import Table


def table(reports: Sequence[HostReport]) -> Table:
    """Return a table with a row for each host and a line for each failure."""
    columns = ("host", "os", "kernel", "memory", "GPUs", "driver", "render", "validated", "to fix")
    result = terminal.table(*columns, left=columns)
    for report in reports:
        cells = (report.host.name, *_cells(report.facts), "\n".join(report.failures) or "nothing")
        # Text objects: rich interprets brackets in strings as styles.
        result.add_row(*(Text(cell) for cell in cells))
    return result


def unmeasured(reports: Sequence[HostReport]) -> Iterator[str]:
    """Yield a line for each host with measurements that have no result."""
    for report in reports:
        if report.unmeasured:
            yield f"not measured on {report.host.name}: {'; '.join(report.unmeasured)}"


def last_snapshots(reports: Sequence[HostReport]) -> Iterator[str]:
    """Yield a line about the last snapshot of each member of etcd that takes any."""
    for report in reports:
        if report.facts and report.facts.last_snapshot is not None:
            hours = (report.facts.clock - report.facts.last_snapshot) / 3600
            yield f"last snapshot of etcd on {report.host.name}: {hours:.1f} hours ago"


def _cells(facts: HostFacts | None) -> tuple[str, ...]:
    if facts is None:
        return ("",) * 7
    return (
        f"{facts.os} {facts.os_version}",
        facts.kernel,
        f"{facts.memory_kib / 1024**2:.0f} GiB",
        ", ".join(_gpus(facts)) or "none",
        ", ".join(_drivers(facts)) or "none",
        "" if facts.render_gid is None else str(facts.render_gid),
        _validated(facts),
    )


def _validated(facts: HostFacts) -> str:
    """Return result and age of the validation of the GPUs; an empty text if there was none since the boot."""
    result = facts.gpu_validation
    if result is None:
        return ""
    hours = max(0.0, facts.clock - result.at) / 3600
    age = f"{hours:.1f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"
    return f"{f'{result.gpus} GPUs, {result.level}' if result.passed else 'failed'}, {age}"


def _gpus(facts: HostFacts) -> Iterator[str]:
    for count, vendor in ((facts.gpus_amd, "AMD"), (facts.gpus_nvidia, "NVIDIA")):
        models = sorted(name for name in facts.gpu_models if name.lower().startswith(vendor.lower()))
        if count:
            yield f"{count} {', '.join(models) or vendor}"


def _drivers(facts: HostFacts) -> Iterator[str]:
    if facts.module_amdgpu:
        yield " ".join(filter(None, ("amdgpu", facts.driver_amdgpu, f"ROCm {facts.rocm}" if facts.rocm else "")))
    if facts.module_nvidia:
        yield f"nvidia {facts.driver_nvidia}".rstrip()
