"""The catalogue of labels: what `runs-on` can say, for the people who write workflows."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Literal

import yaml

from gpufleet.arc import runner_releases
from gpufleet_stacks.settings import quantity
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.models.settings import Runner
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.terminal import aligned


class LabelEntry(Documented):
    """One label on one cluster."""

    label: str
    """What `runs-on` says."""
    stack: str
    """Stack that serves it."""
    cluster: str
    """Cluster that its jobs run on."""
    config_url: str
    """GitHub organisation or repository whose jobs it takes."""
    runner_group: str | None
    """GitHub runner group; null is GitHub's default group."""
    gpus: int
    """GPUs, or partitions of them, of one runner."""
    accelerator: str | None
    """What those are: `AMD MI300X`, `AMD MI300X (CPX)`; null without GPUs."""
    cpu: str
    """Cores set aside for one runner, a Kubernetes quantity."""
    memory: str
    """Memory set aside for one runner, a Kubernetes quantity."""
    docker: bool
    """Whether jobs can use Docker."""
    runner_version: str | None
    """Version of GitHub's runner; null where nothing declares what the image holds."""
    no_jobs_from: datetime.date | None
    """First day on which GitHub gives that version no jobs; null where that is not known, or GitHub does not refuse
    old runners (Enterprise Server)."""
    at_most: int
    """Jobs that run at once; more wait."""
    owner: str | None
    """Who answers for it."""
    contact: str | None
    """Where to ask about it."""
    status: Literal["served", "deprecated"]
    """Whether to use it in new workflows."""
    until: datetime.date | None
    """Last day of a deprecated label."""
    use: str | None
    """What to use instead."""


class Catalogue(Documented):
    """Every label of every stack."""

    labels: list[LabelEntry]
    """Sorted by label, then stack."""


def catalogue(stacks: Iterable[Stack]) -> Catalogue:
    """The labels of the stacks. One that several clusters serve has an entry for each."""
    entries = [_entry(label, runner, stack) for stack in stacks for label, runner in stack.settings.runners.items()]
    return Catalogue.model_construct(labels=sorted(entries, key=lambda entry: (entry.label, entry.stack)))


def _entry(label: str, runner: Runner, stack: Stack) -> LabelEntry:
    settings = stack.settings
    project, deprecated = settings.projects[runner.project], runner.deprecated
    version = settings.profile(runner).held_runner_version
    enforced = runner_releases.is_enforced(project.config_url)
    return LabelEntry.model_construct(
        label=label,
        stack=stack.name,
        cluster=settings.cluster.name,
        config_url=project.config_url,
        runner_group=project.runner_group,
        gpus=runner.gpus,
        accelerator=settings.accelerator_name(runner) if runner.gpus else None,
        cpu=runner.cpu,
        memory=runner.memory,
        docker=runner.docker,
        runner_version=version,
        no_jobs_from=runner_releases.known().no_jobs_from(version) if version and enforced else None,
        at_most=runner.max,
        owner=project.owner,
        contact=project.contact,
        status="deprecated" if deprecated else "served",
        until=deprecated.until if deprecated else None,
        use=deprecated.use if deprecated else None,
    )


_COLUMNS = ("runs-on", "GPUs", "CPU", "memory", "Docker", "runner", "at most", "jobs of", "cluster", "ask", "status")


def markdown(entries: Catalogue) -> str:
    """Return the catalogue as a Markdown table."""
    # A bar in a name would end the cell.
    cells = ([cell.replace("|", "\\|") for cell in _row(entry, code="`", bold="**")] for entry in entries.labels)
    return "".join(f"| {' | '.join(row)} |\n" for row in (_COLUMNS, ["---"] * len(_COLUMNS), *cells))


def text(entries: Catalogue, columns: int) -> str:
    """Return the catalogue as a table for a terminal, without columns in which no label has anything."""
    rows = [_row(entry) for entry in entries.labels]
    used = [number for number in range(len(_COLUMNS)) if any(row[number] for row in rows)]
    shown = [[row[number] for number in used] for row in (_COLUMNS, *rows)]
    return "".join(f"{line}\n" for line in aligned(shown, _COLUMNS, columns)) if rows else ""


def _row(entry: LabelEntry, *, code: str = "", bold: str = "") -> Sequence[str]:
    """Return the cells of a label. `code` and `bold` are the marks around such text."""
    runs_on = f"{code}{entry.label}{code}"
    if entry.runner_group:
        runs_on = f"{code}{{group: {entry.runner_group}, labels: {entry.label}}}{code}"
    ask = ", ".join(filter(None, (entry.owner, entry.contact)))
    return (
        runs_on,
        f"{entry.gpus} {entry.accelerator}" if entry.accelerator else "none",
        quantity.cores(quantity.parse(entry.cpu)),
        quantity.gibibytes(quantity.parse(entry.memory)),
        "yes" if entry.docker else "no",
        runner_words(entry.runner_version, entry.no_jobs_from),
        str(entry.at_most),
        entry.config_url.removeprefix("https://"),
        entry.cluster,
        ask,
        _status(entry, code, bold),
    )


def runner_words(version: str | None, no_jobs_from: datetime.date | None) -> str:
    """Return `2.337.0, no jobs from 2026-11-05`."""
    return f"{version or 'unknown'}, no jobs from {no_jobs_from}" if no_jobs_from else version or "unknown"


def _status(entry: LabelEntry, code: str, bold: str) -> str:
    if entry.status == "served":
        return "served"
    instead = f"; use {code}{entry.use}{code}" if entry.use else ""
    return f"{bold}deprecated{bold}, served until {entry.until}{instead}"


def actionlint(entries: Catalogue) -> str:
    """Configuration for actionlint (`.github/actionlint.yaml` of a consumer's repository), which then tells a label
    that nobody serves from one of ours. Deprecated labels are in it: they are still served."""
    labels = sorted({entry.label for entry in entries.labels})
    text: str = yaml.safe_dump({"self-hosted-runner": {"labels": labels}}, sort_keys=False)
    return f"# Generated by gpufleet labels --format actionlint\n{text}"
