"""Catalogue of labels: values of `runs-on`, for authors of workflows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, cast

import yaml

from gpufleet import quantity
from gpufleet.arc import runner_releases
from gpufleet_stacks.settings.documented import Documented
from gpufleet_stacks.settings.models.profiles.docker import DockerSidecar
from gpufleet_stacks.settings.models.settings import Runner, Settings
from gpufleet_tools.capacity import stack_capacity
from gpufleet_tools.capacity.pool_capacity import LabelCapacity
from gpufleet_tools.labels.runner_version import runner_words
from gpufleet_tools.plan.stack import Stack
from gpufleet_tools.terminal import aligned

if TYPE_CHECKING:
    from gpufleet_stacks.settings.models.bare_metal import BareMetalSettings
    from gpufleet_stacks.settings.models.eks import EksSettings
    from gpufleet_stacks.settings.models.karpenter import Sharing

REQUIRE_CONTAINER = "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"
"""Variable that makes a runner reject jobs without `container` (src/Runner.Worker/JobExtension.cs of actions/runner).
ARC's chart sets it in the modes `kubernetes` and `kubernetes-novolume` unless the values do (_helpers.tpl, 330)."""


class LabelEntry(Documented):
    """One label on one cluster."""

    label: str
    """Value of `runs-on`."""
    additional_labels: list[str]
    """Additional labels by which jobs may request its runners; other runners may have them too."""
    stack: str
    """Stack that serves it."""
    cluster: str
    """Cluster that runs its jobs."""
    region: str | None
    """AWS region of the cluster; null on bare metal."""
    config_url: str
    """GitHub organisation or repository whose jobs it runs."""
    runner_group: str | None
    """GitHub runner group; null is GitHub's default group."""
    gpus: int
    """GPUs, or partitions of them, of one runner."""
    accelerator: str | None
    """Model of the GPUs: `AMD MI300X`, `AMD MI300X (CPX)`; null without GPUs."""
    sharing: str | None
    """Sharing of a GPU between jobs: `time slicing`, `MPS`, `MIG 1g.10gb`; null if jobs do not share GPUs."""
    architecture: Literal["amd64", "arm64"] | None
    """CPU architecture of the nodes; null if the stack file does not specify it."""
    capacity: list[Literal["spot", "on-demand", "reserved"]]
    """Capacity types of nodes that Karpenter provisions; empty on bare metal. AWS interrupts spot instances, and their
    jobs are lost."""
    cpu: str
    """Cores reserved for one runner, a Kubernetes quantity."""
    memory: str
    """Memory reserved for one runner, a Kubernetes quantity."""
    docker: Literal["sidecar", "kubernetes", "kubernetes-novolume"] | None
    """Containers of jobs: in a Docker daemon (`sidecar`), or as pods; null if jobs cannot run containers."""
    requires_container: bool
    """Whether the runner rejects jobs without `container`."""
    runner_version: str | None
    """Version of GitHub's runner; null if unknown."""
    no_jobs_from: datetime.date | None
    """First day on which GitHub assigns no jobs to that version; null if unknown, or if GitHub accepts old runners
    (Enterprise Server)."""
    at_most: int
    """Maximum number of jobs at the same time; more wait."""
    guaranteed: int | None
    """Jobs that always find room, whatever other labels run; null if not computed."""
    limited_by: list[str]
    """Labels whose jobs can leave no room for a single job; empty if not computed."""
    reduced_until: datetime.date | None
    """Expected last day of a maintenance that reduces the capacity; null if there is none."""
    owner: str | None
    """Owner of the label."""
    contact: str | None
    """Contact for questions."""
    status: Literal["served", "deprecated"]
    """`deprecated`: do not use it in new workflows."""
    until: datetime.date | None
    """Expiry date of a deprecated label."""
    use: str | None
    """Label to use instead of a deprecated one."""


class Catalogue(Documented):
    """Labels of all stacks."""

    labels: list[LabelEntry]
    """Labels, sorted by label, then by stack."""


def catalogue(stacks: Iterable[Stack], *, capacity: bool = True) -> Catalogue:
    """Return the labels of the stacks. A label that several clusters serve has an entry for each. Only with `capacity`,
    which takes most of the time, `guaranteed` and `limited_by` are computed."""
    entries = [each for stack in stacks for each in _entries(stack, capacity)]
    return Catalogue.model_construct(labels=sorted(entries, key=lambda each: (each.label, each.stack)))


def _entries(stack: Stack, capacity: bool) -> Iterator[LabelEntry]:
    settings, rooms = stack.settings, {}
    if capacity:
        pools = stack_capacity.capacity(stack.name, settings, stack_capacity.declared(settings)).pools
        rooms = {room.label: room for pool in pools for room in pool.labels}
    for label in settings.runners:
        yield entry(label, stack, rooms.get(label))


def entry(label: str, stack: Stack, room: LabelCapacity | None = None) -> LabelEntry:
    """Return one label of a stack. Without its capacity, `guaranteed` and `limited_by` are empty."""
    settings, runner = stack.settings, stack.settings.effective(label)
    project, deprecated = settings.projects[runner.project], runner.deprecated
    profile = settings.profile(runner)
    version = profile.held_runner_version
    enforced = runner_releases.is_enforced(project.config_url)
    pods = runner.docker and not isinstance(profile.docker, DockerSidecar)
    return LabelEntry.model_construct(
        label=label,
        additional_labels=[*runner.additional_labels],
        stack=stack.name,
        cluster=settings.cluster.name,
        region=cast("EksSettings", settings).cluster.region if settings.cluster.kind == "eks" else None,
        config_url=project.config_url,
        runner_group=project.runner_group,
        gpus=runner.gpus,
        accelerator=settings.accelerator_name(runner) if runner.gpus else None,
        sharing=_sharing(settings, runner) if runner.gpus else None,
        architecture=_architecture(settings, runner),
        capacity=_capacity_types(settings, runner),
        cpu=runner.cpu,
        memory=runner.memory,
        docker=profile.docker.kind if runner.docker else None,
        requires_container=pods and profile.env.get(REQUIRE_CONTAINER, "true").lower() == "true",
        runner_version=version,
        no_jobs_from=runner_releases.known().no_jobs_from(version) if version and enforced else None,
        at_most=runner.max,
        guaranteed=room.guaranteed if room else None,
        limited_by=[blocker.label for blocker in room.limited_by] if room else [],
        reduced_until=_reduced_until(settings, label),
        owner=project.owner,
        contact=project.contact,
        status="deprecated" if deprecated else "served",
        until=deprecated.until if deprecated else None,
        use=deprecated.use if deprecated else None,
    )


def _reduced_until(settings: Settings, label: str) -> datetime.date | None:
    if settings.cluster.kind == "eks":
        return None
    reason = cast("BareMetalSettings", settings).reduced_by(label)
    return reason.until if reason else None


def _sharing(settings: Settings, runner: Runner) -> str | None:
    sharing: Sharing | None = None
    if settings.cluster.kind == "eks":
        sharing = cast("EksSettings", settings).pool(runner).sharing
    if sharing is None:
        return None
    return f"MIG {sharing.mig.profile}" if sharing.mig else "MPS" if sharing.mps else "time slicing"


def _architecture(settings: Settings, runner: Runner) -> Literal["amd64", "arm64"] | None:
    if settings.cluster.kind == "eks":
        return cast("EksSettings", settings).pool(runner).instances.architecture
    # AMD's driver and ROCm support x86-64 hosts only (ROCm's "System requirements").
    return "amd64" if cast("BareMetalSettings", settings).pool(runner).accelerator.vendor == "amd" else None


def _capacity_types(settings: Settings, runner: Runner) -> Sequence[Literal["spot", "on-demand", "reserved"]]:
    return [*cast("EksSettings", settings).pool(runner).capacity] if settings.cluster.kind == "eks" else []


_COLUMNS = (
    *("runs-on", "GPUs", "CPU", "memory", "architecture", "nodes", "containers", "runner", "jobs at once"),
    *("jobs of", "cluster", "ask", "status"),
)


def served_together(entries: Catalogue) -> list[list[LabelEntry]]:
    """Return the entries of each label that serve the same users, one for each stack: GitHub gives a job to any of
    them."""
    found: dict[tuple[str, str], list[LabelEntry]] = {}
    for each in entries.labels:
        found.setdefault((each.label, each.config_url.rstrip("/").casefold()), []).append(each)
    return [*found.values()]


def markdown(entries: Catalogue) -> str:
    """Return the catalogue as a Markdown table."""
    rows = (_row(each, code="`", bold="**") for each in served_together(entries))
    # A bar in a name would end the cell.
    cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in (_COLUMNS, ["---"] * len(_COLUMNS), *cells))


def text(entries: Catalogue, columns: int) -> str:
    """Return the catalogue as a table for a terminal, without columns that are empty for all labels."""
    rows = [_row(each) for each in served_together(entries)]
    used = [number for number in range(len(_COLUMNS)) if any(row[number] for row in rows)]
    shown = [[row[number] for number in used] for row in (_COLUMNS, *rows)]
    return "".join(f"{line}\n" for line in aligned(shown, _COLUMNS, columns)) if rows else ""


def _row(entries: Sequence[LabelEntry], *, code: str = "", bold: str = "") -> Sequence[str]:
    """Return the cells of a label, of all stacks that serve it. `code` and `bold` are the markup of code and bold
    text."""
    runs_on = f"{code}{entries[0].label}{code}"
    if group := common_group(entries):
        runs_on = f"{code}{{group: {group}, labels: {entries[0].label}}}{code}"
    additional = dict.fromkeys(label for each in entries for label in each.additional_labels)
    return (
        runs_on + "".join(f", {code}{label}{code}" for label in additional),
        each_word(gpu_words, entries),
        each_word(core_words, entries),
        each_word(memory_words, entries),
        each_word(lambda one: one.architecture or "unknown", entries),
        each_word(node_words, entries),
        each_word(container_words, entries),
        each_word(lambda one: runner_words(one.runner_version, one.no_jobs_from), entries),
        _room_words(entries),
        entries[0].config_url.removeprefix("https://"),
        cluster_words(entries),
        each_word(ask_words, entries),
        each_word(lambda one: status_words(one, code, bold), entries),
    )


def each_word(words: Callable[[LabelEntry], str], entries: Sequence[LabelEntry]) -> str:
    """Return the different descriptions of a label that several stacks serve."""
    return " or ".join(dict.fromkeys(words(each) for each in entries))


def common_group(entries: Sequence[LabelEntry]) -> str | None:
    """Return the runner group that workflows may name; None if stacks serve the label in different groups, since a
    workflow that names one would only use that stack."""
    groups = {each.runner_group for each in entries}
    return groups.pop() if len(groups) == 1 else None


def cluster_words(entries: Sequence[LabelEntry]) -> str:
    """Return the cluster, or each cluster with its region and its share of the jobs."""
    if len(entries) == 1:
        return entries[0].cluster
    regions = [f"{each.region}, " if each.region else "" for each in entries]
    return ", ".join(
        f"{each.cluster} ({region}{each.at_most} jobs)" for each, region in zip(entries, regions, strict=True)
    )


def core_words(entry: LabelEntry) -> str:
    """Return the cores of one runner."""
    return quantity.cores(quantity.parsed(entry.cpu))


def memory_words(entry: LabelEntry) -> str:
    """Return the memory of one runner."""
    return quantity.gibibytes(quantity.parsed(entry.memory))


def gpu_words(entry: LabelEntry) -> str:
    """Return `1 NVIDIA T4, shared by 10 (time slicing)`."""
    if not entry.accelerator:
        return "none"
    return f"{entry.gpus} {entry.accelerator}" + (f" ({entry.sharing})" if entry.sharing else "")


def node_words(entry: LabelEntry) -> str:
    """Return the capacity types of the nodes, or `machines`."""
    return ", ".join(entry.capacity) or "machines"


def container_words(entry: LabelEntry) -> str:
    """Return a description of the containers of jobs."""
    if entry.docker in (None, "sidecar"):
        return "Docker" if entry.docker else "none"
    return "as pods, required" if entry.requires_container else "as pods"


def jobs_at_once(entries: Sequence[LabelEntry]) -> tuple[int, int | None]:
    """Return the maximum number of jobs of a label in all stacks, and the guaranteed ones; None if not computed."""
    guaranteed = [each.guaranteed for each in entries if each.guaranteed is not None]
    return sum(each.at_most for each in entries), sum(guaranteed) if len(guaranteed) == len(entries) else None


def _room_words(entries: Sequence[LabelEntry]) -> str:
    most, guaranteed = jobs_at_once(entries)
    reduced = "".join(f", reduced until {each.reduced_until}" for each in entries if each.reduced_until)
    if guaranteed is None or guaranteed >= most:
        return f"{most}{reduced}"
    return f"{most}, {guaranteed} guaranteed{reduced}"


def ask_words(entry: LabelEntry) -> str:
    """Return owner and contact of the label."""
    return ", ".join(filter(None, (entry.owner, entry.contact)))


def status_words(entry: LabelEntry, code: str = "", bold: str = "") -> str:
    """Return `served`, or the expiry date and the replacement of a deprecated label. `code` and `bold` are the markup
    of code and bold text."""
    if entry.status == "served":
        return "served"
    instead = f"; use {code}{entry.use}{code}" if entry.use else ""
    return f"{bold}deprecated{bold}, served until {entry.until}{instead}"


def actionlint(entries: Catalogue) -> str:
    """Return a configuration for actionlint (`.github/actionlint.yaml` of a consumer's repository) with all labels, so
    that it reports only unknown labels. Deprecated labels are included: they are still served."""
    labels = sorted({label for each in entries.labels for label in (each.label, *each.additional_labels)})
    text: str = yaml.safe_dump({"self-hosted-runner": {"labels": labels}}, sort_keys=False)
    return f"# Generated by gpufleet labels --format actionlint\n{text}"
